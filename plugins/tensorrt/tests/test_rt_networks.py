# SPDX-License-Identifier: Apache-2.0
"""Networks of several operators on the real library: numbers, types, and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from intarsia_ir.graph.expr import Expr, Function, constant, make_tuple
from intarsia_ir.graph.match import match_pattern
from intarsia_ir.graph.walk import count_uses
from intarsia_ir.regions.region import Region
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import PluginError, TargetError, ToolchainError
from intarsia_tensorrt.codegen import write_network
from intarsia_tensorrt.draft import NetworkDraft, member
from intarsia_tensorrt.plan import build_plan
from intarsia_tensorrt.support import TABLE
from intarsia_tensorrt.target import ARCHITECTURES, TensorrtOptions
from intarsia_testkit.expressions import apply, expected, function_of, var, weight

from .readback import evaluate
from .regions import inputs_of, library, network_of, region_of

SAME = ((1, 1), (1, 1))
ONES = {"strides": (1, 1), "padding": SAME, "dilation": (1, 1)}


def net() -> Expr:
    """Convolutions with a shortcut, a mean, a product and a softmax."""
    x = var("x", 2, 3, 9, 8)
    first = apply("nn.relu", apply("nn.conv", x, weight(8, 3, 3, 3), weight(8), **ONES))
    deep = apply("nn.conv", first, weight(8, 4, 3, 3, seed=2), groups=2, **ONES)
    added = apply("add", first, deep)
    pools = {"kernel": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    small = apply("nn.max_pool", added, ceil_mode=True, **pools)
    mean = apply("mean", small, axes=(2, 3))
    return apply("nn.softmax", apply("matmul", mean, weight(8, 5)), axis=1)


def test_the_network_read_back_gives_the_reference() -> None:
    draft, function = network_of(net())
    arrays = inputs_of(function)
    (found,), (wanted,) = evaluate(draft.trt, draft.network, arrays), expected(function, arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("arch", [arch for arch in ARCHITECTURES if arch != "sm_75"])
def test_builds_for_gpus_that_are_not_here(arch: str) -> None:
    draft, _ = network_of(net())
    assert len(build_plan(draft, TensorrtOptions(arch=arch))) > 10_000


def test_half_precision_keeps_borders_and_sums() -> None:
    draft, function = network_of(net(), half=True)
    layers = [draft.network.get_layer(n) for n in range(draft.network.num_layers)]
    types = {layer.type.name: layer.get_output(0).dtype.name for layer in layers}
    assert types["CONVOLUTION"] == types["MATRIX_MULTIPLY"] == types["POOLING"] == "HALF"
    assert types["REDUCE"] == types["SOFTMAX"] == "FLOAT"
    assert draft.network.get_output(0).dtype.name == draft.network.get_input(0).dtype.name
    assert build_plan(draft, TensorrtOptions(fp16=True))
    arrays = inputs_of(function)
    (found,), (wanted,) = evaluate(draft.trt, draft.network, arrays), expected(function, arrays)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, atol=2e-2)


def test_outputs_are_tensors_of_their_own() -> None:
    x = var("x", 2, 3)
    y = apply("nn.relu", x)
    table = constant(np.arange(3, dtype=np.float32))
    function = Function((x,), make_tuple((y, x, y, table)))
    draft = write_network(region_of(function), library())
    assert build_plan(draft, TensorrtOptions())
    (array,) = inputs_of(function)
    found = evaluate(draft.trt, draft.network, [array])
    for mine, right in zip(found, expected(function, [array]), strict=True):
        np.testing.assert_array_equal(mine, right)


def test_a_region_with_a_foreign_call_is_refused() -> None:
    function = function_of(apply("cumsum", var("x", 4), axis=0))
    region = Region("tensorrt_0", "tensorrt", function, {}, ())
    with pytest.raises(PluginError, match="a cumsum that no row of the support table takes"):
        write_network(region, library())


def test_layers_of_another_type_than_their_operator_are_refused(monkeypatch) -> None:
    def wrong(draft: NetworkDraft, call: object) -> object:
        return draft.cast(draft.value(function.params[0]), DType.INT32)

    function = function_of(apply("nn.relu", var("x", 2, 3)))
    region = region_of(function)
    from intarsia.plugin.accelerator import AcceleratorTable, operator_row
    from intarsia_tensorrt import codegen

    monkeypatch.setattr(codegen, "TABLE", AcceleratorTable((operator_row("nn.relu", wrong),)))
    with pytest.raises(PluginError, match=r"give int32\[2, 3\], and nn.relu is float32\[2, 3\]"):
        write_network(region, library())


def draft_of(*shapes: tuple[int, ...]) -> tuple[NetworkDraft, list[object]]:
    """A draft with inputs, for networks that no region would give."""
    draft = NetworkDraft(library(), "wrong")
    draft.label = "node_7"
    params = [var(f"x{n}", *shape) for n, shape in enumerate(shapes)]
    for param in params:
        draft.add_input(param.name, param)
    return draft, [draft.value(param) for param in params]


def conformable(draft: NetworkDraft, tensors: list) -> None:
    draft.binary(tensors[0], tensors[1], "SUM")


def mixed_types(draft: NetworkDraft, tensors: list) -> None:
    draft.binary(draft.cast(tensors[0], DType.FLOAT16), tensors[0], "SUM")


def changed_volume(draft: NetworkDraft, tensors: list) -> None:
    draft.reshape(tensors[0], (7,))


def small_kernel(draft: NetworkDraft, tensors: list) -> None:
    kernel = draft.weights(np.zeros((4, 2, 2, 2), np.float32))
    layer = draft.network.add_convolution_nd(
        tensors[2], 4, (3, 3), kernel, draft.no_weights(DType.FLOAT32)
    )
    draft.output_of(layer)


def no_rank(draft: NetworkDraft, tensors: list) -> None:
    draft.output_of(
        draft.network.add_topk(tensors[3], member(draft.trt.TopKOperation, "MAX"), 1, 1), 1
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (conformable, "broadcast dimensions must be conformable"),
        (mixed_types, "must have same input types"),
        (changed_volume, "reshape"),
        (small_kernel, "weights in kernel"),
        (no_rank, "at least 2 dimensions"),
    ],
)
def test_the_library_refuses_wrong_networks_in_its_own_words(wrong, words: str) -> None:
    draft, tensors = draft_of((2, 3), (4, 5), (1, 2, 5, 5), (4,))
    with pytest.raises(ToolchainError, match=words) as caught:
        wrong(draft, tensors)
    assert "refuses 'node_7'" in str(caught.value)
    assert "--place 'node_7!=tensorrt'" in caught.value.hint


def test_a_network_that_cannot_be_built_is_refused() -> None:
    draft, tensors = draft_of((1, 2, 8, 8))
    kernel = draft.weights(np.ones((2, 4, 3, 3), np.float32))
    none = draft.no_weights(DType.FLOAT32)
    layer = draft.network.add_deconvolution_nd(tensors[0], 4, (3, 3), kernel, none)
    layer.dilation_nd = layer.stride_nd = (2, 2)
    draft.network.mark_output(draft.output_of(layer))
    with pytest.raises(ToolchainError, match=r"builds no engine: .*Strided & Dilated Deconv"):
        build_plan(draft, TensorrtOptions())


def test_what_a_gpu_lacks_is_said_in_the_library_own_words() -> None:
    draft, _ = network_of(net())
    with pytest.raises(ToolchainError, match="FP32 GEMM is not supported"):
        build_plan(draft, TensorrtOptions(arch="sm_75"))


def test_what_an_older_library_lacks_is_an_error_with_its_name() -> None:
    older = SimpleNamespace(__name__="UnaryOperation", __members__={"EXP": 0})
    assert member(older, "EXP") == 0
    with pytest.raises(ToolchainError, match=r"has no UnaryOperation\.ISNAN"):
        member(older, "ISNAN")


def test_two_inputs_of_one_name_are_refused() -> None:
    draft, _ = draft_of((2,))
    with pytest.raises(ToolchainError, match="refuses"):
        draft.add_input("x0", var("x0", 2))


def test_an_operator_that_is_never_taken_has_no_lowering() -> None:
    body = apply("cumsum", var("x", 4), axis=0)
    (row,) = (row for row in TABLE.rows if row.name == "cumsum")
    match = match_pattern(row.pattern, body, count_uses((body,)))
    assert match is not None
    with pytest.raises(PluginError, match="cumsum is never taken"):
        row.lower(NetworkDraft(library(), "r"), match)


def test_options_reach_the_builder(tmp_path) -> None:
    draft, _ = network_of(apply("nn.relu", var("x", 2, 3)))
    assert build_plan(draft, TensorrtOptions(workspace=1 << 20, tf32=True))
    with pytest.raises(TargetError, match="has no timing cache"):
        build_plan(draft, TensorrtOptions(timing_cache=str(tmp_path / "times")))
