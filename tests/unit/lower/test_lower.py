# SPDX-License-Identifier: Apache-2.0
"""Lowered graphs compute what their operators define, in the kernels and memory expected."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intarsia_ir.graph.expr import (
    CallFunction,
    Function,
    GlobalVar,
    If,
    TupleGetItem,
    Var,
    constant,
    make_tuple,
)
from intarsia_ir.graph.op import Op
from intarsia_ir.graph.types import TensorType, TupleType
from intarsia_ir.regions.region import Region
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import IntImm, Load, Ramp, TirVar
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import Seq
from intarsia_ir.tir.text.print import print_expr, print_func
from intarsia_loops import call_plan
from intarsia_loops.epilogue import epilogue
from intarsia_loops.fuse import fuse
from intarsia_loops.values import NodeResult
from intarsia_runtime.artifact.plan import ArgumentSource, CopyStep, KernelStep, RegionStep
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import PluginError, UnsupportedError, VerifyError

from .conftest import lower

F32 = DType.FLOAT32


def weights(*shape, name="", seed=1):
    """A constant of random numbers."""
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return constant(values, name=name)


def labels(lowered):
    """What each step runs."""
    return [getattr(step, "label", "copy") for step in lowered.module.plan.steps]


CASES = [
    ("nn.softmax", (3, 37), {"axis": 1}),
    ("nn.softmax", (2, 5, 4, 3), {"axis": 1}),
    ("nn.log_softmax", (4, 19), {"axis": 1}),
    ("mean", (1, 4, 7, 7), {"axes": (2, 3), "keepdims": True}),
    ("mean", (3, 5, 11), {"axes": (1,), "keepdims": True}),
    ("sum", (5, 33), {"axes": (0,), "keepdims": False}),
    ("max", (5, 33), {"axes": (0, 1), "keepdims": False}),
    ("prod", (5, 8), {"axes": (1,), "keepdims": False}),
    ("argmax", (5, 33), {"axis": 1, "keepdims": False}),
    ("argmin", (5, 33), {"axis": 0, "keepdims": True}),
    ("cumsum", (3, 9), {"axis": 1, "exclusive": False, "reverse": True}),
    ("flip", (3, 9), {"axes": (1,)}),
    ("transpose", (3, 9, 4), {"axes": (2, 0, 1)}),
    ("sum", (0, 4), {"axes": (0,), "keepdims": False}),
]


@pytest.mark.parametrize(("name", "shape", "attrs"), CASES)
def test_computes_what_the_operator_defines(graphs, name, shape, attrs):
    x = graphs.var("x", *shape)
    graphs.check(graphs.apply(name, x, **attrs), x)


@pytest.mark.parametrize("factor", [2, 3, 9])
def test_neighbours_that_read_one_place_are_written_together(graphs, factor):
    x = graphs.var("x", 2, 5, 7)
    attrs = {"coordinate_mode": "asymmetric", "nearest_mode": "floor"}
    wide = graphs.apply("nn.resize", x, sizes=(2, 5, 7 * factor), **attrs)
    lowered = graphs.check(graphs.apply("negative", wide), x)
    text = print_func(lowered.module.functions[0])
    assert ("//" in text) == (factor > 8)


def test_values_that_have_no_place(graphs):
    x, free = graphs.var("x", 4), graphs.var("free", 4)
    function = Function((x,), graphs.apply("add", x, free))
    with pytest.raises(VerifyError, match="read before a step makes it"):
        lower(function, (), target=graphs.target())
    nested = Var("nested", TupleType((TupleType((x.type,)),)))
    with pytest.raises(UnsupportedError, match="nested tuples have no place in memory"):
        assert NodeResult(nested).type


def test_a_large_row_goes_through_scratch_memory(graphs):
    x = graphs.var("x", 1, 4, 2500)
    lowered = graphs.check(graphs.apply("nn.softmax", x, axis=1), x)
    (kernel,) = lowered.module.functions
    assert kernel.scratch > 0
    assert lowered.module.plan.workspace_bytes >= 4 * 2500


def test_convolution_takes_its_epilogue(graphs):
    x = graphs.var("x", 1, 3, 5, 5)
    attrs = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
    conv = graphs.apply("nn.conv", x, weights(4, 3, 3, 3, name="w"), **attrs)
    skip = graphs.apply("exp", conv)
    body = graphs.apply("nn.relu", graphs.apply("add", skip, weights(1, 4, 1, 1, name="b")))
    lowered = graphs.check(body, x)
    assert labels(lowered) == ["nn.conv+exp+add+nn.relu"]
    assert lowered.module.plan.constants == ("w", "b")


def test_a_value_with_two_readers_is_computed_once(graphs):
    x = graphs.var("x", 4, 8)
    shared = graphs.apply("exp", x)
    body = graphs.apply("add", graphs.apply("nn.relu", shared), graphs.apply("tanh", shared))
    assert labels(graphs.check(body, x)) == ["exp", "nn.relu+tanh+add"]


def test_reductions_take_what_feeds_them(graphs):
    x = graphs.var("x", 6, 9)
    body = graphs.apply("sum", graphs.apply("exp", x), axes=(1,), keepdims=False)
    assert labels(graphs.check(body, x)) == ["exp+sum"]
    window = {"kernel": (3, 3), "strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    y = graphs.var("y", 1, 2, 6, 6)
    dear = graphs.apply("nn.max_pool", graphs.apply("exp", y), **window)
    assert labels(graphs.check(dear, y)) == ["exp", "nn.max_pool"]
    cheap = graphs.apply("nn.max_pool", graphs.apply("nn.relu", y), **window)
    assert labels(graphs.check(cheap, y)) == ["nn.relu+nn.max_pool"]


def test_long_chains_are_cut(graphs):
    x = graphs.var("x", 40)
    body = x
    for _ in range(30):
        body = graphs.apply("add", body, x)
    assert [label.count("+") + 1 for label in labels(graphs.check(body, x))] == [12, 12, 6]


def test_concatenation_is_split_into_copies(graphs):
    x, y = graphs.var("x", 3, 20), graphs.var("y", 3, 5)
    lowered = graphs.check(graphs.apply("concatenate", x, y, x, axis=1), x, y)
    assert "if_then_else" not in print_func(lowered.module.functions[0])


def test_many_tensors_are_concatenated(graphs):
    parts = [graphs.var(f"x{n}", 2, 1 + n % 3) for n in range(400)]
    graphs.check(graphs.apply("concatenate", *parts, axis=1), *parts)


def test_views_cost_nothing_and_outputs_are_filled(graphs):
    x = graphs.var("x", 4, 6)
    made = graphs.apply("exp", x)
    view = graphs.apply("reshape", made, shape=(24,))
    again = graphs.apply("tanh", graphs.apply("reshape", view, shape=(6, 4)))
    fixed = weights(2, 2, name="fixed")
    body = make_tuple([x, view, made, again, fixed, graphs.apply("copy", again)])
    lowered = graphs.check(body, x)
    plan = lowered.module.plan
    assert labels(lowered) == ["exp", "tanh", "copy", "copy", "copy", "copy"]
    assert plan.workspace_bytes == 0
    copied = [s.source.place for s in plan.steps if isinstance(s, CopyStep)]
    assert copied == [
        ArgumentSource.INPUT,
        ArgumentSource.OUTPUT,
        ArgumentSource.CONSTANT,
        ArgumentSource.OUTPUT,
    ]
    assert [spec.name for spec in plan.outputs][:2] == ["output_0", "output_1"]


def test_moving_ones_is_a_view(graphs):
    x = graphs.var("x", 1, 4, 1, 6)
    moved = graphs.apply("transpose", graphs.apply("exp", x), axes=(1, 3, 0, 2))
    lowered = graphs.check(graphs.apply("tanh", graphs.apply("reshape", moved, shape=(24,))), x)
    assert labels(lowered) == ["exp", "tanh"]


def test_split_has_several_outputs(graphs):
    x = graphs.var("x", 3, 9)
    parts = graphs.apply("split", x, sections=(4, 5), axis=1)
    fields = [TupleGetItem(parts, n, parts.type.fields[n]) for n in range(2)]
    graphs.check(make_tuple([graphs.apply("exp", fields[1]), fields[0]]), x)


def test_equal_kernels_are_emitted_once(graphs):
    x = graphs.var("x", 3, 8)
    body = x
    for seed in range(3):
        body = graphs.apply("matmul", body, weights(8, 8, seed=seed))
    lowered = graphs.check(body, x)
    assert len(lowered.module.functions) == 1
    assert len({step.function for step in lowered.module.plan.steps}) == 1
    assert lowered.module.plan.constants == ("constant_0", "constant_1", "constant_2")


def test_equal_names_of_constants_are_told_apart(graphs):
    x = graphs.var("x", 3, 8)
    body = graphs.apply("matmul", x, weights(8, 8, name="w", seed=1))
    body = graphs.apply("matmul", body, weights(8, 8, name="w", seed=2))
    assert graphs.check(body, x).module.plan.constants == ("w", "w_1")


def test_large_kernels_run_on_several_threads(graphs):
    x, y = graphs.var("x", 70_001), graphs.var("y", 2, 64, 33)
    target = graphs.target()
    flat = lower(Function((x,), graphs.apply("exp", x)), (), target=target)
    assert "for block in parallel(17)" in print_func(flat.module.functions[0])
    graphs.check(graphs.apply("nn.gelu", graphs.apply("add", y, weights(64, 1))), y)


def test_loops_as_text(graphs):
    x = graphs.var("x", 5, 20)
    (kernel,) = graphs.check(graphs.apply("mean", x, axes=(1,), keepdims=False), x).module.functions
    assert (
        print_func(kernel)
        == """\
