# SPDX-License-Identifier: Apache-2.0
"""Preparation keeps what a module computes, and leaves less of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import (
    Call,
    CallFunction,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Var,
    call,
    constant,
    get_item,
    make_tuple,
)
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, TupleType
from intarsia_ir.graph.verify import verify
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.passes.base import Pass, Pipeline, Remarks
from intarsia_ir.passes.prepare import PREPARE, load_pass
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import VerifyError


def var(name: str, *shape: int, dtype: DType = DType.FLOAT32) -> Var:
    return Var(name, TensorType(shape, dtype))


def node(name: str, *args: Expr, **attrs: Any) -> Call:
    operator = OPERATORS[name]
    return call(operator, *args, attrs=operator.Attrs(**attrs), span=Span(name, name))


def fixed(*shape: int, low: float = -1.0) -> Constant:
    values = np.random.default_rng(len(shape)).uniform(low, 1.0, shape)
    return constant(values.astype(np.float32))


def scalar(value: float) -> Constant:
    return constant(np.asarray(value, np.float32))


def module(*outputs: Expr, params: tuple[Var, ...]) -> IRModule:
    body = outputs[0] if len(outputs) == 1 else make_tuple(outputs)
    return IRModule.from_function(Function(params, body))


def prepared(*outputs: Expr, params: tuple[Var, ...], rtol: float = 1e-5) -> list[str]:
    """Prepare, check that the results stay, and return the operators that are left."""
    before = module(*outputs, params=params)
    verify(before)
    after = PREPARE.run(before, check=True)
    rng = np.random.default_rng(1)
    inputs: dict[str, Any] = {}
    for param in params:
        assert isinstance(param.type, TensorType)
        values = rng.standard_normal(param.type.static_shape) * 4
        inputs[param.name] = values.astype(param.type.dtype.value)
    for want, got in zip(
        evaluate(before.main, inputs, before), evaluate(after.main, inputs, after), strict=True
    ):
        assert want.dtype == got.dtype
        np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-5)
    return [c.name for c in calls(after.main)]


X = var("x", 2, 3, 8, 8)
V = var("v", 4, 4)
CONV = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}


def conv(x: Expr, out: int = 4, *, groups: int = 1, bias: bool = False) -> Call:
    channels = x.type.shape[1] if isinstance(x.type, TensorType) else 0
    assert isinstance(channels, int)
    more = (fixed(out),) if bias else ()
    return node("nn.conv", x, fixed(out, channels // groups, 3, 3), *more, **CONV, groups=groups)


def batch_norm(x: Expr) -> Call:
    assert isinstance(x.type, TensorType)
    size = x.type.static_shape[1]
    statistics = (fixed(size), fixed(size), fixed(size), fixed(size, low=0.1))
    return node("nn.batch_norm", x, *statistics, epsilon=1e-3)


@pytest.mark.parametrize(
    ("expr", "left"),
    [
        (node("add", V, scalar(0)), []),
        (node("add", scalar(0), V), []),
        (node("subtract", V, scalar(0)), []),
        (node("multiply", scalar(1), V), []),
        (node("multiply", V, scalar(1)), []),
        (node("divide", V, scalar(1)), []),
        (node("power", V, scalar(1)), []),
        (node("power", V, scalar(2)), ["multiply"]),
        (node("negative", node("negative", V)), []),
        (node("abs", node("abs", V)), ["abs"]),
        (node("nn.relu", node("nn.relu", V)), ["nn.relu"]),
        (node("cast", V, dtype=DType.FLOAT32), []),
        (node("maximum", V, scalar(0)), ["nn.relu"]),
        (node("maximum", scalar(0), V), ["nn.relu"]),
        (node("minimum", node("nn.relu", V), scalar(6)), ["clip"]),
        (node("minimum", scalar(6), node("nn.relu", V)), ["clip"]),
        (node("clip", V, min=0.0, max=math.inf), ["nn.relu"]),
        (node("clip", V, min=-math.inf, max=math.inf), []),
        (node("clip", node("nn.relu", V), min=-1.0, max=6.0), ["clip"]),
        (node("nn.relu", node("clip", V, min=-1.0, max=6.0)), ["clip"]),
        (node("clip", node("clip", V, min=-1.0, max=6.0), min=0.0, max=9.0), ["clip"]),
        (node("clip", node("clip", V, min=-2.0, max=-1.0), min=0.0, max=9.0), ["clip", "clip"]),
        (node("reshape", V, shape=(4, 4)), []),
        (node("reshape", node("reshape", V, shape=(16,)), shape=(2, 8)), ["reshape"]),
        (node("reshape", node("reshape", V, shape=(16,)), shape=(4, 4)), []),
        (node("copy", V), []),
        (node("transpose", V, axes=(0, 1)), []),
        (node("transpose", node("transpose", V, axes=(1, 0)), axes=(1, 0)), []),
        (node("transpose", node("reshape", V, shape=(1, 16)), axes=(1, 0)), ["reshape"]),
        (node("concatenate", V, axis=0), []),
        (node("strided_slice", V, begin=(0, 0), end=(4, 4), strides=(1, 1)), []),
        (node("nn.pad", V, widths=((0, 0), (0, 0))), []),
        (node("sum", V, axes=()), []),
        (get_item(node("split", V, sections=(4,), axis=0), 0), []),
        (node("add", node("broadcast_to", scalar(1), shape=(4, 4)), V), ["add"]),
        (
            node(
                "add",
                node("broadcast_to", node("exp", var("v", 4, 4)), shape=(2, 4, 4)),
                fixed(2, 1, 1),
            ),
            ["exp", "add"],
        ),
        (node("logical_not", node("logical_not", node("less", V, scalar(0)))), ["less"]),
        (node("multiply", node("add", scalar(1), scalar(2)), V), ["multiply"]),
    ],
    ids=lambda value: value.name if isinstance(value, Call) else None,
)
def test_simplifies(expr: Expr, left: list[str]) -> None:
    param = next((a for a in _vars(expr)), V)
    assert prepared(expr, params=(param,)) == left


def quantized(x: Expr, low: float, high: float, dtype: DType) -> Expr:
    return node(
        "cast", node("cast", node("clip", x, min=low, max=high), dtype=dtype), dtype=DType.FLOAT32
    )


def test_a_round_trip_through_a_quantized_type_is_dropped():
    shifted = node("add", node("round", V), scalar(127))
    assert prepared(quantized(shifted, 0.0, 255.0, DType.UINT8), params=(V,)) == [
        "round",
        "add",
        "clip",
    ]
    kept = [
        quantized(node("round", V), -128.0, 127.0, DType.UINT8),
        quantized(node("round", V), 0.0, 255.0, DType.INT8),
        quantized(node("add", node("round", V), scalar(0.5)), 0.0, 255.0, DType.UINT8),
        quantized(node("round", V), 0.5, 2.0, DType.UINT8),
        quantized(V, 0.0, 255.0, DType.UINT8),
    ]
    for tree in kept:
        after = PREPARE.run(module(tree, params=(V,)))
        assert [c.name for c in calls(after.main)][-2:] == ["cast", "cast"]


def _vars(expr: Expr) -> list[Var]:
    found: list[Var] = []
    todo = [expr]
    while todo:
        top = todo.pop()
        if isinstance(top, Var):
            found.append(top)
        elif isinstance(top, Call):
            todo.extend(top.args)
        elif not isinstance(top, Constant):
            todo.append(top.tuple)  # type: ignore[union-attr]
    return found


def test_merges_means_over_spatial_axes():
    inner = node("mean", X, axes=(3,), keepdims=True)
    assert prepared(node("mean", inner, axes=(2,), keepdims=True), params=(X,)) == ["mean"]


def test_pooling_over_the_whole_image_is_a_reduction():
    size = {"kernel": (8, 8), "strides": (1, 1), "padding": ((0, 0),) * 2, "dilation": (1, 1)}
    outputs = (node("nn.avg_pool", X, **size), node("nn.max_pool", X, **size))
    assert prepared(*outputs, params=(X,)) == ["mean", "max"]


def test_folds_padding_into_a_convolution():
    padded = node("nn.pad", X, widths=((0, 0), (0, 0), (1, 0), (0, 2)))
    assert prepared(conv(padded), params=(X,)) == ["nn.conv"]


@pytest.mark.parametrize(
    ("size", "window", "attrs", "left"),
    [
        ((1, 1), (3, 3), {}, (1, 1)),
        ((1, 9), (3, 3), {}, (1, 3)),
        ((2, 2), (3, 3), {}, (3, 3)),
        ((2, 2), (3, 3), {"strides": (2, 2)}, (2, 2)),
        ((2, 1), (5, 5), {"padding": ((2, 2), (2, 2))}, (3, 1)),
        ((3, 3), (3, 3), {"dilation": (3, 3), "padding": ((3, 3), (3, 3))}, (1, 1)),
        ((1, 1), (3, 3), {"padding": ((4, 4), (4, 4))}, (3, 3)),
    ],
)
def test_crops_a_window_to_what_meets_the_image(size, window, attrs, left):
    x, weight = var("x", 2, 3, *size), fixed(4, 3, *window)
    before = module(node("nn.conv", x, weight, **{**CONV, **attrs}), params=(x,))
    assert prepared(before.main.body, params=(x,)) == ["nn.conv"]
    (found,) = calls(PREPARE.run(before, check=True).main)
    assert found.args[1].type.shape[2:] == left  # type: ignore[union-attr]


def test_a_window_that_is_not_finite_stays():
    weight = constant(np.full((4, 3, 3, 3), np.inf, np.float32))
    x = var("x", 1, 3, 1, 1)
    (found,) = calls(
        PREPARE.run(module(node("nn.conv", x, weight, **CONV), params=(x,)), check=True).main
    )
    assert found.args[1].type.shape[2:] == (3, 3)  # type: ignore[union-attr]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
def test_folds_batch_norm_into_a_convolution(groups, bias):
    tree = batch_norm(conv(X, 6, groups=groups, bias=bias))
    assert prepared(tree, params=(X,)) == ["nn.conv"]


@pytest.mark.parametrize("groups", [1, 3])
def test_folds_batch_norm_into_a_transposed_convolution(groups):
    tree = node("nn.conv_transpose", X, fixed(3, 2, 3, 3), **CONV, groups=groups)
    assert prepared(batch_norm(tree), params=(X,)) == ["nn.conv_transpose"]


@pytest.mark.parametrize("flipped", [False, True])
def test_folds_batch_norm_into_a_product(flipped):
    weight = fixed(5, 4) if flipped else fixed(4, 5)
    tree = node("add", node("matmul", V, weight, transpose_b=flipped), fixed(5))
    assert prepared(batch_norm(tree), params=(V,)) == ["matmul", "add"]


def test_folds_scales_and_shifts_into_a_convolution():
    tree: Expr = conv(X)
    tree = node("add", node("multiply", tree, fixed(4, 1, 1)), fixed(1, 4, 1, 1))
    tree = node("divide", node("subtract", tree, scalar(0.5)), scalar(3.0))
    assert prepared(tree, params=(X,)) == ["nn.conv"]


def test_keeps_a_convolution_that_others_use():
    shared = conv(X)
    left = prepared(batch_norm(shared), node("nn.relu", shared), params=(X,))
    assert sorted(left) == ["add", "multiply", "nn.conv", "nn.relu"]


def test_a_lone_batch_norm_is_a_scale_and_a_shift():
    assert prepared(batch_norm(X), params=(X,)) == ["multiply", "add"]


def test_a_batch_norm_of_half_floats_is_rounded_once():
    x = Var("x", TensorType((2, 3, 4), DType.FLOAT16))
    rng = np.random.default_rng(0)
    given = rng.uniform(0.3, 2, (4, 3)).astype(np.float16)
    tree = node("nn.batch_norm", x, *map(constant, given), epsilon=1e-3)
    before, after = module(tree, params=(x,)), PREPARE.run(module(tree, params=(x,)))
    assert [c.name for c in calls(after.main)] == ["cast", "multiply", "add", "cast"]
    inputs = {"x": rng.uniform(-4, 4, (2, 3, 4)).astype(np.float16)}
    wanted, found = (evaluate(m.main, inputs, m)[0] for m in (before, after))
    np.testing.assert_allclose(found.astype(float), wanted.astype(float), rtol=1e-3)


def test_a_batch_norm_over_another_axis_than_the_product_scales_is_not_folded():
    x = var("x", 2, 5, 4)
    tree = batch_norm(node("matmul", x, fixed(4, 5)))
    assert prepared(tree, params=(x,)) == ["matmul", "multiply", "add"]


def test_an_infinite_scale_is_not_folded():
    zero = constant(np.zeros(3, np.float32))
    tree = node("nn.batch_norm", X, fixed(3), fixed(3), fixed(3), zero, epsilon=0.0)
    after = PREPARE.run(module(tree, params=(X,)))
    assert [c.name for c in calls(after.main)] == ["nn.batch_norm"]


@pytest.mark.slow
@pytest.mark.parametrize("parts", [512, 514, 5000])
def test_a_wide_split_and_concatenation_are_made_of_kernels_of_bounded_width(parts: int) -> None:
    x = var("x", parts, 2)
    split = node("split", x, sections=(1,) * parts, axis=0)
    doubled = [get_item(split, number) for number in reversed(range(parts))]
    before = module(node("concatenate", *doubled, axis=0), params=(x,))
    after = PREPARE.run(before, check=True)
    widths = [
        len(c.type.fields) if isinstance(c.type, TupleType) else len(c.args)
        for c in calls(after.main)
    ]
    assert max(widths) <= 512
    groups = 1 if parts == 512 else 1 + -(-parts // 128)
    assert len(widths) == 2 * groups
    value = np.arange(2 * parts, dtype=np.float32).reshape(parts, 2)
    (found,) = evaluate(after.main, {"x": value}, after)
    np.testing.assert_array_equal(found, value[::-1])


def test_folding_never_makes_a_giant():
    tree = node("nn.relu", node("full", shape=(4096, 4096), value=1.0, dtype=DType.FLOAT32))
    after = PREPARE.run(module(tree, params=()))
    assert [c.name for c in calls(after.main)] == ["full", "nn.relu"]


def test_folds_results_with_several_parts():
    split = node("split", fixed(4, 4), sections=(1, 3), axis=0)
    tree = node("add", get_item(split, 0), get_item(split, 1))
    after = PREPARE.run(module(tree, params=()), check=True)
    assert isinstance(after.main.body, Constant)


def test_a_reference_that_fails_leaves_the_call_and_a_remark():
    remarks = Remarks()
    bad = replace_reference(node("exp", scalar(1)))
    PREPARE.run(module(bad, params=()), remarks=remarks)
    assert "is not folded: no" in remarks.found[0].message


def test_a_reference_of_another_type_leaves_the_call_and_a_remark():
    remarks = Remarks()
    wrong = replace_reference(node("exp", scalar(1)), np.zeros(3, np.float32))
    PREPARE.run(module(wrong, params=()), remarks=remarks)
    assert "reference gives Tensor[(3,), float32]" in remarks.found[0].message


def replace_reference(tree: Call, result: Any = None) -> Call:
    """Return ``tree`` with an operator whose reference fails, or gives ``result``."""

    class Odd(tree.op):
        """An operator with a broken reference."""

        @staticmethod
        def reference(attrs: Any, *arrays: Any) -> Any:
            if result is None:
                raise RuntimeError("no")
            return result

    return call(Odd, *tree.args, attrs=tree.attrs)


def test_equal_expressions_become_one():
    left = node("add", node("sin", V), scalar(2))
    right = node("add", node("sin", V), scalar(2))
    assert prepared(node("multiply", left, right), params=(V,)) == ["sin", "add", "multiply"]


def test_bound_variables_are_inlined():
    a, b = Var("a", V.type), Var("b", V.type)
    inner = Let(b, node("sin", a), node("add", b, a), V.type)
    tree = Let(a, node("exp", V), node("nn.relu", inner), V.type)
    assert prepared(tree, params=(V,)) == ["exp", "sin", "add", "nn.relu"]


def test_a_known_branch_is_taken_and_unused_functions_go():
    yes = constant(np.asarray(True))
    tree = If(yes, node("sin", V), node("cos", V), V.type)
    before = module(tree, params=(V,))
    before = before.with_functions({**before.functions, "unused": Function((), scalar(1))})
    after = PREPARE.run(before, check=True)
    assert [c.name for c in calls(after.main)] == ["sin"]
    assert list(after.functions) == ["main"]


def test_branches_known_at_run_time_only_are_both_computed():
    flag, one = var("c", dtype=DType.BOOL), var("d", 1, dtype=DType.BOOL)
    tree = If(flag, node("sin", V), node("cos", V), V.type)
    assert prepared(tree, params=(V, flag)) == ["sin", "cos", "where"]
    tree = If(one, node("sin", V), node("cos", V), V.type)
    assert prepared(tree, params=(V, one)) == ["reshape", "sin", "cos", "where"]
    pair = make_tuple((node("sin", V), V))
    other = make_tuple((node("cos", V), V))
    chosen = If(flag, pair, other, pair.type)
    outputs = (get_item(chosen, 0), get_item(chosen, 1))
    assert prepared(*outputs, params=(V, flag)) == ["sin", "cos", "where"]
    nested = make_tuple((pair,))
    kept = module(If(flag, nested, nested, nested.type), params=(V, flag))
    assert isinstance(PREPARE.run(kept).main.body, If)


def test_a_selection_with_a_known_condition_is_its_choice():
    yes, no = constant(np.asarray(True)), constant(np.zeros(4, np.bool_))
    assert prepared(node("where", yes, node("sin", V), node("cos", V)), params=(V,)) == ["sin"]
    assert prepared(node("where", no, node("sin", V), node("cos", V)), params=(V,)) == ["cos"]


def test_functions_in_use_stay():
    p = var("p", 4, 4)
    callee = Function((p,), node("sin", p))
    tree = CallFunction(GlobalVar("f"), (V,), V.type)
    before = module(tree, params=(V,))
    before = before.with_functions({**before.functions, "f": callee})
    assert set(PREPARE.run(before, check=True).functions) == {"main", "f"}


def test_a_module_with_nothing_to_do_stays_the_same_object():
    before = module(node("sin", V), params=(V,))
    assert PREPARE.run(before) is before


def test_a_pass_that_breaks_the_module_is_named():
    def spoil(before: IRModule, _remarks: Remarks) -> IRModule:
        return before.with_main(Function((), before.main.body))

    pipeline = Pipeline("bad", (Pass("spoil", spoil),))
    with pytest.raises(VerifyError, match="after spoil, @main: variable 'v' is not bound"):
        pipeline.run(module(node("sin", V), params=(V,)), check=True)


def test_an_observer_sees_every_step():
    seen: list[str] = []
    PREPARE.run(module(node("sin", V), params=(V,)), observe=lambda name, _m: seen.append(name))
    assert seen == [step.name for step in PREPARE.passes]


@pytest.mark.parametrize("name", ["fold_constants.FOLD_NOTHING", "base"])
def test_a_name_without_a_pass_is_an_error(name: str) -> None:
    with pytest.raises(AttributeError, match="has no pass"):
        load_pass(name)
