# SPDX-License-Identifier: Apache-2.0
"""Register tiles as vector types of GNU C: where they are written, and what they compute."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import intarsia
from intarsia.target.detect import machine_facts
from intarsia_c.lowering import lower_function
from intarsia_c.target import COptions
from intarsia_c.toolchain import vector_type_bytes
from intarsia_ir.graph.expr import Function, Var, call
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.softmax import Softmax
from intarsia_ir.tir.stmt import Allocate
from intarsia_ir.tir.walk import statements
from intarsia_runtime.dtype import DType

from .calling import STRICT
from .made_models import weight

HASWELL = f"c -opt-level=2 -cflags={','.join(('-march=haswell', *STRICT))}"
AVX512 = HASWELL.replace("haswell", "skylake-avx512")
VECTORS = ("ix_f32x8 acc_0", "ix_f32x8 sum0")
IS_X86 = "avx2" in machine_facts().features

NODES = {
    "product": ("MatMul", {}, (13, 40), [(40, 50)]),
    "conv": ("Conv", {}, (1, 24, 9, 11), [(24, 24, 3, 3), (24,)]),
    "first": ("Conv", {"strides": [2, 2], "pads": [3] * 4}, (1, 3, 40, 40), [(32, 3, 7, 7)]),
    "few": ("Conv", {"pads": [2] * 4}, (1, 1, 40, 40), [(16, 1, 5, 5)]),
    "depthwise": ("Conv", {"group": 16, "pads": [1] * 4}, (1, 16, 28, 28), [(16, 1, 3, 3)]),
    "lstm": ("LSTM", {"hidden_size": 20}, (4, 3, 6), [(1, 80, 6), (1, 80, 20)]),
    "rnn": ("RNN", {"hidden_size": 40}, (4, 7, 6), [(1, 40, 6), (1, 40, 40)]),
}
"""What a model has: operator, attributes, shape of the input, shapes of the weights."""

MAXIMA = {(3, 7, 50): 4, (5, 300): 4, (40, 9): 1}
"""Shapes of a softmax, and vectors of maxima of its kernel."""


def made(name: str) -> tuple[onnx.ModelProto, np.ndarray]:
    return of_operator(*NODES[name])


def of_operator(op: str, attributes, shape, weights) -> tuple[onnx.ModelProto, np.ndarray]:
    given = [weight(f"w{number}", *dims) for number, dims in enumerate(weights)]
    node = helper.make_node(op, ["x", *(each.name for each in given)], ["y"], **attributes)
    x, y = (
        helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, dims)
        for value, dims in (("x", shape), ("y", None))
    )
    graph = helper.make_graph([node], op, [x], [y], initializer=given)
    opset = [helper.make_opsetid("", 17)]
    data = np.random.default_rng(3).standard_normal(shape, np.float32)
    return helper.make_model(graph, opset_imports=opset, ir_version=9), data


@pytest.mark.skipif(not IS_X86, reason="the processor has no AVX2")
@pytest.mark.parametrize("name", NODES)
def test_tiles_are_vectors_and_right(tmp_path, name: str) -> None:
    model, x = made(name)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (want,) = session.run(None, {"x": x})
    artifact = intarsia.build(intarsia.from_onnx(model), target=HASWELL).save(tmp_path / "a")
    (got,) = intarsia.load(artifact).run({"x": x}).values()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert any(declared in source(artifact) for declared in VECTORS)


def source(artifact: Path) -> str:
    with zipfile.ZipFile(artifact) as archive:
        return archive.read("units/main/model.c").decode()


@pytest.mark.skipif(not IS_X86, reason="the compiler has no AVX-512")
@pytest.mark.parametrize(("name", "is_typed"), [("few", True), ("product", False)])
def test_vectors_of_avx512_that_are_parts_of_an_array_are_typed(
    tmp_path, name: str, is_typed: bool
) -> None:
    """GCC 12 gives vector types 16 of 32 registers, which products need all of."""
    model, x = made(name)
    artifact = intarsia.build(intarsia.from_onnx(model), target=AVX512).save(tmp_path / "a")
    assert ("ix_f32x16 " in source(artifact)) == is_typed
    if "avx512f" in machine_facts().features:
        session = onnxruntime.InferenceSession(model.SerializeToString())
        (got,) = intarsia.load(artifact).run({"x": x}).values()
        np.testing.assert_allclose(got, session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not IS_X86, reason="the processor has no AVX2")
@pytest.mark.parametrize("shape", MAXIMA, ids=str)
def test_rows_of_a_softmax_have_a_loop_over_lanes_for_all_maxima(tmp_path, shape) -> None:
    """Of a loop for each, GCC 12 takes the maxima apart into scalars."""
    model, x = of_operator("Softmax", {}, shape, [])
    session = onnxruntime.InferenceSession(model.SerializeToString())
    artifact = intarsia.build(intarsia.from_onnx(model), target=HASWELL).save(tmp_path / "a")
    (got,) = intarsia.load(artifact).run({"x": x}).values()
    np.testing.assert_allclose(got, session.run(None, {"x": x})[0], rtol=1e-5, atol=1e-7)
    maxima = [line for line in source(artifact).splitlines() if "float most_" in line]
    assert len(maxima) == MAXIMA[shape]


@pytest.mark.parametrize(
    ("options", "has_lanes"),
    [({}, True), ({"freestanding": True}, False), ({"mcpu": "cortex-m4"}, False)],
)
def test_sources_for_any_machine_have_loops_over_elements(make_target, options, has_lanes) -> None:
    x = Var("x", TensorType((3, 50), DType.FLOAT32))
    soft = Function((x,), call(Softmax, x, attrs=Softmax.Attrs(axis=1)))
    (kernel,) = lower_function(soft, (), target=make_target(**options)).module.functions
    made = {part.buffer.name for part in statements(kernel.body) if isinstance(part, Allocate)}
    assert ("most" in made) == has_lanes


@pytest.mark.parametrize(
    ("options", "size"),
    [
        (COptions(cflags=("-mavx2",)), 32),
        (COptions(cflags=("-mavx512f",)), 64),
        (COptions(cflags=("-msse4.1",)), 0),
        (COptions(cflags=("-mavx2",), freestanding=True), 0),
        (COptions(cc="/nowhere/cc"), 0),  # compiling will say so
    ],
)
@pytest.mark.skipif(not IS_X86, reason="the compiler has no AVX2")
def test_who_gets_vector_types(options: COptions, size: int) -> None:
    assert vector_type_bytes(options) == size
