# SPDX-License-Identifier: Apache-2.0
"""Where nothing links, code stays an object file, and the process that runs it links in memory."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia
from intarsia.host.host import Host
from intarsia_ir.graph.expr import Function, Var, call
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_ir.tir.module import TensorModule
from intarsia_llvm import plugin
from intarsia_llvm.codegen import environment_version, llvm_text, tir_codegen
from intarsia_llvm.loader import OBJECT_FILE, OBJECT_LOADER, ObjectCode, open_object
from intarsia_llvm.optimize import compile_object
from intarsia_llvm.target import LlvmOptions, canonicalize, machine
from intarsia_runtime.artifact.archive import open_artifact
from intarsia_runtime.artifact.plan import CallPlan
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError, ToolchainError

RNG = np.random.default_rng(5)


@pytest.fixture
def _nothing_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program can be found, and the package with a linker inside is not installed."""
    find = importlib.util.find_spec
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "ziglang" else find(name, *a)
    )


class Graph:
    """An ONNX graph that grows at its end."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def weight(self, *shape: int) -> str:
        data = RNG.normal(scale=0.2, size=shape).astype(np.float32)
        return self.constant(data)

    def constant(self, data: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(data, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def model(self, y: str, given: tuple[int, ...], made: tuple[int, ...]) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, given)
        result = helper.make_tensor_value_info(y, TensorProto.FLOAT, made)
        graph = helper.make_graph(self.nodes, "net", [x], [result], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def residual_net() -> onnx.ModelProto:
    """Two residual blocks, the second with a stride, an average and a dense layer."""
    g = Graph()

    def conv(x: str, inner: int, outer: int, size: int, stride: int = 1) -> str:
        weights = g.weight(outer, inner, size, size), g.weight(outer)
        return g.add("Conv", x, *weights, auto_pad="SAME_UPPER", strides=[stride, stride])

    x = g.add("Relu", conv("x", 3, 16, 3))
    y = conv(g.add("Relu", conv(x, 16, 16, 3)), 16, 16, 3)
    x = g.add("Relu", g.add("Add", x, y))
    y = conv(g.add("Relu", conv(x, 16, 32, 3, 2)), 32, 32, 3)
    x = g.add("Relu", g.add("Add", conv(x, 16, 32, 1, 2), y))
    x = g.add("Flatten", g.add("GlobalAveragePool", x))
    y = g.add("Softmax", g.add("Gemm", x, g.weight(32, 10), g.weight(10)))
    return g.model(y, (1, 3, 16, 16), (1, 10))


def attention_block() -> onnx.ModelProto:
    """One encoder layer: attention of two heads, layer normalization, and erf's GELU."""
    g, size = Graph(), 32

    def heads(perm: list[int]) -> str:
        flat = g.add("Add", g.add("MatMul", "x", g.weight(size, size)), g.weight(size))
        split = g.add("Reshape", flat, g.constant(np.array([1, 12, 2, 16])))
        return g.add("Transpose", split, perm=perm)

    def normal(x: str) -> str:
        return g.add("LayerNormalization", x, g.weight(size), g.weight(size), axis=-1)

    scores = g.add("MatMul", heads([0, 2, 1, 3]), heads([0, 2, 3, 1]))
    weights = g.add("Softmax", g.add("Mul", scores, g.constant(np.float32(0.25))), axis=-1)
    mixed = g.add("Transpose", g.add("MatMul", weights, heads([0, 2, 1, 3])), perm=[0, 2, 1, 3])
    joined = g.add("Reshape", mixed, g.constant(np.array([1, 12, size])))
    x = normal(g.add("Add", "x", g.add("MatMul", joined, g.weight(size, size))))
    inner = g.add("Add", g.add("MatMul", x, g.weight(size, 64)), g.weight(64))
    erf = g.add("Erf", g.add("Mul", inner, g.constant(np.float32(0.5**0.5))))
    half = g.add("Mul", inner, g.constant(np.float32(0.5)))
    gelu = g.add("Mul", half, g.add("Add", erf, g.constant(np.float32(1))))
    y = normal(g.add("Add", x, g.add("MatMul", gelu, g.weight(64, size))))
    return g.model(y, (1, 12, size), (1, 12, size))


NETS = {"residual": residual_net, "attention": attention_block}


