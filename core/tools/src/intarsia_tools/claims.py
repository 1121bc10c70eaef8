# SPDX-License-Identifier: Apache-2.0
"""Measures what a model's claims cost: each once on a machine, in a child process, and kept.

A claim is compiled alone and timed; so is each heavy call of it on the fallback. What is kept goes
by content: operators, attributes and types, the parts of the target, their plugins and versions,
and the processor. What does not compile or run alone is kept as such, and stays estimated.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from msgspec import Struct

from intarsia.driver.stages import support_of
from intarsia.driver.version import __version__
from intarsia.host.trial import cache_folder
from intarsia.target.detect import machine_facts
from intarsia_ir.graph.expr import Call, Function, Var, call
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_ir.partition.annotate import ClaimedMatch, annotate
from intarsia_ir.partition.measured import MeasuredSeconds, function_of_calls, signature_of_calls
from intarsia_ir.regions.work import is_heavy
from intarsia_runtime.artifact.abandoned import temporary_folder
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import IntarsiaError, ResourceError
from intarsia_runtime.threads import choose_threads

from .append import append_line

if TYPE_CHECKING:
    from intarsia.driver.artifact import Artifact
    from intarsia.host.host import Host
    from intarsia.target.target import CompositeTarget, Target

K = TypeVar("K")
Make: TypeAlias = "Callable[[IRModule, CompositeTarget], Artifact]"
SCHEMA = 1
SECONDS = 60.0
"""When the timing of one claim is ended."""

_CHILD = (
    "import json, sys; job = json.load(sys.stdin); sys.path[:] = job['path']; "
    "from intarsia_tools.timing import run; run(job)"
)


class ClaimMeasurement(Struct, frozen=True, eq=False):
    """Something to be measured.

    Attributes:
        target: The parts that compute it: an accelerator and the fallback, or the fallback.
        signature: What it is; with the target, what it is kept under.
        function: It, alone.
    """

    target: CompositeTarget
    signature: str
    function: Function


def measure_claims(
    host: Host, module: IRModule, target: CompositeTarget, make: Make
) -> MeasuredSeconds:
    """Return what the claims of a prepared module cost; measures those of which it is not known.

    A match of which the plugin states seconds, and one without a heavy call, is not measured.

    Args:
        host: Knows the accelerators.
        module: A prepared module.
        target: What it would be cut among.
        make: Builds a module, with all that the accelerator of its target takes.

    Raises:
        PluginError: A plugin failed when it was asked.
    """
    alone = replace(target, accelerators=())
    claims: dict[tuple[str, str], ClaimMeasurement] = {}
    own: dict[str, ClaimMeasurement] = {}
    for part in target.accelerators:
        pair = replace(target, accelerators=(part,))
        for claimed in _claims(host, module, part):
            calls = claimed.match.calls
            heavy = [one for one in calls if is_heavy(one)]
            for one in heavy:
                _add(own, signature_of_calls([one]), [one], alone)
            if heavy and claimed.support.seconds is None:
                _add(claims, (part.kind.name, signature_of_calls(calls)), calls, pair)
    x = Var("x", TensorType((1,), DType.FLOAT32))
    empty = ClaimMeasurement(alone, "an empty run", Function((x,), call(OPERATORS["negative"], x)))
    found = _seconds(host, make, [empty, *own.values(), *claims.values()])
    rest = found[empty] or 0.0
    return MeasuredSeconds(
        {key: max(0.0, s - rest) for key, job in claims.items() if (s := found[job]) is not None},
        {key: max(0.0, s - rest) for key, job in own.items() if (s := found[job]) is not None},
    )


def _claims(host: Host, module: IRModule, part: Target) -> list[ClaimedMatch]:
    """All matches that an accelerator takes, asked alone."""
    annotated = annotate(module.main, [(part.kind.name, support_of(host, part))])
    return list({claimed.match.root: claimed for claimed in annotated.claimed.values()}.values())


def _add(
    jobs: dict[K, ClaimMeasurement], key: K, calls: Sequence[Call], target: CompositeTarget
) -> None:
    """Add a job unless there is one like it, or the calls cannot stand alone."""
    if key in jobs:
        return
    function = function_of_calls(calls)
    if function is not None:
        jobs[key] = ClaimMeasurement(target, signature_of_calls(calls), function)


def _seconds(
    host: Host, make: Make, jobs: Sequence[ClaimMeasurement]
) -> Mapping[ClaimMeasurement, float | None]:
    """What each job takes, from the file of costs or measured now; ``None`` if it does not run."""
    machine = _machine()
    keys = {job: _key(host, job, machine) for job in jobs}
    path = costs_path(os.environ)
    known = {} if path is None else read_costs(path)
    missing = [job for job in jobs if keys[job] not in known]
    with temporary_folder("claims") as folder:
        files = [_compiled(make, job, folder / f"{at}") for at, job in enumerate(missing)]
        built = [file for file in files if file is not None]
        times = dict(zip(built, _timed(built, folder), strict=True))
        lines: list[str] = []
        for job, file in zip(missing, files, strict=True):
            seconds = None if file is None else times[file]
            known[keys[job]] = seconds
            row = {"key": keys[job], "target": str(job.target), "what": job.signature}
            lines.append(json.dumps({"schema": SCHEMA, **row, "seconds": seconds}))
    if path is not None and lines:
        try:
            append_line(path, "\n".join(lines))
        except ResourceError as error:
            warnings.warn(f"what was measured is not kept: {error.message}", stacklevel=2)
    return {job: known[keys[job]] for job in jobs}


def _compiled(make: Make, job: ClaimMeasurement, path: Path) -> Path | None:
    """Compile a job; ``None`` if a plugin takes it in the model and cannot compile it alone."""
    module = IRModule.from_function(job.function)
    try:
        made = make(module, job.target)
        if job.target.accelerators and made.placement.offloaded < made.placement.nodes:
            return None
        return made.save(path)
    except IntarsiaError:
        return None


def _timed(files: Sequence[Path], folder: Path) -> list[float | None]:
    """Time artifacts; one that ends the process, or takes too long, costs itself alone."""
    answer = folder / "answer"
    found: list[float | None] = []
    while len(found) < len(files):
        rest = files[len(found) :]
        answer.unlink(missing_ok=True)
        job = {
            "path": [os.path.abspath(part) for part in sys.path],
            "files": [str(file) for file in rest],
            "answer": str(answer),
        }
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [sys.executable, "-c", _CHILD], input=json.dumps(job), text=True, check=False,
                capture_output=True, timeout=SECONDS * len(rest),
            )  # fmt: skip
        lines = answer.read_text(encoding="utf-8").splitlines() if answer.exists() else []
        answers: list[object] = [json.loads(line) for line in lines]
        found += [float(one) if isinstance(one, float) else None for one in answers]
        if len(answers) < len(rest):
            found.append(None)  # the one that the child was at
    return found


def _machine() -> Mapping[str, object]:
    facts = machine_facts()
    threads = choose_threads(None)
    return {"cpu": facts.cpu, "arch": facts.arch, "os": facts.os, "threads": threads}


def _key(host: Host, job: ClaimMeasurement, machine: Mapping[str, object]) -> str:
    """A digest of all that decides what a job takes."""
    kinds = dict.fromkeys(part.kind.name for part in job.target.targets)
    facts = {
        "schema": SCHEMA,
        "intarsia": __version__,
        "target": str(job.target),
        "what": job.signature,
        "machine": machine,
        "plugins": {name: host.fingerprint(name) or host.owner(name).version for name in kinds},
        "environment": host.environment_versions(job.target.targets),
    }
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def costs_path(env: Mapping[str, str]) -> Path | None:
    """Return the file with what was measured; ``None`` if there is no folder for it."""
    folder = cache_folder(env)
    return None if folder is None else folder / "claims.jsonl"


def read_costs(path: Path) -> dict[str, float | None]:
    """Read what was measured, by key; lines that are no costs are left out."""
    found: dict[str, float | None] = {}
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return found
    for line in text.splitlines():
        with suppress(ValueError, RecursionError):
            row: object = json.loads(line)
            if isinstance(row, dict):
                fields = cast("Mapping[str, object]", row)
                key, seconds = fields.get("key"), fields.get("seconds")
                known = isinstance(seconds, float) and 0.0 <= seconds < SECONDS
                if fields.get("schema") == SCHEMA and isinstance(key, str):
                    found[key] = cast("float", seconds) if known else None
    return found
