# SPDX-License-Identifier: Apache-2.0
"""``intarsia run``: run a model or an artifact, time it, profile it, verify it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
import numpy as np
from msgspec.structs import replace

from ..artifact.archive import is_artifact
from ..artifact.passport import Passport
from ..build.build import measured_costs
from ..build.config import Executor
from ..build.dynamic import VM, import_any, needs_program
from ..build.importing import is_program
from ..build.place import place_model
from ..build.shapes import open_shapes
from ..build.sizes import largest
from ..build.source import Source
from ..build.stages import read_target
from ..errors import UsageError
from ..ir.module import IRModule
from ..partition.cost import Plan
from ..runtime.executors.graph import GraphExecutor, ProfileRow
from ..runtime.executors.sizes import SizesExecutor
from ..runtime.executors.vm import VmExecutor
from ..runtime.load import Executable, InProcess, load
from .arrays import RANDOM, plain_arrays, read_arrays, read_inputs, write_arrays
from .compile import compile_model
from .composed import ComposedCommand
from .idle import say_idle, say_not_compared
from .model_options import BuildSettings, build_options
from .output import echo, emit_json, table
from .simulated import say_simulated
from .verify import OutputCheck, RegionCheck, require_agreement, verify_outputs, verify_regions

if TYPE_CHECKING:
    from ..frontend.onnx.dynamic import DynamicModel

Said: TypeAlias = "dict[str, Any]"
"""What ``--json`` prints."""


@click.command("run", cls=ComposedCommand)
@click.argument("model", type=click.Path(path_type=Path))
@build_options()
@click.option("--inputs", default=RANDOM, show_default=True, help="An .npz file, or 'random'.")
@click.option("--outputs", type=click.Path(path_type=Path), help="An .npz file to write.")
@click.option("--seed", default=0, show_default=True, help="Of random inputs.")
@click.option("--threads", type=click.IntRange(1), help="Threads; all processors by default.")
@click.option("--repeat", type=click.IntRange(1), default=1, help="Runs to time.")
@click.option("--profile", is_flag=True, help="Time each kernel and region.")
@click.option("--verify", is_flag=True, help="Compare with the NumPy reference of every operator.")
@click.option("--model", "reference", type=click.Path(path_type=Path), metavar="MODEL",
              help="For --verify: the ONNX file that an artifact was compiled from.")  # fmt: skip
@click.option("--signed-by", type=click.Path(path_type=Path), metavar="PUBKEY",
              help="Public key of OpenSSH that must have signed the artifact.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    model: Path,
    settings: BuildSettings,
    inputs: str,
    outputs: Path | None,
    seed: int,
    threads: int | None,
    repeat: int,
    profile: bool,
    verify: bool,
    reference: Path | None,
    signed_by: Path | None,
    as_json: bool,
) -> None:
    """Run MODEL, an ONNX file or a .pt2 (compiled first for --target), or an artifact.

    An artifact is native code: run only what you would run as a program (--signed-by: who made it).
    Of an ONNX file whose inputs have open sizes, --inputs says the shapes.
    """
    source = _reference(model, reference) if verify else model
    given: str | Mapping[str, np.ndarray] = inputs
    if inputs != RANDOM and settings.executor.kind != VM and not is_artifact(model):
        given = read_arrays(inputs)
        settings = replace(settings, shapes={**open_shapes(model, given), **settings.shapes})
    begin = _opener(model, settings, threads, signed_by)
    with begin("graph" if profile else None) as executable:
        say_simulated(passport := executable.passport)
        say_idle(passport)
        arrays = read_inputs(given, executable.inputs, seed, passport.sizes)
        results, times = _timed(executable, arrays, repeat)
        rows = _profile(executable, arrays, repeat) if profile else ()
    checks: tuple[OutputCheck, ...] = ()
    regions: tuple[RegionCheck, ...] = ()
    if verify:
        imported = _imported(source, settings, passport, arrays)
        checks = verify_outputs(imported, arrays, results)
        regions = _regions(source, settings, passport, begin, arrays)
    if outputs is not None:
        write_arrays(outputs, results)
    said = _timing(results, times)
    if profile:
        said["profile"] = [
            {"label": r.label, "nodes": list(r.nodes), "ms": r.milliseconds, "share": r.share}
            for r in rows
        ]
    if verify:
        said["verify"] = [check.to_json() for check in checks]
        said["regions"] = [check.to_json() for check in regions]
    if as_json:
        emit_json(said)
    else:
        _print(said, results)
    require_agreement(checks, regions)


def _timing(results: Mapping[str, np.ndarray], times: Sequence[float]) -> Said:
    """What is said of every run: its outputs, and how long it took in milliseconds."""
    return {
        "outputs": [
            {"name": name, "shape": list(array.shape), "dtype": str(array.dtype)}
            for name, array in results.items()
        ],
        "runs": len(times),
        "median_ms": statistics.median(times),
        "min_ms": min(times),
    }


def _reference(model: Path, reference: Path | None) -> Path:
    if reference is not None:
        return reference
    if is_artifact(model) and not is_program(model):
        raise UsageError(
            "--verify needs the model that the artifact was compiled from", hint="--model FILE.onnx"
        )
    return model


def _opener(
    model: Path, settings: BuildSettings, threads: int | None, signed_by: Path | None
) -> Callable[[str | None], Executable]:
    """Return what loads an artifact, or what a model is compiled to, for an executor."""
    if is_artifact(model) and not is_program(model):
        if settings.target.is_given:
            raise UsageError(
                "an artifact has its target; --target is for models",
                hint=f"leave --target out, or name the model that '{model}' was compiled from",
            )

        def from_file(executor: str | None) -> Executable:
            return load(model, threads=threads, executor=executor, signed_by=signed_by)

        return from_file
    if signed_by is not None:
        raise UsageError(f"'{model}' is a model; --signed-by is for artifacts")
    if settings.target.text is None:
        known = ", ".join(settings.host.backends()) or "none is installed"
        raise UsageError(f"'{model}' is a model: a target is needed", hint=f"--target, of: {known}")
    artifact = compile_model(model, settings)
    echo(str(artifact.placement), err=True)

    def from_memory(executor: str | None) -> Executable:
        return artifact.load(threads=threads, executor=executor)

    return from_memory


def _imported(
    source: Path, settings: BuildSettings, passport: Passport, inputs: Mapping[str, np.ndarray]
) -> IRModule | DynamicModel:
    """Import the model that a passport was made for, for the shapes of ``inputs`` if it is open."""
    executor = Executor(VM if passport.executor.get("kind") == VM else "aot")
    shapes = largest(settings.shapes)
    if passport.sizes:
        shapes = {name: array.shape for name, array in inputs.items()}
    imported = import_any(Source(source), executor, None, shapes)
    return needs_program(imported, executor) or imported


def _regions(
    source: Path,
    settings: BuildSettings,
    passport: Passport,
    begin: Callable[[str | None], Executable],
    inputs: Mapping[str, np.ndarray],
) -> tuple[RegionCheck, ...]:
    """Check region by region what this process can run step by step; else say that nothing is."""
    found = _compared(source, settings, passport, begin, inputs)
    say_not_compared(passport, len(found))
    return found


def _compared(
    source: Path,
    settings: BuildSettings,
    passport: Passport,
    begin: Callable[[str | None], Executable],
    inputs: Mapping[str, np.ndarray],
) -> tuple[RegionCheck, ...]:
    """Check region by region; nothing if this process cannot run step by step."""
    driven = passport.executor.get("kind") in ("aot", "graph", VM)
    if not driven or passport.runtime.get("kind") not in tuple(InProcess):
        return ()
    with begin("graph") as executable:
        arrays, program = dict(inputs), executable
        if isinstance(executable, SizesExecutor):
            program, arrays = executable.fitted(inputs)
        imported = _imported(source, settings, passport, arrays)
        target = read_target(settings.host, passport.target, None)
        by_cost = settings.measure and settings.plan is Plan.COST
        measure = measured_costs if by_cost else None
        placed = place_model(
            settings.host, imported, target, settings.plan, settings.rules, measure
        )
        rows = [row.to_json() for row in placed.placement.regions]
        if rows != program.passport.placement.get("regions"):
            echo("the regions cannot be compared: they were cut in another way", err=True)
            return ()
        return verify_regions(program, placed, arrays)


def _profile(
    executable: Executable, inputs: Mapping[str, np.ndarray], repeat: int
) -> tuple[ProfileRow, ...]:
    """Time each step of what runs these inputs; nothing if it cannot be walked."""
    program, arrays = executable, inputs
    if isinstance(executable, SizesExecutor):
        program, arrays = executable.fitted(inputs)
    if not isinstance(program, GraphExecutor | VmExecutor):
        return ()
    return program.profile(arrays, repeat)


def _timed(
    executable: Executable, arrays: dict[str, np.ndarray], repeat: int
) -> tuple[dict[str, np.ndarray], list[float]]:
    """Run once to warm up, then ``repeat`` times; return results and milliseconds of each run."""
    results = executable.run(arrays)
    times: list[float] = []
    for _ in range(repeat):
        start = time.perf_counter()
        results = executable.run(arrays)
        times.append(1e3 * (time.perf_counter() - start))
    return plain_arrays(results), times


def _print(said: Said, results: dict[str, np.ndarray]) -> None:
    rows = [
        (name, str(array.dtype), "x".join(map(str, array.shape)), _range(array))
        for name, array in results.items()
    ]
    table(rows, ("output", "dtype", "shape", "range"))
    echo(f"{said['median_ms']:.3f} ms (median of {said['runs']})")
    if "profile" in said:
        echo("")
        lines = [
            (f"{row['ms']:.3f}", f"{100 * row['share']:.1f}", row["label"], " ".join(row["nodes"]))
            for row in said["profile"]
        ]
        table(lines, ("ms", "%", "step", "nodes"))
    for check in (*said.get("regions", ()), *said.get("verify", ())):
        verdict = "ok" if check["ok"] else "DIFFERS"
        echo(f"verify {check['name']}: {verdict}, largest error {float(check['max_error']):.3g}")


def _range(array: np.ndarray) -> str:
    if not array.size:
        return "empty"
    if array.dtype.kind == "U":
        return "text"
    low, high = array.min(), array.max()
    return f"{low:.6g} .. {high:.6g}" if array.dtype.kind == "f" else f"{low} .. {high}"
