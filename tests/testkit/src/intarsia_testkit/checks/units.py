# SPDX-License-Identifier: Apache-2.0
"""Tier 2: units state the version of their format, and a loader believes nothing it reads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from intarsia.driver.artifact import Artifact
from intarsia_runtime.artifact.unit import UNSTATED
from intarsia_runtime.discovery import find_loader
from intarsia_runtime.errors import IntarsiaError

from ..blocks import choose_blocks, sample_graph
from ..hostile import fuzz
from ..marks import check, refuse
from ..running import compile_module, not_run, why
from ..subject import Subject

MUTATIONS = 60


class UnitChecks:
    """What a unit says of itself, and what becomes of one that lies."""

    @check(tier=2)
    def test_units_state_their_format(self, subject: Subject) -> None:
        """Every unit has the version of its format, and the plugin's loader reads it."""
        problems: list[str] = []
        for unit in _compiled(subject).passport.units:
            if not unit.plugin.startswith(f"{subject.found.distribution}=="):
                continue
            if unit.format == UNSTATED:
                problems.append(f"unit '{unit.name}' states no format")
            if unit.loader.startswith("shared-library"):
                continue  # the runtime's own
            try:
                find_loader(unit)
            except IntarsiaError as error:
                problems.append(f"unit '{unit.name}': {why(error)}")
        refuse(problems, hint="CompiledUnit(format=1), and @reads_formats(1) at the loader")

    @check(tier=2)
    def test_units_that_lie_are_refused(self, subject: Subject) -> None:
        """Mutated metadata, digests made anew: no signal, no exception but Intarsia's, no hang."""
        not_run(subject)
        with TemporaryDirectory() as folder:
            path = _compiled(subject).save(Path(folder) / "good.intarsia")
            outcome = fuzz(path, MUTATIONS, batch=MUTATIONS)
        raised = [
            f"the loader or its function raises: {text}"
            for text in outcome.words.get(5, Counter[str]())
            if " fails on " in text or " failed in " in text
        ]
        refuse(
            [*outcome.faults, *raised][:10],
            hint="read files with request.read_json, within request.interpreting",
        )


def _compiled(subject: Subject) -> Artifact:
    host = subject.host()
    blocks = choose_blocks(subject.table(host) if subject.is_accelerator else None)
    return compile_module(subject, sample_graph(blocks), host=host)
