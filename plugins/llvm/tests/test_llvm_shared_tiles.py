# SPDX-License-Identifier: Apache-2.0
"""Products of open sizes share their register tiles, which are procedures."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia_ir.graph.expr import Expr, Function, Var, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.tir.forward import procedures
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import TensorModule
from intarsia_ir.tir.stmt import For, ForKind, Invoke
from intarsia_ir.tir.text import parse_funcs, print_funcs
from intarsia_ir.tir.verify import verify_func
from intarsia_ir.tir.walk import statements
from intarsia_llvm.emit.module import emit_module, emit_parts
from intarsia_llvm.lowering import lower_function
from intarsia_llvm.schedules.table import tiling_of
from intarsia_llvm.target import LlvmOptions, machine
from intarsia_loops.cpu.legalize import legalize_for_cpu
from intarsia_loops.targets import LoopTarget
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply
from intarsia_testkit.kernel_structure import kernel_structure

M, N = variable("M"), variable("N")


def random(*shape: int) -> np.ndarray:
    """Small numbers, the same ones each time."""
    return (np.random.default_rng(sum(shape)).random(shape, np.float32) - 0.5) / 8


def layers(*channels: int) -> IRModule:
    """Products with weights, each with an epilogue of its own."""
    value: Expr = Var("x", TensorType((M, channels[0]), DType.FLOAT32))
    params = (value,)
    for number, (before, after) in enumerate(pairwise(channels)):
        value = apply("matmul", value, constant(random(before, after)))
        value = apply("nn.relu" if number % 2 else "tanh", value)
    return IRModule.from_function(Function(params, value))


def attention(depth: int) -> IRModule:
    """Products of two values of the run: K is a number, then open."""
    q = Var("q", TensorType((2, M, depth), DType.FLOAT32))
    k = Var("k", TensorType((2, depth, N), DType.FLOAT32))
    v = Var("v", TensorType((2, N, depth), DType.FLOAT32))
    return IRModule.from_function(
        Function((q, k, v), apply("matmul", apply("matmul", q, k), v)),
    )


def sound(channels: int, dilation: int) -> IRModule:
    """A convolution of one row, which may be padded and dilated."""
    x = Var("x", TensorType((1, channels, N), DType.FLOAT32))
    attrs = {"strides": (1,), "padding": ((dilation, dilation),), "dilation": (dilation,)}
    taps = constant(random(64, channels, 3))
    return IRModule.from_function(Function((x,), apply("nn.conv", x, taps, groups=1, **attrs)))


@pytest.fixture(params=["haswell", "skylake-avx512"])
def target(request: pytest.FixtureRequest) -> LoopTarget[LlvmOptions]:
    return intarsia.Target(f"llvm -mcpu={request.param}").fallback


def lowered(model: IRModule, target: LoopTarget[LlvmOptions]) -> TensorModule:
    """The kernels of a model in the layouts of the machine, with packed weights."""
    packed = legalize_for_cpu(model.main, tiling_of(target, DType.FLOAT32))
    return lower_function(packed, target=target).module


def called(functions: tuple[PrimFunc, ...]) -> list[str]:
    """The procedures that kernels call, one for each call."""
    stmts = (stmt for function in functions for stmt in statements(function.body))
    return [s.function for s in stmts if isinstance(s, Invoke) and s.callee is not None]


def test_products_of_other_sizes_call_one_procedure(target: LoopTarget[LlvmOptions]) -> None:
    module = lowered(layers(320, 512, 256, 640), target)
    calls = called(module.functions)
    assert len(calls) >= 2
    assert len({*calls}) == 1
    text = emit_module(module, machine(target.options), 1)
    assert re.findall(r"define \w+ void @(tiles_\w+)", text) == [calls[0]]


@pytest.mark.parametrize("model", [layers(320, 512, 256), attention(64), sound(64, 3)])
def test_kernels_that_call_procedures_are_verified_and_read_back(
    target: LoopTarget[LlvmOptions], model: IRModule
) -> None:
    kernels = lowered(model, target).functions
    text = print_funcs(kernels)
    again = parse_funcs(text)
    assert print_funcs(again) == text
    for kernel, read in zip(kernels, again, strict=True):
        verify_func(kernel)
        same = kernel_structure(read) == kernel_structure(kernel)
        assert same, kernel.name


def test_the_dump_has_a_shared_procedure_once(tmp_path: Path) -> None:
    intarsia.build(layers(320, 512, 256), "llvm -mcpu=haswell", dump_ir=tmp_path)
    texts = [path.read_text() for path in sorted(tmp_path.rglob("*.txt"))]
    (text,) = [text for text in texts if "kernel::tiles_" in text]
    assert len(re.findall(r"^procedure tiles_", text, re.MULTILINE)) == 1
    assert len(procedures(parse_funcs(text))) == 1


def test_a_procedure_is_declared_where_another_part_has_it(
    target: LoopTarget[LlvmOptions],
) -> None:
    module = lowered(layers(320, 512, 256, 640), target)
    parts = list(emit_parts(module, machine(target.options), 1, 1))
    (name,) = {*called(module.functions)}
    defined = [part for part in parts if re.search(rf"define \w+ void @{name}\(", part)]
    using = [part for part in parts if f"call void @{name}(" in part]
    assert len(defined) == 1
    assert len(using) > 1
    assert all(f"declare hidden void @{name}(" in part for part in using if part not in defined)


def test_all_blocks_of_a_product_share_one_loop(target: LoopTarget[LlvmOptions]) -> None:
    """1000 columns are full blocks and one of 8, which has its own epilogue."""
    (kernel,) = lowered(layers(320, 1000), target).functions
    loops = [stmt for stmt in statements(kernel.body) if isinstance(stmt, For)]
    assert [loop.kind for loop in loops].count(ForKind.PARALLEL) == 1
    assert len(called((kernel,))) == 2


def test_products_of_a_small_depth_have_tiles_of_their_own(
    target: LoopTarget[LlvmOptions],
) -> None:
    assert not called(lowered(layers(8, 12, 15), target).functions)


@pytest.mark.parametrize("depth", [17, 24, 257, 258, 300, 512])
def test_every_number_of_rows_is_multiplied(tmp_path: Path, depth: int) -> None:
    """Of one row, partial sums do not divide K of 17, 257, 258 and 300."""
    model = layers(depth, 320, 1001)
    intarsia.build(model, "llvm").save(tmp_path / "net.intarsia")
    with intarsia.load(tmp_path / "net.intarsia", threads=1) as executable:
        for rows in (*range(1, 30), 100):
            given = {"x": random(rows, depth) * 16}
            (wanted,) = evaluate(model.main, given, model)
            (found,) = executable.run(given).values()
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("depth", [64, 67])
@pytest.mark.parametrize("columns", [3, 16, 31, 45, 128])
def test_products_of_open_matrices_are_right(tmp_path: Path, depth: int, columns: int) -> None:
    model = attention(depth)
    intarsia.build(model, "llvm").save(tmp_path / "net.intarsia")
    with intarsia.load(tmp_path / "net.intarsia", threads=1) as executable:
        for rows in (1, 2, 5, 14, 16, 27, 41):
            given = {
                "q": random(2, rows, depth) * 16,
                "k": random(2, depth, columns) * 16,
                "v": random(2, columns, depth) * 16,
            }
            (wanted,) = evaluate(model.main, given, model)
            (found,) = executable.run(given).values()
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dilation", [1, 3])
def test_convolutions_of_a_row_call_the_procedure_of_products(
    target: LoopTarget[LlvmOptions], dilation: int
) -> None:
    """Taps of a dilated window lie apart, which takes a loop more."""
    (name,) = {*called(lowered(layers(320, 512), target).functions)}
    of_row = name if dilation == 1 else name.replace("tiles", "tiles_parts")
    assert of_row in called(lowered(sound(64, dilation), target).functions)


@pytest.mark.parametrize(("channels", "dilation"), [(32, 1), (64, 1), (64, 3), (40, 5)])
def test_convolutions_of_a_row_are_right(tmp_path: Path, channels: int, dilation: int) -> None:
    """Taps that are outside of a short row are left away."""
    model = sound(channels, dilation)
    intarsia.build(model, "llvm").save(tmp_path / "net.intarsia")
    with intarsia.load(tmp_path / "net.intarsia", threads=1) as executable:
        for columns in (1, 2, 4, 9, 15, 28, 77, 1000):
            given = {"x": random(1, channels, columns) * 16}
            (wanted,) = evaluate(model.main, given, model)
            (found,) = executable.run(given).values()
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
