# SPDX-License-Identifier: Apache-2.0
"""C sources to a shared library, with whichever compiler the user names."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from intarsia.plugin import ToolchainError
from intarsia_loops.codegen.external import run_compiler
from intarsia_runtime.artifact.abandoned import temporary_folder
from intarsia_runtime.closing import Closing
from intarsia_runtime.threads import available_threads

from .features import aarch64_features, named_features, read_macros
from .target import COptions, this_machine

FLAGS = (
    "-std=c99",
    "-fPIC",
    # Nobody reads errno or the floating-point flags; a product and its sum may be rounded once.
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
)
"""Flags of every compilation, in front of the user's."""

GCC_FLAGS = (
    "-ftree-vectorize",
    "-fvect-cost-model=dynamic",
    "-fpeel-loops",
    "-funswitch-loops",
    "-fsplit-loops",
    "-fsplit-paths",
)
"""What level 2 has beside GCC's own: those of its level 3 that kernels gain by.

All of level 3 takes GCC 12 2 to 3 times as long. Its code takes up to twice as long without
``-march`` (it writes loops out before it looks for vectors), and 0.92 to 1.15 of the time of this
with AVX-512 (eight models of open sizes, Zen 4).
"""

MOST_COMPILERS = 8
"""Compilers that run at once: sources come no faster."""

ZMM_BYTES = 64
"""Bytes of a register of AVX-512."""


class Compilation(Closing):
    """A shared library in the making: sources are compiled side by side, as they come.

    The library is the same bytes for the same sources, on however many processors.

    Args:
        options: Compiler and flags.
    """

    def __init__(self, options: COptions) -> None:
        self._options = options
        self._opened = ExitStack()
        self._folder = Path(self._opened.enter_context(temporary_folder("cc")))
        self._compilers = ThreadPoolExecutor(min(available_threads(), MOST_COMPILERS))
        self._opened.callback(self._compilers.shutdown, cancel_futures=True)
        self._objects: dict[str, Future[str]] = {}

    def close(self) -> None:
        """Wait for the compilers that run, and remove the files."""
        self._opened.close()

    def write(self, name: str, text: str) -> None:
        """Add a file that sources include."""
        (self._folder / name).write_text(text, encoding="utf-8", newline="")

    def compile(self, name: str, text: str) -> None:
        """Add a source, and have it compiled."""
        self.write(name, text)
        command = [*_command(self._options), "-c", "-o", f"{name}.o", name]
        self._objects[f"{name}.o"] = self._compilers.submit(_run, command, self._folder)

    def link(self) -> bytes:
        """Return the library of all sources.

        Raises:
            ToolchainError: The compiler is missing, fails or takes too long; of several sources
                that it refuses, the one added first is told.
        """
        for compiled in self._objects.values():
            compiled.result()
        link = () if sys.platform == "darwin" else ("-Wl,--build-id=none", "-Wl,-z,noexecstack")
        shared = ("-shared", *link, "-o", "lib.so", *self._objects, "-lm")
        _run([*_command(self._options), *shared], self._folder)
        target = self._folder / "lib.so"
        if not target.exists():
            raise ToolchainError(f"the compiler {self._options.cc} wrote no library")
        return target.read_bytes()


def _command(options: COptions) -> tuple[str, ...]:
    """Return the compiler with the flags that compiling and linking have in common."""
    level = (f"-O{options.opt_level}", *(GCC_FLAGS if _is_tuned(options) else ()))
    return (options.cc, *FLAGS, *level, *processor_flags(options), *options.cflags)


def _is_tuned(options: COptions) -> bool:
    """Whether GCC's loops are optimized by choice; other compilers do not know its flags."""
    macros = _macros(options)
    return options.opt_level == 2 and "GNUC" in macros and "clang" not in macros


def processor_flags(options: COptions) -> tuple[str, ...]:
    """Return what makes a compiler of this machine use all that the named processor has."""
    flag = "-march" if this_machine() == "x86_64" else "-mcpu"
    named = (("-march", options.march), (flag, options.mcpu))
    return tuple(f"{name}={value}" for name, value in named if value)


def vector_bytes(options: COptions) -> int:
    """Return the width of the vectors that loops are made for; 32 if nobody knows better."""
    return ZMM_BYTES if "avx512f" in _features(options) else 32


def vector_type_bytes(options: COptions) -> int:
    """Return the width of the registers that vector types of GNU C may fill, from AVX2 on.

    0 leaves vectors to the compiler: in sources that any compiler may read, and where registers are
    narrower than the loops' vectors.
    """
    return vector_bytes(options) if "avx2" in _features(options) else 0


def _features(options: COptions) -> tuple[str, ...]:
    """Return the CPU features that code may use; none in sources for any compiler."""
    if options.sources_only:
        return ()
    try:
        return needed_features(options)
    except ToolchainError:  # compiling will say so
        return ()


@cache
def needed_features(options: COptions) -> tuple[str, ...]:
    """Return the CPU features that the flags allow code to use, as the Linux kernel names them.

    Raises:
        ToolchainError: The compiler is missing or fails.
    """
    macros = _macros(options)
    if "aarch64" in macros:
        return aarch64_features(macros, _of_nothing(options, "-S", "-o", "-"))
    return named_features(macros)


@cache
def _macros(options: COptions) -> Mapping[str, str]:
    """Return what the compiler defines, by name without the underlines around it."""
    return read_macros(_of_nothing(options, "-dM", "-E"))


def _of_nothing(options: COptions, *flags: str) -> str:
    """Return what the compiler writes of an empty source."""
    with temporary_folder("cc") as folder:
        (Path(folder) / "empty.c").write_bytes(b"")
        command = [options.cc, *processor_flags(options), *options.cflags]
        return _run([*command, *flags, "empty.c"], folder)


def compiler_version(cc: str = "cc") -> str:
    """Return the first line that a compiler says of itself.

    Raises:
        ToolchainError: It is missing or fails.
    """
    lines = _run([cc, "--version"], None).splitlines()
    return lines[0].strip() if lines else "unknown"


def _run(argv: Sequence[str], folder: Path | None) -> str:
    return run_compiler(
        argv,
        folder,
        language="C",
        hint="install gcc or clang, name another with -cc=PATH, or take sources only: "
        "-freestanding",
    )
