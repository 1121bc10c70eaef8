# SPDX-License-Identifier: Apache-2.0
"""Tier 2: the same question has the same answer, in this process and in another."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from intarsia.driver.stages import compile_regions, partition_module
from intarsia_ir.partition.cost import Plan
from intarsia_runtime.artifact.unit import CompiledUnit

from ..blocks import choose_blocks, random_graph, sample_graph
from ..child import ChildFailed, ask
from ..marks import check, decline, refuse
from ..running import compile_module, load_artifact, run_artifact
from ..subject import Subject

SEEDS = ("1", "4242")
"""Hash seeds of the two processes."""


def _digests(subject: Subject, seed: str) -> Mapping[str, Any]:
    return ask("digests", subject.name, subject.settled, PYTHONHASHSEED=seed).facts


class DeterminismChecks:
    """Bytes do not depend on hash seeds, on order, or on what was compiled before."""

    @check(tier=2)
    def test_determinism_two_processes_give_the_same_bytes(self, subject: Subject) -> None:
        """Two processes with two hash seeds make the same verdicts, units and artifact."""
        try:
            with ThreadPoolExecutor(len(SEEDS)) as pool:
                asked = [pool.submit(_digests, subject, seed) for seed in SEEDS]
            first, second = (one.result() for one in asked)
        except ChildFailed as failure:
            refuse([f"compiling in a fresh process {failure}"])
            return
        names = {*first, *second}
        refuse(
            (
                f"{n} differs between two processes"
                for n in sorted(names)
                if first.get(n) != second.get(n)
            ),
            hint="iterate over dicts and sorted lists, never over sets; no time, no id()",
        )

    @check(tier=2)
    def test_determinism_units_do_not_depend_on_what_was_compiled_before(
        self, subject: Subject
    ) -> None:
        """A region gives the same unit again after others were compiled."""
        if not subject.is_accelerator:
            decline("a backend compiles no regions")
        host = subject.host()
        blocks = choose_blocks(subject.table(host))
        target = subject.composite(host)
        regions = partition_module(host, sample_graph(blocks), target, Plan.GREEDY).regions
        others = partition_module(
            host, random_graph(blocks, [(0, 0, 0)] * 3, (0,)), target, Plan.GREEDY
        ).regions
        first = compile_regions(host, regions, target)
        compile_regions(host, others, target)
        again = compile_regions(host, regions, target)
        refuse(
            f"unit '{a.name}' differs when it is compiled again"
            for a, b in zip(first, again, strict=True)
            if _content(a) != _content(b)
        )

    @check(tier=2)
    def test_determinism_runs_do_not_depend_on_runs_before(self, subject: Subject) -> None:
        """Running A, B, A gives for A the same bits, in one executable and in a new one."""
        host = subject.host()
        blocks = choose_blocks(subject.table(host) if subject.is_accelerator else None)
        module = sample_graph(blocks)
        artifact = compile_module(subject, module, host=host)
        names = [param.name for param in module.main.params]
        a, b = ({n: blocks.random(10 * s + i) for i, n in enumerate(names)} for s in (1, 2))
        executable = load_artifact(subject, artifact, threads=1)
        try:
            runs = [executable.run(inputs) for inputs in (a, b, a)]
            runs = [{k: np.array(v) for k, v in run.items()} for run in runs]
        finally:
            executable.close()
        fresh = run_artifact(subject, artifact, a, threads=1)
        problems = [
            f"output '{name}' of the third run differs from the first, with the same inputs"
            for name in runs[0]
            if runs[0][name].tobytes() != runs[2][name].tobytes()
        ]
        problems += [
            f"output '{name}' differs in a newly loaded executable"
            for name, array in zip(runs[0], fresh, strict=True)
            if runs[0][name].tobytes() != array.tobytes()
        ]
        refuse(problems, hint="a loaded unit keeps nothing between calls")


def _content(unit: CompiledUnit) -> object:
    constants = {name: array.tobytes() for name, array in unit.constants.items()}
    return unit.loader, dict(unit.files), constants, unit.cpu_features, dict(unit.versions)
