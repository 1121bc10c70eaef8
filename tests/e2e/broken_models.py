# SPDX-License-Identifier: Apache-2.0
"""Builders of broken model files, one function each: ``build(folder) -> path``."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DIGITS = Path(__file__).parent / "models" / "digits" / "digits.onnx"


def model(nodes: list, *, inits: tuple = (), shape: tuple = (2, 3), outputs: tuple = ("y",), **kw):
    """A model with one float input ``x`` and float outputs of unknown shape."""
    dtype = kw.get("dtype", TensorProto.FLOAT)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        list(inits),
    )
    opset = helper.make_opsetid("", kw.get("opset", 18))
    return helper.make_model(graph, opset_imports=kw.get("opsets", [opset]), ir_version=10)


def save(folder: Path, proto: onnx.ModelProto, name: str = "model.onnx") -> Path:
    """Write without any check."""
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path


def weight(name: str, shape: tuple[int, ...]) -> TensorProto:
    """A float initializer of ones."""
    return numpy_helper.from_array(np.ones(shape, np.float32), name)


def truncated(folder: Path) -> Path:
    """The demo model cut in half."""
    path = folder / "model.onnx"
    data = DIGITS.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    return path


def random_bytes(folder: Path) -> Path:
    """Four kilobytes of noise."""
    path = folder / "model.onnx"
    path.write_bytes(random.Random(0).randbytes(4096))
    return path


def empty_file(folder: Path) -> Path:
    """No bytes at all."""
    path = folder / "model.onnx"
    path.touch()
    return path


def html(folder: Path) -> Path:
    """A web page under a model's name."""
    path = folder / "model.onnx"
    path.write_text("<!DOCTYPE html><html><body>404 Not Found</body></html>")
    return path


def zipped(folder: Path) -> Path:
    """A zip file under a model's name."""
    path = folder / "model.onnx"
    path.write_bytes(b"PK\x03\x04" + b"\0" * 60)
    return path


def a_directory(folder: Path) -> Path:
    """A folder where a file should be."""
    path = folder / "model.onnx"
    path.mkdir()
    return path


def a_fifo(folder: Path) -> Path:
    """A pipe nobody writes to."""
    path = folder / "model.onnx"
    os.mkfifo(path)
    return path


def missing_file(folder: Path) -> Path:
    """No file there."""
    return folder / "nothing.onnx"


def cyclic(folder: Path) -> Path:
    """Two nodes that need each other."""
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
        helper.make_node("Relu", ["b"], ["y"], name="last"),
    ]
    return save(folder, model(nodes))


def missing_initializer(folder: Path) -> Path:
    """A weight that is nowhere."""
    return save(folder, model([helper.make_node("MatMul", ["x", "w"], ["y"], name="fc")]))


def wrong_type(folder: Path) -> Path:
    """A string where a float is needed: And of floats."""
    return save(folder, model([helper.make_node("And", ["x", "x"], ["y"], name="both")]))


def wrong_rank(folder: Path) -> Path:
    """A convolution of a matrix."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv1")
    return save(folder, model([node], inits=(weight("w", (4, 3, 3, 3)),)))


def wrong_inner_size(folder: Path) -> Path:
    """2x3 by 4x5."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="fc")
    return save(folder, model([node], inits=(weight("w", (4, 5)),)))


