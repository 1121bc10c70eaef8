# SPDX-License-Identifier: Apache-2.0
"""The backend's code generator: a tensor module to C sources, and to a shared library of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from intarsia.plugin.backend import Target
from intarsia_ir.tir.module import TensorModule
from intarsia_loops.codegen.c_functions import Functions
from intarsia_loops.codegen.c_interface import Interface
from intarsia_loops.codegen.c_source import kernel_name
from intarsia_runtime.artifact.unit import SHARED_LIBRARY, SHARED_LIBRARY_FORMAT, CompiledUnit

from .entry import print_entry
from .package import SOURCES_ONLY, package
from .procedures import called, print_procedures, shared_procedures
from .sources import KernelText, new_functions, print_kernels, print_run, source_text
from .spelling import KERNEL, SHARED_KERNEL
from .target import COptions
from .toolchain import Compilation, compiler_version, needed_features, vector_type_bytes

PART_LENGTH = 100_000
"""Characters of kernels that one compiler takes: about a second's work for GCC 12."""


def tir_codegen(module: TensorModule, target: Target[COptions]) -> CompiledUnit:
    """Write all kernels of ``module`` and its call plan as C; compile them for this machine.

    Raises:
        ToolchainError: The C compiler is missing or fails.
        UnsupportedError: A kernel uses an operation that C has not.
    """
    options = target.options
    if module.context.freestanding:
        return package(module, options)
    if options.sources_only:
        files = _encoded(c_sources(module, options))
        return CompiledUnit(name=module.name, loader=SOURCES_ONLY, files=files)
    with Compilation(options) as compilation:
        files = _encoded(c_sources(module, options, compilation))
        library = compilation.link()
    return CompiledUnit(
        name=module.name,
        loader=SHARED_LIBRARY,
        format=SHARED_LIBRARY_FORMAT,
        files=files | {"lib.so": library},
        cpu_features=needed_features(options),
        versions={"cc": compiler_version(options.cc)},
    )


def c_sources(
    module: TensorModule, options: COptions, compilation: Compilation | None = None
) -> dict[str, str]:
    """Return the sources by file name: ``model.h``, ``model.c`` and ``model_entry.c``.

    ``model_entry.c`` includes ``model.c`` and adds the functions that the runtime loads; a program
    of one's own leaves it out.

    Args:
        module: What the backend compiles.
        options: Compiler and flags.
        compilation: Compiles the same functions, while others are printed.

    Raises:
        UnsupportedError: A kernel uses an operation that C has not.
    """
    interface = Interface(module.plan, options.prefix or "model")
    functions = new_functions(module, vector_type_bytes(options))
    files = {"model.h": interface.header()}
    entry = print_entry(module, interface, functions)
    parts = _Parts(functions, compilation)
    if compilation is not None:
        compilation.write("model.h", files["model.h"])
    for kernel in print_kernels(module, functions):
        parts.add(kernel)
    run = print_run(module.plan, interface, functions)
    whole = parts.whole(run)
    if compilation is not None:
        compilation.write("model.c", parts.part(run) if parts.number else whole)
        compilation.compile("model_entry.c", entry)
    return {**files, "model.c": whole, "model_entry.c": entry}


def _encoded(files: Mapping[str, str]) -> dict[str, bytes]:
    return {name: text.encode() for name, text in files.items()}


class _Parts(Struct):
    """Kernels, compiled in parts of some length; too few for a part are left to ``model.c``."""

    functions: Functions
    compilation: Compilation | None
    kernels: list[KernelText] = field(default_factory=list[KernelText])
    number: int = 0
    _length: int = 0
    _shared: set[str] = field(default_factory=set[str])
    _own: list[KernelText] = field(default_factory=list[KernelText])
    _heads: list[str] = field(default_factory=list[str])
    _names: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, kernel: KernelText) -> None:
        self.kernels.append(kernel)
        name, same = kernel_name(kernel.kernel), _without_name(kernel)
        if same in self._names:  # a compiler finds those of one source alone
            self._heads.append(f"#define {name} {self._names[same]}\n")
            return
        self._names[same] = name
        self._own.append(kernel)
        self._heads.append(kernel.declaration)
        self._length += len(kernel.text)
        if self._length >= PART_LENGTH:
            self._compile(self.part())
            self._own, self._length = [], 0

    def whole(self, run: Iterable[str]) -> str:
        """Return the source of all kernels, and of what runs the model."""
        procedures = print_procedures(called(kernel for kernel, _ in self.kernels))
        texts = (text for _, text in self.kernels)
        return source_text(
            "model.h", KERNEL, (*procedures, *self.functions.texts.values(), *texts, *run)
        )

    def part(self, run: Iterable[str] = ()) -> str:
        """Return the source of the kernels behind the last part, and of what runs the model."""
        names = called(kernel for kernel, _ in self._own)
        if shared := shared_procedures(names - self._shared):
            self._shared.update(shared)
            self._compile(source_text("model.h", SHARED_KERNEL, print_procedures(shared)))
        procedures = print_procedures(names, declared=True)
        texts = (text for _, text in self._own)
        return source_text(
            "model.h",
            SHARED_KERNEL,
            (*procedures, *self.functions.texts.values(), *self._heads, *texts, *run),
        )

    def _compile(self, source: str) -> None:
        self.number += 1
        if self.compilation is not None:
            self.compilation.compile(f"kernels_{self.number}.c", source)


def _without_name(kernel: KernelText) -> str:
    """Return what is equal for kernels that differ in their names alone."""
    _, rest = kernel.text.split("(", 1)
    return " ".join(rest.split())
