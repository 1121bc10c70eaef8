# SPDX-License-Identifier: Apache-2.0
"""The loop compiler with the schedules of this backend."""

from __future__ import annotations

from functools import partial

from intarsia_loops.lower import lower

from .schedules import SCHEDULES, bound_stack

lower_function = partial(
    lower, schedules=SCHEDULES, bound_stack=bound_stack, forwards=True, merges_sized=False
)
"""Lowers a graph function; see :func:`intarsia_loops.lower.lower` for arguments and errors."""
