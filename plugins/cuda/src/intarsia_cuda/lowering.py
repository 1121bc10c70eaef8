# SPDX-License-Identifier: Apache-2.0
"""The loop compiler with the schedules of this backend."""

from __future__ import annotations

from functools import partial

from intarsia_ir.tir.func import PrimFunc
from intarsia_loops.gpu.device_plan import lower_for_device
from intarsia_loops.gpu.stages import device_loops
from intarsia_loops.targets import LoopTarget
from intarsia_loops.tensors import Stages

from .schedules.table import SCHEDULES
from .spelling import grid_traits
from .target import CudaOptions


def _loops(name: str, stages: Stages, target: LoopTarget[CudaOptions]) -> PrimFunc:
    return device_loops(name, stages, grid_traits(target.options))


lower_function = partial(lower_for_device, schedules=SCHEDULES, loops=_loops)
"""Lowers a graph function; see :func:`intarsia_loops.lower.lower` for arguments and errors."""
