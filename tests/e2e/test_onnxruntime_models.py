# SPDX-License-Identifier: Apache-2.0
"""Models as ONNX Runtime's optimizer and quantizers write them, compiled, against ONNX Runtime."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.transformers.fusion_options import FusionOptions
from onnxruntime.transformers.optimizer import optimize_model

import intarsia

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore")  # of exporters
HIDDEN, HEADS, WORDS = 32, 4, 50
DOMAIN = "com.microsoft"


class Recurrent(nn.Module):
    """Two bidirectional layers and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(24, 32, 2, bidirectional=True)
        self.out = nn.Linear(64, 5)

    def forward(self, x):
        return self.out(self.layers(x)[0])


class Layer(nn.Module):
    """A layer of BERT, written as its exporters see it."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))
        self.inner, self.outer = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)
        self.first, self.second = (nn.LayerNorm(HIDDEN, eps=1e-12) for _ in range(2))

    def heads(self, x):
        return x.view(x.shape[0], x.shape[1], HEADS, HIDDEN // HEADS).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        q, k, v = (self.heads(layer(x)) for layer in (self.q, self.k, self.v))
        scores = torch.matmul(q, k.transpose(-1, -2)) / (HIDDEN // HEADS) ** 0.5 + mask
        joined = torch.matmul(torch.softmax(scores, -1), v).permute(0, 2, 1, 3).contiguous()
        x = self.first(self.o(joined.view(x.shape[0], x.shape[1], HIDDEN)) + x)
        return self.second(self.outer(nn.functional.gelu(self.inner(x))) + x)


class Bert(nn.Module):
    """Embeddings and two layers."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (WORDS, 16, 2)
        self.words, self.places, self.types = (nn.Embedding(size, HIDDEN) for size in sizes)
        self.norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
        self.register_buffer("positions", torch.arange(16)[None])

    def forward(self, ids, mask, types):
        places = self.places(self.positions[:, : ids.shape[1]])
        x = self.norm(self.words(ids) + self.types(types) + places)
        hidden = (1 - mask[:, None, None, :].to(torch.float32)) * -10000.0
        for layer in self.layers:
            x = layer(x, hidden)
        return x


