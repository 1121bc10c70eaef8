# SPDX-License-Identifier: Apache-2.0
"""The C++ compiler for AArch64 and the library's headers: from the text of a unit to its code."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from intarsia.plugin.accelerator import ResourceError, ToolchainError, temporary_folder

_HINT = (
    "apt-get install g++-aarch64-linux-gnu libarm-compute-dev:arm64 "
    "(after dpkg --add-architecture arm64)"
)
_HEADER = Path("arm_compute/core/Types.h")
_INCLUDE = ("", "include", "usr/include/aarch64-linux-gnu", "usr/include")
_LIBRARIES = ("lib", "lib64", "build", "", "usr/lib/aarch64-linux-gnu", "usr/lib")


class Toolchain(Struct, frozen=True):
    """What compiles a unit.

    Attributes:
        compiler: The C++ compiler.
        include: Folder of the library's headers.
        libraries: Folder of ``libarm_compute.so``.
        version: Number of the library's binary interface, e.g. ``20.0.0``.
    """

    compiler: str
    include: Path
    libraries: Path
    version: str


def find_toolchain(root: str = "", compiler: str = "") -> Toolchain:
    """Find compiler and library.

    Args:
        root: Folder to look in for the library; empty means the system's.
        compiler: The C++ compiler; empty means ``aarch64-linux-gnu-g++``, or on AArch64 ``g++``.

    Raises:
        ToolchainError: One of them is missing.
    """
    names = [compiler] if compiler else ["aarch64-linux-gnu-g++"]
    if not compiler and platform.machine() in ("aarch64", "arm64"):
        names.append("g++")
    found = next((path for name in names if (path := shutil.which(name)) is not None), None)
    if found is None:
        raise ToolchainError(f"no C++ compiler for AArch64: {', '.join(names)}", hint=_HINT)
    base = Path(root or "/")
    include = next((base / d for d in _INCLUDE if (base / d / _HEADER).is_file()), None)
    if include is None:
        raise ToolchainError(
            f"no headers of Arm Compute Library below {base}",
            hint="-acl-root names a folder with arm_compute/ or include/" if root else _HINT,
        )
    libraries = _library_folder(base)
    if libraries is None:
        raise ToolchainError(
            f"no libarm_compute.so below {base}",
            hint="-acl-root names a folder with lib/ or build/" if root else _HINT,
        )
    return Toolchain(found, include, libraries, library_version(root) or "unknown")


def _library_folder(base: Path) -> Path | None:
    folders = (base / name for name in _LIBRARIES)
    return next((folder for folder in folders if (folder / "libarm_compute.so").exists()), None)


def library_version(root: str) -> str:
    """Return the version in the name of the library's file; empty if there is none."""
    folder = _library_folder(Path(root or "/"))
    if folder is None:
        return ""
    name = Path(os.path.realpath(folder / "libarm_compute.so")).name
    return name.removeprefix("libarm_compute.so").removeprefix(".") or "unversioned"


def compile_unit(
    source: str,
    tools: Toolchain,
    *,
    opt_level: int,
    seconds: int,
    validate: Callable[[Path, str], object],
) -> bytes:
    """Return the shared library of a unit; equal bytes for equal input.

    Args:
        source: Its C++.
        tools: Compiler and library.
        opt_level: Effort of the compiler.
        seconds: How long the compiler may take.
        validate: Called with the folder and the name of the library as it is there.

    Raises:
        ToolchainError: The compiler fails.
        ResourceError: It takes too long.
    """
    with temporary_folder("acl") as folder:
        place = Path(folder)
        (place / "unit.cpp").write_text(source)
        command = [tools.compiler, *_flags(tools, opt_level), "unit.cpp", "-o", "lib.so"]
        command += [f"-L{tools.libraries}", "-larm_compute"]
        if (tools.libraries / "libarm_compute_core.so").exists():
            command.append("-larm_compute_core")
        try:
            done = subprocess.run(
                command,
                cwd=place,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as cause:
            raise ResourceError(
                f"{tools.compiler} takes longer than {seconds} s for one region",
                hint="raise -compile-timeout, or lower -opt-level",
            ) from cause
        except OSError as cause:
            raise ToolchainError(f"{tools.compiler} did not run: {cause}") from cause
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            raise ToolchainError(
                f"{tools.compiler} failed (status {done.returncode}): "
                f"{' '.join(errors[:3]) or done.stderr[:300]}",
                hint="is -acl-root a complete release of the library?",
            )
        validate(place, "lib.so")
        return (place / "lib.so").read_bytes()


def _flags(tools: Toolchain, opt_level: int) -> tuple[str, ...]:
    return (
        # The unit runs on any AArch64, whatever the compiler's default: it needs no CPU feature.
        "-march=armv8-a",
        *("-std=c++14", f"-O{opt_level}", "-shared", "-fPIC", "-fvisibility=hidden"),
        *("-s", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-Wl,--allow-shlib-undefined"),
        *("-isystem", str(tools.include)),
    )
