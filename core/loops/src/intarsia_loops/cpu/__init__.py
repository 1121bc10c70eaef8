# SPDX-License-Identifier: Apache-2.0
"""Schedules for CPUs, for any backend: channels last, prepacked weights, register tiles."""
