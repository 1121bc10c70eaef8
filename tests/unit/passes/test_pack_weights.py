# SPDX-License-Identifier: Apache-2.0
"""Weights of few bits in front of products of floats."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia_ir.graph.expr import Call
from intarsia_ir.graph.walk import post_order
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.prepare import PREPARE, PREPARE_PACKED
from intarsia_onnx import from_onnx

RANGES = {"INT4": (-8, 7), "UINT4": (0, 15), "INT8": (-128, 127), "UINT8": (0, 255)}


def weight_only(
    kind: str, sizes: tuple[int, int], block: int, *, zero: int = 0, axis: int = 0,
    turned: bool = False, rank: int = 2,
):  # fmt: skip
    """Return a model that multiplies floats with a dequantized weight, and the weight as floats.

    Args:
        kind: Element type of the weight.
        sizes: Of the weight ``[K, N]``; ``[N, K]`` in the file if ``turned``.
        block: Neighbours along ``axis`` with a scale; 0 for one scale a column.
        zero: Zero point of all blocks.
        axis: Of the blocks; of the scales without blocks.
        turned: Whether a Transpose stands between.
        rank: Of the floats.
    """
    rng = np.random.default_rng(len(kind) + sizes[1])
    depth, columns = sizes
    stored = (columns, depth) if turned else sizes
    low, high = RANGES[kind]
    numbers = rng.integers(low, high + 1, stored)
    numbers.flat[:2] = low, high
    shape = list(stored) if block else [stored[axis]]
    if block:
        shape[axis] //= block
    scales = (rng.random(shape) + 0.5).astype(np.float32) / 100
    scales.flat[0] *= -1
    code = getattr(TensorProto, kind)

    def tensor(name: str, values: np.ndarray):
        return helper.make_tensor(name, code, values.shape, values.reshape(-1).tolist())

    initializers = [tensor("w", numbers), numpy_helper.from_array(scales, "s")]
    operands = ["w", "s"]
    if zero:
        initializers.append(tensor("z", np.full(shape, zero)))
        operands.append("z")
    attrs = {"axis": axis, "block_size": block} if block else {"axis": axis}
    nodes = [helper.make_node("DequantizeLinear", operands, ["real"], **attrs)]
    if turned:
        nodes.append(helper.make_node("Transpose", ["real"], ["turned"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", "turned" if turned else "real"], ["y"]))
    outer = ["A", "B", "C"][: rank - 1]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, [*outer, depth])],
        [info("y", TensorProto.FLOAT, [*outer, columns])],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    if block:
        factors = np.repeat(scales, block, axis)
    else:
        factors = scales.reshape([-1 if n == axis else 1 for n in range(2)])
    real = ((numbers - zero) * factors.astype(np.float64)).astype(np.float32)
    return model, real.T if turned else real


def names_of(module) -> set[str]:
    return {node.name for node in post_order(module.main.body) if isinstance(node, Call)}


@pytest.mark.parametrize("kind", RANGES)
@pytest.mark.parametrize(
    ("sizes", "block", "zero", "axis", "turned", "rank"),
    [
        ((64, 64), 16, 0, 0, False, 2),
        ((64, 80), 32, 5, 0, False, 3),
        ((64, 80), 32, 0, 1, True, 4),
        ((60, 33), 0, 0, 1, False, 2),
        ((60, 33), 0, 3, 0, True, 2),
    ],
)
def test_a_weight_stays_in_its_bits(kind, sizes, block, zero, axis, turned, rank) -> None:
    model, weight = weight_only(kind, sizes, block, zero=zero, axis=axis, turned=turned, rank=rank)
    remarks = Remarks()
    module = PREPARE_PACKED.run(from_onnx(model), remarks=remarks, check=True)
    assert "nn.block_matmul" in names_of(module)
    assert not names_of(module) & {"matmul", "qnn.dequantize"}
    assert [one.message for one in remarks.found if one.stage == "pack-weights"] == [
        "the weight stays quantized"
    ]
    x = np.random.default_rng(2).standard_normal((*(2, 1, 3)[: rank - 1], sizes[0]))
    (found,) = evaluate(module.main, {"x": x.astype(np.float32)})
    np.testing.assert_allclose(found, x.astype(np.float32) @ weight, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("sizes", "block", "axis"),
    [
        ((64, 31), 16, 0),  # few columns: most codes would be unused
        ((48, 64), 12, 0),  # a block is no whole number of words
        ((64, 64), 16, 1),  # blocks of columns
        ((64, 64), 0, 0),  # a scale for each row
    ],
)
def test_other_weights_become_floats(sizes, block, axis) -> None:
    model, weight = weight_only("INT4", sizes, block, axis=axis)
    module = PREPARE_PACKED.run(from_onnx(model), check=True)
    assert names_of(module) == {"matmul"}
    x = np.random.default_rng(2).standard_normal((3, sizes[0])).astype(np.float32)
    (found,) = evaluate(module.main, {"x": x})
    np.testing.assert_allclose(found, x @ weight, rtol=1e-4, atol=1e-4)


def test_a_product_of_two_inputs_stays() -> None:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [info("x", TensorProto.FLOAT, ["M", "K"]), info("w", TensorProto.FLOAT, ["K", "N"])],
        [info("y", TensorProto.FLOAT, ["M", "N"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    assert names_of(PREPARE_PACKED.run(from_onnx(model))) == {"matmul"}


def test_elsewhere_than_on_the_cpu_weights_become_floats() -> None:
    model, _ = weight_only("INT8", (64, 64), 16)
    assert names_of(PREPARE.run(from_onnx(model), check=True)) == {"matmul"}


def test_large_weights_become_floats_when_compiling() -> None:
    """More than the 16 MiB that folding makes of other constants: no run dequantizes them."""
    model, _ = weight_only("INT8", (4096, 1040), 0, axis=0)
    assert names_of(PREPARE_PACKED.run(from_onnx(model))) == {"matmul"}
