# SPDX-License-Identifier: Apache-2.0
"""The loop compiler with the schedules of this backend."""

from __future__ import annotations

from functools import partial

from intarsia_loops.lower import lower

from .schedules.stages import device_loops
from .schedules.table import SCHEDULES

lower_function = partial(lower, schedules=SCHEDULES, loops=device_loops, on_device=True)
"""Lowers a graph function; see :func:`intarsia_loops.lower.lower` for arguments and errors."""
