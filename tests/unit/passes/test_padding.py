# SPDX-License-Identifier: Apache-2.0
"""Which graphs may be padded along a size, and which node forbids it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from intarsia_ir.graph.expr import Expr, Function, TupleGetItem, Var, call, constant, make_tuple
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.passes.padding import check_padding, output_place
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError

F, I64 = DType.FLOAT32, DType.INT64
Build = Callable[[Var, int], Expr]


def do(name: str, *args: Expr, **attrs: object) -> Expr:
    op = OPERATORS[name]
    return call(op, *args, attrs=op.Attrs(**attrs))


def const(*shape: int, dtype: type = np.float32) -> Expr:
    values = np.arange(int(np.prod(shape))).reshape(shape) % 7 + 1
    return constant(np.asarray(values, dtype))


def module(build: Build, size: int) -> IRModule:
    x = Var("x", TensorType((size, 6, 4), F))
    return IRModule.from_function(Function((x,), build(x, size), ("y",)))


def rows_of_attention(x: Var, size: int) -> Expr:
    """Two heads of a self-attention, heads split off and joined again."""
    q = do("transpose", do("reshape", x, shape=(size, 6, 2, 2)), axes=(0, 2, 1, 3))
    merged = do("reshape", q, shape=(size * 2, 6, 2))
    scores = do("nn.softmax", do("matmul", merged, merged, transpose_b=True), axis=2)
    apart = do("reshape", do("matmul", scores, merged), shape=(size, 2, 6, 2))
    joined = do("reshape", do("transpose", apart, axes=(0, 2, 1, 3)), shape=(size, 6, 4))
    return do("nn.layer_norm", do("add", joined, x), const(4), const(4), axis=2)


def image_network(x: Var, size: int) -> Expr:
    image = do("reshape", x, shape=(size, 2, 3, 4))
    paddings = ((0, 0), (0, 0))
    image = do(
        "nn.conv", image, const(2, 2, 2, 2), strides=(1, 1), padding=paddings, dilation=(1, 1)
    )
    image = do("nn.relu", do("nn.pad", image, widths=((0, 0), (0, 0), (1, 0), (0, 1))))
    pooled = do("mean", image, axes=(2, 3))
    return do("matmul", pooled, const(2, 3))


def by_time(x: Var, size: int) -> Expr:
    """The steps of all examples one after the other, as recurrent networks multiply them."""
    return do("reshape", do("transpose", x, axes=(1, 0, 2)), shape=(6 * size, 4))


def steps_of_time(x: Var, size: int) -> Expr:
    rows, state = by_time(x, size), do("full", shape=(size, 4), value=0.0, dtype=F)
    found: list[Expr] = []
    for step in range(6):
        begin, end = (step * size, 0), ((step + 1) * size, 4)
        now = do("strided_slice", rows, begin=begin, end=end, strides=(1, 1))
        state = do("tanh", do("add", now, do("matmul", state, const(4, 4))))
        found.append(state)
    joined = do("reshape", do("concatenate", *found, axis=0), shape=(6, size, 4))
    return do("transpose", joined, axes=(1, 0, 2))


def take_last(shape: Expr) -> Expr:
    return do("strided_slice", shape, begin=(2,), end=(3,), strides=(1,))


GOOD: dict[str, Build] = {
    "attention": rows_of_attention,
    "images": image_network,
    "elements": lambda x, n: do("multiply", do("exp", x), const(1, 6, 1)),
    "class token": lambda x, n: do(
        "concatenate", do("broadcast_to", const(1, 1, 4), shape=(n, 1, 4)), x, axis=1
    ),
    "slice": lambda x, n: do("strided_slice", x, begin=(0, 1, 0), end=(n, 6, 4), strides=(1, 2, 1)),
    "split": lambda x, n: TupleGetItem(
        part := do("split", x, sections=(2, 4), axis=1), 1, part.type.fields[1]
    ),
    "take": lambda x, n: do("take", x, const(3, dtype=np.int64), axis=1),
    "embedding": lambda x, n: do(
        "take", const(9, 5), do("cast", do("clip", x, min=0.0, max=8.0), dtype=I64), axis=0
    ),
    "columns": lambda x, n: do("matmul", const(3, 6), x),
    "transposed": lambda x, n: do("matmul", const(2, 4), do("reshape", x, shape=(n * 6, 4)),
                                  transpose_b=True),
    "sampled": lambda x, n: do(
        "nn.grid_sample",
        do("reshape", x, shape=(n, 2, 3, 4)),
        do("nn.softsign", do("reshape", x, shape=(n, 3, 4, 2))),
    ),
    "argmax": lambda x, n: do("argmax", x, axis=1, keepdims=True),
    "triangle": lambda x, n: do("triangular", x, upper=True),
    "cumsum": lambda x, n: do("cumsum", x, axis=2),
    "steps of time": steps_of_time,
    "parts of time": lambda x, n: TupleGetItem(
        part := do("split", by_time(x, n), sections=(n,) * 6, axis=0), 2, part.type.fields[2]
    ),
    "rows of all": lambda x, n: do(
        "transpose", do("reshape", do("matmul", by_time(x, n), const(4, 3)), shape=(6, n, 3)),
        axes=(1, 0, 2),
    ),
    "zeros": lambda x, n: do("add", x, constant(np.zeros((n, 1, 4), np.float32))),
    "computed constant": lambda x, n: do(
        "divide", x, do("sqrt", do("cast", take_last(constant(np.array([n, 6, 4]))), dtype=F))
    ),
    "full": lambda x, n: do("add", x, do("full", shape=(n, 6, 4), value=2.0, dtype=F)),
}  # fmt: skip

BAD: dict[str, tuple[Build, str]] = {
    "mean of all": (lambda x, n: do("subtract", x, do("mean", x, axes=(0, 1, 2))), "'mean' mixes"),
    "softmax over it": (lambda x, n: do("nn.softmax", x, axis=0), "'nn.softmax' may mix"),
    "cumulative": (lambda x, n: do("cumsum", x, axis=0), "'cumsum' may mix"),
    "flipped": (lambda x, n: do("flip", x, axes=(0,)), "'flip' may mix"),
    "divided by it": (
        lambda x, n: do("divide", x, constant(np.float32(n))),
        "a constant depends on it",
    ),
    "an attribute": (
        lambda x, n: do("clip", x, min=0.0, max=float(n)),
        "an attribute of 'clip'",
    ),
    "positions": (lambda x, n: do("add", x, const(n, 1, 1)), "a constant depends on it"),
    "last row": (
        lambda x, n: do("strided_slice", x, begin=(n - 1, 0, 0), end=(n, 6, 4), strides=(1, 1, 1)),
        "'strided_slice' mixes",
    ),
    "shifted": (
        lambda x, n: do("nn.pad", x, widths=((1, 0), (0, 0), (0, 0))),
        "'nn.pad' may mix",
    ),
    "cut through": (
        lambda x, n: do("reshape", do("transpose", x, axes=(1, 0, 2)), shape=(6, 2, 2 * n)),
        "'reshape' may mix",
    ),
    "half of a round": (
        lambda x, n: do(
            "strided_slice",
            do("reshape", x, shape=(n * 6, 4)),
            begin=(0, 0),
            end=(n * 3, 4),
            strides=(1, 1),
        ),
        "'strided_slice' may mix",
    ),
    "both sides": (
        lambda x, n: do("matmul", *[do("reshape", x, shape=(n, 24))] * 2, transpose_b=True),
        "'matmul' may mix",
    ),
    "joined with others": (
        lambda x, n: do("concatenate", do("reshape", x, shape=(n * 6, 4)), const(1, 4), axis=0),
        "'concatenate' may mix",
    ),
    "uneven parts": (
        lambda x, n: TupleGetItem(
            part := do(
                "split",
                do("reshape", do("transpose", x, axes=(1, 0, 2)), shape=(6 * n, 4)),
                sections=(n, 5 * n),
                axis=0,
            ),
            1,
            part.type.fields[1],
        ),
        "'split' may mix",
    ),
    "contracted": (
        lambda x, n: do("matmul", *[do("reshape", x, shape=(n, 24))] * 2, transpose_a=True),
        "'matmul' mixes",
    ),
    "another graph": (
        lambda x, n: do("nn.relu", x) if n > 3 else do("exp", x),
        "does something else",
    ),
    "longer": (lambda x, n: do("exp", do("exp", x)) if n > 3 else do("exp", x), "another size"),
}


@pytest.mark.parametrize("name", GOOD)
def test_padding_changes_nothing_where_it_is_allowed(name: str) -> None:
    build = GOOD[name]
    small, large = module(build, 3), module(build, 5)
    check_padding(small, large, (3, 5), "N")
    x = np.random.default_rng(0).standard_normal((5, 6, 4)).astype(np.float32)
    for filler in (0.0, 7.5):
        padded = x.copy()
        padded[3:] = filler
        (wanted,) = evaluate(small.main, {"x": x[:3]}, small)
        (found,) = evaluate(large.main, {"x": padded}, large)
        cut = found[tuple(slice(size) for size in wanted.shape)]
        np.testing.assert_allclose(cut, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", BAD)
def test_what_depends_on_padding_is_refused_and_named(name: str) -> None:
    build, message = BAD[name]
    with pytest.raises(UnsupportedError, match=message) as caught:
        check_padding(module(build, 3), module(build, 5), (3, 5), "N")
    assert "along size 'N'" in caught.value.message
    assert "1|4|16" in caught.value.hint


@pytest.mark.parametrize("name", GOOD)
def test_code_for_one_position_runs_chunks(name: str) -> None:
    """What a model leaves out for one position, it does for several: repeat it."""
    build = GOOD[name]
    one, two = module(build, 1), module(build, 2)
    check_padding(one, two, (1, 2), "N")
    x = np.random.default_rng(0).standard_normal((2, 6, 4)).astype(np.float32)
    (wanted,) = evaluate(two.main, {"x": x}, two)
    rows = [evaluate(one.main, {"x": x[n : n + 1]}, one)[0] for n in range(2)]
    axes = [axis for axis, size in enumerate(wanted.shape) if size != rows[0].shape[axis]]
    np.testing.assert_allclose(np.concatenate(rows, axis=axes[0]), wanted, rtol=1e-5, atol=1e-6)


def test_what_is_not_repeated_once_may_be_left_out() -> None:
    def token(x: Var, size: int) -> Expr:
        row = do("strided_slice", x, begin=(0, 0, 0), end=(size, 1, 4), strides=(1, 1, 1))
        data = do("exp", const(1, 1, 4)) if size > 9 else const(1, 1, 4)
        spread = do("broadcast_to", data, shape=(size, 1, 4)) if size > 1 else data
        return do("concatenate", spread, row, axis=1)

    check_padding(module(token, 1), module(token, 8), (1, 8), "N")
    with pytest.raises(UnsupportedError, match="a constant depends on it"):
        check_padding(module(token, 1), module(token, 10), (1, 10), "N")


def test_results_that_grow_otherwise_are_refused() -> None:
    merged = [TensorType((2 * size,), F) for size in (3, 5)]
    with pytest.raises(UnsupportedError, match="for the sizes"):
        output_place(*merged, (3, 5))
    with pytest.raises(UnsupportedError, match="for the sizes"):
        output_place(TensorType((4,), F), TensorType((4, 1), F), (3, 5))
    assert output_place(TensorType((4,), F), TensorType((4,), F), (3, 5)) is None


def test_tuples_have_the_size_in_every_field() -> None:
    def uneven(x: Var, size: int) -> Expr:
        return make_tuple([x, do("reshape", x, shape=(size * 24,))])

    check_padding(module(uneven, 3), module(uneven, 5), (3, 5), "N")
