# SPDX-License-Identifier: Apache-2.0
"""ONNX's own node tests, compiled and run on every target: each passes or is refused.

Every eighth case runs always; all of them with ``-m exhaustive``.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import intarsia
from intarsia_ir.partition.cost import Plan
from intarsia_runtime.artifact.random_state import RANDOM_STATE
from intarsia_runtime.errors import GateFailed, ResourceError, UnsupportedError

from .node_tensors import all_agree, imported_with, node_cases, tensors_of
from .onnx_cases import collect
from .onnx_nodes import run_case
from .targets import EMULATED, TARGETS, fallback_has_a_test, without_effort

EVERY = 8
SPARSE = 16  # of the cases as they are
KNOWN = "test_attention_4d_causal_fp16"  # two units in the last place of float16
SMALLEST = 1e-6  # percent of a model's calls
PARTS = 4  # so that several processes share them
FEWEST_PASSES = 1420  # of all; raise it when more operators are supported, never lower it
SAME = "as for its fallback"
DRAWN = "numbers are drawn"
GOOD = ("passed", "refused", "no tensors", SAME, DRAWN)


def outcome(case, target: str, *, part: float | None = None) -> str:
    """``passed``, ``refused`` by the importer or the build, ``no tensors``, or what is wrong.

    With ``part``, percent that accelerators must take, it is ``SAME`` if they take less. A model
    that draws at random may give other numbers: ``DRAWN``.
    """
    tensors = tensors_of(case)
    if tensors is None:
        return "no tensors"
    values, wanted = tensors
    try:
        module = imported_with(case.model, values)
        artifact = intarsia.build(module, target=target, plan=Plan.GREEDY, require_offload=part)
    except GateFailed:
        return SAME
    except (UnsupportedError, ResourceError):
        return "refused"
    with artifact.load(threads=1) as executable:
        feeds = {spec.name: values[spec.name] for spec in executable.inputs}
        found = [np.array(value) for value in executable.run(feeds).values()]
    if all_agree(case, found, wanted):
        return "passed"
    return DRAWN if RANDOM_STATE in {param.name for param in module.main.params} else "wrong"


def run_all(cases: list, target: str) -> Counter[str]:
    """Count outcomes; fail with the names of all cases that are wrong or raise anything else."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    # What an accelerator takes no call of is the code that the backend's own test runs.
    part = SMALLEST if fallback_has_a_test(target) else None
    for case in cases:
        try:
            found = outcome(case, target, part=part)
        except Exception as error:  # any escape is a failure of this test, with the case's name
            found = f"{type(error).__name__}: {error}"
        counts[found if found in GOOD else "wrong"] += 1
        if found not in GOOD:
            wrong.append(f"{case.name}: {found}")
    assert not wrong, "\n".join(wrong)
    return counts


@pytest.mark.parametrize("target", [without_effort(target) for target in TARGETS])
@pytest.mark.parametrize("part", range(PARTS))
def test_every_eighth_node_case(part: int, target: str) -> None:
    cases = node_cases()[part * EVERY :: PARTS * EVERY]
    counts = run_all(cases, target)
    assert counts["passed"] + counts[SAME] >= FEWEST_PASSES // (PARTS * EVERY) - 10


@pytest.mark.parametrize("part", range(PARTS))
def test_every_sixteenth_case_as_it_is(part: int) -> None:
    """Without parameters bound: what is not compiled runs in NumPy on the host."""
    cases = list(collect())[part * SPARSE :: PARTS * SPARSE]
    outcomes = [run_case(case, "llvm") for case in cases]
    bad = {f"{o.name}: {o.reason}" for o in outcomes if o.status not in ("pass", "refused")}
    assert not {text for text in bad if not text.startswith(KNOWN)}
    assert sum(o.status == "pass" for o in outcomes) >= len(cases) - 3


def test_every_simple_model() -> None:
    """Models of a few nodes: shapes that others compute, strings, sequences, derivatives."""
    outcomes = [run_case(case, "llvm") for case in collect(("simple",))]
    assert {outcome.name: outcome.reason for outcome in outcomes if outcome.status != "pass"} == {}
    assert len(outcomes) >= 23


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", [*map(without_effort, TARGETS), *EMULATED])
def test_all_node_cases(target: str) -> None:
    counts = run_all(node_cases(), target)
    assert counts["passed"] + counts[SAME] >= FEWEST_PASSES