def mean_0(p0: float32[5, 20], out0: float32[5] out):
  for r0 in serial(5):
    row0: float32[] stack
    partial: float32[16] register:
      total: float32[1] register
      partial[ramp(0, 1, 16)] = broadcast(0.0, 16)
      for k1 in serial(1):
        for lane in vectorized(16):
          partial[lane] = p0[r0, (k1 * 16) + lane] + partial[lane]
      total[0] = 0.0 + reduce_lanes[+](partial[ramp(0, 1, 16)])
      for k1_1 in serial(4):
        total[0] = total[0] + p0[r0, k1_1 + 16]
      row0[] = total[0]
    out0[r0] = row0[] / 20.0
"""
    )


def test_elements_repeated_few_times_are_stored_one_by_one(graphs):
    x = graphs.var("x", 5, 20, 1)
    repeated = graphs.apply("broadcast_to", x, shape=(5, 20, 2))
    (kernel,) = graphs.check(repeated, x).module.functions
    assert (
        print_func(kernel)
        == """\
def broadcast_to_0(p0: float32[100], out0: float32[100, 2] out):
  for i0 in serial(100):
    out0[i0, 0] = p0[i0]
    out0[i0, 1] = p0[i0]
"""
    )


def test_element_wise_loops_collapse(graphs):
    x = graphs.var("x", 2, 3, 5, 1)
    (kernel,) = graphs.check(graphs.apply("nn.relu", x), x).module.functions
    assert (
        print_func(kernel)
        == """\
