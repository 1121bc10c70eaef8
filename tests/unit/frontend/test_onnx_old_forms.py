# SPDX-License-Identifier: Apache-2.0
"""Attribute forms of old operator sets, and forms ONNX does not test, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx

from .onnx_models import assert_like_onnxruntime, model, node

RNG = np.random.default_rng(7)
LIGHT = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


IMAGE = {"x": (1, 4, 6, 6)}
CASES = {
    "softmax-9": model([node("Softmax", "x", axis=1)], {"x": (2, 3, 4)}, opset=9),
    "log-softmax-9": model([node("LogSoftmax", "x", axis=2)], {"x": (2, 3, 4)}, opset=9),
    "slice-9": model([node("Slice", "x", starts=[1, -2], ends=[9, 9])], {"x": (4, 5)}, opset=9),
    "slice-negative": model(
        [node("Slice", "x s e a t")],
        {"x": (7, 5)},
        weights={"s": i64(-1, 4), "e": i64(-99, 0), "a": i64(0, 1), "t": i64(-2, -1)},
    ),
    "squeeze-11": model([node("Squeeze", "x", axes=[-1])], {"x": (2, 3, 1)}, opset=11),
    "squeeze-all": model([node("Squeeze", "x")], {"x": (1, 3, 1)}),
    "unsqueeze-11": model([node("Unsqueeze", "x", axes=[0, -1])], {"x": (2, 3)}, opset=11),
    "split-11": model(
        [node("Split", "x", "a y", axis=1, split=[1, 2])], {"x": (2, 3)}, opset=11, outputs="ay"
    ),
    "split-uneven": model(
        [node("Split", "x", "a y", axis=1, num_outputs=2)], {"x": (2, 5)}, outputs="ay"
    ),
    "pad-10": model([node("Pad", "x", pads=[0, 1, 0, 2], value=3.0)], {"x": (2, 3)}, opset=10),
    "pad-negative": model(
        [node("Pad", "x p v")],
        {"x": (4, 5)},
        weights={"p": i64(-1, 2, 1, -2), "v": np.float32(7.0)},
    ),
    "clip-9": model([node("Clip", "x", min=-1.0, max=1.5)], {"x": (2, 3)}, opset=9),
    "clip-one-side": model([node("Clip", "x _ h")], {"x": (5,)}, weights={"h": np.float32(0.5)}),
    "reduce-sum-11": model([node("ReduceSum", "x", axes=[1])], {"x": (2, 3, 4)}, opset=11),
    "reduce-l2-no-axes": model([node("ReduceL2", "x", keepdims=0)], {"x": (2, 3)}),
    "upsample-9": model(
        [node("Upsample", "x s", mode="linear")],
        IMAGE,
        weights={"s": np.array([1, 1, 2, 2], np.float32)},
        opset=9,
    ),
    "resize-10": model(
        [node("Resize", "x s", mode="nearest")],
        IMAGE,
        weights={"s": np.array([1, 1, 2, 1.5], np.float32)},
        opset=10,
    ),
    "batch-norm-9": model(
        [node("BatchNormalization", "x s b m v", epsilon=1e-3)],
        IMAGE,
        weights={"s": f32(4), "b": f32(4), "m": f32(4), "v": np.abs(f32(4)) + 1},
        opset=9,
    ),
    "dropout-9": model([node("Dropout", "x", "y m", ratio=0.5)], {"x": (2, 3)}, opset=9),
    "gemm-scaled": model(
        [node("Gemm", "x w c", transB=1, alpha=0.5, beta=2.0)],
        {"x": (2, 3)},
        weights={"w": f32(5, 3), "c": f32(5)},
    ),
    "conv-same-lower": model(
        [node("Conv", "x w b", auto_pad="SAME_LOWER", strides=[2, 2])],
        {"x": (1, 4, 7, 7)},
        weights={"w": f32(8, 4, 4, 4), "b": f32(8)},
    ),
    "conv-1d-grouped": model(
        [node("Conv", "x w", group=2, pads=[1, 2], dilations=[2])],
        {"x": (2, 4, 9)},
        weights={"w": f32(6, 2, 3)},
    ),
    "conv-transpose-shape": model(
        [node("ConvTranspose", "x w", strides=[2, 2], output_shape=[11, 12])],
        {"x": (1, 4, 5, 6)},
        weights={"w": f32(4, 3, 3, 3)},
    ),
    "max-pool-ceil": model(
        [node("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)], IMAGE
    ),
    "matmul-vectors": model([node("MatMul", "x w")], {"x": (3,)}, weights={"w": f32(3)}),
    "matmul-row": model([node("MatMul", "x w")], {"x": (3,)}, weights={"w": f32(2, 3, 4)}),
    "einsum": model(
        [node("Einsum", "x w", equation="bij,bkj->bki")],
        {"x": (2, 3, 4)},
        weights={"w": f32(2, 5, 4)},
    ),
    "einsum-diagonal": model([node("Einsum", "x", equation="bii->ib")], {"x": (2, 3, 3)}),
    "einsum-trace": model(
        [node("Einsum", "x w", equation="iji,jk->k")],
        {"x": (3, 2, 3)},
        weights={"w": f32(2, 5)},
    ),
    "einsum-sum": model(
        [node("Einsum", "x w", equation="ab,cd->c")], {"x": (2, 3)}, weights={"w": f32(4, 5)}
    ),
    "quantize-axis": model(
        [node("QuantizeLinear", "x s z", "q", axis=1), node("DequantizeLinear", "q s z", axis=1)],
        {"x": (2, 3, 4)},
        weights={
            "s": np.array([0.1, 0.2, 0.3], np.float32),
            "z": np.array([0, 3, -4], np.int8),
        },
    ),
    "one-hot": model(
        [node("Cast", "x", "i", to=7), node("OneHot", "i d v", axis=0)],
        {"x": (2, 3)},
        weights={"d": i64(6), "v": np.array([2, 5], np.float32)},
    ),
    "tile": model([node("Tile", "x r")], {"x": (2, 1, 3)}, weights={"r": i64(2, 3, 1)}),
    "expand": model([node("Expand", "x s")], {"x": (2, 1)}, weights={"s": i64(3, 1, 4)}),
    "instance-norm": model(
        [node("InstanceNormalization", "x s b")], IMAGE, weights={"s": f32(4), "b": f32(4)}
    ),
    "layer-norm-outputs": model(
        [node("LayerNormalization", "x s", "a m y", axis=1)],
        {"x": (2, 3, 4)},
        weights={"s": f32(3, 4)},
        outputs=("a", "m", "y"),
    ),
    "lrn": model([node("LRN", "x", size=3)], IMAGE),
    "unused-unknown-node": model(
        [node("Relu", "x"), node("TopK", "x k", "t u")], {"x": (3,)}, weights={"k": i64(1)}
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_form(name: str) -> None:
    assert_like_onnxruntime(CASES[name])


def _recurrent(op: str, gates: int, **attrs) -> onnx.ModelProto:
    directions = 2 if attrs.get("direction") == "bidirectional" else 1
    hidden, size = 5, 3
    weights = {
        "w": f32(directions, gates * hidden, size),
        "r": f32(directions, gates * hidden, hidden),
        "b": f32(directions, 2 * gates * hidden),
        "h": f32(directions, 2, hidden),
    }
    names = "y yh yc" if op == "LSTM" else "y yh"
    cell = node(op, "x w r b _ h", names, hidden_size=hidden, **attrs)
    return model([cell], {"x": (4, 2, size)}, weights=weights, outputs=tuple(names.split()))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    "op, gates, more",
    [("LSTM", 4, {}), ("GRU", 3, {}), ("GRU", 3, {"linear_before_reset": 1}), ("RNN", 1, {})],
)
def test_recurrent(op: str, gates: int, more: dict, direction: str) -> None:
    assert_like_onnxruntime(_recurrent(op, gates, direction=direction, **more))


@pytest.mark.parametrize(
    "op, gates, names",
    [("LSTM", 4, ("Sigmoid", "Relu", "Tanh")), ("GRU", 3, ("HardSigmoid", "Tanh"))],
)
def test_steps_share_the_recurrent_weights(op: str, gates: int, names: tuple[str, ...]) -> None:
    """No operator has these activations, so the steps are unrolled."""
    main = from_onnx(_recurrent(op, gates, direction="forward", activations=names)).main
    products = [node for node in calls(main) if node.name == "matmul"]
    weights = {id(node.args[1]) for node in products}
    assert len(weights) <= 3 < len(products)


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_light_model_imports(path: Path) -> None:
    main = from_onnx(path).main
    assert len(main.params) == 1
    assert len(main.output_names) == 1


def test_light_model_result() -> None:
    path = next(path for path in LIGHT if "squeezenet" in path.stem)
    main = from_onnx(path).main
    (param,) = main.params
    image = np.zeros((1, 3, 224, 224), np.float32)
    (found,) = evaluate(main, {param.name: image})
    expected = onnx.TensorProto.FromString(path.with_name(f"{path.stem}_output_0.pb").read_bytes())
    assert found.shape == tuple(expected.dims)
    assert np.isfinite(found).all()
