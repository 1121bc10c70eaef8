# SPDX-License-Identifier: Apache-2.0
"""Asks the library, while compiling, for everything that opening a unit asks it for.

Units are code for AArch64. On another machine they run under QEMU's user emulation where that is
installed; without it, the support table alone says what the library takes.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

from intarsia.plugin.accelerator import PluginError

from .toolchain import Toolchain

CPU = "neoverse-n1"
"""The emulator's default processor executes some vector instructions wrongly."""

SECONDS = 120
_LOADER = "lib/ld-linux-aarch64.so.1"
_REFUSED = 3
_PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>
typedef int (*Validate)(char *, size_t);
int main(int count, char **words)
{
    char error[1024] = "";
    void *unit = count == 2 ? dlopen(words[1], RTLD_NOW) : 0;
    Validate validate = unit ? (Validate)dlsym(unit, "intarsia_acl_validate") : 0;
    if (!validate)
        return 2;
    if (validate(error, sizeof error))
    {
        puts(error);
        return 3;
    }
    return 0;
}
"""


def emulator(root: str = "") -> tuple[str, ...] | None:
    """Return the command in front of an AArch64 program; ``None`` if nothing here runs one.

    Args:
        root: Folder of a whole system for AArch64, with its C library; empty means this system's.
    """
    if platform.machine() in ("aarch64", "arm64"):
        return ()
    for name in ("qemu-aarch64", "qemu-aarch64-static"):
        path = shutil.which(name)
        if path is not None:
            return (path, "-cpu", CPU, *(("-L", root) if (Path(root) / _LOADER).exists() else ()))
    return None


def validate_unit(folder: Path, library: str, name: str, tools: Toolchain, root: str = "") -> bool:
    """Let the library validate all functions of a unit; false if nothing here can run it.

    Args:
        folder: Where the unit is; a program is written and compiled beside it.
        library: Name of the unit's file.
        name: Of the region, for messages.
        tools: What compiled it.
        root: As :func:`emulator`.

    Raises:
        PluginError: The library refuses a function.
    """
    front = emulator(root)
    if front is None:
        return False
    (folder / "validate.c").write_text(_PROGRAM)
    made = [tools.compiler, "-x", "c", "-O0", "validate.c", "-o", "validate", "-ldl"]
    paths = {**os.environ, "LD_LIBRARY_PATH": str(tools.libraries)} if root else dict(os.environ)
    command = [*front, "./validate", f"./{library}"]
    try:
        subprocess.run(made, cwd=folder, check=True, capture_output=True, timeout=SECONDS)
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=paths,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    if done.returncode == _REFUSED:
        raise PluginError(
            f"region '{name}': Arm Compute Library {tools.version} refuses what was compiled for"
            f" it: {done.stdout.strip()}",
            hint="keep the node from it with --place NODE=KIND, and report this",
        )
    return done.returncode == 0
