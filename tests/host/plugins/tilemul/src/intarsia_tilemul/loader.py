# SPDX-License-Identifier: Apache-2.0
"""The running half: carries out the plan of a region. Imports no compiler."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from intarsia_runtime.artifact.plan import Argument, ArgumentSource, CallPlan, CopyStep, KernelStep
from intarsia_runtime.loading import LoadRequest

TILE = 4
executed = {"tile_zero": 0, "tile_mma": 0}


def _tile(array: np.ndarray, *place: int) -> np.ndarray:
    return array[tuple(slice(start, start + TILE) for start in place)]


def tile_zero(c: tuple[np.ndarray, int, int]) -> None:
    """The instruction ``tile.zero``."""
    executed["tile_zero"] += 1
    _tile(*c)[...] = 0


def tile_mma(
    c: tuple[np.ndarray, int, int], a: tuple[np.ndarray, int, int], b: tuple[np.ndarray, int, int]
) -> None:
    """The instruction ``tile.mma``."""
    executed["tile_mma"] += 1
    _tile(*c)[...] += _tile(*a) @ _tile(*b)


def load(request: LoadRequest) -> Callable[..., None]:
    """Return a function that fills the outputs from the inputs."""
    kernels: dict[str, object] = {"tile_zero": tile_zero, "tile_mma": tile_mma}
    exec(request.files["kernels.py"], kernels)
    plan: CallPlan = request.plan
    workspace = np.empty(plan.workspace_bytes, np.uint8)
    constants = [request.constants[name] for name in plan.constants]

    def run(*arrays: np.ndarray) -> None:
        places = {
            ArgumentSource.INPUT: arrays[: len(plan.inputs)],
            ArgumentSource.OUTPUT: arrays[len(plan.inputs) :],
            ArgumentSource.CONSTANT: constants,
        }

        def array(argument: Argument) -> np.ndarray:
            if argument.place is ArgumentSource.WORKSPACE:
                data = workspace[argument.index : argument.index + argument.bytes]
                return data.view(argument.dtype.value).reshape(argument.shape)
            return places[argument.place][argument.index].reshape(argument.shape)

        for step in plan.steps:
            if isinstance(step, KernelStep):
                kernels[step.function](*map(array, step.args))
            elif isinstance(step, CopyStep):
                array(step.destination)[...] = array(step.source)
        if "TILEMUL_LOG" in os.environ:
            Path(os.environ["TILEMUL_LOG"]).write_text(repr(executed))

    return run
