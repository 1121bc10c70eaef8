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

from intarsia_ir.example_sizes import example_sizes
from intarsia_ir.size_values import largest
from intarsia_runtime.artifact.archive import is_artifact
from intarsia_runtime.errors import UsageError
from intarsia_runtime.executors.graph import GraphExecutor, ProfileRow
from intarsia_runtime.executors.open import OpenExecutor
from intarsia_runtime.executors.random_inputs import seeded_state
from intarsia_runtime.executors.variants import SizesExecutor
from intarsia_runtime.executors.vm import VmExecutor
from intarsia_runtime.load import VM, Executable, load

from ..driver.arrays import (
    RANDOM,
    asked_sizes,
    made_up_sizes,
    plain_arrays,
    read_arrays,
    read_inputs,
    write_arrays,
)
from ..driver.importing import is_program
from ..driver.optional import require_tools
from .compile import compile_model
from .composed import ComposedCommand
from .idle import say_idle, say_not_compared
from .model_options import BuildSettings, build_options
from .output import echo, emit_json, table
from .simulated import say_simulated

if TYPE_CHECKING:
    from intarsia_runtime.artifact.passport import Passport
    from intarsia_tools.verify import Verification

    from ..host.host import Host

Document: TypeAlias = "dict[str, Any]"
"""What ``--json`` prints."""


@click.command("run", cls=ComposedCommand)
@click.argument("model", type=click.Path(path_type=Path))
@build_options()
@click.option("--inputs", default=RANDOM, show_default=True, help="An .npz file, or 'random'.")
@click.option("--outputs", type=click.Path(path_type=Path), help="An .npz file to write.")
@click.option("--seed", type=click.IntRange(0, 2**32), default=0, help="Seed of random inputs.")
@click.option("--threads", type=click.IntRange(1), help="Threads; all processors by default.")
@click.option("--repeat", type=click.IntRange(1), default=1, help="Timed runs.")
@click.option("--warmup", type=click.IntRange(1), default=1, show_default=True,
              help="Runs before the timed ones.")  # fmt: skip
@click.option("--duration", type=click.IntRange(0), default=0, metavar="SECONDS",
              help="Time further runs until SECONDS have passed.")  # fmt: skip
@click.option("--profile", is_flag=True, help="Time each kernel and region.")
@click.option("--verify", is_flag=True, help="Compare with the NumPy reference of every operator.")
@click.option("--model", "reference", type=click.Path(path_type=Path), metavar="MODEL",
              help="For --verify: the ONNX file from which an artifact was built.")  # fmt: skip
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
    warmup: int,
    duration: int,
    profile: bool,
    verify: bool,
    reference: Path | None,
    signed_by: Path | None,
    as_json: bool,
) -> None:
    """Run MODEL, an ONNX file or a .pt2 (compiled first for --target), or an artifact.

    An artifact is native code: run only those that you trust (--signed-by checks a signature).
    If an ONNX file leaves sizes open, the arrays of --inputs give them.
    """
    source = _reference(model, reference, settings.host) if verify else model
    given: str | Mapping[str, np.ndarray] = inputs
    if inputs != RANDOM and settings.executor.kind != VM and not _is_artifact(model, settings.host):
        from ..driver.shapes import open_shapes  # the compiler, which an artifact does not need

        given = read_arrays(inputs)
        settings = settings.with_shapes(open_shapes(settings.host, model, given))
    begin = _opener(model, settings, threads, signed_by)
    with begin("graph" if profile else None) as executable:
        say_simulated(passport := executable.passport)
        say_idle(passport)
        asked = asked_sizes(executable.inputs, _asked(model, settings, given))
        sizes = made_up_sizes(executable.inputs, example_sizes(passport, asked))
        arrays = read_inputs(given, executable.inputs, seed, sizes)
        arrays |= seeded_state(passport.plan, seed)
        if given == RANDOM and not passport.sizes:
            _say_sizes(sizes)
        results, times = _timed(executable, arrays, repeat, warmup, duration)
        rows = _profile(executable, arrays, repeat) if profile else ()
    arguments = {"inputs": arrays, "results": results}
    found = _verified(source, passport, begin, settings, **arguments) if verify else None
    if outputs is not None:
        write_arrays(outputs, results)
    document = _timing(results, times)
    if profile:
        document["profile"] = [_row_json(row) for row in rows]
    if found is not None:
        document["verify"] = [check.to_json() for check in found.outputs]
        document["regions"] = [check.to_json() for check in found.regions]
    if as_json:
        emit_json(document)
    else:
        _print(document, results)
    if found is not None:
        found.require_agreement()


def _row_json(row: ProfileRow) -> dict[str, object]:
    times = {"ms": row.milliseconds, "share": row.share, "count": row.count}
    return {"label": row.label, "nodes": list(row.nodes), **times}


def _asked(
    model: Path, settings: BuildSettings, given: str | Mapping[str, np.ndarray]
) -> Mapping[str, Sequence[int]]:
    """Return the shapes that made-up inputs of an artifact shall have; a model is compiled so."""
    if not settings.shapes or not _is_artifact(model, settings.host):
        return {}
    if given != RANDOM:
        raise UsageError("the arrays of --inputs have shapes, so --shape has no meaning")
    return largest(settings.shapes)


def _say_sizes(sizes: Mapping[str, int]) -> None:
    """Say what open sizes are in a run whose inputs are made up."""
    if sizes:
        values = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        echo(f"note: the inputs are made up, with {values} (--shape, --inputs FILE.npz)", err=True)


