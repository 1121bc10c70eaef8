# SPDX-License-Identifier: Apache-2.0
"""Models with numbers of eight bits and fewer: compiled whole, with bytes at run time."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia
from intarsia_ir.graph.expr import Constant
from intarsia_ir.graph.module import StoredAs
from intarsia_ir.ops import narrow_formats
from intarsia_ir.passes.prepare import PREPARE
from intarsia_onnx import from_onnx
from intarsia_onnx.dynamic import plan_onnx
from intarsia_runtime.artifact.plan import NARROW, TensorSpec
from intarsia_runtime.artifact.plan_json import spec_from_json, spec_to_json
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError, ModelError, UnsupportedError

X = np.float32([[0.1, -3.7, 500.0], [1e-4, 7.5, -0.0]])


def model(
    nodes: list, inputs: dict, outputs: dict, weights: dict | None = None, opset: int = 25
) -> bytes:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [info(name, *kind) for name, kind in inputs.items()],
        [info(name, *kind) for name, kind in outputs.items()],
        [numpy_helper.from_array(data, name) for name, data in (weights or {}).items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return proto.SerializeToString()


def there_and_back(code: int) -> bytes:
    nodes = [
        helper.make_node("Cast", ["x"], ["n"], to=code),
        helper.make_node("Transpose", ["n"], ["t"], perm=[1, 0]),
        helper.make_node("Cast", ["t"], ["y"], to=TensorProto.FLOAT),
    ]
    kind = (TensorProto.FLOAT, [2, 3])
    return model(nodes, {"x": kind}, {"t": (code, [3, 2]), "y": (TensorProto.FLOAT, [3, 2])})


@pytest.mark.parametrize("name", sorted(NARROW))
def test_arrays_have_the_type_and_compiled_code_the_bytes(name: str) -> None:
    dtype = narrow_formats.stored_type(name)
    data = there_and_back(helper.np_dtype_to_tensor_dtype(dtype))
    module = from_onnx(data)
    assert module.attr(StoredAs) == StoredAs({"t": name})
    assert all(value.type.dtype is not DType.UINT8 for value in module.main.outputs[1:])
    artifact = intarsia.build(data, "llvm")
    assert artifact.placement.host == ()
    with artifact.load(threads=1) as executable:
        found = executable.run({"x": X})
    assert found["t"].dtype == dtype
    wanted = narrow_formats.to_narrow(X, dtype).T
    np.testing.assert_array_equal(found["t"].astype(np.float32), wanted.astype(np.float32))
    np.testing.assert_array_equal(found["y"], wanted.astype(np.float32))


def test_what_the_artifact_says_of_its_arrays(tmp_path: Path) -> None:
    data = model(
        [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)],
        {"x": (TensorProto.FLOAT8E5M2, [4])},
        {"y": (TensorProto.FLOAT, [4])},
    )
    artifact = intarsia.build(data, "llvm")
    artifact.save(tmp_path / "m.intarsia")
    with intarsia.load(tmp_path / "m.intarsia") as executable:
        assert executable.inputs == (TensorSpec("x", (4,), DType.UINT8, "float8_e5m2"),)
        x = np.float32([1, 2, -3, np.inf]).astype(ml_dtypes.float8_e5m2)
        np.testing.assert_array_equal(executable.run({"x": x})["y"], x.astype(np.float32))
        with pytest.raises(ModelError, match=r"must be float8_e5m2 \(4,\), got uint8"):
            executable.run({"x": x.view(np.uint8)})


def test_a_spec_is_read_as_it_was_written() -> None:
    spec = TensorSpec("x", (2,), DType.UINT8, "int4")
    assert spec_from_json(spec_to_json(spec)) == spec
    assert "stored" not in spec_to_json(TensorSpec("x", (2,), DType.UINT8))
    with pytest.raises(ArtifactError, match="unknown element type 'int5'"):
        spec_from_json(spec_to_json(spec) | {"stored": "int5"})


def test_known_weights_become_ordinary_tensors() -> None:
    weights = {"w": np.arange(-8, 8).reshape(4, 4).astype(ml_dtypes.int4), "s": np.float32(0.5)}
    data = model(
        [
            helper.make_node("DequantizeLinear", ["w", "s"], ["f"]),
            helper.make_node("Mul", ["f", "x"], ["y"]),
        ],
        {"x": (TensorProto.FLOAT, [4, 4])},
        {"y": (TensorProto.FLOAT, [4, 4])},
        weights,
    )
    module = PREPARE.run(from_onnx(data), check=True)
    (call,) = module.main.outputs
    assert isinstance(call.args[0], Constant)
    np.testing.assert_array_equal(call.args[0].data, np.arange(-8, 8).reshape(4, 4) * 0.5)


def test_blocks_of_an_input_have_scales_of_their_own() -> None:
    data = model(
        [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], axis=1, block_size=2)],
        {
            "x": (TensorProto.UINT4, [2, 4]),
            "s": (TensorProto.FLOAT, [2, 2]),
            "z": (TensorProto.UINT4, [2, 2]),
        },
        {"y": (TensorProto.FLOAT, [2, 4])},
    )
    x = np.arange(8).reshape(2, 4).astype(ml_dtypes.uint4)
    s, z = np.float32([[1, 2], [3, 4]]), np.array([[0, 1], [2, 3]]).astype(ml_dtypes.uint4)
    with intarsia.build(data, "llvm").load(threads=1) as executable:
        found = executable.run({"x": x, "s": s, "z": z})["y"]
    wide = [np.repeat(t.astype(np.float32), 2, axis=1) for t in (s, z)]
    np.testing.assert_array_equal(found, (x.astype(np.float32) - wide[1]) * wide[0])


def test_quantized_integers_are_limited_after_the_zero_point() -> None:
    data = model(
        [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])],
        {"x": (TensorProto.FLOAT, [6])},
        {"y": (TensorProto.INT4, [6])},
        {"s": np.float32(2), "z": np.array(3).astype(ml_dtypes.int4)},
    )
    with intarsia.build(data, "llvm").load(threads=1) as executable:
        found = executable.run({"x": np.float32([1, 3, 5, -100, 100, -22.9])})["y"]
    assert found.dtype == ml_dtypes.int4
    assert found.astype(np.int8).tolist() == [3, 5, 5, -8, 7, -8]


def test_a_zero_point_of_another_type_is_an_error() -> None:
    data = model(
        [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"])],
        {"x": (TensorProto.INT4, [2])},
        {"y": (TensorProto.FLOAT, [2])},
        {"s": np.float32(2), "z": np.array(3).astype(ml_dtypes.uint4)},
    )
    with pytest.raises(ModelError, match="a zero point that is not int4"):
        from_onnx(data)


def test_arithmetic_on_narrow_numbers_is_refused() -> None:
    kind = (TensorProto.FLOAT8E5M2, [2])
    with pytest.raises(UnsupportedError, match="operator 'Neg' of float8_e5m2 is not supported"):
        from_onnx(model([helper.make_node("Neg", ["x"], ["y"])], {"x": kind}, {"y": kind}))


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (np.int8, np.uint8), (np.uint32, np.int32), (np.bool_, np.uint8), (np.int8, "float8_e5m2"),
        ("float8_e4m3fn", np.uint8), ("int4", "uint4"), ("float8_e5m2", "float8_e4m3fn"),
    ],
)  # fmt: skip
def test_bits_are_read_as_another_type(source: type, wanted: type) -> None:
    old, new = (np.dtype(getattr(ml_dtypes, str(t), t)) for t in (source, wanted))
    codes = np.array([0, 1], np.uint8) if old == np.bool_ else np.arange(0, 16, dtype=np.uint8)
    codes = codes if old in (np.bool_, np.dtype(ml_dtypes.int4)) else np.arange(256, dtype=np.uint8)
    x = codes.view(old)
    kinds = [helper.np_dtype_to_tensor_dtype(dtype) for dtype in (old, new)]
    data = model(
        [helper.make_node("BitCast", ["x"], ["y"], to=kinds[1])],
        {"x": (kinds[0], [len(x)])},
        {"y": (kinds[1], [len(x)])},
        opset=26,
    )
    artifact = intarsia.build(data, "llvm")
    assert artifact.placement.host == ()
    with artifact.load(threads=1) as executable:
        found = executable.run({"x": x})["y"]
    assert found.dtype == new
    assert found.tobytes() == x.tobytes()


def test_what_bits_are_not_read_as() -> None:
    node = helper.make_node("BitCast", ["x"], ["y"], to=TensorProto.BOOL)
    byte, bit = (TensorProto.UINT8, [2]), (TensorProto.BOOL, [2])
    with pytest.raises(UnsupportedError, match="BitCast of uint8 to bool"):
        from_onnx(model([node], {"x": byte}, {"y": bit}, opset=26))
    whole = (TensorProto.INT32, [2])
    node = helper.make_node("BitCast", ["x"], ["y"], to=TensorProto.INT32)
    byte = (TensorProto.UINT8, [2])
    with pytest.raises(ModelError, match="cannot read 8 bits as 32"):
        from_onnx(model([node], {"x": byte}, {"y": whole}, opset=26))


def test_an_unknown_rounding_is_an_error() -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E8M0, round_mode="odd")
    data = model([node], {"x": (TensorProto.FLOAT, [2])}, {"y": (TensorProto.FLOAT8E8M0, [2])})
    with pytest.raises(ModelError, match="round_mode='odd'"):
        from_onnx(data)


def test_narrow_values_pass_between_compiled_code_and_the_host() -> None:
    """NonZero has a size that only the run knows; its operand comes out of a compiled piece."""
    nodes = [
        helper.make_node("Cast", ["x"], ["n"], to=TensorProto.INT4),
        helper.make_node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("NonZero", ["f"], ["places"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["y"]),
    ]
    data = model(
        nodes,
        {"x": (TensorProto.FLOAT, [3]), "axes": (TensorProto.INT64, ["k"])},
        {"y": (TensorProto.INT4, None), "places": (TensorProto.INT64, [1, "n"])},
    )
    planned = plan_onnx(data)
    assert [node.op_type for node in planned.program.nodes] == ["NonZero", "Unsqueeze"]
    artifact = intarsia.build(data, "llvm", executor=intarsia.Executor("vm"))
    with artifact.load(threads=1) as executable:
        found = executable.run({"x": np.float32([0, -3, 9]), "axes": np.int64([0])})
    assert found["y"].dtype == ml_dtypes.int4
    assert found["y"].astype(np.int8).tolist() == [[0, -3, -7]]
    assert found["places"].tolist() == [[1, 2]]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "int4"])
def test_the_command_line_runs_and_verifies(name: str, tmp_path: Path) -> None:
    """Narrow inputs are made up, or read from a file, and the reference takes them, too."""
    from click.testing import CliRunner

    from intarsia.cli.main import cli

    kind = helper.np_dtype_to_tensor_dtype(narrow_formats.stored_type(name))
    data = model(
        [
            helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Cast", ["f"], ["y"], to=kind),
        ],
        {"x": (kind, [5])},
        {"y": (kind, [5]), "f": (TensorProto.FLOAT, [5])},
    )
    (tmp_path / "m.onnx").write_bytes(data)
    x = np.float32([0, 1, -2, 3, 5]).astype(narrow_formats.stored_type(name))
    np.savez(tmp_path / "x.npz", x=x)
    for inputs in ("random", str(tmp_path / "x.npz")):
        given = [str(tmp_path / "m.onnx"), "--target", "llvm", "--inputs", inputs, "--verify"]
        out = str(tmp_path / "y.npz")
        result = CliRunner().invoke(cli, ["run", *given, "--outputs", out])
        assert result.exit_code == 0, result.output
    with np.load(tmp_path / "y.npz") as file:
        np.testing.assert_array_equal(file["f"], x.astype(np.float32))
        assert file["y"].tobytes() == x.tobytes()
