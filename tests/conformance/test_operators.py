# SPDX-License-Identifier: Apache-2.0
"""Compiled operators equal their NumPy references, on every target that is installed.

Cases of one operator are compiled into one module. A refusal must be an UnsupportedError, and must
be listed here with its reason: nothing that is not computed counts as passed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest

from intarsia.driver.stages import partition_module, read_target
from intarsia.host.host import Host
from intarsia_ir.graph.text.printer import print_module
from intarsia_ir.ops import OPERATORS
from intarsia_ir.partition.cost import Plan
from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.prepare import PREPARE
from intarsia_runtime.errors import UnsupportedError
from intarsia_testkit.cases import every_case
from intarsia_testkit.cases.case import Case, graph_of, module_of, run_cases

from .targets import COMPOSITES, TARGETS, fallback_has_a_test

REFUSED: dict[tuple[str, str], str] = {
    (target, str(case)): "its kernels take no sizes that only the run knows"
    for target in TARGETS
    if not target.endswith("llvm")
    for case in every_case()
    if case.name == "size_of"
}
"""What a target may refuse: (target, call) to the reason in words; empty is the aim."""

_SKIPS_NAN = "limits of oneDNN are comparisons, which skip NaN"
_SPECIAL = {
    "clip(float32[31], min=-1.5, max=2.0)": _SKIPS_NAN,
    "clip(float32[31], min=0.0)": _SKIPS_NAN,
    "clip(float32[31], max=-1.0)": _SKIPS_NAN,
    "nn.hard_sigmoid(float32[31])": _SKIPS_NAN,
    "nn.hard_sigmoid(float32[31], alpha=0.5, beta=0.6)": _SKIPS_NAN,
    "nn.relu(float32[31])": _SKIPS_NAN,
    "nn.gelu(float32[31])": "oneDNN multiplies in another order, and overflows at 3e38 (AVX-512)",
    "rsqrt(float32[31])": "oneDNN takes a power, which of a negative zero is positive",
}
DEVIATES: dict[tuple[str, str], str] = {
    (
        target,
        f"nn.max_pool(float32[1, 2, {size}, {size}], kernel=(2, 2), strides=(2, 2), {rest})",
    ): ("oneDNN starts a maximum at the lowest finite number, and a comparison skips NaN")
    for target in COMPOSITES
    if target.startswith("dnnl")
    for size, rest in (
        (8, "dilation=(1, 1), padding=((1, 1), (1, 1))"),
        (4, "dilation=(1, 1), padding=((0, 0), (0, 0))"),
    )
} | {
    (target, case): why
    for target in COMPOSITES
    if target.startswith("dnnl")
    for case, why in _SPECIAL.items()
}
"""Where a vendor's library computes otherwise, and why; a call that no longer does must leave."""

BY_PROCESSOR = {"nn.gelu(float32[31])"}
"""Calls that deviate with the kernels of some processors alone."""


COMPILED_FOR: dict[str, str] = {
    "c": "c -opt-level=0",  # at its default most of the time is the C compiler's own optimizer
    # Operators alone would be left to the fallback, being small.
    "dnnl, llvm": "dnnl -min-gain=0 -min-grain=0, llvm",
}
"""What a target is tested as."""


@cache
def cases_by_operator() -> dict[str, list[Case]]:
    """All calls of every operator."""
    found: dict[str, list[Case]] = {}
    for case in every_case():
        found.setdefault(case.name, []).append(case)
    return found


def is_the_fallbacks_alone(cases: list[Case], target: str) -> bool:
    """Whether a target's accelerators leave calls as they are to a backend that has its own test.

    Compiling them again would give the same code.
    """
    if not fallback_has_a_test(target):
        return False
    if any((target, str(case)) in {**REFUSED, **DEVIATES} for case in cases):
        return False
    params, results, _ = graph_of(cases)
    module = module_of(params, [one for group in results for one in group])
    prepared = PREPARE.run(module, remarks=Remarks())
    host = Host()
    cutting = partition_module(host, prepared, read_target(host, target, None), Plan.GREEDY)
    return not cutting.regions and print_module(cutting.module) == print_module(prepared)


def test_every_operator_has_cases() -> None:
    assert set(cases_by_operator()) == set(OPERATORS)
    assert min(len(cases) for cases in cases_by_operator().values()) >= 2


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_operator(name: str, target: str) -> None:
    cases = cases_by_operator()[name]
    if is_the_fallbacks_alone(cases, target):
        return
    wrong: list[str] = []
    for case, found in zip(cases, run_cases(cases, COMPILED_FOR.get(target, target)), strict=True):
        if isinstance(found, UnsupportedError):
            if (target, str(case)) not in REFUSED:
                wrong.append(f"{case}: refused: {found}")
            continue
        message = case.differs(found)
        if (target, str(case)) in DEVIATES:
            is_old = not message and str(case) not in BY_PROCESSOR
            message = f"{case}: deviates no longer" if is_old else ""
        wrong.append(message)
    wrong = [message for message in wrong if message]
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong[:20])


@pytest.mark.parametrize("target", COMPOSITES)
def test_accelerators_take_something(target: str) -> None:
    """So that what is compared for a composite target is not its fallback's work alone."""
    assert not is_the_fallbacks_alone(cases_by_operator()["matmul"], target)


def test_matrix(golden: Callable[..., None]) -> None:
    """Who computes which calls: accelerators as far as they say yes, else the fallback."""
    host = Host()
    if "dnnl, llvm" not in COMPOSITES:
        pytest.skip("the accelerators that the golden file names are not installed")
    # On every processor alike, and however little there is to do.
    shipped = {"dnnl, llvm": "dnnl -min-gain=0 -min-grain=0 -int8=on, llvm"}
    lines = [f"{'operator':20}{'calls':>6}  " + "".join(f"{t:>12}" for t in shipped) + "  reasons"]
    for name, cases in sorted(cases_by_operator().items()):
        row, reasons = "", Counter[str]()
        for target in shipped.values():
            params, results, _ = graph_of(cases)
            module = module_of(params, [one for group in results for one in group])
            report = partition_module(
                host, module, read_target(host, target, None), Plan.GREEDY
            ).placement
            row += f"{sum(v.verdict == 'yes' for v in report.verdicts):>12}"
            reasons.update(v.code for v in report.verdicts if v.verdict == "no")
        listed = ", ".join(f"{count} {code}" for code, count in sorted(reasons.items()))
        lines.append(f"{name:20}{len(cases):>6}  {row}  {listed}".rstrip())
    golden("\n".join(lines) + "\n", suffix=".txt")
