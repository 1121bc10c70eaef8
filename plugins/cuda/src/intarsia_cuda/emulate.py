# SPDX-License-Identifier: Apache-2.0
"""The same kernels as a shared library for this machine's CPU, to test them without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from intarsia_loops.codegen.external import run_compiler
from intarsia_runtime.artifact.abandoned import temporary_folder

from .source import HEADER, SOURCE, emulation_header

FLAGS = (
    *("-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno"),
    *("-fno-strict-aliasing", "-w", "-Wl,--build-id=none", "-Wl,-z,noexecstack"),
)


def compile_emulated(
    text: str,
    kernels: Sequence[str],
    cxx: str = "g++",
    *,
    flags: Sequence[str] = (),
    lineinfo: bool = False,
) -> bytes:
    """Compile a source against ``include/emulate.h``; equal bytes for equal input.

    Args:
        text: The kernels, as NVRTC gets them.
        kernels: Names of the ``__global__`` functions; each is exported as ``emulated_<name>``.
        cxx: C++ compiler.
        flags: More flags for it, behind its own.
        lineinfo: Whether the library says which line of ``text`` an instruction is of.

    Raises:
        ToolchainError: The compiler is missing, fails or takes too long.
    """
    exports = "".join(f"IX_EXPORT({name})\n" for name in kernels)
    with temporary_folder("cuda") as folder:
        (Path(folder) / HEADER).write_text(emulation_header(), encoding="utf-8")
        named = f'#line 1 "{SOURCE}"\n{text}' if lineinfo else text
        (Path(folder) / "kernels.cpp").write_text(f"{named}\n{exports}", encoding="utf-8")
        lines = ("-g1", f"-fdebug-prefix-map={folder}=.") if lineinfo else ()
        run_compiler(
            [cxx, *FLAGS, *lines, *flags, "-o", "emulated.so", "kernels.cpp", "-lm"],
            folder,
            language="C++",
            need=", and -emulate needs one",
            hint="install g++ or clang++, or name another with -cxx=PATH",
        )
        return (Path(folder) / "emulated.so").read_bytes()
