# SPDX-License-Identifier: Apache-2.0
"""Operators of ``com.microsoft`` that ONNX Runtime's optimizer writes, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import UnsupportedError

MS = "com.microsoft"
Case = tuple[str, Sequence[np.ndarray | None], Mapping[str, object], int]


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def model(case: Case, constants: Sequence[int] = (), *, opens: bool = False) -> onnx.ModelProto:
    """A model of one node; operands that are no constants are inputs."""
    op, operands, attrs, results = case
    names = ["" if x is None else f"x{n}" for n, x in enumerate(operands)]
    outputs = ["y", *(f"y{n}" for n in range(1, results))]
    infos, weights = [], []
    for n, (name, x) in enumerate(zip(names, operands, strict=True)):
        if x is None:
            continue
        if n in constants:
            weights.append(numpy_helper.from_array(x, name))
            continue
        sizes = [f"d{n}{axis}" for axis in range(x.ndim)] if opens and n == 0 else x.shape
        code = helper.np_dtype_to_tensor_dtype(x.dtype)
        infos.append(helper.make_tensor_value_info(name, code, sizes))
    domain = "" if op == "SimplifiedLayerNormalization" else MS
    node = helper.make_node(op, names, outputs, domain=domain, **attrs)
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    for name in outputs[1:2] if op == "EmbedLayerNormalization" else ():
        types[1] = helper.make_tensor_value_info(name, TensorProto.INT32, None)
    graph = helper.make_graph([node], "g", infos, types, weights)
    versions = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=8)


def gelu_cases() -> list[Case]:
    shapes = [(3, 8), (2, 3, 16), (1, 1, 4)]
    found: list[Case] = [("BiasGelu", (drawn(*s), drawn(s[-1])), {}, 1) for s in shapes]
    found += [("Gelu", (drawn(*s),), {}, 1) for s in shapes]
    found += [("FastGelu", (drawn(*s), b), {}, 1) for s in shapes for b in (None, drawn(s[-1]))]
    return found + [
        ("QuickGelu", (drawn(*s),), {"alpha": a}, 1) for s in shapes for a in (1.0, 1.702)
    ]


def norm_cases() -> list[Case]:
    found: list[Case] = []
    for size, beta, bias in product((4, 16), (False, True), (False, True)):
        x, skip, gamma = drawn(2, 3, size), drawn(2, 3, size, seed=1), drawn(size, seed=2)
        more = drawn(size, seed=3) if beta else None, drawn(size, seed=4) if bias else None
        attrs = {"epsilon": 1e-5}
        operands = (x, skip, gamma, *more)
        found.append(("SkipLayerNormalization", operands, attrs, 1))
        operands = (x, skip, gamma, more[1])
        found.append(("SkipSimplifiedLayerNormalization", operands, attrs, 1))
        found.append(("SimplifiedLayerNormalization", (x, gamma), {**attrs, "axis": -1}, 1))
    return found


def embed_cases() -> list[Case]:
    rng = np.random.default_rng(3)
    found: list[Case] = []
    for segments, mask in product((False, True), (False, True)):
        words = rng.integers(0, 9, (2, 5)).astype(np.int32)
        operands = (
            words, words % 2 if segments else None, drawn(9, 8), drawn(6, 8),
            drawn(2, 8) if segments else None, drawn(8, seed=1), drawn(8, seed=2),
            (words > 3).astype(np.int32) if mask else None,
        )  # fmt: skip
        found.append(("EmbedLayerNormalization", operands, {"epsilon": 1e-5}, 2))
    return found


def product_cases() -> list[Case]:
    found: list[Case] = []
    for a, b in product((0, 1), (0, 1)):
        x = drawn(2, 4, 3) if a else drawn(2, 3, 4)
        w = drawn(2, 5, 4) if b else drawn(2, 4, 5)
        found.append(("FusedMatMul", (x, w), {"transA": a, "transB": b, "alpha": 0.5}, 1))
        found.append(("TransposeMatMul", (x, w), {"transA": a, "transB": b}, 1))
    for name, numbers in ACTIVATIONS:
        attrs: dict[str, object] = {"activation": name}
        if numbers:
            attrs |= {"activation_alpha": numbers[0]}
        if name not in ("Clip", "HardSigmoid"):
            found.append(("FusedGemm", (drawn(3, 4), drawn(4, 5), drawn(5)), attrs, 1))
        attrs = {"activation": name, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        if numbers:
            attrs |= {"activation_params": list(numbers)}
        operands = (drawn(1, 3, 6, 7), drawn(4, 3, 3, 3), drawn(4))
        found.append(("FusedConv", operands, attrs, 1))
    found.append(("FusedConv", (*operands, drawn(1, 4, 6, 7)), {**attrs, "activation": "Relu"}, 1))
    return found


ACTIVATIONS = [
    ("Relu", ()), ("Sigmoid", ()), ("Tanh", ()), ("LeakyRelu", (0.2,)), ("Clip", (-0.5, 0.5)),
    ("HardSigmoid", (0.3, 0.4)),
]  # fmt: skip


def attention_cases() -> list[Case]:
    found: list[Case] = []
    rng = np.random.default_rng(5)
    x, bias = drawn(2, 5, 8), drawn(24)
    masks = [None, (rng.random((2, 5)) > 0.3).astype(np.int32), np.array([3, 5], np.int32)]
    masks.append((rng.random((2, 5, 5)) > 0.3).astype(np.int32))
    for mask, causal in product(masks, (0, 1)):
        attrs = {"num_heads": 2, "unidirectional": causal}
        found.append(("Attention", (x, drawn(8, 24), bias, mask), attrs, 1))
    found.append(("Attention", (x, drawn(8, 24), bias, None, None, drawn(2, 2, 5, 5)), attrs, 1))
    found.append(
        (
            "Attention",
            (x, drawn(8, 32), drawn(32)),
            {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 16]},
            1,
        )
    )
    keys = (drawn(2, 5, 8), drawn(2, 7, 8, seed=1), drawn(2, 7, 8, seed=2))
    for given, mask in product(
        (None, drawn(24)), (None, (rng.random((2, 7)) > 0.3).astype(np.int32))
    ):
        found.append(("MultiHeadAttention", (*keys, given, mask), {"num_heads": 2}, 1))
    found.append(
        (
            "MultiHeadAttention",
            (*keys, None, None, drawn(2, 2, 5, 7)),
            {"num_heads": 2, "scale": 0.3},
            1,
        )
    )
    return found


CASES = [
    pytest.param(case, id=f"{case[0]}-{number}")
    for number, case in enumerate(
        [*gelu_cases(), *norm_cases(), *embed_cases(), *product_cases(), *attention_cases()]
    )
]


def wanted(proto: onnx.ModelProto, operands: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    names = {info.name for info in proto.graph.input}
    given = {f"x{n}": x for n, x in enumerate(operands) if f"x{n}" in names}
    return ort.InferenceSession(proto.SerializeToString()).run(None, given)


def computed(proto: onnx.ModelProto, operands: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    with collecting_guards():
        main = from_onnx(proto).main
    given = {f"x{n}": x for n, x in enumerate(operands) if x is not None}
    return list(evaluate(main, {param.name: given[param.name] for param in main.params}))


@pytest.mark.parametrize("case", CASES)
def test_it_is_what_onnx_runtime_computes(case: Case) -> None:
    weights = range(1, 4) if case[0] in ("Attention", "FusedConv") else ()
    constants = [n for n in weights if n in (1, 2)]
    for opens in (False, case[0] not in ("EmbedLayerNormalization", "Attention")):
        proto = model(case, constants, opens=opens and case[0].endswith("Gelu"))
        found = computed(proto, case[1])
        for mine, theirs in zip(found, wanted(proto, case[1]), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


def test_the_sum_of_a_normalization_is_a_result_too() -> None:
    for op, count in (("SkipLayerNormalization", 4), ("SkipSimplifiedLayerNormalization", 4)):
        case = (op, (drawn(2, 3, 4), drawn(2, 3, 4, seed=1), drawn(4)), {"epsilon": 1e-5}, count)
        proto = model(case)
        node = proto.graph.node[0]
        node.output[1] = node.output[2] = ""
        del proto.graph.output[1:3]
        for mine, theirs in zip(computed(proto, case[1]), wanted(proto, case[1]), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("depth", [32, 48])
def test_blocks_of_weights(bits: int, points: bool, depth: int) -> None:
    rng, columns, block = np.random.default_rng(7), 6, 16
    blocks = depth // block
    packed = rng.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.02, (columns, blocks)).astype(np.float32)
    zero = None
    if points:
        zero = rng.integers(0, 256, (columns, -(-blocks * bits // 8))).astype(np.uint8)
    attrs = {"K": depth, "N": columns, "bits": bits, "block_size": block}
    case = ("MatMulNBits", (drawn(3, depth), packed, scales, zero), attrs, 1)
    proto = model(case, (1, 2, 3))
    (mine,), (theirs,) = computed(proto, case[1]), wanted(proto, case[1])
    np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=2e-3)


def test_layouts_of_one_machine_are_refused_with_the_way_out() -> None:
    proto = model(("ReorderInput", (drawn(1, 8, 4, 4),), {}, 1))
    proto.graph.node[0].domain = "com.microsoft.nchwc"
    proto.opset_import.append(helper.make_opsetid("com.microsoft.nchwc", 1))
    with pytest.raises(UnsupportedError, match="operator 'ReorderInput'") as caught:
        from_onnx(proto)
    assert "an optimization level below 'all'" in caught.value.hint
