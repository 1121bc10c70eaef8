# SPDX-License-Identifier: Apache-2.0
"""The same kernels as a shared library for this machine's CPU, to test them without a GPU."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from intarsia.errors import ToolchainError

from .source import HEADER, emulation_header

TIMEOUT_SECONDS = 600
MESSAGE_LINES = 8

FLAGS = (
    *("-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno"),
    *("-fno-strict-aliasing", "-w", "-Wl,--build-id=none", "-Wl,-z,noexecstack"),
)


def compile_emulated(
    text: str, kernels: Sequence[str], cxx: str = "g++", *, flags: Sequence[str] = ()
) -> bytes:
    """Compile a source against ``include/emulate.h``; equal bytes for equal input.

    Args:
        text: The kernels, as NVRTC gets them.
        kernels: Names of the ``__global__`` functions; each is exported as ``emulated_<name>``.
        cxx: C++ compiler.
        flags: More flags for it, behind its own.

    Raises:
        ToolchainError: The compiler is missing, fails or takes too long.
    """
    exports = "".join(f"IX_EXPORT({name})\n" for name in kernels)
    with tempfile.TemporaryDirectory(prefix="intarsia-cuda-") as folder:
        (Path(folder) / HEADER).write_text(emulation_header(), encoding="utf-8")
        (Path(folder) / "kernels.cpp").write_text(f"{text}\n{exports}", encoding="utf-8")
        _run([cxx, *FLAGS, *flags, "-o", "emulated.so", "kernels.cpp", "-lm"], folder)
        return (Path(folder) / "emulated.so").read_bytes()


def _run(argv: Sequence[str], folder: str) -> None:
    compiler = argv[0]
    try:
        done = subprocess.run(
            argv,
            cwd=folder,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
            text=True,
            errors="replace",
        )
    except FileNotFoundError:
        raise ToolchainError(
            f"the C++ compiler '{compiler}' is not installed, and -emulate needs one",
            hint="install g++ or clang++, or name another with -cxx=PATH",
        ) from None
    except (OSError, subprocess.TimeoutExpired) as cause:
        raise ToolchainError(f"the C++ compiler '{compiler}' did not run: {cause}") from cause
    if done.returncode != 0:
        lines = "\n".join((done.stderr.strip() or done.stdout.strip()).splitlines()[:MESSAGE_LINES])
        raise ToolchainError(f"the C++ compiler '{compiler}' failed ({done.returncode}):\n{lines}")
