# SPDX-License-Identifier: Apache-2.0
"""The child process of a trial: activates one plugin, and says what that did to the process."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from typing import NoReturn, cast

from intarsia_runtime.errors import IntarsiaError

from .discovery import Found, find_plugins
from .process_state import ProcessState, openmp_runtimes

_NOISE_LIMIT = 64 << 20


def run(job: Mapping[str, object]) -> NoReturn:
    """Do the trial that ``job`` describes, write the answer, and end the process at once."""
    _limit_files()
    answer: dict[str, object] = {"token": job["token"]}
    _write(job, answer, "import")
    plugin = _find(str(job["name"]), str(job["distribution"]))
    from .activation import activate, new_hooks  # not part of what the import costs

    _load_contract()
    before = ProcessState.take()
    threads = set(threading.enumerate())
    began = time.perf_counter()
    hooks = new_hooks()
    probes: dict[str, object] = {}
    try:
        activated = activate(hooks, plugin, restore=False)
        answer["seconds"] = time.perf_counter() - began
        if job["probe"]:
            _write(job, answer, "probe")
            for kind in activated.kinds:
                _probe(hooks, plugin, kind, probes)
    except IntarsiaError as error:
        answer["error"], answer["remedy"] = error.message, plugin.remedy
    except KeyboardInterrupt:  # the parent will be interrupted itself
        answer["error"] = "interrupted"
    changes = list(before.changes())
    changes += [
        f"leaves the thread '{thread.name}' running"
        for thread in threading.enumerate()
        if thread not in threads and not thread.daemon
    ]
    runtimes = openmp_runtimes()
    if len(runtimes) > 1:
        changes.append(f"loads several OpenMP runtimes: {', '.join(runtimes)}")
    answer |= {"changes": changes, "probes": probes}
    _write(job, answer, "done")
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(0)  # threads of the plugin must not hold it up


_CONTRACT = (
    "intarsia_ir.graph.expr",
    "intarsia_ir.graph.module",
    "intarsia_ir.regions.region",
    "intarsia_ir.regions.support",
    "intarsia.target.target",
)


def _load_contract() -> None:
    """Import what a plugin could replace in: only what is there before is compared."""
    for name in _CONTRACT:
        import_module(name)


def _find(name: str, distribution: str) -> Found:
    for plugin in find_plugins():
        if (plugin.name, plugin.distribution) == (name, distribution):
            return plugin
    raise SystemExit(f"{distribution} is not on the path of the child")


def _probe(hooks: object, plugin: Found, kind: object, probes: dict[str, object]) -> None:
    """Ask about one kind with all options at their defaults."""
    import pluggy

    from ..target.kind import TargetKind
    from ..target.kind_table import make_target
    from .probe import Probe
    from .routing import ask, implements

    assert isinstance(hooks, pluggy.PluginManager)
    assert isinstance(kind, TargetKind)
    known = cast("TargetKind", kind)  # of any options
    if not implements(hooks, "probe", plugin.name):
        return
    try:
        target = make_target(known, {})
        if implements(hooks, "canonicalize_target", plugin.name):
            answer = ask(hooks, "canonicalize_target", plugin, {"target": target})
            target = target if answer is None else answer
        found = ask(hooks, "probe", plugin, {"target": target})
    except IntarsiaError as error:
        probes[kind.name] = {"error": error.message}
    else:
        assert isinstance(found, Probe)
        probes[kind.name] = asdict(found)


def _write(job: Mapping[str, object], answer: Mapping[str, object], stage: str) -> None:
    path = str(job["answer"])
    with open(path + ".new", "w", encoding="utf-8") as stream:
        json.dump({**answer, "stage": stage}, stream)
    os.replace(path + ".new", path)


def _limit_files() -> None:
    """Keep a plugin that prints without end, or crashes, from filling the disk."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_NOISE_LIMIT, _NOISE_LIMIT))
