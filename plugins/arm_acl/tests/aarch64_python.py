# SPDX-License-Identifier: Apache-2.0
"""A Python for AArch64 under emulation: Debian's packages and wheels, unpacked in a folder.

Nothing is installed. It runs the project's own runtime, loader included, as a machine would.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path

from intarsia_arm_acl.validate import CPU

from .emulation import emulator

_DEBIAN = (
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6"),
    *("libgcc-s1", "libstdc++6", "libgomp1", "zlib1g", "libexpat1", "libffi8", "libssl3"),
    *("libbz2-1.0", "liblzma5", "libsqlite3-0", "libuuid1"),
)
_WHEELS = ("numpy", "ml_dtypes", "msgspec")
_PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
_SECONDS = 180


class Unavailable(Exception):
    """The folder cannot be made here; says why."""


@dataclass(frozen=True)
class EmulatedPython:
    """A Python for AArch64.

    Attributes:
        root: Folder with ``usr/bin/python3.11`` and the wheels in ``site``.
        plugins: Packages of plugins whose loaders it finds, besides this one's.
    """

    root: Path
    plugins: tuple[str, ...] = ()

    def run(self, *arguments: str) -> str:
        """Run it with the project's sources importable; returns what it prints.

        Raises:
            RuntimeError: It failed; with what it wrote.
        """
        paths = [self.root / "site", *_sources(*self.plugins)]
        environment = {
            "PATH": os.environ["PATH"],
            "QEMU_CPU": CPU,
            "PYTHONHOME": str(self.root / "usr"),
            "PYTHONPATH": os.pathsep.join(str(path) for path in paths),
        }
        binary = self.root / "usr" / "bin" / "python3.11"
        program, *_ = emulator() or ("",)
        command = [program, "-L", str(self.root), str(binary), *arguments]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_SECONDS
        )
        if done.returncode != 0:
            raise RuntimeError(f"status {done.returncode}: {done.stderr.strip()}")
        return done.stdout


def make_python(root: Path, *plugins: str) -> EmulatedPython:
    """Download and unpack; about 15 MB and ten seconds.

    Raises:
        Unavailable: No emulator, not Debian 12, or no network.
    """
    if not emulator():
        raise Unavailable("no qemu-aarch64 to run an AArch64 Python with")
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise Unavailable("no apt-get to fetch an AArch64 Python with")
    downloads = root / "downloads"
    downloads.mkdir(parents=True)
    _do(["apt-get", "download", "-qq", *(f"{name}:arm64" for name in _DEBIAN)], downloads)
    for package in downloads.glob("*.deb"):
        _do(["dpkg", "-x", str(package), str(root)], downloads)
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    pip += ["--python-version", "3.11", *(f"--platform={name}" for name in _PLATFORMS)]
    _do([*pip, *_WHEELS], downloads)
    for wheel in downloads.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(root / "site")
    return EmulatedPython(root, plugins)


def _do(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode != 0:
        raise Unavailable(f"{command[0]} failed: {done.stderr.strip()[-300:]}")


def _sources(*plugins: str) -> list[Path]:
    """Return what the runtime imports from this environment: pure Python, whatever the machine."""
    names = ("intarsia", "intarsia_runtime", "intarsia_arm_acl", *plugins)
    packages = [Path(import_module(name).__path__[0]).parent for name in names]
    installed = Path(str(distribution("intarsia-arm-acl").locate_file("")))
    libraries = Path(str(distribution("importlib-metadata").locate_file("")))
    return [*packages, installed, libraries]
