# SPDX-License-Identifier: Apache-2.0
"""The runtime half: the simulation of a region, in NumPy. Imports no compiler.

A compiled network in the artifact is for the driver of the device, which this plugin does not call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from intarsia.errors import ArtifactError, WorkerLost
from intarsia.runtime.loading import LoadRequest, reads_formats

from .execute import execute
from .network import FILE, SCHEMA, WEIGHTS_FILE, parse_network, parse_weights

if TYPE_CHECKING:
    import numpy as np


@reads_formats(SCHEMA)
def load(request: LoadRequest) -> Callable[..., None]:
    """Refuse a region that was compiled for the device.

    Raises:
        WorkerLost: Always: there is no driver of an Ethos-N here.
    """
    raise WorkerLost(
        f"region '{request.name}' is compiled for an Ethos-N, and nothing here drives one",
        hint="give compiled.bin of its unit to Arm's driver on the device; to compute regions by"
        " NumPy on this machine, compile with -simulate",
    )


@reads_formats(SCHEMA)
def simulate(request: LoadRequest) -> Callable[..., None]:
    """Return a function that fills the outputs with the reference result.

    Raises:
        ArtifactError: The unit is damaged, or does not fit the request.
    """
    with request.interpreting(FILE):
        network = parse_network(request.file(FILE))
        constants = parse_weights(network, request.file(WEIGHTS_FILE))
    ours = [border.shape for border in (*network.inputs, *network.outputs)]
    theirs = [tuple(spec.shape) for spec in (*request.inputs, *request.outputs)]
    if ours != theirs:
        raise ArtifactError(
            f"region '{request.name}' was compiled for {ours} and is called with {theirs}",
            where=request.name,
        )
    count = len(request.inputs)

    def reference_result(*arrays: np.ndarray) -> None:
        with request.interpreting(FILE):
            results = execute(network, constants, arrays[:count])
            for output, result in zip(arrays[count:], results, strict=True):
                output[...] = result

    return reference_result
