# SPDX-License-Identifier: Apache-2.0
"""Small ONNX models of open sizes, and the sizes to run them at: 1, primes and odd ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from onnx import TensorProto, helper, numpy_helper

import intarsia
from intarsia_runtime.executors.open import OpenExecutor

from .expressions import fresh

F32 = TensorProto.FLOAT

Node: TypeAlias = "tuple[str, str, str, Mapping[str, object]]"
"""Operator, names of inputs, names of outputs, attributes."""

Values: TypeAlias = "Mapping[str, tuple[int, Sequence[int | str] | None]]"
"""Name of an input or output to its element type and shape."""

Feeds: TypeAlias = "dict[str, np.ndarray]"


class OpenOnnxModel(Struct, frozen=True):
    """A model and the sizes that it runs at.

    Attributes:
        save: Writes it into a folder and returns the path.
        feeds: Makes inputs of some sizes.
        sizes: In the order of the runs; some come twice in a row, some again later.
    """

    save: Callable[[Path], Path]
    feeds: Callable[..., Feeds]
    sizes: Sequence[tuple[int, ...]]


def check_at_all_sizes(
    made: OpenOnnxModel,
    target: str,
    folder: Path,
    session_of: Callable[[Path], Callable[[Feeds], Sequence[np.ndarray]]],
) -> None:
    """Build a model as one artifact, and compare it at all its sizes.

    Args:
        made: The model.
        target: What to build it for.
        folder: Where model and artifact are written.
        session_of: Opens the file in another runtime; called with inputs, it returns outputs.

    Raises:
        AssertionError: It is no program of open sizes, or results differ.
    """
    path = made.save(folder)
    run = session_of(path)
    artifact = intarsia.build(path, target=target).save(folder / "model.intarsia")
    with intarsia.load(artifact) as model:
        assert isinstance(model, OpenExecutor)
        for sizes in made.sizes:
            feeds = made.feeds(*sizes)
            for found, wanted in zip(model.run(feeds).values(), run(feeds), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def save_onnx(
    path: Path,
    nodes: Sequence[Node],
    inputs: Values,
    outputs: Values,
    weights: Mapping[str, np.ndarray],
) -> Path:
    """Write a model of operator set 18."""
    made = [helper.make_node(op, taken.split(), given.split()) for op, taken, given, _ in nodes]
    for one, (_, _, _, attrs) in zip(made, nodes, strict=True):
        one.attribute.extend([helper.make_attribute(name, attrs[name]) for name in attrs])
    sides = [
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in side.items()]
        for side in (inputs, outputs)
    ]
    arrays = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(made, "open", sides[0], sides[1], arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


def weight(*shape: int) -> np.ndarray:
    """Random numbers that leave results about as large as operands."""
    return fresh(*shape) / np.float32(shape[0] ** 0.5)


def save_perceptron(folder: Path) -> Path:
    """Two dense layers and a softmax over an open batch."""
    nodes: list[Node] = [
        ("Gemm", "x w1 b1", "h", {}),
        ("Relu", "h", "r", {}),
        ("Gemm", "r w2 b2", "z", {}),
        ("Softmax", "z", "y", {}),
    ]
    weights = {"w1": weight(40, 64), "b1": weight(64), "w2": weight(64, 10), "b2": weight(10)}
    inputs, outputs = {"x": (F32, ["N", 40])}, {"y": (F32, ["N", 10])}
    return save_onnx(folder / "perceptron.onnx", nodes, inputs, outputs, weights)


def save_cached_attention(folder: Path) -> Path:
    """One head whose keys and values are those of a cache, and of the tokens behind it."""
    nodes: list[Node] = [
        *(("MatMul", f"x w{part}", part, {}) for part in "qkv"),
        ("Concat", "pk k", "keys", {"axis": 1}),
        ("Concat", "pv v", "values", {"axis": 1}),
        ("Transpose", "keys", "turned", {"perm": (0, 2, 1)}),
        ("MatMul", "q turned", "scores", {}),
        ("Softmax", "scores", "shares", {"axis": -1}),
        ("MatMul", "shares values", "mixed", {}),
        ("Add", "mixed x", "a", {}),
        ("LayerNormalization", "a one zero", "n", {"axis": -1}),
        ("Tanh", "n", "y", {}),
    ]
    weights = {f"w{part}": weight(32, 32) for part in "qkv"}
    weights |= {"one": weight(32), "zero": weight(32)}
    tokens, cache = (F32, ["B", "S", 32]), (F32, ["B", "P", 32])
    inputs = {"x": tokens, "pk": cache, "pv": cache}
    outputs: Values = {"y": tokens, "keys": (F32, None), "values": (F32, None)}
    return save_onnx(folder / "attention.onnx", nodes, inputs, outputs, weights)


def save_images(folder: Path) -> Path:
    """Convolutions (also of groups, and transposed), pools and gathered channels."""
    padded = {"pads": [1, 1, 1, 1]}
    pool = {"kernel_shape": [3, 3], "strides": [2, 2], **padded}
    nodes: list[Node] = [
        ("Conv", "x w1 b1", "c1", {**padded, "strides": [2, 2]}),
        ("Relu", "c1", "r1", {}),
        ("Conv", "r1 w2", "c2", {**padded, "group": 16}),
        ("Conv", "c2 w3", "c3", {}),
        ("Add", "c3 r1", "a", {}),
        ("MaxPool", "a", "p", pool),
        ("AveragePool", "p", "v", {"kernel_shape": [2, 2], "pads": [0, 0, 1, 1]}),
        ("ConvTranspose", "v w4", "t", {"strides": [2, 2]}),
        ("Gather", "t order", "g", {"axis": 1}),
        ("ReduceMean", "g axes", "y", {"keepdims": 0}),
    ]
    weights = {
        "w1": weight(16, 3, 3, 3),
        "b1": weight(16),
        "w2": weight(16, 1, 3, 3),
        "w3": weight(16, 16, 1, 1),
        "w4": weight(16, 8, 2, 2),
        "order": np.array([3, 0, 7, 3]),
        "axes": np.array([2, 3]),
    }
    inputs, outputs = {"x": (F32, ["B", 3, "H", "W"])}, {"g": (F32, None), "y": (F32, None)}
    return save_onnx(folder / "images.onnx", nodes, inputs, outputs, weights)


def _rows(count: int) -> Feeds:
    return {"x": fresh(count, 40)}


def _image_feeds(count: int, height: int, width: int) -> Feeds:
    return {"x": fresh(count, 3, height, width)}


def _tokens_and_caches(batch: int, length: int, past: int) -> Feeds:
    caches = {name: fresh(batch, past, 32, seed=2) for name in ("pk", "pv")}
    return {"x": fresh(batch, length, 32), **caches}


OPEN_MODELS: Mapping[str, OpenOnnxModel] = MappingProxyType(
    {
        "perceptron": OpenOnnxModel(
            save_perceptron,
            _rows,
            ((1,), (2,), (37,), (37,), (37,), (32,), (33,), (300,), (1,)),
        ),
        "attention": OpenOnnxModel(
            save_cached_attention,
            _tokens_and_caches,
            ((1, 1, 1), (1, 1, 1), (2, 7, 3), (1, 13, 0), (1, 1, 101), (3, 1, 5)),
        ),
        "images": OpenOnnxModel(
            save_images,
            _image_feeds,
            ((1, 8, 8), (2, 13, 7), (1, 1, 1), (1, 31, 64)),
        ),
    }
)
"""Name to model."""
