# SPDX-License-Identifier: Apache-2.0
"""Object file to shared library, with whichever linker the machine has.

Without one, code for this machine stays an object file, and the loader of :mod:`.loader` puts it
into the process that runs it. Code for another machine is nothing that somebody there could load.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from intarsia_runtime.artifact.abandoned import temporary_folder
from intarsia_runtime.artifact.unit import SHARED_LIBRARY, SHARED_LIBRARY_FORMAT
from intarsia_runtime.errors import ToolchainError, UnsupportedError

from .loader import OBJECT_FILE, OBJECT_FORMAT, OBJECT_LOADER
from .machine import CodegenMachine
from .optimize import compile_object
from .target import host_triple

TIMEOUT_SECONDS = 120
_LOADABLE = ("x86_64", "amd64", "aarch64", "arm64", "riscv64")
_NARROW = re.compile(r"arm(?!64)|thumb|i\d86|riscv32|wasm32")
_ELF64 = b"\x7fELF\x02"
_GLOBAL = 1  # STB_GLOBAL; what is weak may be absent
_MATH = ("fmod", "trunc", "floor", "ceil", "rint", "nearbyint", "round", "roundeven", "fma", "sqrt")
_LIBM = frozenset((*_MATH, *(f"{name}f" for name in _MATH)))
_LIBC = frozenset(("memcpy", "memmove", "memset", "memcmp", "syscall"))
"""What code may call by LLVM's choice, and to ask for the registers of AMX."""

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


def link(objects: Sequence[bytes], machine: CodegenMachine) -> Linked:
    """Return a shared library of object files; of this machine, without a linker, the one object.

    Raises:
        ToolchainError: The linker fails, there is none for another machine, or the code calls what
            no system has.
    """
    triple = machine.triple
    if not has_linker(triple):
        (code,) = objects
        return Linked(OBJECT_LOADER, {OBJECT_FILE: code}, OBJECT_FORMAT)
    library = link_shared(objects, triple)
    called = undefined_symbols(library) if library.startswith(_ELF64) else frozenset[str]()
    if called:
        check_symbols(called, triple)
        library = link_shared(objects, triple, libraries=_system_libraries(called, machine))
    return Linked(SHARED_LIBRARY, {"lib.so": library}, SHARED_LIBRARY_FORMAT)


def _system_libraries(called: Collection[str], machine: CodegenMachine) -> dict[str, bytes]:
    """Return libraries by file name that stand for those of the system, with what is called.

    Linked against one, a library says that it needs the other. It is loaded with the system's own,
    so neither this machine nor the linker needs a system of the other machine.
    """
    ending = ".so" if "android" in machine.triple else ".so.6"  # musl has these names built in
    found: dict[str, bytes] = {}
    for name, functions in (("libc", _LIBC), ("libm", _LIBM)):
        texts = [f"define void @{one}() {{ ret void }}" for one in sorted(functions & {*called})]
        if texts:
            code = compile_object("\n".join(texts), machine, 0)
            found[name + ending] = link_shared([code], machine.triple, name=name + ending)
    return found


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


def check_loadable(triple: str) -> None:
    """Refuse machines whose processes could not load a library of ours.

    Its entry points read arguments as they lie with 64-bit pointers, and it is an ELF file.

    Raises:
        UnsupportedError: Another operating system, or another instruction set.
    """
    words = triple.split("-")
    wide = not _NARROW.match(words[0]) and words[-1] not in ("gnux32", "muslx32", "gnu_ilp32")
    if wide and (is_native(triple) or (words[0] in _LOADABLE and "linux" in words)):
        return
    raise UnsupportedError(
        f"-mtriple={triple}: 'llvm' makes libraries for 64-bit Linux on x86_64, aarch64, riscv64",
        hint="write an object for a program of yours: --runtime c",
    )


def check_symbols(called: Collection[str], triple: str) -> None:
    """Refuse a library that no process could load, since nothing there has what it calls.

    Raises:
        ToolchainError: It calls a function that is not of libc or libm.
    """
    missing = sorted({*called} - _LIBC - _LIBM)
    if missing:
        raise ToolchainError(
            f"the code for {triple} calls {', '.join(missing)}, which no system library has",
            hint="LLVM calls functions for what the processor lacks: see -mcpu and -mattr",
        )


def undefined_symbols(code: bytes) -> frozenset[str]:
    """Return what a shared library (64-bit ELF) cannot do without and does not have."""
    from llvmlite import binding  # an SDK: loaded when code is generated

    sections = {one.name(): one.data() for one in binding.ObjectFileRef.from_data(code).sections()}
    symbols, names = sections.get(b".dynsym", b""), sections.get(b".dynstr", b"")
    found: set[str] = set()
    for name, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", symbols):
        if section == 0 and info >> 4 == _GLOBAL:
            found.add(names[name : names.index(b"\0", name)].decode())
    return frozenset(found)


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
    objects: Sequence[bytes],
    triple: str,
    *,
    linker: Sequence[str] | None = None,
    name: str = "lib.so",
    libraries: Mapping[str, bytes] = MappingProxyType({}),
) -> bytes:
    """Return a shared library made of object files; equal bytes for equal input.

    Args:
        objects: The object files.
        triple: LLVM's name of the machine.
        linker: Command to use instead of what :func:`find_linker` finds.
        name: What it says that it is called.
        libraries: What it needs, by file name.

    Raises:
        ToolchainError: The linker is missing, fails or takes too long.
    """
    command = tuple(linker) if linker is not None else find_linker(triple)
    with temporary_folder("link") as folder:
        target = Path(folder) / "linked" / name
        target.parent.mkdir()
        inputs = {f"unit{number}.o": code for number, code in enumerate(objects)} | dict(libraries)
        for source, code in inputs.items():
            (Path(folder) / source).write_bytes(code)
        sources = [str(Path(folder) / source) for source in inputs]
        argv = [*command, *_FLAGS, "-soname", name, "-o", str(target), *sources]
        try:
            done = subprocess.run(
                argv, capture_output=True, timeout=TIMEOUT_SECONDS, check=False, text=True
            )
        except (OSError, subprocess.TimeoutExpired) as cause:
            raise ToolchainError(f"the linker {command[0]} did not run: {cause}") from cause
        if done.returncode != 0 or not target.exists():
            lines = done.stderr.strip().splitlines()
            raise ToolchainError(
                f"the linker {command[0]} failed (status {done.returncode}): {' '.join(lines[:3])}"
            )
        return target.read_bytes()
