# SPDX-License-Identifier: Apache-2.0
"""The backend's code generator: a tensor module to C sources, and to a shared library of them."""

from __future__ import annotations

from intarsia.plugin.backend import Target
from intarsia_ir.tir.module import TensorModule
from intarsia_loops.codegen.c_interface import Interface
from intarsia_runtime.artifact.unit import SHARED_LIBRARY, SHARED_LIBRARY_FORMAT, CompiledUnit

from .entry import print_entry
from .package import SOURCES_ONLY, package
from .sources import new_functions, print_sources
from .target import COptions
from .toolchain import compile_shared, compiler_version, needed_features, vector_type_bytes


def tir_codegen(module: TensorModule, target: Target[COptions]) -> CompiledUnit:
    """Write all kernels of ``module`` and its call plan as C; compile them for this machine.

    Raises:
        ToolchainError: The C compiler is missing or fails.
        UnsupportedError: A kernel uses an operation that C has not.
    """
    options = target.options
    if module.context.freestanding:
        return package(module, options)
    files = {name: text.encode() for name, text in c_sources(module, options).items()}
    if options.sources_only:
        return CompiledUnit(name=module.name, loader=SOURCES_ONLY, files=files)
    library = compile_shared(files, "model_entry.c", options)
    return CompiledUnit(
        name=module.name,
        loader=SHARED_LIBRARY,
        format=SHARED_LIBRARY_FORMAT,
        files=files | {"lib.so": library},
        cpu_features=needed_features(options),
        versions={"cc": compiler_version(options.cc)},
    )


def c_sources(module: TensorModule, options: COptions) -> dict[str, str]:
    """Return the sources by file name: ``model.h``, ``model.c`` and ``model_entry.c``.

    ``model_entry.c`` includes ``model.c`` and adds the functions that the runtime loads; a program
    of one's own leaves it out.
    """
    interface = Interface(module.plan, options.prefix or "model")
    functions = new_functions(module, vector_type_bytes(options))
    entry = print_entry(module, interface, functions)
    return {
        "model.h": interface.header(),
        "model.c": print_sources(module, interface, "model.h", functions=functions),
        "model_entry.c": entry,
    }
