# SPDX-License-Identifier: Apache-2.0
"""What is measured in a process of its own: ``python -m intarsia_testkit.child TASK NAME TARGET``.

The answer, one JSON object, goes to the file that ``INTARSIA_TESTKIT_ANSWER`` names; what appears
on stdout and stderr is what the plugin printed.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ANSWER = "INTARSIA_TESTKIT_ANSWER"
COMPILE_ONLY = "INTARSIA_TESTKIT_COMPILE_ONLY"
"""Set: what is compiled cannot run on this machine."""

LIMIT = 120
"""Seconds that a task may take."""


@dataclass(frozen=True)
class Answer:
    """What a child left.

    Attributes:
        facts: Its answer.
        printed: What appeared on stdout and stderr.
        files: Files it left in its working, home and temporary folders.
    """

    facts: Mapping[str, Any]
    printed: str
    files: tuple[str, ...]


class ChildFailed(Exception):
    """A child ended without an answer."""


def ask(task: str, name: str, target: str, **environment: str) -> Answer:
    """Run a task in a fresh process with a working, home and temporary folder of its own.

    Raises:
        ChildFailed: It died, raised, or took too long.
    """
    with tempfile.TemporaryDirectory(prefix="intarsia-testkit-") as folder:
        places = {key: Path(folder) / key for key in ("work", "home", "tmp", "answer")}
        for place in places.values():
            place.mkdir()
        answer = places.pop("answer") / "answer.json"
        settings = {
            ANSWER: str(answer),
            "HOME": str(places["home"]),
            "TMPDIR": str(places["tmp"]),
            "XDG_CACHE_HOME": str(places["home"] / ".cache"),
            "INTARSIA_CACHE_DIR": "",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        }
        command = [sys.executable, "-m", "intarsia_testkit.child", task, name, target]
        try:
            run = subprocess.run(
                command, cwd=places["work"], env={**os.environ, **settings, **environment},
                stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                timeout=LIMIT,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ChildFailed(f"took more than {LIMIT} seconds") from None
        printed = (run.stdout + run.stderr).strip()
        if run.returncode or not answer.exists():
            raise ChildFailed(f"ended with exit code {run.returncode}: {printed[-2000:]}")
        left = [p for place in places.values() for p in place.rglob("*") if not p.is_dir()]
        files = tuple(sorted(str(path.relative_to(folder)) for path in left))
        return Answer(json.loads(answer.read_text(encoding="utf-8")), printed, files)


def activation(name: str, target: str) -> dict[str, object]:
    """Time that the first use of a kind takes, and modules it imports.

    The host's trial of the plugin in a process of its own, which comes once after installing, is
    over before the clock starts; time in which other processes had the processor does not count.
    """
    from intarsia.host.trial import survive

    from .subject import open_subject

    importlib.import_module("numpy")  # what every plugin may use is loaded before the clock starts
    subject = open_subject(name, target)
    survive(subject.found, os.environ)
    host = subject.host()
    importlib.import_module("intarsia.plugin")  # the host's own, not the plugin's time
    before, mapped = set(sys.modules), _mapped()
    start = time.perf_counter() - _waited()
    for kind in subject.kinds:
        host.kind(kind.name)
    seconds = time.perf_counter() - _waited() - start
    return {
        "seconds": seconds,
        "modules": sorted(set(sys.modules) - before),
        "libraries": sorted(name for name in _mapped() - mapped if "cpython-" not in name),
    }


def _waited() -> float:
    """Seconds that this thread has waited for a processor; 0 where the kernel does not say."""
    try:
        text = Path("/proc/thread-self/schedstat").read_text(encoding="utf-8")
        return int(text.split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _mapped() -> set[str]:
    """Names of the shared libraries in this process."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return {Path(line.split()[-1]).name for line in lines if ".so" in line}


