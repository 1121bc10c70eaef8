# SPDX-License-Identifier: Apache-2.0
"""Nodes that break ONNX's rules (exit code 3) or ask for what there is not (exit code 4)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from intarsia_ir.graph.types import TensorType
from intarsia_onnx import from_onnx
from intarsia_onnx.reader import read_model
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import IntarsiaError, ModelError, UnsupportedError

from .onnx_models import model, node

IMAGE = (1, 4, 6, 6)
W = np.ones((8, 4, 3, 3), np.float32)
ONE = np.float32(1)
BYTE = np.uint8(1)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def u8(*shape: int) -> np.ndarray:
    return np.ones(shape, np.uint8)


def quantized(a: np.ndarray, b: np.ndarray, zero: np.ndarray = BYTE) -> dict[str, np.ndarray]:
    return {"a": a, "as": ONE, "az": u8(), "b": b, "bs": ONE, "bz": u8(), "ys": ONE, "yz": zero}


CELL = {"w": ones(1, 20, 3), "r": ones(1, 20, 5)}

# op, attributes, shape of x, further operands, exit code, words of the message, opset
ROWS: list[tuple] = [
    ("Softmax", {"axis": 1.0}, (2,), {}, 3, "attribute 'axis' is not an integer"),
    ("Gelu", {"approximate": 1}, (2,), {}, 3, "attribute 'approximate' is not a string", 20),
    (
        "Upsample",
        {"scales": [1, 2]},
        (2, 2),
        {},
        3,
        "attribute 'scales' is not a list of floats",
        7,
    ),
    ("LSTM", {"activations": [1]}, (4, 2, 3), CELL, 3, "is not a list of strings"),
    ("Constant", {"value": 1}, (2,), None, 3, "attribute 'value' is not a tensor"),
    ("Split", {"split": [4]}, (4,), {}, 3, "1 parts for 2 outputs", 11),
    ("Dropout", {}, ("N",), {}, 4, "mask of a tensor of unknown shape"),
    (
        "QLinearMatMul",
        {},
        None,
        quantized(u8(2, 3), u8(3, 4)) | {"ys": ones(2)},
        4,
        "with parameters of input 6 along an axis",
    ),
    ("QLinearMatMul", {}, None, quantized(u8(2, 3), u8(3, 4), zero=ONE), 3, "8 to 32-bit integer"),
    (
        "QLinearMatMul",
        {},
        None,
        quantized(u8(2, 3), u8(3, 4)) | {"bs": ones(1, 4)},
        4,
        "scales of more than one dimension",
    ),
    ("QLinearConv", {}, None, quantized(u8(1, 2, 3), u8(2, 2)), 3, "weight"),
    ("Conv", {}, (1, 4), {"w": W}, 3, "weight"),
    ("Conv", {"strides": [0, 1]}, IMAGE, {"w": W}, 3, "must be positive"),
    ("Conv", {"strides": [1]}, IMAGE, {"w": W}, 3, "for 2 spatial dimensions"),
    ("Conv", {"kernel_shape": [2, 2]}, IMAGE, {"w": W}, 3, "is not the weight's"),
    ("Conv", {"auto_pad": "SAME"}, IMAGE, {"w": W}, 3, "auto_pad='SAME'"),
    ("Conv", {"pads": [1, 1]}, IMAGE, {"w": W}, 3, "pads (1, 1)"),
    ("Conv", {"pads": [-1, 0, 0, 0]}, IMAGE, {"w": W}, 3, "must not be negative"),
    ("Conv", {"group": -1}, IMAGE, {"w": W}, 3, "group=-1"),
    ("Conv", {"dilations": [0, 0]}, IMAGE, {"w": W}, 3, "dilations (0, 0)"),
    (
        "ConvTranspose",
        {"output_padding": [-1, 0]},
        IMAGE,
        {"w": ones(4, 2, 3, 3)},
        3,
        "output_padding",
    ),
    ("ConvTranspose", {"output_shape": [9]}, IMAGE, {"w": ones(4, 2, 3, 3)}, 3, "output_shape"),
    ("MaxPool", {"kernel_shape": [2]}, (3, 4), {}, 3, "spatial dimensions"),
    ("MaxPool", {"kernel_shape": [0, 2]}, IMAGE, {}, 3, "kernel_shape"),
    ("MaxPool", {}, IMAGE, {}, 3, "attribute 'kernel_shape' is missing"),
    ("LpPool", {"kernel_shape": [2, 2], "p": 0}, IMAGE, {}, 3, "p=0"),
    ("GlobalMaxPool", {}, (2, 3), {}, 3, "needs spatial dimensions"),
    ("Constant", {"value_string": "a"}, (2,), None, 4, "value_string"),
    ("Constant", {}, (2,), None, 3, "without a value"),
    ("ConstantOfShape", {}, None, {"s": i64(-1)}, 3, "shape (-1,)"),
    ("Range", {}, None, {"a": f32(1, 2), "b": ONE, "c": ONE}, 3, "one number each"),
    ("Range", {}, None, {"a": ONE, "b": ONE, "c": np.float32(0)}, 3, "step is 0"),
    ("Range", {}, None, {"a": ONE, "b": np.float32(np.inf), "c": ONE}, 3, "a range from"),
    (
        "Range",
        {},
        None,
        {"a": np.int64(0), "b": np.int64(1 << 40), "c": np.int64(1)},
        4,
        "elements",
    ),
    ("EyeLike", {}, (1 << 20, 1 << 20), {}, 8, "limit"),
    ("EyeLike", {}, (2, 3, 4), {}, 4, "EyeLike of shape"),
    ("Gather", {"axis": 0}, (3,), {"i": i64(3)}, 3, "outside of the 3 elements"),
    ("Gather", {"axis": 9}, (3,), {"i": i64(0)}, 3, "axis 9"),
    ("OneHot", {}, (3,), {"d": i64(0), "v": f32(0, 1)}, 3, "depth 0"),
    ("OneHot", {}, (3,), {"d": f32(1.5), "v": f32(0, 1)}, 3, "a whole number, got 1.5"),
    ("OneHot", {}, (3,), {"d": i64(2, 3), "v": f32(0, 1)}, 3, "must be one number"),
    ("OneHot", {}, (3,), {"d": i64(2), "v": f32(0, 1, 2)}, 3, "the values must be two"),
    ("MatMul", {}, (), {"w": f32(1)}, 3, "must not be scalars"),
    ("MatMul", {}, ("N", 3), {"w": f32(1, 2, 3)}, 4, "not known at compile time"),
    ("Gemm", {}, (1, 2, 3), {"w": ones(3, 3)}, 3, "must be matrices"),
    ("Einsum", {"equation": "...i->i"}, (2, 2), {}, 3, "no ellipsis in its result"),
    ("Einsum", {"equation": "...ijk->..."}, (2, 2), {}, 3, "does not fit 2 dimensions"),
    ("Einsum", {"equation": "i,j->ij"}, (2,), {}, 3, "does not have 1 operands"),
    ("Einsum", {"equation": "ij->ii"}, (2, 2), {}, 4, "repeats an index"),
    ("Einsum", {"equation": "ii->i"}, (2, 3), {}, 3, "'i' is 2 and 3"),
    ("Einsum", {"equation": "abc->a"}, (2, 2), {}, 3, "does not fit"),
    ("Einsum", {"equation": "ab,bc->ac"}, (2, 3), {"w": ones(4, 5)}, 3, "'b' is 3 and 4"),
    ("QuantizeLinear", {}, (3,), {"s": ONE, "z": np.float32(0)}, 4, "stored as float32"),
    ("QuantizeLinear", {}, (3, 2), {"s": ones(2, 2)}, 3, "must be vectors"),
    ("QuantizeLinear", {"axis": 1}, (3, 2), {"s": f32(1, 2, 3)}, 3, "3 scales for axis 1"),
    ("QuantizeLinear", {"block_size": 2}, (3, 8), {"s": ones(3, 3)}, 3, "block_size 2", 21),
    ("Gelu", {"approximate": "sometimes"}, (3,), {}, 3, "neither 'none' nor 'tanh'", 20),
    ("Hardmax", {}, ("N", "M"), {}, 4, "not known at compile time"),
    ("GroupNormalization", {"num_groups": 3}, IMAGE, {"s": ones(3), "b": ones(3)}, 3, "3 groups"),
    ("LpNormalization", {"p": 3}, (3,), {}, 3, "p=3"),
    ("Reshape", {}, (2, 3), {"s": i64(0, 0, 0)}, 3, "do not fit shape (0, 0, 0)"),
    ("Reshape", {}, (2, 3), {"s": i64(-1, -1)}, 3, "do not fit shape (-1, -1)"),
    ("Reshape", {}, (2, 3), {"s": i64(-1, 4)}, 3, "do not fit shape (-1, 4)"),
    ("Reshape", {}, (2, 3), {"s": i64(5)}, 3, "do not fit shape (5,)"),
    ("Reshape", {}, ("N", 3), {"s": i64(6)}, 4, "only known at run time"),
    ("Reshape", {}, (2, 3), {"s": f32(6)}, 3, "must be a vector of integers"),
    ("Flatten", {"axis": 3}, (2, 3), {}, 3, "axis 3 is out of range"),
    ("Squeeze", {}, (2, 3), {"a": i64(0)}, 3, "not all of size 1"),
    ("Squeeze", {}, (1, 3), {"a": i64(0, -2)}, 3, "named twice"),
    ("Unsqueeze", {}, (2, 3), {}, 3, "has no axes", 11),
    ("Transpose", {"perm": [0, 0]}, (2, 3), {}, 3, "no permutation"),
    ("Split", {"num_outputs": 2}, (4,), {}, 3, "num_outputs=2 for 1 outputs"),
    ("Split", {}, (4,), {"s": i64(3)}, 3, "do not add up to 4"),
    ("Slice", {}, (4,), {"s": i64(0), "e": i64(1, 2)}, 3, "starts (0,)"),
    ("Expand", {}, (2, 3), {"s": i64(4, 4)}, 3, "does not broadcast"),
    ("Tile", {}, (2, 3), {"r": i64(2)}, 3, "repeats (2,)"),
    ("Pad", {"mode": "odd"}, (3,), {"p": i64(1, 1)}, 3, "mode='odd'"),
    ("Pad", {}, (3,), {"p": i64(-2, -2)}, 3, "take more than shape"),
    ("Pad", {}, (3,), {"p": i64(1)}, 3, "1 widths for 1 axes"),
    ("DepthToSpace", {"blocksize": 2, "mode": "ABC"}, IMAGE, {}, 3, "mode='ABC'"),
    ("SpaceToDepth", {"blocksize": 4, "mode": "CRD"}, IMAGE, {}, 3, "multiples of 4", 28),
    ("Resize", {"nearest_mode": "up"}, (4,), {"r": f32(), "s": f32(2)}, 3, "nearest_mode='up'"),
    ("Resize", {"mode": "soft"}, (4,), {"r": f32(), "s": f32(2)}, 3, "mode='soft'"),
    ("Resize", {"antialias": 1}, (4,), {"r": f32(), "s": f32(0)}, 3, "scales (0.0,)"),
    ("Resize", {"antialias": 1}, (40_000,), {"r": f32(), "s": f32(0.5)}, 4, "takes a matrix of"),
    ("Resize", {"antialias": 1, "mode": "linear"}, (4,), {"r": f32(), "s": f32(0.2)}, 3, "nothing"),
    ("Resize", {"antialias": 1, "mode": "soft"}, (4,), {"r": f32(), "s": f32(2)}, 3, "mode='soft'"),
    ("Resize", {}, (4,), {"r": f32(), "s": f32(0)}, 3, "scales (0.0,)"),
    ("Resize", {}, (4,), {"r": f32(), "s": f32(np.nan)}, 3, "scales (nan,)"),
    ("Resize", {}, (4,), {"r": f32(), "s": f32(2, 2)}, 3, "2 scales or sizes"),
    ("Resize", {}, (4,), {"r": f32(), "s": i64(2)}, 3, "vector of floats"),
    ("Resize", {}, (4,), {"r": f32(), "_": None, "n": i64(0)}, 3, "sizes (0,)"),
    (
        "Resize",
        {"keep_aspect_ratio_policy": "no"},
        (4,),
        {"r": f32(), "_": None, "n": i64(8)},
        3,
        "policy",
    ),
    (
        "Resize",
        {"coordinate_transformation_mode": "tf_crop_and_resize"},
        (4,),
        {"r": f32(), "s": f32(2)},
        3,
        "tf_crop_and_resize needs a region of 2 numbers",
    ),
    (
        "BatchNormalization",
        {"spatial": 0},
        (1, 2),
        dict.fromkeys("sbmv", ones(2)),
        4,
        "spatial=0",
        7,
    ),
    ("Cast", {"to": 8}, (2,), {}, 4, "'string'"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[5]}")
def test_refusal(row: tuple) -> None:
    op, attrs, shape, operands, code, words, *rest = row
    first = [] if shape is None or operands is None else ["x"]
    names = " ".join([*first, *(operands or {})])
    weights = {name: value for name, value in (operands or {}).items() if value is not None}
    two = "mask" in words or "2 outputs" in words
    proto = model(
        [node(op, names, "z y" if two else "y", name="spot", **attrs)],
        {"x": (2,) if shape is None else shape},
        weights=weights,
        opset=rest[0] if rest else 18,
    )
    with pytest.raises(IntarsiaError) as caught:
        from_onnx(proto)
    assert caught.value.exit_code == code, caught.value
    assert words in str(caught.value)
    assert f"spot ({op})" in str(caught.value) or code == 8


LSTM_ROWS: list[tuple] = [
    ({}, {"shape": (4, 2)}, 3, "three dimensions"),
    ({"direction": "up"}, {}, 3, "direction='up'"),
    ({"activations": ["Relu", "Tanh", "Tanh"]}, {"shape": (600, 2, 3)}, 4, "600 steps"),
    ({"clip": 0.0}, {}, 3, "clip=0.0 must be a number above 0"),
    ({"activations": ["Clip", "Tanh", "Tanh"]}, {}, 4, "activation 'Clip' of LSTM"),
    ({"direction": "bidirectional"}, {}, 3, "input 1 must have shape"),
    ({"hidden_size": 7}, {}, 3, "hidden_size=7"),
    ({"activations": ["Tanh"]}, {}, 3, "1 activations"),
    ({"activations": ["affine", "Tanh", "Tanh"]}, {}, 3, "activation 'Affine' needs an alpha"),
    ({}, {"h": ones(1, 2, 6)}, 3, "must have shape (1, 2, 5)"),
    ({}, {"l": np.array([4, 3, 4], np.int32)}, 3, "are not one for each of 2"),
    ({}, {"p": ones(1, 10)}, 3, "input 7 must have shape (1, 15)"),
]


@pytest.mark.parametrize(
    "attrs, changes, code, words", LSTM_ROWS, ids=lambda value: str(value)[:30]
)
def test_recurrent_refusal(attrs: dict, changes: dict, code: int, words: str) -> None:
    weights = {"w": ones(1, 20, 3), "r": ones(1, 20, 5)}
    weights |= {name: value for name, value in changes.items() if name != "shape"}
    slots = [
        "x",
        "w",
        "r",
        "_",
        *("l" if "l" in changes else "_",),
        "h" if "h" in changes else "_",
        "_",
    ]
    names = " ".join([*slots, "p" if "p" in changes else "_"])
    proto = model(
        [node("LSTM", names, **attrs)], {"x": changes.get("shape", (4, 2, 3))}, weights=weights
    )
    with pytest.raises(IntarsiaError) as caught:
        from_onnx(proto)
    assert caught.value.exit_code == code, caught.value
    assert words in str(caught.value)


def _if(condition: str, then_outputs: int = 1, **kwargs) -> IntarsiaError:
    def graph(prefix: str, count: int):
        nodes = [node("Relu", "x", f"{prefix}{i}") for i in range(count)]
        infos = [helper.make_empty_tensor_value_info(f"{prefix}{i}") for i in range(count)]
        return helper.make_graph(nodes, prefix, [], infos)

    branches = {"then_branch": graph("t", then_outputs), "else_branch": graph("e", 1)}
    nodes = [
        node("Cast", "x", "b", to=TensorProto.BOOL),
        helper.make_node("If", [condition], ["y"], **{**branches, **kwargs}),
    ]
    known = {"two": np.array([True, False])}
    with pytest.raises(IntarsiaError) as caught:
        from_onnx(model(nodes, {"x": ()}, weights=known))
    return caught.value


def test_if_refusals() -> None:
    assert "must be bool" in str(_if("x"))
    assert "must be one bool" in str(_if("two"))
    assert "give 2 and 1 results" in str(_if("b", 2))
    assert "is not a graph" in str(_if("b", then_branch=1))


def test_bodies_that_cannot_be_expanded() -> None:
    graph = helper.make_graph(
        [node("Relu", "a", "b")],
        "body",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, (2,))],
        [helper.make_empty_tensor_value_info("b")],
    )
    proto = model([node("SequenceMap", "x", name="spot", body=graph)], {"x": (2,)})
    with pytest.raises(ModelError, match="the operand is no sequence"):
        from_onnx(proto)
    read = read_model(proto)
    (found,) = read.graph.nodes
    with pytest.raises(UnsupportedError, match="attribute 'body', which cannot be expanded"):
        read.bodies.expand(found, read.opset, [TensorType((2,), DType.FLOAT32)])
