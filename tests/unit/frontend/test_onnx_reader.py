# SPDX-License-Identifier: Apache-2.0
"""Files that are no models, models that contradict themselves, and weights outside the file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper

import intarsia
from intarsia_ir.diagnostics import Span
from intarsia_onnx import from_onnx
from intarsia_onnx.bodies import FunctionBodies
from intarsia_onnx.graph import Node
from intarsia_onnx.reader import read_model
from intarsia_runtime.errors import (
    IntarsiaError,
    ModelError,
    ResourceError,
    UnsupportedError,
    UsageError,
)

from .onnx_models import model, node

Edit = Callable[[onnx.ModelProto], None]


def good() -> onnx.ModelProto:
    nodes = [node("MatMul", "x w", "h", name="fc"), node("Relu", "h", name="act")]
    return model(nodes, {"x": (2, 3)}, weights={"w": np.ones((3, 4), np.float32)})


def refused(given: object, kind: type[IntarsiaError], *fragments: str) -> None:
    with pytest.raises(IntarsiaError) as caught:
        from_onnx(given)
    assert type(caught.value) is kind, caught.value
    for fragment in fragments:
        assert fragment in str(caught.value)


@pytest.mark.parametrize(
    "data, found",
    [
        (b"", "no data"),
        (b"\xff\xd8\xff\xe0" + b"\0" * 90, "a JPEG image"),
        (b"PK\x03\x04" + b"\0" * 90, "a zip archive"),
        (b"PK\x03\x04" + b"\0" * 90 + b"passport.json", "an artifact, which is compiled already"),
        (b"<!DOCTYPE html><html>", "an HTML page"),
        (b"<?xml version='1.0'?>", "XML text"),
        (b'{"a": 1}', "JSON text"),
        (b"\x1c\0\0\0TFL3", "a TensorFlow Lite model"),
        (b"hello, I am a text", "plain text"),
        (b"\0" * 64, "zero bytes"),
        (b"version https://git-lfs.github.com", "Git LFS"),
        (b"\x08\x0a", "protobuf data without a graph"),
        (bytes(range(128, 256)), "128 bytes that are cut short or are not protobuf"),
    ],
)
def test_bytes_that_are_no_model(data: bytes, found: str) -> None:
    refused(data, ModelError, "expected an ONNX model", found)


def test_every_cut_of_a_model_is_refused() -> None:
    data = good().SerializeToString()
    for end in range(1, len(data), 7):
        with pytest.raises(IntarsiaError):
            from_onnx(data[:end])


def test_files_that_are_no_files(tmp_path: Path) -> None:
    refused(tmp_path / "nothing.onnx", ModelError, "nothing.onnx", "No such file")
    refused(tmp_path, ModelError, "expected a regular file, found a directory")
    refused("a\0b", ModelError, "null")
    pipe, empty, link = (tmp_path / name for name in ("pipe.onnx", "empty.onnx", "dev.onnx"))
    os.mkfifo(pipe)
    refused(pipe, ModelError, "found a named pipe")
    empty.touch()
    refused(empty, ModelError, "found an empty file")
    link.symlink_to("/dev/zero")
    refused(link, ModelError, "found a character device")
    refused(7, UsageError, "got int")


def test_size_limit(tmp_path: Path) -> None:
    path = tmp_path / "big.onnx"
    with path.open("wb") as file:
        file.truncate(3 << 30)
    refused(path, ResourceError, "3221225472 bytes; the limit is 2147483647")
    with pytest.raises(ResourceError, match="the limit is 10"):
        from_onnx(good().SerializeToString(), max_bytes=10)


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    refused(b"\x08", UsageError, "pip install 'intarsia[onnx]'")


def test_no_memory_to_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hungry:
        def ParseFromString(self, data: bytes) -> None:
            raise MemoryError

    monkeypatch.setattr(onnx, "ModelProto", Hungry)
    refused(b"\x08\x0a", ResourceError, "not enough memory to parse the model")


def set_opset(version: int) -> Edit:
    def edit(proto: onnx.ModelProto) -> None:
        proto.opset_import[0].version = version

    return edit


def no_opset(proto: onnx.ModelProto) -> None:
    del proto.opset_import[:]


def cycle(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].input[0] = "y"


def dangling(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].input[1] = "v"


def twice_defined(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].output[0] = "h"


def twice_declared(proto: onnx.ModelProto) -> None:
    proto.graph.input.append(proto.graph.input[0])


def twice_given(proto: onnx.ModelProto) -> None:
    proto.graph.output.append(proto.graph.output[0])


def no_outputs(proto: onnx.ModelProto) -> None:
    del proto.graph.output[:]


def wrong_output(proto: onnx.ModelProto) -> None:
    proto.graph.output[0].name = "z"


def nameless_input(proto: onnx.ModelProto) -> None:
    proto.graph.input.add().type.CopyFrom(proto.graph.input[0].type)


def twin_weights(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(proto.graph.initializer[0])


def twin_attributes(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].attribute.extend([helper.make_attribute("a", 1)] * 2)


def stray_attribute(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].attribute.append(helper.make_attribute("alpha", 1.0))


def too_few_inputs(proto: onnx.ModelProto) -> None:
    del proto.graph.node[0].input[1]


def too_many_outputs(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].output.append("more")


def left_out_input(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].input[1] = ""


def lying_weight(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].dims[:] = [1 << 31, 1 << 31]


def negative_weight(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].dims[:] = [-3, -4]


def two_sources(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].float_data.append(1.0)


def wrong_source(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].ClearField("raw_data")
    proto.graph.initializer[0].int64_data.extend([1] * 12)


def short_source(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].ClearField("raw_data")
    proto.graph.initializer[0].float_data.extend([1.0] * 11)


def strange_weight(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].data_type = 77


def string_weight(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].data_type = TensorProto.STRING


def many_dimensions(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].dims[:] = [1] * 40


def sparse_weight(proto: onnx.ModelProto) -> None:
    proto.graph.sparse_initializer.add().values.name = "s"


def deep_input(proto: onnx.ModelProto) -> None:
    for _ in range(40):
        proto.graph.input[0].type.tensor_type.shape.dim.add().dim_value = 1


def huge_input(proto: onnx.ModelProto) -> None:
    for dim in proto.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_value = 1 << 40


def input_without_shape(proto: onnx.ModelProto) -> None:
    proto.graph.input[0].type.tensor_type.ClearField("shape")


def sequence_input(proto: onnx.ModelProto) -> None:
    proto.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = 1


def foreign_reference(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].attribute.add(
        name="alpha", ref_attr_name="a", type=AttributeProto.UNDEFINED
    )


def mistyped_attribute(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].op_type = "Elu"
    proto.graph.node[1].attribute.append(helper.make_attribute("alpha", 1))


def huge_result(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].op_type = "Expand"
    proto.graph.node[1].input.append("s")
    sizes = helper.make_tensor("s", TensorProto.INT64, [4], [1 << 20, 1 << 20, 1, 1])
    proto.graph.initializer.append(sizes)


BROKEN: list[tuple[Edit, type[IntarsiaError], tuple[str, ...]]] = [
    (set_opset(0), UnsupportedError, ("operator set 0",)),
    (set_opset(-1), UnsupportedError, ("operator set -1",)),
    (set_opset(999), UnsupportedError, ("operator set 999", "upgrade the 'onnx' package")),
    (no_opset, ModelError, ("opset_import",)),
    (cycle, ModelError, ("'fc (MatMul)' and 'act (Relu)' form a cycle",)),
    (dangling, ModelError, ("fc (MatMul): input 'v' is not defined",)),
    (twice_defined, ModelError, ("act (Relu): value 'h' is defined twice",)),
    (twice_declared, ModelError, ("input 'x' is declared twice",)),
    (twice_given, ModelError, ("output 'y' is declared twice",)),
    (no_outputs, ModelError, ("has no outputs",)),
    (wrong_output, ModelError, ("computes the output 'z'",)),
    (nameless_input, ModelError, ("input without a name",)),
    (twin_weights, ModelError, ("two weights are called 'w'",)),
    (twin_attributes, ModelError, ("attribute 'a' is set twice",)),
    (stray_attribute, ModelError, ("act (Relu)", "has no attribute 'alpha'")),
    (too_few_inputs, ModelError, ("fc (MatMul): 1 inputs",)),
    (too_many_outputs, ModelError, ("act (Relu): 2 outputs",)),
    (left_out_input, ModelError, ("fc (MatMul): needs input 1",)),
    (lying_weight, ModelError, ("weight 'w'", "48 bytes of data")),
    (negative_weight, ModelError, ("negative dimension",)),
    (two_sources, ModelError, ("both raw_data and float_data",)),
    (wrong_source, ModelError, ("in int64_data; expected float_data",)),
    (short_source, ModelError, ("11 values for shape (3, 4)",)),
    (strange_weight, ModelError, ("element type number 77",)),
    (string_weight, UnsupportedError, ("'string'",)),
    (many_dimensions, UnsupportedError, ("40 dimensions",)),
    (sparse_weight, UnsupportedError, ("weight 's' is sparse",)),
    (deep_input, UnsupportedError, ("42 dimensions",)),
    (huge_input, ResourceError, ("input 'x'", "the limit is")),
    (input_without_shape, UnsupportedError, ("input 'x'", "--shape")),
    (sequence_input, UnsupportedError, ("is no tensor but sequence_type",)),
    (foreign_reference, ModelError, ("function's attribute",)),
    (mistyped_attribute, ModelError, ("act (Elu): attribute 'alpha' is not a float",)),
    (huge_result, ResourceError, ("act (Expand)", "the limit is")),
]


@pytest.mark.parametrize(
    "edit, kind, fragments", BROKEN, ids=[edit.__name__ for edit, *_ in BROKEN]
)
def test_broken_model(edit: Edit, kind: type[IntarsiaError], fragments: tuple[str, ...]) -> None:
    proto = good()
    from_onnx(proto)
    edit(proto)
    refused(proto, kind, *fragments)


def _nested(depth: int) -> onnx.ModelProto:
    result = [helper.make_empty_tensor_value_info("z")]
    graph = helper.make_graph([node("Relu", "x", "z")], "g", [], result)
    for _ in range(depth - 1):
        inner = node("If", "c", "z", then_branch=graph)
        graph = helper.make_graph([inner], "g", [], result)
    outer = node("If", "c", "y", then_branch=graph)
    return model([node("Cast", "x", "c", to=TensorProto.BOOL), outer], {"x": ()})


def test_graphs_nested_too_deep() -> None:
    read_model(_nested(22))
    refused(_nested(30), ModelError, "nested more than 28 deep")


def _functions(calls: dict[str, list[str]]) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    proto = model([node(next(iter(calls)), "x", domain="f")], {"x": (2,)})
    proto.opset_import.append(opsets[1])
    for name, called in calls.items():
        names = ["a", *(f"v{i}" for i in range(len(called) - 1)), "b"]
        body = [
            node(op, x, y, domain="" if op == "Relu" else "f")
            for op, x, y in zip(called, names[:-1], names[1:], strict=True)
        ]
        proto.functions.append(helper.make_function("f", name, ["a"], ["b"], body, opsets))
    return proto


def test_functions_that_never_end() -> None:
    refused(_functions({"A": ["B"], "B": ["A"]}), ModelError, "function 'A' calls itself")
    refused(_functions({"A": ["A"]}), ModelError, "calls itself through 'A'")
    doubling = {f"F{i}": [f"F{i + 1}"] * 2 for i in range(40)} | {"F40": ["Relu"]}
    refused(_functions(doubling), ResourceError, "nodes once functions are expanded")


def test_functions_that_onnx_cannot_expand(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no such schema\nat line 3")

    monkeypatch.setattr("onnx.inliner.inline_local_functions", fail)
    refused(_functions({"A": ["Relu"]}), ModelError, "functions cannot be expanded: no such schema")


def test_body_that_onnx_cannot_write() -> None:
    class Schema:
        has_function = True
        attributes: ClassVar = {}

        def get_function_with_opset_version(self, opset: int) -> bytes:
            raise RuntimeError(f"no body at {opset}")

    def schema(*_: object) -> Schema:
        return Schema()

    bodies = FunctionBodies(onnx, schema, pytest.fail)
    given = Node("Celu", "", ("x",), ("y",), {}, Span("act", "Celu"))
    with pytest.raises(UnsupportedError, match=r"'Celu' cannot be .* no body at 18") as why:
        bodies.expand(given, 18, [None])
    assert why.value.where == "act (Celu)"


def _external(folder: Path, location: str, **entries: object) -> Path:
    proto = model([node("Add", "x w")], {"x": (2, 3)})
    tensor = proto.graph.initializer.add(name="w", dims=[2, 3], data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_are_read(tmp_path: Path) -> None:
    values = np.arange(8, dtype=np.float32)
    (tmp_path / "deep").mkdir()
    values.tofile(tmp_path / "deep" / "w.bin")
    for offset in (0, 4, 8):
        path = _external(tmp_path, "deep/w.bin", offset=offset, length=24)
        found = read_model(path).graph.initializers["w"]
        assert found.tolist() == values[offset // 4 : offset // 4 + 6].reshape(2, 3).tolist()
    (tmp_path / "deep" / "odd.bin").write_bytes(b"?" + values.tobytes())
    path = _external(tmp_path, "deep/odd.bin", offset=1)
    assert read_model(path).graph.initializers["w"].flags.aligned


@pytest.mark.parametrize(
    "location",
    [
        "",
        "/etc/passwd",
        "../w.bin",
        "deep/../w.bin",
        "./w.bin",
        "a//b",
        "..\\w.bin",
        "C:w.bin",
        "a\0b",
    ],
)
def test_external_paths_that_lead_out(tmp_path: Path, location: str) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 24)
    refused(_external(tmp_path, location), ModelError, "weight 'w'", "inside the model's folder")


def test_external_files_of_other_kinds(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "w.bin").write_bytes(b"\0" * 24)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link.bin").symlink_to(outside / "w.bin")
    (folder / "dir").symlink_to(outside)
    (folder / "hard.bin").hardlink_to(outside / "w.bin")
    os.mkfifo(folder / "pipe.bin")
    (folder / "empty.bin").touch()
    expected = {
        "link.bin": "links are not followed",
        "dir/w.bin": "links are not followed",
        "hard.bin": "is a hard link",
        "pipe.bin": "is a named pipe",
        "none.bin": "No such file",
        "empty.bin": "ends at 0",
    }
    for location, fragment in expected.items():
        refused(_external(folder, location), ModelError, "weight 'w'", location, fragment)


@pytest.mark.parametrize(
    "entries, fragment",
    [
        ({"offset": 8}, "needs bytes 8 to 32"),
        ({"offset": -1}, "offset '-1'"),
        ({"offset": 1 << 62}, "ends at 24"),
        ({"length": 1 << 62}, "shape needs 24"),
        ({"length": "many"}, "length 'many'"),
        ({"__class__": "x"}, "unknown key '__class__'"),
    ],
)
def test_external_ranges(tmp_path: Path, entries: dict, fragment: str) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 24)
    refused(_external(tmp_path, "w.bin", **entries), ModelError, fragment)


def test_external_data_need_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 24)
    monkeypatch.chdir(tmp_path)
    data = _external(tmp_path, "w.bin").read_bytes()
    refused(data, ModelError, "did not come from a file")
    proto = onnx.load_model_from_string(data)
    proto.graph.initializer[0].raw_data = b"\0" * 24
    refused(proto, ModelError, "both external and inline data")


def test_names_that_are_no_text() -> None:
    data = good().SerializeToString().replace(b"fc", b"\xff\xfe")
    refused(data, ModelError, "not UTF-8")


@pytest.mark.parametrize(
    "name", ['y"; system("id"); //', "../../x", "%s%n", "a\nb", "\N{GRINNING FACE}", "int"]
)
def test_strange_names(name: str) -> None:
    proto = model(
        [helper.make_node("Relu", ["x"], [name], name=name)], {"x": (2,)}, outputs=(name,)
    )
    assert from_onnx(proto).main.output_names == (name,)


def test_an_input_that_is_text_is_refused_with_what_reads_it() -> None:
    proto = helper.make_model(
        helper.make_graph(
            [helper.make_node("Relu", ["x"], [f"y{n}"], name=f"act{n}") for n in range(4)],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.STRING, ["n"])],
            [helper.make_empty_tensor_value_info("y0")],
        )
    )
    where = r"input 'x': element type 'string' is not supported; it is read by 'Relu'"
    refused_text = rf"{where} \(node 'act0'\), .* \(node 'act2'\) and 1 more\n.*compute numbers"
    with pytest.raises(UnsupportedError) as caught:
        intarsia.build(proto.SerializeToString(), "llvm")
    assert re.search(refused_text, str(caught.value))
