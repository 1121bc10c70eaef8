# SPDX-License-Identifier: Apache-2.0
"""Operators on drawn shapes: NumPy, the interpreter of loops and every backend agree.

The cases of ``test_operators`` are fixed and many; here the shapes are Hypothesis's, and devices
that the processor emulates take part. ``-m exhaustive`` draws more of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from intarsia_ir.graph.op import OpKind
from intarsia_ir.ops import OPERATORS
from intarsia_ir.tir.interp import evaluate
from intarsia_ir.tir.tensor import placeholder
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError
from intarsia_testkit.cases.case import Case, difference, random_array, run_cases
from intarsia_testkit.cases.elementwise_cases import ATTRS, BINARY, INTERVALS, UNARY, accepts

from .targets import EMULATED, TARGETS

BACKENDS = [*(target for target in TARGETS if "," not in target), *EMULATED]
DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool")
REDUCTIONS = ("sum", "mean", "max", "min", "prod", "argmax", "argmin")
SIZES = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 16, 17])
SHAPES = st.lists(SIZES, min_size=0, max_size=3).map(tuple)
FULL = st.lists(SIZES, min_size=1, max_size=3).map(tuple)
CALM = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],  # a batch takes seconds, so none is made smaller
)


class Calls:
    """Draws one call of every operator that takes an element type."""

    def __init__(self, data: st.DataObject, dtype: str) -> None:
        self.draw = data.draw
        self.dtype = dtype
        seed = self.draw(st.integers(0, 1000))
        assume(seed)  # not the simplest of all examples, which Hypothesis draws first
        self.rng = np.random.default_rng(seed)
        self.cases: list[Case] = []

    def array(self, shape: tuple[int, ...], low: float = -4.0, high: float = 4.0) -> np.ndarray:
        return random_array(self.rng, shape, self.dtype, low, high)

    def add(self, name: str, *operands: np.ndarray, **attrs: Any) -> None:
        if accepts(name, *operands, **attrs):
            self.cases.append(Case(name, operands, attrs))

    def all(self) -> list[Case]:
        self.elements()
        self.places()
        self.sums()
        return self.cases

    def elements(self) -> None:
        for name in UNARY:
            x = self.array(self.draw(SHAPES), *INTERVALS.get(name, (-4.0, 4.0)))
            self.add(name, x, **ATTRS.get(name, ({},))[0])
        for name in BINARY:
            shape = self.draw(SHAPES)
            other = tuple(1 if self.draw(st.booleans()) else size for size in shape)
            least = 0.5 if name in ("power", "divide", "floor_mod", "trunc_mod") else -4.0
            self.add(name, self.array(shape, least), self.array(other, least))
        shape = self.draw(SHAPES)
        flags = random_array(self.rng, shape, "bool")
        self.add("where", flags, self.array(shape), self.array(()))
        for kind in DTYPES:
            self.add("cast", self.array(shape, 0.0), dtype=DType(kind))

    def places(self) -> None:
        x = self.array(self.draw(FULL))
        self.add("transpose", x, axes=tuple(self.draw(st.permutations(range(x.ndim)))))
        self.add("reshape", x, shape=(-1,))
        axis = self.draw(st.integers(0, x.ndim - 1))
        self.add("concatenate", x, x, self.array(x.shape), axis=axis)
        begin = tuple(self.draw(st.integers(0, size - 1)) for size in x.shape)
        strides = (self.draw(st.integers(1, 3)),) * x.ndim
        self.add("strided_slice", x, begin=begin, end=x.shape, strides=strides)
        widths = tuple((self.draw(st.integers(0, 2)), 1) for _ in x.shape)
        self.add("nn.pad", x, widths=widths)
        indices = self.rng.integers(0, x.shape[axis], self.draw(FULL)).astype(np.int64)
        self.add("take", x, indices, axis=axis)

    def sums(self) -> None:
        x = self.array(self.draw(FULL), 0.5, 1.5)
        axis = self.draw(st.integers(0, x.ndim - 1))
        for name in REDUCTIONS:
            attrs = {"axis": axis} if name.startswith("arg") else {"axes": (axis,)}
            self.add(name, x, **attrs, keepdims=self.draw(st.booleans()))
        self.add("nn.softmax", x, axis=axis)
        rows, depth, columns = (self.draw(SIZES) for _ in range(3))
        self.add("matmul", self.array((rows, depth)), self.array((depth, columns)))
        image = self.array((1, self.draw(st.integers(1, 4)), self.draw(SIZES), 6))
        window = {"strides": (1, 1), "dilation": (1, 1), "padding": ((1, 1), (1, 1))}
        weight = self.array((self.draw(SIZES), image.shape[1], 3, 3))
        self.add("nn.conv", image, weight, **window, groups=1)
        self.add("nn.max_pool", image, kernel=(3, 3), **window)


def interpreted(case: Case) -> list[np.ndarray]:
    """The results of the operator's own rule, element by element."""
    op = OPERATORS[case.name]
    given_tensors = {
        placeholder(f"x{n}", x.shape, DType(x.dtype.name)): x for n, x in enumerate(case.operands)
    }
    assert op.compute is not None
    made = op.compute(op.Attrs(**case.attrs), *given_tensors)
    results = made if isinstance(made, tuple) else (made,)
    with np.errstate(all="ignore"):
        return [evaluate(result, given_tensors) for result in results]


def apart(case: Case, mine: np.ndarray, wanted: np.ndarray) -> str:
    """What two answers differ in."""
    sums = OPERATORS[case.name].kind not in (OpKind.ELEMWISE, OpKind.INJECTIVE)
    return difference(mine, wanted, sums=sums)


def check(data: st.DataObject, dtype: str) -> None:
    cases = Calls(data, dtype).all()
    assert len({case.name for case in cases}) >= 15
    answers = {"interpreter": [interpreted(case) for case in cases]}
    for target in BACKENDS:
        found = run_cases(cases, target)
        refused = [str(one) for one in found if isinstance(one, UnsupportedError)]
        assert not refused, target
        answers[target] = [one for one in found if not isinstance(one, UnsupportedError)]
    wrong: list[str] = []
    for who, results in answers.items():
        for case, mine in zip(cases, results, strict=True):
            message = case.differs(mine)
            if not message and who != "interpreter":
                pairs = zip(mine, answers["interpreter"][cases.index(case)], strict=True)
                message = next(filter(None, (apart(case, a, b) for a, b in pairs)), "")
            if message:
                wrong.append(f"{who}: {case}: {message}")
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.parametrize("dtype", DTYPES)
@settings(CALM, max_examples=1)
@given(data=st.data())
def test_all_agree(dtype: str, data: st.DataObject) -> None:
    check(data, dtype)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", DTYPES)
@settings(CALM, max_examples=25)
@given(data=st.data())
def test_all_agree_on_many_shapes(dtype: str, data: st.DataObject) -> None:
    check(data, dtype)
