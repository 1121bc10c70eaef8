# SPDX-License-Identifier: Apache-2.0
"""Every case of every operator that is taken: a real engine for SM80, and the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from intarsia_ir.graph.expr import Function, make_tuple
from intarsia_ir.partition.annotate import annotate
from intarsia_ir.regions.support import Code, Support
from intarsia_tensorrt.codegen import write_network
from intarsia_tensorrt.plan import build_plan
from intarsia_tensorrt.support import support_table
from intarsia_tensorrt.target import TensorrtOptions
from intarsia_testkit.cases import cases_by_operator
from intarsia_testkit.cases.case import Case, difference, graph_of
from intarsia_testkit.expressions import expected

from .readback import evaluate
from .regions import library, region_of

CASES = cases_by_operator()
TOGETHER = 24
"""Cases in one network."""


def verdict(case: Case) -> Support:
    """What the plugin says of a case."""
    params, results, _ = graph_of([case])
    body = results[0][0] if len(results[0]) == 1 else make_tuple(results[0])
    annotated = annotate(Function(tuple(params), body), [("tensorrt", support_table())])
    return next(column[0] for column in annotated.verdicts.values())


def variants(case: Case) -> list[Case]:
    """A case as it is, and with all operands but the first as weights."""
    fixed = replace(case, weights=tuple(range(1, len(case.operands))))
    return [case] if fixed.weights == case.weights else [case, fixed]


@pytest.mark.parametrize("operator", CASES)
def test_declines_with_a_reason(operator: str) -> None:
    said = {str(case): verdict(case) for case in CASES[operator]}
    assert [
        name
        for name, answer in said.items()
        if not answer and (not answer.detail or answer.code is Code.PLUGIN_ERROR)
    ] == []


@pytest.mark.parametrize("operator", CASES)
def test_builds_and_computes(operator: str) -> None:
    every = (variant for case in CASES[operator] for variant in variants(case))
    taken = [case for case in every if verdict(case)]
    for start in range(0, len(taken), TOGETHER):
        chosen = taken[start : start + TOGETHER]
        assert [text for text in problems(chosen) if text] == []


def problems(cases: Sequence[Case]) -> list[str]:
    """What is wrong with the numbers of cases, all in one engine."""
    params, results, inputs = graph_of(cases)
    function = Function(tuple(params), make_tuple([one for group in results for one in group]))
    arrays = list(inputs.values())
    draft = write_network(region_of(function), library())
    assert build_plan(draft, TensorrtOptions())
    found = evaluate(draft.trt, draft.network, arrays)
    with np.errstate(all="ignore"):
        wanted = expected(function, arrays)
    texts = [
        difference(mine, np.asarray(right), sums=True, slack=4.0)
        for mine, right in zip(found, wanted, strict=True)
    ]
    names = [str(case) for case, group in zip(cases, results, strict=True) for _ in group]
    return [f"{name}: {text}" if text else "" for name, text in zip(names, texts, strict=True)]