def stride_zero(folder: Path) -> Path:
    """A convolution that never moves."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv1", strides=[0, 0])
    return save(folder, model([node], inits=(weight("w", (4, 3, 3, 3)),), shape=(1, 3, 8, 8)))


def axis_out_of_range(folder: Path) -> Path:
    """Softmax over axis 99."""
    return save(folder, model([helper.make_node("Softmax", ["x"], ["y"], name="sm", axis=99)]))


def two_unknown_sizes(folder: Path) -> Path:
    """Reshape to (-1, -1)."""
    shape = numpy_helper.from_array(np.array([-1, -1]), "s")
    return save(folder, model([helper.make_node("Reshape", ["x", "s"], ["y"])], inits=(shape,)))


def dimension_overflow(folder: Path) -> Path:
    """An input of 2^40 x 2^40."""
    return save(folder, model([helper.make_node("Relu", ["x"], ["y"])], shape=(1 << 40, 1 << 40)))


def lying_initializer(folder: Path) -> Path:
    """2^31 x 2^31 floats in 16 bytes."""
    tensor = TensorProto(
        name="w", dims=[1 << 31, 1 << 31], data_type=TensorProto.FLOAT, raw_data=b"\0" * 16
    )
    return save(folder, model([helper.make_node("Add", ["x", "w"], ["y"])], inits=(tensor,)))


def allocation_bomb(folder: Path) -> Path:
    """64 GiB out of a hundred bytes."""
    shape = numpy_helper.from_array(np.array([1 << 17, 1 << 17]), "s")
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["c"], name="bomb"),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    return save(folder, model(nodes, inits=(shape,), shape=(1, 1)))


def escaping_external_data(folder: Path) -> Path:
    """A weight in ../../etc/passwd."""
    return save(folder, external(folder, "../../../../../../etc/passwd"))


def absolute_external_data(folder: Path) -> Path:
    """A weight in /etc/passwd."""
    return save(folder, external(folder, "/etc/passwd"))


def linked_external_data(folder: Path) -> Path:
    """A weight behind a symbolic link."""
    (folder / "w.bin").symlink_to("/etc/passwd")
    return save(folder, external(folder, "w.bin"))


def missing_external_data(folder: Path) -> Path:
    """A weight in a file that is not there."""
    return save(folder, external(folder, "w.bin"))


def short_external_data(folder: Path) -> Path:
    """A weight longer than its file."""
    (folder / "w.bin").write_bytes(b"\0" * 8)
    return save(folder, external(folder, "w.bin"))


def external(_folder: Path, location: str) -> onnx.ModelProto:
    """A model whose weight says it is stored at ``location``."""
    tensor = TensorProto(name="w", dims=[2, 3], data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", location
    return model([helper.make_node("Add", ["x", "w"], ["y"], name="plus")], inits=(tensor,))


def empty_graph(folder: Path) -> Path:
    """No nodes, no outputs."""
    return save(folder, model([], outputs=()))


def duplicate_name(folder: Path) -> Path:
    """One value made twice."""
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"])]
    return save(folder, model(nodes))


def unknown_operators(folder: Path) -> Path:
    """Two misspelt operators; both are to be named."""
    nodes = [
        helper.make_node("Rellu", ["x"], ["a"], name="act1"),
        helper.make_node("Sofmax", ["a"], ["y"], name="act2"),
    ]
    return save(folder, model(nodes))


def unknown_domain(folder: Path) -> Path:
    """An operator of a vendor nobody knows."""
    node = helper.make_node("Magic", ["x"], ["y"], name="m", domain="com.example")
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.example", 1)]
    return save(folder, model([node], opsets=opsets))


def opset_999(folder: Path) -> Path:
    """From the future."""
    return save(folder, model([helper.make_node("Relu", ["x"], ["y"])], opset=999))


def no_opset(folder: Path) -> Path:
    """No opset at all."""
    return save(folder, model([helper.make_node("Relu", ["x"], ["y"])], opsets=[]))


def string_input(folder: Path) -> Path:
    """Text, not numbers."""
    node = helper.make_node("Relu", ["x"], ["y"])
    return save(folder, model([node], dtype=TensorProto.STRING))


Builder = Callable[[Path], Path]
BROKEN: dict[Builder, tuple[int, str]] = {
    truncated: (3, "model.onnx"),
    random_bytes: (3, "model.onnx"),
    empty_file: (3, "empty"),
    html: (3, "HTML"),
    zipped: (3, "zip"),
    a_directory: (3, "director"),
    a_fifo: (3, "regular file"),
    missing_file: (3, "nothing.onnx"),
    cyclic: (3, "second"),
    missing_initializer: (3, "'w'"),
    wrong_type: (3, "both"),
    wrong_rank: (3, "conv1"),
    wrong_inner_size: (3, "fc"),
    stride_zero: (3, "conv1"),
    axis_out_of_range: (3, "99"),
    two_unknown_sizes: (3, "-1"),
    dimension_overflow: (8, "x"),
    lying_initializer: (3, "'w'"),
    allocation_bomb: (8, "bomb"),
    escaping_external_data: (3, "etc/passwd"),
    absolute_external_data: (3, "/etc/passwd"),
    linked_external_data: (3, "link"),
    missing_external_data: (3, "w.bin"),
    short_external_data: (3, "w.bin"),
    empty_graph: (3, "output"),
    duplicate_name: (3, "'y'"),
    unknown_operators: (4, "Sofmax"),
    unknown_domain: (4, "com.example"),
    opset_999: (4, "999"),
    no_opset: (3, "opset"),
    string_input: (4, "string"),
}
