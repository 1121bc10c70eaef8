# SPDX-License-Identifier: Apache-2.0
"""From a region to TOSA, and from TOSA to the unit in the artifact."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from intarsia.plugin.accelerator import CompiledUnit, Region

from .draft import TosaDraft
from .glue import print_glue, print_header
from .support import TABLE
from .target import EthosUOptions
from .tosa.flatbuffer import to_flatbuffer
from .tosa.program import FILE, SCHEMA, TosaProgram, print_program
from .vela import VelaResult, compile_tosa

LOADER = "ethos-u"
SIMULATOR = "ethos-u-simulator"
STREAM_FILE = "command_stream.bin"
WEIGHTS_FILE = "weights.bin"
ESTIMATE_FILE = "estimate.json"
TOSA_FILE = "region.tosa"


def emit(region: Region) -> tuple[TosaProgram, dict[str, np.ndarray]]:
    """Return a region as a TOSA program, and its constants.

    Raises:
        PluginError: The region holds a call that no row of the support table takes.
    """
    draft = TosaDraft(region.name)
    function = region.function
    inputs = [draft.add_input(param) for param in function.params]
    for row, match in TABLE.matches(region):
        draft.bind(match.root, row.lower(draft, match))
    return draft.complete(inputs, [draft.output(value) for value in function.outputs])


def compile_region(region: Region, options: EthosUOptions) -> CompiledUnit:
    """Compile a region with Vela.

    Raises:
        PluginError: The region holds a call that no row of the support table takes.
        ToolchainError: There is no Vela, or it refuses the region.
        ResourceError: Vela takes too long.
    """
    program, constants = emit(region)
    tosa = to_flatbuffer(program, constants)
    result = compile_tosa(region.name, tosa, options)
    files = {
        FILE: print_program(program),
        STREAM_FILE: result.command_stream,
        WEIGHTS_FILE: result.weights,
        ESTIMATE_FILE: _estimate(program, result, options),
        f"{region.name}.c": print_glue(region.name, program, result).encode(),
        f"{region.name}.h": print_header(region.name, result).encode(),
    }
    if options.keep_tosa:
        files[TOSA_FILE] = tosa
    return CompiledUnit(
        name=region.name,
        loader=SIMULATOR if options.simulate else LOADER,
        format=SCHEMA,
        files=files,
        constants=constants if options.simulate else {},  # the device has Vela's encoding of them
        versions={"vela": result.version},
        sources=(f"{region.name}.c", f"{region.name}.h"),
        weight_bytes=len(result.weights) + len(result.command_stream),
        scratch_bytes=result.arena_bytes + result.fast_bytes,
    )


def _estimate(program: TosaProgram, result: VelaResult, options: EthosUOptions) -> bytes:
    """Return what is known of the compiled region without running it."""
    system, mode = options.system

    def places(which: str) -> list[Mapping[str, object]]:
        found = result.inputs if which == "inputs" else result.outputs
        borders = program.inputs if which == "inputs" else program.outputs
        return [
            {"offset": place.offset, "bytes": place.size, "shape": program.tensors[b.name].shape}
            for place, b in zip(found, borders, strict=True)
        ]

    body = {
        "schema": 1,
        "estimated-by": f"vela {result.version}",
        "accelerator-config": options.accelerator_config,
        "system-config": system,
        "memory-mode": mode,
        "command-stream-bytes": len(result.command_stream),
        "weight-bytes": len(result.weights),
        "arena-bytes": result.arena_bytes,
        "fast-bytes": result.fast_bytes,
        "inputs": places("inputs"),
        "outputs": places("outputs"),
        "estimates": dict(result.estimates),
    }
    return (json.dumps(body, indent=1) + "\n").encode()