def _verified(
    source: Path,
    passport: Passport,
    begin: Callable[[str], Executable],
    settings: BuildSettings,
    *,
    inputs: Mapping[str, np.ndarray],
    results: Mapping[str, np.ndarray],
) -> Verification:
    """Compare a run with the reference, and say what was not compared."""
    with require_tools("--verify"):
        from intarsia_tools.verify import verify_run  # runs without it do without the tools
    found = verify_run(
        source,
        passport,
        begin,
        inputs=inputs,
        results=results,
        host=settings.host,
        shapes=largest(settings.shapes),
        values=settings.options["values"],
    )
    if not found.is_comparable:
        echo("the regions cannot be compared: they were cut in another way", err=True)
    say_not_compared(passport, len(found.regions))
    return found


def _timing(results: Mapping[str, np.ndarray], times: Sequence[float]) -> Document:
    """What is document of every run: its outputs, and how long it took in milliseconds."""
    return {
        "outputs": [
            {"name": name, "shape": list(array.shape), "dtype": str(array.dtype)}
            for name, array in results.items()
        ],
        "runs": len(times),
        "median_ms": statistics.median(times),
        "min_ms": min(times),
    }


def _is_artifact(model: Path, host: Host) -> bool:
    """Whether a file is an artifact; zip archives are, unless their suffix is a frontend's."""
    name = model.name.lower()
    suffixes = tuple(one.lower() for row in host.frontends() for one in row.suffixes)
    return is_artifact(model) and not is_program(model) and not name.endswith(suffixes)


def _reference(model: Path, reference: Path | None, host: Host) -> Path:
    if reference is not None:
        return reference
    if _is_artifact(model, host):
        raise UsageError(
            "--verify needs the model that the artifact was compiled from", hint="--model FILE.onnx"
        )
    return model


def _opener(
    model: Path, settings: BuildSettings, threads: int | None, signed_by: Path | None
) -> Callable[[str | None], Executable]:
    """Return what loads an artifact, or what a model is compiled to, for an executor."""
    if _is_artifact(model, settings.host):
        if settings.target.is_given:
            raise UsageError(
                "--target is for models; an artifact has its own target",
                hint=f"leave --target out, or name the model that '{model}' was compiled from",
            )

        def from_file(executor: str | None) -> Executable:
            return load(model, threads=threads, executor=executor, signed_by=signed_by)

        return from_file
    if signed_by is not None:
        raise UsageError(f"'{model}' is no artifact; --signed-by is for artifacts")
    if settings.target.text is None:
        hint = f"--target, of: {', '.join(settings.host.backends()) or 'none is installed'}"
        raise UsageError(f"'{model}' is no artifact, and a model needs a target", hint=hint)
    artifact = compile_model(model, settings)
    echo(str(artifact.placement), err=True)

    def from_memory(executor: str | None) -> Executable:
        return artifact.load(threads=threads, executor=executor)

    return from_memory


def _profile(
    executable: Executable, inputs: Mapping[str, np.ndarray], repeat: int
) -> tuple[ProfileRow, ...]:
    """Time each step of what runs these inputs; nothing if it cannot be walked."""
    program, arrays = executable, inputs
    if isinstance(executable, SizesExecutor):
        program, arrays = executable.fitted(inputs)
    if not isinstance(program, GraphExecutor | VmExecutor | OpenExecutor):
        return ()
    return program.profile(arrays, repeat)


def _timed(
    executable: Executable, arrays: dict[str, np.ndarray], repeat: int, warmup: int, duration: int
) -> tuple[dict[str, np.ndarray], list[float]]:
    """Warm up, then run ``repeat`` times and for ``duration`` seconds; return results and ms."""
    results = executable.run(arrays)
    for _ in range(warmup - 1):
        executable.run(arrays)
    times: list[float] = []
    end = time.perf_counter() + duration
    while len(times) < repeat or time.perf_counter() < end:
        start = time.perf_counter()
        results = executable.run(arrays)
        times.append(1e3 * (time.perf_counter() - start))
    return plain_arrays(results), times


def _print(document: Document, results: dict[str, np.ndarray]) -> None:
    rows = [
        (name, str(array.dtype), "x".join(map(str, array.shape)), _range(array))
        for name, array in results.items()
    ]
    table(rows, ("output", "dtype", "shape", "range"))
    echo(f"{document['median_ms']:.3f} ms (median of {document['runs']})")
    if "profile" in document:
        echo("")
        _print_profile(document["profile"])
    for check in (*document.get("regions", ()), *document.get("verify", ())):
        verdict = "ok" if check["ok"] else "DIFFERS"
        echo(f"verify {check['name']}: {verdict}, largest error {float(check['max_error']):.3g}")


def _print_profile(rows: Sequence[Document]) -> None:
    """Print a line for each step; how often steps ran if control flow decided it."""
    counted = any(row["count"] != 1 for row in rows)
    lines = [
        (
            f"{row['ms']:.3f}",
            f"{100 * row['share']:.1f}",
            *([str(row["count"])] if counted else []),
            row["label"],
            " ".join(row["nodes"]),
        )
        for row in rows
    ]
    table(lines, ("ms", "%", *(["runs"] if counted else []), "step", "nodes"))


def _range(array: np.ndarray) -> str:
    if not array.size:
        return "empty"
    if array.dtype.kind == "U":
        return "text"
    low, high = array.min(), array.max()
    return f"{low:.6g} .. {high:.6g}" if array.dtype.kind == "f" else f"{low} .. {high}"
