# SPDX-License-Identifier: Apache-2.0
"""The runtime half: the simulation of a region, by exact arithmetic in NumPy. Imports no compiler.

The command stream in the artifact is for the driver of the device, which this plugin does not call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from intarsia.errors import ArtifactError, WorkerLost
from intarsia.runtime.loading import LoadRequest, reads_formats

from .tosa.execute import execute
from .tosa.program import FILE, SCHEMA, Border, Program, parse_program

if TYPE_CHECKING:
    import numpy as np


@reads_formats(SCHEMA)
def load(request: LoadRequest) -> Callable[..., None]:
    """Refuse a region that was compiled for the device.

    Raises:
        WorkerLost: Always: there is no driver of an Ethos-U here.
    """
    raise WorkerLost(
        f"region '{request.name}' is compiled for an Ethos-U, and nothing here drives one",
        hint="use runtime c, whose sources call Arm's driver on the device; to compute regions by"
        " NumPy on this machine, compile with -simulate",
    )


@reads_formats(SCHEMA)
def simulate(request: LoadRequest) -> Callable[..., None]:
    """Return a function that fills the outputs with the reference result.

    Raises:
        ArtifactError: The unit is damaged, or does not fit the request.
    """
    with request.interpreting(FILE):
        program = parse_program(request.file(FILE))
        _check_signature(program, request)
        for name in program.constants.values():
            if name not in request.constants:
                raise request.damaged(f"it reads a weight '{name}', which is not among its own")
    constants = dict(request.constants)
    count = len(request.inputs)

    def reference_result(*arrays: np.ndarray) -> None:
        with request.interpreting(FILE):
            results = execute(program, constants, arrays[:count])
            for output, result in zip(arrays[count:], results, strict=True):
                output[...] = result

    return reference_result


def _check_signature(program: Program, request: LoadRequest) -> None:
    ours = [_model_shape(program, border) for border in (*program.inputs, *program.outputs)]
    theirs = [tuple(spec.shape) for spec in (*request.inputs, *request.outputs)]
    if ours != theirs:
        raise ArtifactError(
            f"region '{request.name}' was compiled for {ours} and is called with {theirs}",
            where=request.name,
        )


def _model_shape(program: Program, border: Border) -> tuple[int, ...]:
    shape = program.tensors[border.name].shape
    if not border.axes:
        return shape
    return tuple(shape[border.axes.index(axis)] for axis in range(len(shape)))