def life(name: str, target: str) -> dict[str, object]:
    """Compile, load and run a model, if it can, and say what changed in the process."""
    from intarsia_ir.graph.expr import Constant
    from intarsia_ir.graph.walk import post_order

    from .blocks import choose_blocks, sample_graph
    from .process_state import bound_names, changed, files_below, process_state, replaced
    from .running import compile_module, run_artifact
    from .subject import open_subject

    subject = open_subject(name, target)
    compile_only = bool(os.environ.get(COMPILE_ONLY))
    host = subject.host()
    package = [subject.source() or Path("/nonexistent")]
    # A first model without the plugin: what the host itself loads and caches is no change.
    _warm_up(subject)
    state, names, files = process_state(), bound_names(), files_below(*package)
    blocks = choose_blocks(subject.table(host) if subject.is_accelerator else None)
    module = sample_graph(blocks)
    weights = [n for n in post_order(module.main.body) if isinstance(n, Constant)]
    data = [weight.data.tobytes() for weight in weights]
    artifact = compile_module(subject, module, host=host)
    inputs = {p.name: blocks.random(i) for i, p in enumerate(module.main.params)}
    copies = {key: value.copy() for key, value in inputs.items()}
    for _ in range(0 if compile_only else 2):
        run_artifact(subject, artifact, inputs)
    after = process_state()
    return {
        "state": changed(state, after),
        "replaced": replaced(names, bound_names()),
        "package": sorted(files_below(*package) - files),
        "inputs": [k for k, v in inputs.items() if v.tobytes() != copies[k].tobytes()],
        "weights": [
            str(w.type) for w, d in zip(weights, data, strict=True) if w.data.tobytes() != d
        ],
        "offloaded": sum(len(region.nodes) for region in artifact.placement.regions)
        if subject.is_accelerator
        else 1,
    }


def _warm_up(subject: Any) -> None:
    from .blocks import choose_blocks, sample_graph
    from .running import compile_module, run_artifact
    from .subject import open_subject

    if not subject.is_accelerator:
        return
    backend = subject.target_text().rpartition(",")[2].split()[0]
    owner = open_subject(subject.host().owner(backend).name)
    blocks = choose_blocks(None)
    module = sample_graph(blocks)
    inputs = {p.name: blocks.random(i) for i, p in enumerate(module.main.params)}
    run_artifact(owner, compile_module(owner, module), inputs)


def digests(name: str, target: str) -> dict[str, object]:
    """Digests of everything that must not depend on the process: verdicts, units, the artifact."""
    from .blocks import choose_blocks, random_graph, sample_graph
    from .running import compile_module
    from .subject import open_subject

    subject = open_subject(name, target)
    host = subject.host()
    blocks = choose_blocks(subject.table(host) if subject.is_accelerator else None)
    many = [(3 * (i * 7 % 11), i % 3, i % 4) for i in range(12)]
    found: dict[str, object] = {
        "support rows": [row.name for row in subject.table(host).rows]
        if subject.is_accelerator
        else [],
        "accepted blocks": [block.name for block in blocks.taken],
    }
    graphs = {"sample": sample_graph(blocks), "wide": random_graph(blocks, many, (0, 1, 2, 3))}
    for label, module in graphs.items():
        artifact = compile_module(subject, module, host=host)
        found[f"regions of {label}"] = [list(r.nodes) for r in artifact.placement.regions]
        for unit in artifact.units:
            for file, content in sorted(unit.files.items()):
                digest = hashlib.sha256(content).hexdigest()
                found[f"{file} of unit {unit.name} of {label}"] = digest
        path = artifact.save(f"{label}.intarsia")
        found[f"artifact of {label}"] = hashlib.sha256(path.read_bytes()).hexdigest()
        path.unlink()
    return found


TASKS: Mapping[str, Callable[[str, str], dict[str, object]]] = {
    "activation": activation,
    "life": life,
    "digests": digests,
}


if __name__ == "__main__":
    task, subject_name, target_text = sys.argv[1:]
    facts = TASKS[task](subject_name, target_text)
    Path(os.environ[ANSWER]).write_text(json.dumps(facts), encoding="utf-8")
