# SPDX-License-Identifier: Apache-2.0
"""Models as C by this backend and by emx-onnx-cgen: one compiler, the same flags, one thread.

Both are called through ``ctypes`` with arrays that exist already, in turns, so that what disturbs
the machine disturbs both::

    python -m tests.bench.emx_peer --emx ENVIRONMENT/bin/emx-onnx-cgen MODEL.onnx ...
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import safetensors.numpy

import intarsia
from intarsia_runtime.artifact.passport import Passport
from intarsia_runtime.errors import IntarsiaError

CC = ("gcc", "-O3", "-march=native", "-ffast-math", "-fno-math-errno", "-fPIC", "-shared")
SECONDS = 900


class PeerFailed(Exception):
    """One of the two has no result for a model."""


@dataclass(frozen=True)
class Compared:
    """What rounds of both in turn say.

    Attributes:
        ours: Best time of all runs, in seconds.
        theirs: The same of emx-onnx-cgen.
        ratio: Median over the rounds of their best time divided by ours.
        error: Largest difference of outputs, relative to the largest output.
    """

    ours: float
    theirs: float
    ratio: float
    error: float


def compare(model: Path, emx: str, *, rounds: int = 21, seconds: float = 0.05) -> Compared:
    """Build a model both ways and run them in turn.

    Args:
        model: An ONNX file of static shapes.
        emx: The program ``emx-onnx-cgen``.
        rounds: Turns of each.
        seconds: Least length of a turn.

    Raises:
        PeerFailed: One of the two does not take the model.
    """
    with tempfile.TemporaryDirectory(prefix="emx-peer-") as folder:
        inputs = _inputs(model)
        run_ours, got = _ours(model, Path(folder), inputs)
        run_theirs, want = _theirs(model, Path(folder), emx, inputs)
        runs = (run_ours, run_theirs)
        counts = [max(1, int(seconds / max(_best(run, 3), 1e-7))) for run in runs]
        times = [
            [_best(run, count) for run, count in zip(runs, counts, strict=True)]
            for _ in range(rounds)
        ]
        ours, theirs = np.array(times).T
    scale = max(1e-9, *(float(np.abs(array.astype(np.float64)).max()) for array in want))
    error = max(
        float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max())
        for a, b in zip(got, want, strict=True)
    )
    ratio = float(np.median(theirs / ours))
    return Compared(float(ours.min()), float(theirs.min()), ratio, error / scale)


def _best(run: Callable[[], object], count: int) -> float:
    """Seconds of the shortest of some runs: other work on the machine only makes them longer."""
    best = float("inf")
    for _ in range(count):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def _inputs(model: Path) -> dict[str, np.ndarray]:
    graph = onnx.load(model).graph
    known = {tensor.name for tensor in graph.initializer}
    rng = np.random.default_rng(0)
    made: dict[str, np.ndarray] = {}
    for value in graph.input:
        if value.name in known:
            continue
        kind = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [d.dim_value for d in kind.shape.dim]
        if np.issubdtype(dtype, np.floating):
            made[value.name] = np.asarray(rng.standard_normal(shape), dtype)
        else:
            made[value.name] = np.asarray(rng.integers(0, 2, shape), dtype)
    return made


def _outputs(model: Path) -> list[np.ndarray]:
    return [
        np.zeros(
            [d.dim_value for d in value.type.tensor_type.shape.dim],
            onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type),
        )
        for value in onnx.load(model, load_external_data=False).graph.output
    ]


def _compile(source: str, folder: Path, library: str) -> ctypes.CDLL:
    done = subprocess.run(
        [*CC, source, "-o", library, "-lm"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip
    if done.returncode:
        raise PeerFailed(f"gcc: {done.stderr[-300:]}")
    return ctypes.CDLL(str(folder / library))


_Built = tuple[Callable[[], object], list[np.ndarray]]


def _ours(model: Path, folder: Path, inputs: dict[str, np.ndarray]) -> _Built:
    try:
        built = intarsia.build(model, target="c -mcpu=native")
    except IntarsiaError as error:
        raise PeerFailed(f"c: {error}") from None
    path = built.save(folder / "model.intarsia")
    with zipfile.ZipFile(path) as archive:
        if "units/main/model.c" not in archive.namelist():
            raise PeerFailed("c: built in pieces, for the executor vm")
        for name in ("model.c", "model.h"):
            (folder / name).write_bytes(archive.read(f"units/main/{name}"))
        weights = safetensors.numpy.load(archive.read("params.safetensors"))
    passport: Passport = built.passport
    plan = passport.plan
    memory = aligned(np.zeros(plan.workspace_bytes, np.uint8))
    constants = [aligned(weights[name]) for name in plan.constants]
    outputs = _outputs(model)
    held = [inputs[spec.name] for spec in plan.inputs]
    blocks = [_pointers(arrays) for arrays in (held, outputs, constants)]
    call = _compile("model.c", folder, "ours.so").model_run
    arguments = [ctypes.byref(block) for block in (blocks if constants else blocks[:2])]
    workspace = ctypes.c_void_p(memory.ctypes.data)

    def run(_hold: object = (held, outputs, constants, memory)) -> object:
        return call(*arguments, workspace)

    run()
    return run, [array.copy() for array in outputs]


def aligned(array: np.ndarray) -> np.ndarray:
    """Return a copy at a multiple of 64 bytes."""
    block = np.zeros(array.nbytes + 64, np.uint8)
    start = -block.ctypes.data % 64
    copy = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _pointers(arrays: Sequence[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * max(1, len(arrays)))(*(array.ctypes.data for array in arrays))


def _theirs(model: Path, folder: Path, emx: str, inputs: dict[str, np.ndarray]) -> _Built:
    argv = [emx, "compile", str(model), "emx.c", "--model-name", "emx_model", "--restrict-arrays"]
    done = subprocess.run(
        argv, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    if done.returncode:
        raise PeerFailed(f"emx-onnx-cgen: {(done.stderr or done.stdout).strip()[-300:]}")
    library = _compile("emx.c", folder, "emx.so")
    if (folder / "emx_model.bin").exists():
        library.emx_model_load.restype = ctypes.c_bool
        if not library.emx_model_load(str(folder / "emx_model.bin").encode()):
            raise PeerFailed("emx_model_load failed")
    outputs = _outputs(model)
    arguments = [ctypes.c_void_p(a.ctypes.data) for a in (*inputs.values(), *outputs)]

    def run(_hold: object = (inputs, outputs)) -> object:
        return library.emx_model(*arguments)

    run()
    return run, [array.copy() for array in outputs]


def main() -> None:
    """Print one line for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--emx", default="emx-onnx-cgen")
    parser.add_argument("--rounds", type=int, default=21)
    given = parser.parse_args()
    print(
        "| model | `c`, ms | emx-onnx-cgen, ms | times faster | difference |\n|---|--:|--:|--:|--:|"
    )
    for model in given.models:
        try:
            row = compare(model, given.emx, rounds=given.rounds)
        except (PeerFailed, subprocess.TimeoutExpired) as error:
            said = " ".join(str(error).split())
            print(f"| {model.stem} | {said} | | | |", flush=True)
            continue
        print(
            f"| {model.stem} | {1e3 * row.ours:.4f} | {1e3 * row.theirs:.4f} | {row.ratio:.2f} "
            f"| {row.error:.1e} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
