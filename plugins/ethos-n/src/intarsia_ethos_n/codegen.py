# SPDX-License-Identifier: Apache-2.0
"""From a region to a network, and to what the Support Library makes of it."""

from __future__ import annotations

import json

import numpy as np

from intarsia.plugin.accelerator import (
    CompiledUnit,
    Expr,
    Region,
    Support,
    ToolchainError,
    calls,
    sizes,
    unknown_call,
)

from .describe import Sketch, propagate
from .library import find_root, open_library
from .network import (
    FILE,
    SCHEMA,
    WEIGHTS_FILE,
    Network,
    NetworkBorder,
    print_network,
    print_weights,
)
from .support import TABLE
from .target import EthosNOptions

LOADER = "ethos-n"
SIMULATOR = "ethos-n-simulator"
OPTIONS_FILE = "options.json"
COMPILED_FILE = "compiled.bin"
BUFFERS_FILE = "buffers.json"
PERFORMANCE_FILE = "performance.json"


def emit(region: Region) -> tuple[Network, dict[str, np.ndarray]]:
    """Return a region as a network, and the content of its constants.

    Raises:
        PluginError: The region holds a call that no row of the support table takes.
    """
    sketch = Sketch(known=propagate(tuple(calls(region.function))))
    inputs = tuple(
        _border(param, sketch.operand(param, sketch.known.get(param)))
        for param in region.function.params
    )
    for row, match in TABLE.matches(region):
        described = row.lower(sketch, match)
        if isinstance(described, Support):
            raise unknown_call(region, match.root)
        sketch.names[match.root] = described
    outputs = tuple(_border(value, sketch.operand(value)) for value in region.function.outputs)
    network = Network(
        dict(sketch.tensors), tuple(sketch.arrays), tuple(sketch.operations), inputs, outputs
    )
    return network, sketch.arrays


def _border(expr: Expr, name: str) -> NetworkBorder:
    return NetworkBorder(name, sizes(expr), len(sizes(expr)) == 4)


def compile_region(region: Region, options: EthosNOptions) -> CompiledUnit:
    """Compile a region's network, and estimate it with ``-performance``.

    With ``-simulate`` and without a Support Library, the network is written and not compiled.

    Raises:
        PluginError: The region holds a call that no row of the support table takes.
        ToolchainError: There is no library, or it cannot be used, or it refuses the network.
        ResourceError: The library takes too long.
    """
    network, arrays = emit(region)
    files = {
        FILE: print_network(network),
        WEIGHTS_FILE: print_weights(network, arrays),
        OPTIONS_FILE: print_options(options),
    }
    versions: dict[str, str] = {}
    root = find_root(options.ethosn_root)
    if root is None:
        _require_no_library(region.name, options)
    else:
        library = open_library(root)
        versions["ethos-n-support-library"] = library.version
        compiled = library.compile(region.name, files[FILE], files[WEIGHTS_FILE], options)
        files[COMPILED_FILE] = compiled.blob
        files[BUFFERS_FILE] = (json.dumps(compiled.buffers, sort_keys=True) + "\n").encode()
        if options.performance:
            files[PERFORMANCE_FILE] = library.estimate(
                region.name, files[FILE], files[WEIGHTS_FILE], options
            )
    loader = SIMULATOR if options.simulate else LOADER
    return CompiledUnit(
        name=region.name, loader=loader, format=SCHEMA, files=files, versions=versions
    )


def _require_no_library(region: str, options: EthosNOptions) -> None:
    """Refuse what needs a Support Library.

    Raises:
        ToolchainError: The region is for the device, or its performance is asked for.
    """
    if options.simulate and not options.performance:
        return
    problem = "-performance asks for an estimate of" if options.performance else "cannot compile"
    raise ToolchainError(
        f"{problem} region '{region}' without Arm's Ethos-N Support Library",
        hint="name its folder with -ethosn-root or ETHOSN_ROOT; -simulate alone computes regions by"
        " NumPy on this machine, and 'intarsia explain' needs no library",
    )


def print_options(options: EthosNOptions) -> bytes:
    """Return what the Support Library is to be told, whoever calls it and when, as JSON."""
    value = {
        "variant": options.variant,
        "sram": options.memory.sram,
        "switches": list(options.switches()),
        "performance": options.performance,
    }
    return (json.dumps(value, indent=1) + "\n").encode()
