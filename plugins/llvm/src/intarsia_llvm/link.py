# SPDX-License-Identifier: Apache-2.0
"""Object file to shared library, with whichever linker the machine has.

Without one, code for this machine stays an object file, and the loader of :mod:`.loader` puts it
into the process that runs it. Code for another machine is nothing that somebody there could load.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from intarsia.artifact.abandoned import temporary_folder
from intarsia.artifact.unit import SHARED_LIBRARY, SHARED_LIBRARY_FORMAT
from intarsia.errors import ToolchainError

from .loader import OBJECT_FILE, OBJECT_FORMAT, OBJECT_LOADER
from .target import host_triple

TIMEOUT_SECONDS = 120
_FLAGS = ("-shared", "--build-id=none", "-z", "noexecstack", "--hash-style=gnu")


class Linked(Struct, frozen=True):
    """Machine code as a unit carries it.

    Attributes:
        loader: Who loads it.
        files: What it loads, by the names it looks for.
        format: Version of their format.
    """

    loader: str
    files: Mapping[str, bytes]
    format: int


def link(objects: Sequence[bytes], triple: str) -> Linked:
    """Return a shared library of object files; of this machine, without a linker, the one object.

    Raises:
        ToolchainError: The linker fails, or there is none for another machine.
    """
    if has_linker(triple):
        library = link_shared(objects, triple)
        return Linked(SHARED_LIBRARY, {"lib.so": library}, SHARED_LIBRARY_FORMAT)
    (code,) = objects
    return Linked(OBJECT_LOADER, {OBJECT_FILE: code}, OBJECT_FORMAT)


def has_linker(triple: str) -> bool:
    """Say whether code becomes a library; else it stays an object file of this machine.

    Raises:
        ToolchainError: There is no linker for another machine.
    """
    try:
        find_linker(triple)
    except ToolchainError:
        if is_native(triple):
            return False
        raise
    return True


def is_native(triple: str) -> bool:
    """Say whether a triple names this machine's instruction set and kind of operating system."""
    own = host_triple()
    return _arch(triple) == _arch(own) and ("linux" in triple) == ("linux" in own)


def _arch(triple: str) -> str:
    return triple.split("-")[0]


def linker_text(triple: str) -> str:
    """Say in words what links for ``triple``.

    Raises:
        ToolchainError: Nothing does.
    """
    try:
        return f"linker {' '.join(find_linker(triple))}"
    except ToolchainError as error:
        if is_native(triple):
            return f"{error.message}; LLVM links in the process that runs the code"
        raise


def find_linker(triple: str) -> tuple[str, ...]:
    """Return the command that links for ``triple``, without its arguments.

    Raises:
        ToolchainError: No linker is installed.
    """
    native, arch = is_native(triple), _arch(triple)
    names = ("ld", "ld.lld", "ld.mold") if native else ("ld.lld", f"{arch}-linux-gnu-ld")
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return (path,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "ld.lld")
    package = "binutils" if native else f"binutils-{arch.replace('_', '-')}-linux-gnu"
    raise ToolchainError(
        f"no linker for {triple} was found: {', '.join(names)}",
        hint=f"pip install 'intarsia-llvm[linker]', or install {package} or lld",
    )


def link_shared(
    objects: Sequence[bytes], triple: str, *, linker: Sequence[str] | None = None
) -> bytes:
    """Return a shared library made of object files; equal bytes for equal input.

    Args:
        objects: The object files.
        triple: LLVM's name of the machine.
        linker: Command to use instead of what :func:`find_linker` finds.

    Raises:
        ToolchainError: The linker is missing, fails or takes too long.
    """
    command = tuple(linker) if linker is not None else find_linker(triple)
    with temporary_folder("link") as folder:
        target = Path(folder) / "lib.so"
        sources = [Path(folder) / f"unit{number}.o" for number in range(len(objects))]
        for source, code in zip(sources, objects, strict=True):
            source.write_bytes(code)
        argv = [*command, *_FLAGS, "-soname", "lib.so", "-o", str(target), *map(str, sources)]
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
