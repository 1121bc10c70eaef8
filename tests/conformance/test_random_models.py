# SPDX-License-Identifier: Apache-2.0
"""Random ONNX models on every target give what ONNX's reference evaluator gives."""

from __future__ import annotations

import numpy as np
import pytest

import intarsia
from intarsia.host.host import Host

from .onnx_graphs import draw_model
from .targets import TARGETS, without_effort

SEEDS = range(24)
MANY = range(24, 1000)
PRECISION = {2: 2e-2, 4: 1e-4, 8: 1e-6}
"""By the bytes of a number; ONNX's evaluator has constants and an ``erf`` of float32."""


def differs(mine: np.ndarray, wanted: np.ndarray, size: int) -> str:
    """What is wrong with a result whose numbers had ``size`` bytes once; empty if nothing is."""
    if (mine.shape, mine.dtype) != (wanted.shape, wanted.dtype):
        return f"{mine.dtype}{mine.shape}, not {wanted.dtype}{wanted.shape}"
    if mine.dtype.kind != "f" or not mine.size:
        return "" if np.array_equal(mine, wanted) else "other integers"
    error = np.abs(mine.astype(float) - wanted)
    limit = PRECISION[size] * max(1.0, float(np.abs(wanted).max()))
    return "" if error.max() <= limit else f"off by {error.max():.3g}, {limit:.3g} allowed"


def check(seeds: range, target: str) -> None:
    host, wrong = Host(), list[str]()
    for seed in seeds:
        drawn = draw_model(seed)
        artifact = intarsia.build(drawn.model.SerializeToString(), target, host=host)
        with artifact.load(threads=1 + seed % 2) as executable:
            found = executable.run(drawn.inputs)
        for name, value in drawn.results.items():
            reason = differs(np.asarray(found[name]), value, drawn.narrowest)
            if reason:
                ops = ", ".join(node.op_type for node in drawn.model.graph.node)
                wrong.append(f"{seed}: {name} of {ops}: {reason}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("target", TARGETS)
def test_random_model(target: str) -> None:
    check(SEEDS, without_effort(target))


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", TARGETS)
def test_many_random_models(target: str) -> None:
    check(MANY, without_effort(target))


def test_models_differ() -> None:
    """What is drawn has most operators, and tensors without elements and with many."""
    drawn = [draw_model(seed) for seed in SEEDS]
    used = {node.op_type for one in drawn for node in one.model.graph.node}
    assert len(used) >= 30, sorted(used)
    assert {"Conv", "MatMul", "Slice", "Where", "ReduceSum"} <= used
    sizes = [array.size for one in drawn for array in one.results.values()]
    assert (min(sizes), max(sizes) > 100) == (0, True)
