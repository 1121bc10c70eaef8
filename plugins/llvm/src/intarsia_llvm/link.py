# SPDX-License-Identifier: Apache-2.0
"""Object file to shared library, with whichever linker the machine has."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from intarsia.errors import ToolchainError

from .target import host_triple

TIMEOUT_SECONDS = 120
_FLAGS = ("-shared", "--build-id=none", "-z", "noexecstack", "--hash-style=gnu")


def find_linker(triple: str) -> tuple[str, ...]:
    """Return the command that links for ``triple``, without its arguments.

    Raises:
        ToolchainError: No linker is installed.
    """
    architecture = triple.split("-")[0]
    native = host_triple().split("-")[0] == architecture
    names = ("ld", "ld.lld", "ld.mold") if native else ("ld.lld", f"{architecture}-linux-gnu-ld")
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return (path,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "ld.lld")
    raise ToolchainError(
        f"no linker for {triple} was found: {', '.join(names)}",
        hint="pip install 'intarsia-llvm[linker]', or install binutils or lld",
    )


def link_shared(code: bytes, triple: str, *, linker: Sequence[str] | None = None) -> bytes:
    """Return a shared library made of one object file; equal bytes for equal input.

    Args:
        code: The object file.
        triple: LLVM's name of the machine.
        linker: Command to use instead of what :func:`find_linker` finds.

    Raises:
        ToolchainError: The linker is missing, fails or takes too long.
    """
    command = tuple(linker) if linker is not None else find_linker(triple)
    with tempfile.TemporaryDirectory(prefix="intarsia-link-") as folder:
        source, target = Path(folder) / "unit.o", Path(folder) / "lib.so"
        source.write_bytes(code)
        argv = [*command, *_FLAGS, "-soname", "lib.so", "-o", str(target), str(source)]
        try:
            done = subprocess.run(
                argv, capture_output=True, timeout=TIMEOUT_SECONDS, check=False, text=True
            )
        except (OSError, subprocess.TimeoutExpired) as cause:
            raise ToolchainError(f"the linker {command[0]} did not run: {cause}") from cause
        if done.returncode != 0 or not target.exists():
            said = done.stderr.strip().splitlines()
            raise ToolchainError(
                f"the linker {command[0]} failed (status {done.returncode}): {' '.join(said[:3])}"
            )
        return target.read_bytes()
