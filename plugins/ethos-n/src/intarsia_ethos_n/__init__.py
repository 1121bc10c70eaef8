# SPDX-License-Identifier: Apache-2.0
"""Arm Ethos-N78 as an accelerator of Intarsia."""
