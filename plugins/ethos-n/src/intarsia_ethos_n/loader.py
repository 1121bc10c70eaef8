# SPDX-License-Identifier: Apache-2.0
"""The runtime half: the simulation of a region, in NumPy. Imports no compiler.

A compiled network in the artifact is for the driver of the device, which this plugin does not call.
"""

from __future__ import annotations

from intarsia_runtime.plugin import (
    HostedCall,
    LoadRequest,
    no_device,
    reads_formats,
    simulated_call,
)

from .execute import execute
from .network import FILE, SCHEMA, WEIGHTS_FILE, parse_network, parse_weights


@reads_formats(SCHEMA)
def load(request: LoadRequest) -> HostedCall:
    """Refuse a region that was compiled for the device.

    Raises:
        WorkerLost: Always: there is no driver of an Ethos-N here.
    """
    driver = "give compiled.bin of its unit to Arm's driver on the device"
    raise no_device(request, "an Ethos-N", instead=driver)


@reads_formats(SCHEMA)
def simulate(request: LoadRequest) -> HostedCall:
    """Return a function that fills the outputs with the reference result.

    Raises:
        ArtifactError: The unit is damaged, or does not fit the request.
    """
    with request.interpreting(FILE):
        network = parse_network(request.file(FILE))
        constants = parse_weights(network, request.file(WEIGHTS_FILE))
    shapes = [border.shape for border in (*network.inputs, *network.outputs)]
    return simulated_call(
        request, shapes, lambda arrays: execute(network, constants, arrays), file=FILE
    )