NAMES = ["input_ids", "attention_mask", "token_type_ids"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both networks as PyTorch exports them."""
    where = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    whole = torch.ones(2, 8, dtype=torch.int64)
    export = {"dynamo": False, "opset_version": 17, "output_names": ["y"]}
    torch.onnx.export(
        Bert().eval(),
        (whole, whole, whole * 0),
        str(where / "bert.onnx"),
        input_names=NAMES,
        dynamic_axes={name: {0: "B", 1: "S"} for name in NAMES},
        **export,
    )
    torch.onnx.export(
        Recurrent().eval(),
        (torch.zeros(10, 1, 24),),
        str(where / "lstm.onnx"),
        input_names=["x"],
        dynamic_axes={"x": {0: "T"}},
        **export,
    )
    return where


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def saved(source: Path, level: str) -> Path:
    """The model as a session of ONNX Runtime saves it."""
    target = source.with_suffix(f".{level}.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(
        onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}"
    )
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 3  # that the file is for processors like this one
    onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return target


def fused(folder: Path, *, half: bool = False, separate: bool = False) -> Path:
    """BERT as the optimizer of transformers writes it."""
    options = FusionOptions("bert")
    options.use_multi_head_attention = separate
    made = optimize_model(
        str(folder / "bert.onnx"),
        "bert",
        num_heads=HEADS,
        hidden_size=HIDDEN,
        optimization_options=options,
        opt_level=0,
    )
    if half:
        made.convert_float_to_float16(keep_io_types=True)
    path = folder / f"fused-{half}-{separate}.onnx"
    made.model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    onnx.save(made.model, path)
    return path


def dynamic(source: Path) -> Path:
    """A model with weights of bytes."""
    target = source.with_suffix(".dynamic.onnx")
    logging.disable(logging.WARNING)  # that it was not preprocessed
    try:
        quantize_dynamic(
            source,
            target,
            weight_type=QuantType.QInt8,
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )
    finally:
        logging.disable(logging.NOTSET)
    return target


MODELS: Mapping[str, tuple[Callable[[Path], Path], set[str], float]] = {
    "fused": (fused, {"Attention", "EmbedLayerNormalization", "SkipLayerNormalization"}, 1e-5),
    "separate": (lambda f: fused(f, separate=True), {"MultiHeadAttention", "BiasGelu"}, 1e-5),
    "half": (lambda f: fused(f, half=True), {"Attention", "BiasGelu"}, 1e-2),
    "extended": (lambda f: saved(f / "bert.onnx", "EXTENDED"), {"FusedMatMul", "BiasGelu"}, 1e-5),
    "dynamic": (
        lambda f: saved(dynamic(f / "bert.onnx"), "ALL"),
        {"DynamicQuantizeMatMul", "MatMulIntegerToFloat", "Gelu"},
        5e-2,
    ),
    "bytes": (
        lambda f: saved(dynamic(fused(f)), "EXTENDED"),
        {"QAttention", "QEmbedLayerNormalization", "DynamicQuantizeMatMul"},
        5e-2,
    ),
}
"""How a model is made, operators that it must have, and the largest difference."""


@pytest.mark.parametrize("name", MODELS)
def test_networks_of_attention(folder: Path, name: str) -> None:
    make, operators, tolerance = MODELS[name]
    path = make(folder)
    assert operators <= {node.op_type for node in onnx.load(path).graph.node}
    reference = session(path)
    program = intarsia.load(intarsia.build(path, target="llvm").save(folder / f"{name}.intarsia"))
    rng = np.random.default_rng(3)
    for batch, length in ((1, 5), (2, 8), (3, 1)):
        mask = np.ones((batch, length), np.int64)
        mask[:, length // 2 + 1 :] = 0
        ids = rng.integers(0, WORDS, (batch, length))
        values = dict(zip(NAMES, (ids, mask, ids % 2), strict=True))
        kinds = {each.name: each.type for each in reference.get_inputs()}
        given = {
            key: value.astype(np.int32 if "int32" in kinds[key] else np.int64)
            for key, value in values.items()
        }
        (wanted,) = reference.run(None, given)
        np.testing.assert_allclose(program.run(given)["y"], wanted, atol=tolerance)


def test_recurrent_networks_of_bytes(folder: Path) -> None:
    path = dynamic(folder / "lstm.onnx")
    found = [node.op_type for node in onnx.load(path).graph.node]
    assert found.count("DynamicQuantizeLSTM") == 2
    program = intarsia.load(intarsia.build(path, target="llvm").save(folder / "lstm.intarsia"))
    reference = session(path)
    for steps in (1, 7, 33):
        x = np.random.default_rng(steps).standard_normal((steps, 1, 24)).astype(np.float32)
        (wanted,) = reference.run(None, {"x": x})
        np.testing.assert_allclose(program.run({"x": x})["y"], wanted, atol=1e-3)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [False, True])
def test_weights_of_few_bits(tmp_path: Path, bits: int, symmetric: bool) -> None:
    rng = np.random.default_rng(bits)
    stored = {"t": (40, 64), "w": (64, 48), "v": (48, 10)}
    nodes = [
        helper.make_node("Gather", ["t", "x"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        helper.make_node("Tanh", ["b"], ["c"]),
        helper.make_node("MatMul", ["c", "v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.INT64, ("B", 3))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ("B", 3, 10))],
        [
            numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 8, name)
            for name, shape in stored.items()
        ],
    )
    opset = [helper.make_opsetid("", 21)]
    quantizer = MatMulNBitsQuantizer(
        helper.make_model(graph, opset_imports=opset, ir_version=10),
        bits=bits,
        block_size=16,
        is_symmetric=symmetric,
        op_types_to_quantize=("MatMul", "Gather") if bits == 4 else ("MatMul",),
        quant_axes=(("MatMul", 0), ("Gather", 1)),
    )
    quantizer.process()
    path = tmp_path / "bits.onnx"
    quantizer.model.save_model_to_file(str(path))
    found = [node.op_type for node in onnx.load(path).graph.node]
    assert found.count("MatMulNBits") == 2
    assert found.count("GatherBlockQuantized") == (bits == 4)
    program = intarsia.load(intarsia.build(path, target="llvm").save(tmp_path / "bits.intarsia"))
    x = rng.integers(0, 40, (2, 3))
    (wanted,) = session(path).run(None, {"x": x})
    np.testing.assert_allclose(program.run({"x": x})["y"], wanted, atol=1e-4)