def nn_relu_0(p0: float32[30], out0: float32[30] out):
  for lane in vectorized(16):
    out0[lane] = max(p0[lane], 0.0)
  for i0 in serial(3):
    for lane_1 in vectorized(4):
      out0[((i0 * 4) + 16) + lane_1] = max(p0[((i0 * 4) + 16) + lane_1], 0.0)
  for i0_1 in serial(2):
    out0[i0_1 + 28] = max(p0[i0_1 + 28], 0.0)
"""
    )


def matmul_group(graphs):
    """The group of ``relu(matmul(x, w) + bias)`` with a bias for each column, and its parts."""
    x = graphs.var("x", 4, 6)
    product = graphs.apply("matmul", x, weights(6, 16))
    body = graphs.apply("nn.relu", graphs.apply("add", product, weights(1, 16)))
    return x, body, fuse(Function((x,), body)).items[0].group


def test_epilogue_gives_schedules_what_follows_the_anchor(graphs):
    _, _, group = matmul_group(graphs)
    fused = epilogue(group)
    assert [buffer.shape for buffer in fused.buffers] == [(4, 6), (6, 16), (16,), (4, 16)]
    assert fused.anchor_args == fused.buffers[:2]
    assert fused.output is fused.buffers[-1]
    acc, i = Buffer("acc", (16,), F32), TirVar("i")
    value = Load(acc, (Ramp(IntImm(0), 1, 16),), F32, 16)
    text = print_expr(fused.apply(value, (i, Ramp(IntImm(0), 1, 16))))
    assert text == "max(acc[ramp(0, 1, 16)] + p2[ramp(0, 1, 16)], broadcast(0.0, 16))"


def test_schedules_of_the_target_replace_default_loops(graphs):
    x, body, _ = matmul_group(graphs)

    def schedule(group, target):
        fused = epilogue(group)
        return PrimFunc("mine", fused.buffers, fused.outputs, Seq(()))

    def not_mine(group, target):
        return None

    def wrong(group, target):
        return "loops"

    function = Function((x,), body)
    mine = lower(function, (), target=graphs.target(matmul=schedule)).module
    assert [f.name for f in mine.functions] == ["matmul_add_nn_relu_0"]
    assert mine.functions[0].body.body == ()
    default = lower(function, (), target=graphs.target(matmul=not_mine)).module
    assert default.functions[0].body != ()
    with pytest.raises(PluginError, match="the schedule of 'matmul' returned no kernel"):
        lower(function, (), target=graphs.target(matmul=wrong))


def test_epilogues_that_cannot_be(graphs):
    x = graphs.var("x", 4, 6)
    plain = graphs.apply("add", graphs.apply("nn.relu", x), x)
    group = fuse(Function((x,), plain)).items[0].group
    with pytest.raises(VerifyError, match="has no anchor"):
        epilogue(group)
    reduced = graphs.apply("sum", graphs.apply("exp", x), axes=(1,), keepdims=False)
    _, _, group = matmul_group(graphs)
    bad = type(group)("bad", Function((x,), reduced), reduced.args[0], ())
    with pytest.raises(VerifyError, match="not element-wise"):
        epilogue(bad)
    flipped = graphs.apply("flip", graphs.apply("exp", x), axes=(1,))
    bad = type(group)("bad", Function((x,), flipped), flipped.args[0], ())
    with pytest.raises(VerifyError, match="reads it elsewhere"):
        epilogue(bad)


def test_regions_are_called_in_the_plan(graphs):
    x = graphs.var("x", 4, 6)
    inner = graphs.var("inner", 4, 6)
    region = Region("npu_0", "npu", Function((inner,), graphs.apply("exp", inner)), {}, ("e",))
    outside = CallFunction(GlobalVar("npu_0"), (graphs.apply("tanh", x),), inner.type)
    function = Function((x,), graphs.apply("nn.relu", outside))
    plan = lower(function, (region,), target=graphs.target()).module.plan
    kinds = [type(step) for step in plan.steps]
    assert kinds == [KernelStep, RegionStep, KernelStep]
    assert (plan.regions, plan.steps[1].label, plan.workspace_bytes) == (
        ("npu_0",),
        "npu:npu_0",
        256,
    )
    with pytest.raises(VerifyError, match="no region 'npu_0'"):
        lower(function, (), target=graphs.target())


def test_the_addresses_that_calls_pass_are_bounded(graphs, monkeypatch):
    x = graphs.var("x", 4, 6)
    call_of = CallFunction(GlobalVar("npu_0"), (x, x, x), x.type)
    inner = tuple(graphs.var(f"x{n}", 4, 6) for n in range(3))
    body = graphs.apply("add", graphs.apply("add", *inner[:2]), inner[2])
    region = Region("npu_0", "npu", Function(inner, body), {}, ())
    cases = (
        ("MOST_REGION_TENSORS", 3, Function((x,), call_of), "the region npu:npu_0 has 4 inputs"),
        ("MOST_TENSORS", 3, Function(inner, body), "a kernel of add.add has 4 inputs"),
        ("MOST_TENSORS", 2, Function((x,), make_tuple([x, x])), "the model has 3 inputs"),
    )
    for limit, most, function, message in cases:
        with monkeypatch.context() as patch:
            patch.setattr(call_plan, limit, most)
            with pytest.raises(UnsupportedError, match=message):
                lower(function, (region,), target=graphs.target())


def test_a_kernel_of_too_many_tensors_is_refused_before_it_is_made(graphs, monkeypatch):
    monkeypatch.setattr(call_plan, "MOST_TENSORS", 2)
    monkeypatch.setattr("intarsia_loops.lower._kernel", lambda *_: pytest.fail("was made"))
    x, y = graphs.var("x", 4), graphs.var("y", 4)
    with pytest.raises(UnsupportedError, match="has 3 inputs"):
        lower(Function((x, y), graphs.apply("add", x, y)), (), target=graphs.target())


def test_says_what_it_cannot_lower(graphs):
    x, flag = graphs.var("x", 4), Var("flag", TensorType((), DType.BOOL))
    with pytest.raises(UnsupportedError, match="'If' has no static plan"):
        lower(Function((x, flag), If(flag, x, x, x.type)), (), target=graphs.target())
    pair = make_tuple([x, x])
    with pytest.raises(VerifyError, match="a tuple is used where a tensor is needed"):
        fuse(Function((x,), make_tuple([pair])))

    class Mystery(Op):
        name = "mystery"

    strange = type(graphs.apply("exp", x))(Mystery, (x,), graphs.apply("exp", x).attrs, x.type)
    with pytest.raises(UnsupportedError, match="'mystery' has no rule"):
        lower(Function((x,), strange), (), target=graphs.target())


UNARY = ["nn.relu", "tanh", "abs", "sigmoid", "negative"]
BINARY = ["add", "multiply", "maximum", "subtract"]


@st.composite
def programs(draw):
    """Instructions that build a graph: an operator and which earlier values it takes."""
    count = draw(st.integers(1, 9))
    kinds = st.sampled_from(
        [*UNARY, *BINARY, "reshape", "flip", "transpose", "softmax", "sum", "cat"]
    )
    return [
        (draw(kinds), draw(st.integers(0, 20)), draw(st.integers(0, 20))) for _ in range(count)
    ], draw(st.sampled_from([(2, 3, 8), (1, 5, 18), (3, 1, 1), (4, 2, 3)]))


def build(graphs, program, shape):
    """Build the graph of a program; every value has the same shape."""
    x, y = graphs.var("x", *shape), graphs.var("y", *shape)
    values = [x, y]
    for name, first, second in program:
        a, b = values[first % len(values)], values[second % len(values)]
        if name in UNARY:
            made = graphs.apply(name, a)
        elif name in BINARY:
            made = graphs.apply(name, a, b)
        elif name == "reshape":
            flat = graphs.apply("reshape", a, shape=(int(np.prod(shape)),))
            made = graphs.apply("reshape", graphs.apply("tanh", flat), shape=shape)
        elif name == "flip":
            made = graphs.apply("flip", a, axes=(first % 3,))
        elif name == "transpose":
            turned = graphs.apply("transpose", a, axes=(2, 0, 1))
            made = graphs.apply("reshape", turned, shape=shape)
        elif name == "softmax":
            made = graphs.apply("nn.softmax", a, axis=second % 3)
        elif name == "sum":
            total = graphs.apply("mean", a, axes=(second % 3,), keepdims=True)
            made = graphs.apply("add", b, total)
        else:
            both = graphs.apply("concatenate", a, b, axis=first % 3)
            begin = tuple(1 if d == first % 3 else 0 for d in range(3))
            end = tuple(b + size for b, size in zip(begin, shape, strict=True))
            made = graphs.apply("strided_slice", both, begin=begin, end=end, strides=(1, 1, 1))
        values.append(made)
    outputs = [values[-1], values[len(values) // 2]]
    return make_tuple(outputs), (x, y)


@given(programs())
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_generated_graphs(graphs, generated):
    program, shape = generated
    body, params = build(graphs, program, shape)
    graphs.check(body, *params)
