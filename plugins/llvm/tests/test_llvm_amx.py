# SPDX-License-Identifier: Apache-2.0
"""Products of bytes by AMX: the instructions, and on a processor that has it the results."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import intarsia
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import Load, index
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import TensorModule
from intarsia_ir.tir.stmt import Invoke
from intarsia_llvm.amx import Amx
from intarsia_llvm.codegen import llvm_text
from intarsia_llvm.optimize import compile_assembly
from intarsia_llvm.plugin import schedule_spaces
from intarsia_llvm.schedules.table import tiling_of
from intarsia_llvm.target import LlvmOptions, canonicalize, machine
from intarsia_loops.cpu.int8x4 import Int8x4Dense, pack_int8x4_dense
from intarsia_loops.cpu.loops import parallel, store
from intarsia_loops.cpu.matrix_unit_dense import matrix_unit_dense_loops
from intarsia_loops.cpu.panel import flat_rows
from intarsia_loops.cpu.tiling import CpuTiling
from intarsia_runtime.artifact.plan import CallPlan
from intarsia_runtime.cpu import this_machine
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError

LINUX = {"mtriple": "x86_64-unknown-linux-gnu"}
needs_amx = pytest.mark.skipif(
    "amx_int8" not in (this_machine().cpu_features or ()), reason="this processor has no AMX"
)


def product(rows: int, int8x4: int, outputs: int) -> PrimFunc:
    """``data @ weight`` in int32; data is quads of unsigned bytes."""
    width = 16
    data = Buffer("data", (rows, int8x4), DType.INT32)
    weight = Buffer("weight", (-(-outputs // width), int8x4, width), DType.INT32)
    result = Buffer("result", (rows, outputs), DType.INT32)
    body = matrix_unit_dense_loops(
        CpuTiling(16, 14),
        Amx(),
        flat_rows(data),
        weight,
        outputs,
        lambda value, at: store(result, at, value),
        [rows],
    )
    return PrimFunc("product", (data, weight, result), 1, body)


def text_of(function: PrimFunc, **options: str) -> str:
    module = TensorModule((function,), CallPlan((), (), (), (), 0, ()))
    return llvm_text(module, LlvmOptions(**LINUX, **options))


def test_a_tile_is_two_by_two_registers() -> None:
    options = canonicalize(LlvmOptions(**LINUX, mcpu="sapphirerapids"))
    text = text_of(product(512, 32, 64), mcpu="sapphirerapids")
    assembly = compile_assembly(text, machine(options), 3)
    body = assembly[assembly.index("ldtilecfg") - 1 :]
    names = ("ldtilecfg", "tilezero", "tdpbusd", "tileloadd", "tilestored")
    # The first tile; of the next ones the first step, which stores sums, and the others.
    assert [body.count(f"\t{name}\t") for name in names] == [1, 4 + 4, 4 + 4 + 4, 12, 4 + 4]
    assert "tilerelease" in body
    assert "syscall" in assembly  # that asks for the registers, when the code is loaded:
    assert ".init_array" in assembly


def test_sums_are_stored_between_products() -> None:
    options = canonicalize(LlvmOptions(**LINUX, mcpu="sapphirerapids"))
    text = text_of(product(512, 32, 64), mcpu="sapphirerapids")
    body = compile_assembly(text, machine(options), 3)
    names = ("tilezero", "tdpbusd", "tileloadd", "tilestored")
    tiles = [word for word in body.split() if word in names]
    start = tiles.index("tilestored")
    turn = ["tilestored", "tilezero", "tdpbusd"]
    load = ["tileloadd"]
    assert tiles[start : start + 14] == [*turn, *load, *turn, *load, *turn, *turn]


def test_weights_that_no_first_cache_holds_are_read_past_it() -> None:
    options = canonicalize(LlvmOptions(**LINUX, mcpu="sapphirerapids"))
    for words, outputs, streamed in ((16, 64, False), (256, 512, True)):
        text = text_of(product(512, words, outputs), mcpu="sapphirerapids")
        body = compile_assembly(text, machine(options), 3)
        assert ("\ttileloaddt1\t" in body) is streamed


def test_a_processor_without_it_multiplies_by_vectors(make_target) -> None:
    for cpu, has in (("sapphirerapids", True), ("znver5", False), ("haswell", False)):
        int8x4 = tiling_of(make_target(**LINUX, mcpu=cpu), DType.INT32).int8x4
        assert int8x4 is not None
        assert (int8x4.unit is not None) is has


def test_what_is_measured_with_the_unit_is_for_machines_that_have_it(make_target) -> None:
    names = [
        schedule_spaces(make_target(**LINUX, mcpu="sapphirerapids", mattr=mattr)).machine
        for mattr in ((), ("-amx-int8",))
    ]
    assert names == ["x86_64/sapphirerapids/512/amx", "x86_64/sapphirerapids/512"]


def test_an_unknown_procedure_is_refused() -> None:
    x = Buffer("x", (1,), DType.INT32)
    call = Invoke("llvm", "llvm.amx.add", ())
    for body in (call, parallel(1 << 20, lambda _: call)):
        with pytest.raises(UnsupportedError, match=r"no procedure 'llvm\.amx\.add' of 'llvm'"):
            text_of(PrimFunc("f", (x,), 1, body), mcpu="sapphirerapids")


def test_words_of_registers_are_a_constant_and_rows_may_be_of_the_run() -> None:
    x = Buffer("x", (1,), DType.INT64)
    size = Load(x, (index(0),), DType.INT64, 1)
    by_rows = PrimFunc("f", (x,), 1, Invoke("llvm", "llvm.amx.configure", (), (size, index(4))))
    text = text_of(by_rows, mcpu="sapphirerapids")
    assert "@intarsia.amx.anyx4 = private unnamed_addr constant [1088 x i8]" in text
    sizes = (index(4), size)
    unknown = PrimFunc("f", (x,), 1, Invoke("llvm", "llvm.amx.configure", (), sizes))
    with pytest.raises(UnsupportedError, match="registers of AMX are configured by constants"):
        text_of(unknown, mcpu="sapphirerapids")


def test_native_has_it_where_the_kernel_lends_it() -> None:
    native = machine(canonicalize(LlvmOptions()))
    has = this_machine().cpu_features or frozenset[str]()
    assert native.amx == ("amx_int8" in has and "avx512dq" in has)


@needs_amx
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("rows", "int8x4", "outputs"),
    [
        *((4, 4, 1), (16, 16, 16), (17, 9, 33), (49, 32, 64), (197, 48, 100), (50, 512, 40)),
        *((512, 16, 48), (300, 64, 48), (1030, 32, 33), (64, 256, 2100), (530, 260, 530)),
    ],
)
def test_products(load_module, rows: int, int8x4: int, outputs: int, threads: int) -> None:
    generator = np.random.default_rng(rows)
    plain = generator.integers(0, 256, (rows, 4 * int8x4)).astype(np.uint8)
    matrix = generator.integers(-128, 128, (4 * int8x4, outputs)).astype(np.int8)
    packed = pack_int8x4_dense(matrix, 16)
    function = product(rows, int8x4, outputs)
    found = np.zeros((rows, outputs), np.int32)
    module = load_module([function], num_threads=threads)
    module.get_function("product")(plain.view(np.int32), packed, found)
    wanted = Int8x4Dense.reference(Int8x4Dense.Attrs(outputs=outputs), plain, packed)
    np.testing.assert_array_equal(found, wanted)


@needs_amx
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(("depth", "outputs"), [(64, 96), (100, 40), (2048, 33)])
def test_products_of_an_open_number_of_rows(dtype: str, depth: int, outputs: int) -> None:
    generator = np.random.default_rng(depth)
    weight = generator.integers(-128, 128, (depth, outputs)).astype(np.int8)
    kind = {"uint8": onnx.TensorProto.UINT8, "int8": onnx.TensorProto.INT8}[dtype]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "product",
        [onnx.helper.make_tensor_value_info("x", kind, ["B", "S", depth])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT32, ["B", "S", outputs])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    model = intarsia.from_onnx(onnx.helper.make_model(graph, opset_imports=opset))
    opened = intarsia.build(model, target="llvm").load(threads=2)
    for rows in ((1, 1), (1, 3), (2, 8), (1, 17), (3, 11), (7, 7), (1, 321)):
        limits = np.iinfo(dtype)
        x = generator.integers(limits.min, limits.max + 1, (*rows, depth)).astype(dtype)
        wanted = x.astype(np.int32) @ weight.astype(np.int32)
        np.testing.assert_array_equal(opened.run({"x": x})["y"], wanted)


@needs_amx
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("inner", "kernel", "attrs"),
    [
        (16, (3, 3), {"pads": [1, 1, 1, 1]}),
        (40, (3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        (64, (1, 1), {"strides": [2, 2]}),
        (32, (5, 3), {"pads": [4, 1, 4, 1], "dilations": [2, 1], "group": 2}),
        (3, (7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 2]}),
    ],
)
def test_windows_over_images_of_open_sizes(
    dtype: str, inner: int, kernel: tuple[int, int], attrs
) -> None:
    """Wide and narrow ones, of which several rows lie in a register."""
    generator = np.random.default_rng(inner)
    shape = (40, inner // attrs.get("group", 1), *kernel)
    weight = generator.integers(-128, 128, shape).astype(np.int8)
    zero = np.full((), 7, dtype)
    node = onnx.helper.make_node("ConvInteger", ["x", "w", "z"], ["y"], **attrs)
    kind = {"uint8": onnx.TensorProto.UINT8, "int8": onnx.TensorProto.INT8}[dtype]
    weights = {"w": weight, "z": zero}
    graph = onnx.helper.make_graph(
        [node],
        "windows",
        [onnx.helper.make_tensor_value_info("x", kind, ["N", inner, "H", "W"])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT32, ["N", 40, "P", "Q"])],
        [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opset)
    opened = intarsia.build(model, target="llvm").load(threads=2)
    for images, *size in ((1, 9, 9), (2, 14, 5), (1, 8, 1), (1, 1, 90), (3, 33, 40)):
        x = generator.integers(-128, 128, (images, inner, *size)).astype(np.int8).view(dtype)
        fixed = intarsia.build(model, target="llvm -mattr=-amx-int8", shapes={"x": x.shape})
        wanted = fixed.load(threads=1).run({"x": x})["y"]
        np.testing.assert_array_equal(opened.run({"x": x})["y"], wanted)
