# SPDX-License-Identifier: Apache-2.0
"""Tier 1: using the plugin leaves no trace in the process, on the screen, or on the disk."""

from __future__ import annotations

from functools import cache

import pytest

from ..child import COMPILE_ONLY, Answer, ChildFailed, ask
from ..marks import check, refuse
from ..running import not_run
from ..subject import Subject

CACHE = "home/.cache/intarsia/"
"""The user's cache folder; the host keeps there, in ``plugins``, what it read of manifests."""


@cache
def _life(name: str, target: str, compile_only: str) -> Answer | ChildFailed:
    """Compile and run a model in a fresh process, once for all checks."""
    settings = {COMPILE_ONLY: "1"} if compile_only else {}
    try:
        return ask("life", name, target, **settings)
    except ChildFailed as failure:
        return failure


def life(subject: Subject) -> Answer:
    """What a whole life of the plugin left behind; fails the check if it did not end well."""
    found = _life(subject.name, subject.settled, subject.compile_only)
    if isinstance(found, ChildFailed):
        pytest.fail(f"compiling and running a model in a fresh process {found}", pytrace=False)
    return found


class IsolationChecks:
    """Each check looks at one kind of trace of the same life."""

    @check(tier=1)
    def test_isolation_a_model_runs(self, subject: Subject) -> None:
        """A model is compiled, and something of it is the plugin's."""
        refuse(
            [] if life(subject).facts["offloaded"] else ["nothing of a model went to the plugin"]
        )
        not_run(subject)

    @check(tier=1)
    def test_isolation_process_state_is_kept(self, subject: Subject) -> None:
        """Working directory, sys.path, locale, signals, warnings, np.errstate... are kept."""
        refuse(life(subject).facts["state"])

    @check(tier=1)
    def test_isolation_nothing_is_patched(self, subject: Subject) -> None:
        """No function of Python, NumPy or Intarsia is replaced."""
        refuse(f"{name} is replaced" for name in life(subject).facts["replaced"])

    @check(tier=1)
    def test_isolation_nothing_is_printed(self, subject: Subject) -> None:
        """Nothing appears on stdout or stderr."""
        printed = life(subject).printed
        refuse([f"printed: {printed[:500]}"] if printed else [])

    @check(tier=1)
    def test_isolation_no_file_is_left(self, subject: Subject) -> None:
        """No file stays in the working, home or temporary folder, nor in the package.

        The user's cache folder is for caches: there a plugin has a folder of its own name.
        """
        answer = life(subject)
        caches = tuple(f"{CACHE}{name}/" for name in ("plugins", subject.name))
        left = [name for name in answer.files if not name.startswith(caches)]
        refuse(f"left the file {name}" for name in (*left, *answer.facts["package"]))

    @check(tier=1)
    def test_isolation_inputs_are_not_changed(self, subject: Subject) -> None:
        """Neither the arrays a model is run with nor its weights are written to."""
        facts = life(subject).facts
        refuse(
            [f"changed the input '{name}'" for name in facts["inputs"]]
            + [f"changed a weight of type {name}" for name in facts["weights"]]
        )
        not_run(subject)
