# SPDX-License-Identifier: Apache-2.0
"""Arm's Support Library, where the user has one: queries, compiled networks, estimates.

The library has C++ interfaces only, so a small program (``shim.cpp``) is compiled against it once
and run as a process: a fault in the library is an error and not the end of the compiler.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from intarsia.plugin.accelerator import ResourceError, ToolchainError, temporary_folder

from .variants import library_name
from .verdict import Level, LibraryVerdict

if TYPE_CHECKING:
    from .target import EthosNOptions

VARIABLE = "ETHOSN_ROOT"
TIMEOUT = 600
"""Seconds that one region may take."""

HINT = (
    "driver stack 25.03 finds plans on n78-1tops-4ple, n78-4tops-* and n78-8tops-2ple only; choose"
    " another -variant, or keep nodes from it with --place"
)
HEADER = "ethosn_support_library/Support.hpp"
LIBRARY = "libEthosNSupport.so"
LIBRARY_FOLDERS = ("lib", "lib64", "")


class CompiledNetwork(Struct, frozen=True):
    """What the library makes of a network.

    Attributes:
        blob: The compiled network, for the driver.
        buffers: Bytes of inputs, outputs and what lies between.
    """

    blob: bytes
    buffers: Mapping[str, object]


def find_root(given: str = "") -> Path | None:
    """Return the folder that the option or ``ETHOSN_ROOT`` names, or ``None`` if neither does."""
    name = given or os.environ.get(VARIABLE, "")
    return Path(name) if name else None


def environment() -> str:
    """Return what a build depends on that no option says: the library of ``ETHOSN_ROOT``."""
    root = find_root()
    if root is None:
        return "no library"
    for folder in LIBRARY_FOLDERS:
        path = root / folder / LIBRARY
        if path.is_file():
            found = path.stat()
            return f"{path} of {found.st_size} bytes, {found.st_mtime_ns}"
    return f"{root} without a library"


class SupportLibrary(Struct, frozen=True):
    """A shim that is compiled against a library.

    Attributes:
        program: The shim.
        version: Of the library.
    """

    program: Path
    version: str

    def compile(
        self, name: str, network: bytes, weights: bytes, options: EthosNOptions
    ) -> CompiledNetwork:
        """Compile a network.

        Raises:
            ToolchainError: The library refuses it, or finds no plan.
            ResourceError: It takes longer than :data:`TIMEOUT`.
        """
        printed, blob = self._run("compile", name, network, weights, options, options.switches())
        return CompiledNetwork(blob, json.loads(printed))

    def estimate(self, name: str, network: bytes, weights: bytes, options: EthosNOptions) -> bytes:
        """Return the library's estimate of a network's performance, as it writes it: JSON.

        Raises:
            ToolchainError: The library refuses it.
            ResourceError: It takes longer than :data:`TIMEOUT`.
        """
        return self._run("estimate", name, network, weights, options, options.switches())[1]

    def query(self, network: bytes, options: EthosNOptions) -> list[LibraryVerdict]:
        """Return what the library says of each operation of a network.

        Raises:
            ToolchainError: The network cannot be read.
            ResourceError: It takes longer than :data:`TIMEOUT`.
        """
        answers = self._run("query", "query", network, b"", options, ())[1].decode()
        pairs = [line.partition("\t") for line in answers.splitlines()]
        return [LibraryVerdict(Level(level), reason) for level, _, reason in pairs]

    def _run(
        self,
        mode: str,
        name: str,
        network: bytes,
        weights: bytes,
        options: EthosNOptions,
        switches: Sequence[str],
    ) -> tuple[str, bytes]:
        with temporary_folder("ethosn") as folder:
            paths = [Path(folder) / part for part in ("network.json", "weights.bin", "out")]
            paths[0].write_bytes(network)
            paths[1].write_bytes(weights)
            words = [mode, library_name(options.variant), str(options.sram_size), *map(str, paths)]
            done = _called([str(self.program), *words, *switches], TIMEOUT)
            if done.returncode != 0:
                raise ToolchainError(
                    f"the Ethos-N Support Library {self.version} refuses region '{name}' on"
                    f" {options.variant}: {_last_line(done)}",
                    hint=HINT,
                )
            return done.stdout, paths[2].read_bytes()


@cache
def open_library(root: Path) -> SupportLibrary:
    """Compile the shim against the library below ``root``, if that has not been done.

    Raises:
        ToolchainError: There is no library, no C++ compiler, or it does not fit.
    """
    header = _found(root, ("include", ""), HEADER)
    library = _found(root, LIBRARY_FOLDERS, LIBRARY)
    source = resources.files("intarsia_ethos_n").joinpath("shim.cpp").read_bytes()
    program = _shim(source, header.parents[1], library)
    done = _called([str(program), "version"], 60)
    if done.returncode != 0:
        raise ToolchainError(f"the library in {root} does not run: {_last_line(done)}")
    return SupportLibrary(program, done.stdout.strip())


def _found(root: Path, folders: Sequence[str], name: str) -> Path:
    for folder in folders:
        path = root / folder / name
        if path.is_file():
            return path.resolve()
    raise ToolchainError(
        f"{root} has no {name}",
        hint=f"-ethosn-root or {VARIABLE} names a folder with include/{HEADER} and lib/{LIBRARY}",
    )


def _shim(source: bytes, include: Path, library: Path) -> Path:
    """Return the compiled shim; it is kept beside others in the user's cache."""
    named = os.environ.get("CXX") or "c++"
    compiler = shutil.which(named)
    if compiler is None:
        raise ToolchainError(
            f"no C++ compiler '{named}' to build the shim of the Ethos-N Support Library with",
            hint="install one, or name it in CXX",
        )
    key = hashlib.sha256()
    for part in (source, library.read_bytes(), str(library).encode(), compiler.encode()):
        key.update(hashlib.sha256(part).digest())
    folder = _cache() / "ethos-n"
    program = folder / f"shim-{key.hexdigest()[:24]}"
    if program.is_file():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        text, made = Path(scratch) / "shim.cpp", Path(scratch) / "shim"
        text.write_bytes(source)
        flags = ["-std=c++14", "-O1", f"-I{include}", str(text), "-o", str(made)]
        link = [str(library), f"-Wl,-rpath,{library.parent}", "-pthread"]
        done = _called([compiler, *flags, *link], TIMEOUT)
        if done.returncode != 0:
            raise ToolchainError(
                f"the shim does not compile against {library}: {_first_error(done)}",
                hint="the shim is written for driver stack 25.03, library version 6",
            )
        made.replace(program)
    return program


def _cache() -> Path:
    given = os.environ.get("INTARSIA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    return Path(given) / "intarsia" if given else Path.home() / ".cache" / "intarsia"


def _called(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise ResourceError(f"{Path(command[0]).name} took more than {seconds:g} s") from error
    except OSError as error:
        raise ToolchainError(f"cannot run {command[0]}: {error}") from error


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"exit code {done.returncode}"


def _first_error(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stderr.splitlines() if "error" in line]
    return lines[0].strip() if lines else _last_line(done)
