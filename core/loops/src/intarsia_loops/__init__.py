# SPDX-License-Identifier: Apache-2.0
"""The loop compiler that backends share: fusion, schedules, memory plan, text of the C family."""
