# SPDX-License-Identifier: Apache-2.0
"""The kernels of every operator, for every backend, are read back from their text as they are."""

from __future__ import annotations

import pytest

from intarsia.driver.stages import read_target
from intarsia.host.host import Host
from intarsia_ir.ops import OPERATORS
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.text import parse_func, print_func
from intarsia_ir.tir.verify import verify_func
from intarsia_loops.lower import lower
from intarsia_testkit.cases.case import graph_of, module_of
from intarsia_testkit.kernel_structure import kernel_structure

from .targets import EMULATED, TARGETS
from .test_operators import cases_by_operator

BACKENDS = [*(target for target in TARGETS if "," not in target), *EMULATED]
CALLS = 8
"""Of one operator, spread over all its cases: element types, shapes and attributes differ."""


def kernels(name: str, target: str) -> list[PrimFunc]:
    """What a backend compiles for some calls of an operator."""
    cases = cases_by_operator()[name]
    params, results, _ = graph_of(cases[:: max(1, len(cases) // CALLS)])
    module = module_of(params, [one for group in results for one in group])
    fallback = read_target(Host(), target, None).fallback
    return list(lower(module.functions["main"], (), target=fallback).module.functions)


@pytest.mark.parametrize("target", BACKENDS)
def test_kernels_are_read_back(target: str) -> None:
    count = 0
    for name in sorted(OPERATORS):
        for kernel in kernels(name, target):
            text = print_func(kernel)
            again = parse_func(text)
            verify_func(again)
            assert print_func(again) == text
            same = kernel_structure(again) == kernel_structure(kernel)
            assert same, text
            count += 1
    assert count > len(OPERATORS)
