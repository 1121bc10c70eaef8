# SPDX-License-Identifier: Apache-2.0
"""The runtime half: the simulation of a region, by exact arithmetic in NumPy. Imports no compiler.

The command stream in the artifact is for the driver of the device, which this plugin does not call.
"""

from __future__ import annotations

from intarsia_runtime.plugin import (
    HostedCall,
    LoadRequest,
    no_device,
    reads_formats,
    simulated_call,
)

from .tosa.execute import execute
from .tosa.program import FILE, SCHEMA, TosaBorder, TosaProgram, parse_program


@reads_formats(SCHEMA)
def load(request: LoadRequest) -> HostedCall:
    """Refuse a region that was compiled for the device.

    Raises:
        WorkerLost: Always: there is no driver of an Ethos-U here.
    """
    driver = "use runtime c, whose sources call Arm's driver on the device"
    raise no_device(request, "an Ethos-U", instead=driver)


@reads_formats(SCHEMA)
def simulate(request: LoadRequest) -> HostedCall:
    """Return a function that fills the outputs with the reference result.

    Raises:
        ArtifactError: The unit is damaged, or does not fit the request.
    """
    with request.interpreting(FILE):
        program = parse_program(request.file(FILE))
        borders = (*program.inputs, *program.outputs)
        shapes = [_model_shape(program, border) for border in borders]
        for name in program.constants.values():
            if name not in request.constants:
                raise request.damaged(f"it reads a weight '{name}', which is not among its own")
    constants = dict(request.constants)
    return simulated_call(
        request, shapes, lambda arrays: execute(program, constants, arrays), file=FILE
    )


def _model_shape(program: TosaProgram, border: TosaBorder) -> tuple[int, ...]:
    shape = program.tensors[border.name].shape
    if not border.axes:
        return shape
    return tuple(shape[border.axes.index(axis)] for axis in range(len(shape)))
