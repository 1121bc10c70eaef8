# SPDX-License-Identifier: Apache-2.0
"""The runtime half: turns a region's program into a table of native calls. Imports no compiler."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from intarsia_runtime.plugin import (
    ArtifactError,
    LoadRequest,
    NativeCall,
    ToolchainError,
    UnsupportedError,
    reads_formats,
)

from .open_region import OpenRegion
from .program import FILE, SCHEMAS, PrimitiveProgram, parse_program
from .region import LoadedPrimitives
from .sound import check_nodes


@reads_formats(*SCHEMAS)
def load(request: LoadRequest) -> NativeCall | Callable[..., None]:
    """Build the primitives of a region.

    The result is native if the artifact brings ``intarsia_run_steps``, else a Python function.

    Raises:
        ArtifactError: The unit is damaged, does not fit the request, needs a kernel that the
            library does not have on this machine, or names a library that is not here.
        PluginError: There is no usable library.
    """
    with request.interpreting(FILE):
        program = parse_program(request.file(FILE))
        check_nodes(program)
        if program.open is not None:
            return _load_open(program, request)
        request.check_signature(
            *(
                [(program.dtypes[v], program.shapes[v]) for v in values]
                for values in (program.inputs, program.outputs)
            )
        )
        try:
            region = LoadedPrimitives(program, request)
        except ToolchainError as error:
            raise request.damaged(f"oneDNN does not build it: {error.message}") from error
        except UnsupportedError as error:
            raise _not_for_here(error) from error
    if request.run_steps == 0:
        return region.run
    return NativeCall(
        request.run_steps, ctypes.addressof(region.table), region, region.describe_failure
    )


def _load_open(program: PrimitiveProgram, request: LoadRequest) -> NativeCall:
    """Make ready a region that builds its primitives when it meets new sizes."""
    region = OpenRegion(program, request)
    request.check_signature(region.signature(program.inputs), region.signature(program.outputs))
    if request.sizes != region.variables:
        raise request.damaged(
            f"it takes the sizes {list(region.variables)} and is called with {list(request.sizes)}"
        )
    if request.run_open_steps == 0:
        raise ArtifactError(
            f"region '{request.name}' has open sizes, which the code of the model does not pass on",
            hint="compile the model again, or give every input a shape",
        )
    tables = ctypes.addressof(region.tables)
    return NativeCall(request.run_open_steps, tables, region, region.describe_failure)


def _not_for_here(error: UnsupportedError) -> ArtifactError:
    """Return the error for a kernel that the artifact needs and the library here does not have."""
    return ArtifactError(
        error.message,
        where=error.where,
        hint="compile the model again on this machine, or install a newer libdnnl.so.3",
    )