@pytest.mark.usefixtures("_nothing_links")
@pytest.mark.parametrize("target", ["llvm", "dnnl -min-gain=0 -min-grain=0, llvm"])
@pytest.mark.parametrize("name", NETS)
def test_a_model_runs_without_a_linker(tmp_path: Path, name: str, target: str) -> None:
    """The main unit runs steps of a region too: the table's walker is found in the object."""
    if "dnnl" in target:
        pytest.importorskip("intarsia_dnnl")
    model = NETS[name]()
    onnx.save(model, tmp_path / "net.onnx")
    intarsia.build(tmp_path / "net.onnx", target).save(tmp_path / "net.intarsia")
    unit = open_artifact(tmp_path / "net.intarsia").passport.unit("main")
    assert (unit.loader, unit.files) == (OBJECT_LOADER, (OBJECT_FILE,))
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = RNG.normal(size=shape).astype(np.float32)
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
    (want,) = session.run(None, {"x": x})
    for executor in ("aot", "graph"):
        with intarsia.load(tmp_path / "net.intarsia", executor=executor, threads=2) as net:
            (got,) = net.run([x]).values()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def module() -> IRModule:
    x = Var("x", TensorType((2, 3), DType.FLOAT32))
    return IRModule.from_function(Function((x,), call(OPERATORS["tanh"], x)))


@pytest.mark.usefixtures("_nothing_links")
def test_loads_share_nothing_and_close_alone() -> None:
    artifact = intarsia.build(module(), "llvm")
    x = RNG.normal(size=(2, 3)).astype(np.float32)
    first, second = artifact.load(), artifact.load(executor="graph")
    first.close()
    first.close()
    (got,) = second.run([x]).values()
    np.testing.assert_allclose(got, np.tanh(x), rtol=1e-6)


@pytest.mark.usefixtures("_nothing_links")
def test_another_machine_needs_a_linker() -> None:
    with pytest.raises(ToolchainError, match=r"no linker for aarch64-linux-gnu was found") as error:
        intarsia.build(module(), "llvm -mtriple=aarch64-linux-gnu")
    assert error.value.exit_code == 6
    assert "binutils-aarch64-linux-gnu" in error.value.hint
    assert "intarsia-llvm[linker]" in error.value.hint


@pytest.mark.usefixtures("_nothing_links")
def test_the_probe_and_the_key_of_a_build_say_what_links() -> None:
    found = plugin.probe(Host().target("llvm").fallback)
    assert found.usable
    assert "LLVM links in the process that runs the code" in found.detail
    assert "LLVM links" in environment_version()
    other = plugin.probe(Host().target("llvm -mtriple=aarch64-linux-gnu").fallback)
    assert not other.usable


@pytest.fixture(scope="module")
def code() -> bytes:
    options = canonicalize(LlvmOptions())
    empty = TensorModule((), CallPlan((), (), (), (), 0, ()))
    return compile_object(llvm_text(empty, options), machine(options), 2)


def test_what_an_object_exports(code: bytes) -> None:
    loaded = ObjectCode(code, "main")
    assert loaded.required("__tvm_ffi_main")
    assert loaded.address("__tvm_ffi_main") == loaded.address("__tvm_ffi_main")
    assert loaded.address("nothing") == 0
    with pytest.raises(ArtifactError, match="the code of 'main' exports no 'nothing'"):
        loaded.required("nothing")


def test_what_is_no_object_is_refused(code: bytes) -> None:
    with pytest.raises(ArtifactError, match="LLVM refuses the code of 'main'"):
        ObjectCode(b"no object", "main")
    with pytest.raises(ArtifactError, match=r"unit 'main' has no file 'unit\.o'"):
        open_object({"lib.so": code}, "main")


def test_without_llvmlite_the_error_says_what_to_install(
    code: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    with pytest.raises(ArtifactError, match="'main' is an object file, and LLVM") as error:
        ObjectCode(code, "main")
    assert "pip install 'llvmlite" in error.value.hint


@pytest.mark.usefixtures("_nothing_links")
def test_equal_input_gives_equal_objects(make_target) -> None:
    empty = TensorModule((), CallPlan((), (), (), (), 0, ()))
    first, second = (tir_codegen(empty, make_target()).files[OBJECT_FILE] for _ in range(2))
    assert first == second
