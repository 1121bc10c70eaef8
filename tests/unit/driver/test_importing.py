# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia.driver.build import build
from intarsia.driver.importing import import_model
from intarsia_ir.budget import physical_memory
from intarsia_ir.graph.expr import Constant, Function, Var, call, constant, make_tuple
from intarsia_ir.graph.footprint import check_budget, release_files
from intarsia_ir.graph.inputs import bind_params, check_static
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import Dim, TensorType, TupleType, variable
from intarsia_ir.ops.binary import Add
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ModelError, ResourceError, UnsupportedError

from .toy import host_of


def module_of(shape: tuple[int | Dim, ...] = (2, 3)) -> IRModule:
    x, w = (Var(name, TensorType(shape, DType.FLOAT32)) for name in "xw")
    return IRModule.from_function(Function((x, w), call(Add, x, w), ("y",)))


def test_params_become_constants() -> None:
    module = module_of()
    bound = bind_params(module, {"w": np.ones((2, 3), np.float32)})
    assert [param.name for param in bound.main.params] == ["x"]
    (weight,) = (a for a in bound.main.body.args if isinstance(a, Constant))
    assert weight.name == "w"
    assert import_model(module) is module


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"v": np.ones(1, np.float32)}, "params has 'v', but the model has no such input"),
        (
            {"w": np.ones((3, 2), np.float32)},
            r"input 'w' is Tensor\[\(2, 3\), float32\], params has",
        ),
        ({"w": np.ones((2, 3), np.float64)}, "params has Tensor.*float64"),
    ],
)
def test_params_that_do_not_fit_are_refused(params: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        import_model(module_of(), params=params)


def test_a_wrong_name_of_a_parameter_gets_the_nearest() -> None:
    with pytest.raises(ModelError) as caught:
        import_model(module_of(), params={"ww": np.ones(1, np.float32)})
    assert caught.value.hint == "did you mean 'w'?"


def test_a_module_takes_no_shapes() -> None:
    with pytest.raises(ModelError, match="shapes belong to the import of a model") as why:
        import_model(module_of(), {"x": (1,)})
    assert "from_onnx(model, shapes=...)" in why.value.hint


def test_a_missing_file_is_a_model_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="absent"):
        import_model(tmp_path / "absent.onnx")


def test_an_unknown_size_names_the_option_to_give() -> None:
    check_static(module_of())
    with pytest.raises(UnsupportedError, match="size of input 'x' is not known") as caught:
        check_static(module_of((variable("N"), 3)))
    assert caught.value.hint == "--shape x:1,3"
    assert caught.value.exit_code == 4
    pair = TupleType((TensorType((1,), DType.FLOAT32),))
    with pytest.raises(UnsupportedError, match="input 'p'"):
        check_static(IRModule.from_function(Function((Var("p", pair),), Var("p", pair))))


def test_what_cannot_fit_in_memory_is_refused_before_it_is_allocated() -> None:
    check_budget(module_of(), 24)
    with pytest.raises(ResourceError, match="one tensor needs 24 bytes, the budget is 23"):
        check_budget(module_of(), 23)
    with pytest.raises(ResourceError, match="one tensor needs"):
        check_budget(module_of((1 << 40, 1 << 40)))
    weights = [constant(np.ones(4, np.float32)) for _ in range(3)]
    body = make_tuple(weights[:2])
    with pytest.raises(ResourceError, match="the weights need 32"):
        check_budget(IRModule.from_function(Function((), body)), 16)
    total = call(Add, call(Add, weights[0], weights[1]), weights[2])
    with pytest.raises(ResourceError, match="the weights need 48 bytes"):
        check_budget(IRModule.from_function(Function((), total)), 40)


def test_memory_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert physical_memory() > 1 << 28
    monkeypatch.delattr(os, "sysconf")
    assert physical_memory() == 1 << 48


@pytest.mark.parametrize("mapped", [False, True])
def test_an_artifact_does_not_depend_on_the_models_file_unless_it_may(
    tmp_path: Path, mapped: bool
) -> None:
    values = np.full((1 << 10, 1 << 9), 3, np.float32)
    path = tmp_path / "net.onnx"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, values.shape)
    weight = numpy_helper.from_array(values, "w")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    opset = [helper.make_opsetid("", 18)]
    data = helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()
    path.write_bytes(data)
    artifact = build(path, "toy", host=host_of(), mapped=mapped)
    with path.open("r+b") as file:  # in place, as exporters write
        file.write(bytes(len(data)))
    (kept,) = (array for array in artifact.constants.values() if array.size == values.size)
    assert set(kept.reshape(-1).tolist()) == {0.0 if mapped else 3.0}


def _resident(address: int) -> int:
    """Bytes in memory of the mapping that an address lies in."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            start, end = (int(part, 16) for part in first.split("-"))
            inside = start <= address < end
        elif inside and first == "Rss:":
            return int(line.split()[1]) << 10
    raise AssertionError(hex(address))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_weights_in_a_mapped_file_leave_memory_and_come_back(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    values = np.arange(1 << 18, dtype=np.float32)
    values.tofile(path)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    weight = np.frombuffer(memoryview(mapped)[4:], np.float32).reshape(-1, 1)
    written = np.memmap(path, np.float32, "c")
    written[0] = 7.0
    whole = make_tuple([constant(data) for data in (weight, written[:1], values)])
    assert weight.sum() > 0
    assert _resident(weight.ctypes.data) >= values.nbytes // 2
    release_files(IRModule.from_function(Function((), whole)))
    assert _resident(weight.ctypes.data) == 0
    assert weight[:, 0].tolist() == values[1:].tolist()
    assert written[0] == 7.0
