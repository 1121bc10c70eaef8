# SPDX-License-Identifier: Apache-2.0
"""The backend's code generator: a tensor module to C sources, and to a shared library of them."""

from __future__ import annotations

from intarsia.artifact.unit import SHARED_LIBRARY, CompiledUnit
from intarsia.codegen.c_functions import Functions
from intarsia.codegen.c_source import expand_intrinsics, print_kernel
from intarsia.lower.kernels import TensorModule
from intarsia.target.target import Target
from intarsia.tir.passes.simplify import simplify

from .entry import print_entry
from .interface import Interface
from .intrinsics import RULES
from .spelling import C99
from .target import COptions
from .toolchain import compile_shared, compiler_version, needed_features

SOURCES_ONLY = "c-sources"
"""Loader of a unit that no process loads: its sources go into somebody's program."""


def tir_codegen(module: TensorModule, target: Target) -> CompiledUnit:
    """Write all kernels of ``module`` and its call plan as C; compile them for this machine.

    Raises:
        ToolchainError: The C compiler is missing or fails.
        UnsupportedError: A kernel uses an operation that C has not.
    """
    options: COptions = target.options
    files = {name: text.encode() for name, text in c_sources(module, options).items()}
    if options.sources_only:
        return CompiledUnit(name=module.name, loader=SOURCES_ONLY, files=files)
    library = compile_shared(files, "model_entry.c", options)
    return CompiledUnit(
        name=module.name,
        loader=SHARED_LIBRARY,
        files=files | {"lib.so": library},
        cpu_features=needed_features(options),
        versions={"cc": compiler_version(options.cc)},
    )


def c_sources(module: TensorModule, options: COptions) -> dict[str, str]:
    """Return the sources by file name: ``model.h``, ``model.c`` and ``model_entry.c``.

    ``model_entry.c`` includes ``model.c`` and adds the functions that the runtime loads; a program
    of one's own leaves it out.
    """
    functions = Functions(C99)
    kernels = [
        print_kernel(expand_intrinsics(simplify(function), RULES), functions)
        for function in module.functions
    ]
    interface = Interface(module.plan, options.prefix)
    parts = (*functions.texts.values(), *kernels, interface.run())
    head = '#include "model.h"\n\n#include <math.h>\n'
    return {
        "model.h": interface.header(),
        "model.c": "\n".join([head, *(part for part in parts if part)]),
        "model_entry.c": print_entry(module, interface),
    }
