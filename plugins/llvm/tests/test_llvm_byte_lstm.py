# SPDX-License-Identifier: Apache-2.0
"""LSTMs with rounded states multiply bytes: the same bits as products of floats give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia_ir.graph.expr import Function, Var, call, constant, get_item, make_tuple
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.ops.recurrent import Lstm
from intarsia_runtime.artifact.plan import KernelStep, all_steps
from intarsia_runtime.cpu import this_machine
from intarsia_runtime.dtype import DType

SIZES = [(5, 1, 16), (3, 2, 64), (4, 5, 96), (2, 3, 256), (6, 1, 48)]
"""Steps, rows and columns of the state."""

TARGETS = {
    "native": ("llvm", ()),
    "AVX2": ("llvm -mcpu=haswell", ("avx2",)),
    "SSE": ("llvm -mcpu=nehalem", ("sse4_2",)),
    "VNNI": ("llvm -mcpu=icelake-server", ("avx512_vnni",)),
}


def bytes_of(hidden: int) -> np.ndarray:
    """Weights, the largest of either sign in some columns."""
    weight = np.random.default_rng(hidden).integers(-128, 128, (hidden, 4 * hidden)).astype(np.int8)
    weight[:, 3], weight[:, 5] = -128, 127
    return weight


def module(weight: np.ndarray, steps: object, batch: object, *, reverse: bool) -> IRModule:
    hidden = len(weight)
    x, h, c = (
        Var(name, TensorType(shape, DType.FLOAT32))
        for name, shape in (
            ("x", (steps, batch, 4 * hidden)),
            ("h", (batch, hidden)),
            ("c", (batch, hidden)),
        )
    )
    scale = np.random.default_rng(1).random(4 * hidden, np.float32) / np.float32(40 * hidden)
    attrs = Lstm.Attrs(reverse=reverse, quantize_state=True)
    layer = call(Lstm, x, h, c, constant(weight), constant(scale), attrs=attrs)
    results = make_tuple([get_item(layer, number) for number in range(3)])
    return IRModule.from_function(Function((x, h, c), results, ("states", "last", "cell")))


def run(built: IRModule, target: str, feeds: list[dict[str, np.ndarray]], path: Path) -> list:
    intarsia.build(built, target).save(path)
    with intarsia.load(path) as executable:
        return [list(executable.run(feed).values()) for feed in feeds]


def feed(steps: int, batch: int, hidden: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(steps * batch)
    shapes = {"x": (steps, batch, 4 * hidden), "h": (batch, hidden), "c": (batch, hidden)}
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("steps", "batch", "hidden"), SIZES)
def test_bytes_give_the_bits_of_floats(
    tmp_path: Path, steps: int, batch: int, hidden: int, reverse: bool, name: str
) -> None:
    target, needed = TARGETS[name]
    if not set(needed) <= (this_machine().cpu_features or frozenset[str]()):
        pytest.skip(f"this processor has no {needed[0]}")
    given = feed(steps, batch, hidden)
    weight = bytes_of(hidden)
    paths = tmp_path / "bytes.intarsia", tmp_path / "floats.intarsia"
    built = [
        module(weight.astype(kind), steps, batch, reverse=reverse) for kind in (np.int8, np.int16)
    ]
    (found,), (wanted,) = (
        run(one, target, [given], path) for one, path in zip(built, paths, strict=True)
    )
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    attrs = Lstm.Attrs(reverse=reverse, quantize_state=True)
    scale = np.random.default_rng(1).random(4 * hidden, np.float32) / np.float32(40 * hidden)
    exact = Lstm.reference(attrs, given["x"], given["h"], given["c"], weight, scale)
    for one, other in zip(found, exact, strict=True):  # a state may round to the next level
        np.testing.assert_allclose(one, other, atol=0.01)


def test_length_and_rows_may_be_open(tmp_path: Path) -> None:
    weight, hidden = bytes_of(64), 64
    open_sizes = variable("T"), variable("N")
    feeds = [feed(steps, batch, hidden) for steps, batch in ((1, 1), (7, 1), (3, 4), (5, 9))]
    built = [
        module(weight.astype(kind), *open_sizes, reverse=False) for kind in (np.int8, np.int16)
    ]
    found, wanted = (
        run(one, "llvm", feeds, tmp_path / f"{number}.intarsia") for number, one in enumerate(built)
    )
    for one, other in zip(found, wanted, strict=True):
        for result, expected in zip(one, other, strict=True):
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("hidden", "kind", "multiplies_bytes"),
    [(64, np.int8, True), (64, np.int16, False), (10, np.int8, False)],
)
def test_what_multiplies_bytes(hidden: int, kind: type, multiplies_bytes: bool) -> None:
    built = module(bytes_of(hidden).astype(kind), 3, 1, reverse=False)
    plan = intarsia.build(built, "llvm -mcpu=haswell").passport.plan
    labels = [step.label for step in all_steps(plan.steps) if isinstance(step, KernelStep)]
    assert any("cpu.qlstm" in label for label in labels) == multiplies_bytes
