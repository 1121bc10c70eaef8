# SPDX-License-Identifier: Apache-2.0
"""Tier 2: one artifact for inputs of every size, where sizes may be open."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia.driver.artifact import Artifact
from intarsia_ir.graph.module import IRModule
from intarsia_runtime.errors import IntarsiaError, UnsupportedError

from ..marks import check, decline, refuse
from ..open_graphs import GRAPHS
from ..running import compile_module, load_artifact, not_run, why, wrong_results
from ..subject import Subject


class OpenSizeChecks:
    """Models whose sizes only the run knows."""

    @check(tier=2)
    @pytest.mark.parametrize("graph", sorted(GRAPHS))
    def test_open_sizes(self, subject: Subject, graph: str) -> None:
        """One artifact computes what its operators do at several sizes, odd ones and 1 among them;
        declined if the plugin needs numbers.
        """
        function, shapes = GRAPHS[graph]()
        module = IRModule.from_function(function)
        try:
            artifact = compile_module(subject, module, host=subject.shared)
        except UnsupportedError as error:
            decline(why(error))
        if subject.is_accelerator and not artifact.placement.regions:
            details = (verdict.detail for verdict in artifact.placement.verdicts)
            decline(next((detail for detail in details if "open size" in detail), "nothing taken"))
        not_run(subject)
        refuse(_problems(subject, artifact, module, shapes))


def _problems(
    subject: Subject, artifact: Artifact, module: IRModule, shapes: list[tuple[int, ...]]
) -> list[str]:
    executable = load_artifact(subject, artifact)
    (param,) = module.main.params
    problems: list[str] = []
    try:
        for seed, shape in enumerate(shapes):
            given = np.random.default_rng(seed).standard_normal(shape, np.float32)
            try:
                found = [
                    np.asarray(array) for array in executable.run({param.name: given}).values()
                ]
                message = wrong_results(module, {param.name: given}, found)
            except IntarsiaError as error:
                message = why(error)
            problems += [f"{list(shape)}: {message}"] if message else []
    finally:
        executable.close()
    return problems
