# SPDX-License-Identifier: Apache-2.0
"""Arm's compiler Vela, run as a program: TOSA in, command stream and estimates out.

It runs in a process of its own, so that a fault in it is an error and not the end of the compiler.
"""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from intarsia.plugin.accelerator import ResourceError, ToolchainError, temporary_folder

if TYPE_CHECKING:
    from .target import EthosUOptions

TIMEOUT = 600
"""Seconds that one region may take."""

HINT = "pip install 'intarsia-ethos-u[vela]', or name the program: ethos-u -vela=PATH"


class ArenaSlot(Struct, frozen=True):
    """Where an input or output lies: bytes from the start of the arena, and its size."""

    offset: int
    size: int


class VelaResult(Struct, frozen=True):
    """What Vela leaves of a region.

    Attributes:
        command_stream: What the driver is given.
        weights: Encoded weights and biases, read by the stream.
        arena_bytes: Memory for activations, inputs and outputs within it.
        fast_bytes: Memory for activations that a memory mode keeps apart; 0 if there is none.
        inputs: Places of the inputs, in the program's order.
        outputs: Places of the outputs.
        estimates: Vela's summary: cycles, memories, bandwidths, by Vela's own column names.
        version: Of Vela.
    """

    command_stream: bytes
    weights: bytes
    arena_bytes: int
    fast_bytes: int
    inputs: tuple[ArenaSlot, ...]
    outputs: tuple[ArenaSlot, ...]
    estimates: Mapping[str, float]
    version: str


def find_vela(path: str = "") -> Path:
    """Return the program: the one named, the one beside this Python, or the one on the PATH.

    Raises:
        ToolchainError: There is none.
    """
    if path:
        named = Path(path)
        if named.is_file():
            return named
        raise ToolchainError(f"-vela: there is no program '{path}'", hint=HINT)
    in_environment = shutil.which("vela", path=sysconfig.get_path("scripts"))
    found = in_environment or shutil.which("vela", path=str(Path(sys.executable).parent))
    found = found or shutil.which("vela")
    if found is None:
        raise ToolchainError("the compiler 'vela' of Ethos-U is not installed", hint=HINT)
    return Path(found)


@cache
def version_of(program: Path) -> str:
    """Return a program's version.

    Raises:
        ToolchainError: It does not run.
    """
    done = _run([str(program), "--version"], None, 60)
    if done.returncode != 0:
        raise ToolchainError(f"{program} --version fails: {_last_line(done)}", hint=HINT)
    return done.stdout.strip()


def installed_version(path: str = "") -> str:
    """Return Vela's version, or nothing if there is no Vela that runs."""
    try:
        return version_of(find_vela(path))
    except ToolchainError:
        return ""


def compile_tosa(name: str, tosa: bytes, options: EthosUOptions) -> VelaResult:
    """Compile a TOSA flatbuffer.

    Raises:
        ToolchainError: There is no Vela, or it refuses the region.
        ResourceError: It takes longer than :data:`TIMEOUT`.
    """
    program = find_vela(options.vela)
    version = version_of(program)
    with temporary_folder("vela") as folder:
        source = Path(folder) / "region.tosa"
        source.write_bytes(tosa)
        command = [str(program), str(source), *arguments(options), "--output-dir", folder]
        done = _run(command, folder, TIMEOUT)
        raw = Path(folder) / "region_vela.npz"
        if done.returncode != 0 or not raw.exists():
            raise ToolchainError(
                f"vela {version} refuses region '{name}': {_last_line(done)}",
                hint="keep its nodes from the accelerator with --place NODE=c, and report this",
            )
        tables = list(Path(folder).glob("region_summary_*.csv"))
        estimates = parse_summary(tables[0].read_text()) if tables else {}
        return _read(raw.read_bytes(), estimates, version)


def arguments(options: EthosUOptions) -> list[str]:
    """Return Vela's arguments for the options of a target."""
    system, mode = options.system
    words = [
        "--accelerator-config",
        options.accelerator_config,
        "--config",
        options.config,
        "--system-config",
        system,
        "--memory-mode",
        mode,
        "--optimise",
        options.optimise.capitalize(),
        "--output-format",
        "raw",
    ]
    if options.arena_cache_size:
        words += ["--arena-cache-size", str(options.arena_cache_size)]
    return words


def parse_summary(text: str) -> dict[str, float]:
    """Return the numbers of Vela's summary table: column to value, in the table's order.

    Raises:
        ToolchainError: It is no table of one network.
    """
    rows = list(csv.DictReader(io.StringIO(text)))
    if len(rows) != 1:
        raise ToolchainError(f"vela's summary has {len(rows)} rows, not 1", hint=HINT)
    numbers: dict[str, float] = {}
    for key, value in rows[0].items():
        try:
            numbers[key.strip()] = float(value)
        except (TypeError, ValueError):
            continue
    return numbers


def _read(raw: bytes, estimates: Mapping[str, float], version: str) -> VelaResult:
    """Read the arrays that are plain numbers; the others would need code to be trusted."""
    arrays: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        for member in archive.namelist():
            key = member.removesuffix(".npy")
            if key not in ("input_quantization", "output_quantization"):
                arrays[key] = np.load(io.BytesIO(archive.read(member)), allow_pickle=False)
    same = int(arrays["scratch_region"]) == int(arrays["scratch_fast_region"])
    return VelaResult(
        command_stream=arrays["cmd_data"].tobytes(),
        weights=arrays["weight_data"].tobytes(),
        arena_bytes=int(arrays["scratch_size"]),
        fast_bytes=0 if same else int(arrays["scratch_fast_size"]),
        inputs=_places(arrays, "input"),
        outputs=_places(arrays, "output"),
        estimates=estimates,
        version=version,
    )


def _places(arrays: Mapping[str, np.ndarray], which: str) -> tuple[ArenaSlot, ...]:
    offsets = arrays[f"{which}_offset"].reshape(-1).tolist()
    count = len(offsets)
    shapes = arrays[f"{which}_shape"].reshape(count, -1) if count else ()
    widths = arrays[f"{which}_elem_size"].reshape(-1).tolist()
    return tuple(
        ArenaSlot(int(offset), int(np.prod(shape[shape > 0])) * int(width))
        for offset, shape, width in zip(offsets, shapes, widths, strict=True)
    )


def _run(
    command: Sequence[str | Path], folder: Path | None, seconds: float
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise ResourceError(f"vela took more than {seconds:g} s") from error
    except OSError as error:
        raise ToolchainError(f"cannot run {command[0]}: {error}", hint=HINT) from error


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"exit code {done.returncode}"
