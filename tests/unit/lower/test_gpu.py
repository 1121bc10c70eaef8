# SPDX-License-Identifier: Apache-2.0
"""Kernels for a grid of blocks of threads, by the interpreter of the loop IR."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from intarsia_ir.graph.expr import Function, Var, call
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import INDEX, IntImm, Load, TirVar, cast, const, index
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.passes.flatten_open import flatten_open
from intarsia_ir.tir.passes.simplify import simplify
from intarsia_ir.tir.stmt import Allocate, Barrier, For, ForKind, IfStmt, Store, Thread
from intarsia_ir.tir.walk import statements
from intarsia_loops.codegen.c_functions import Functions
from intarsia_loops.codegen.c_source import print_kernel
from intarsia_loops.codegen.spelling import MEMORY_TYPES, VALUE_TYPES, Spelling
from intarsia_loops.fuse import fuse
from intarsia_loops.gpu.gemm import product_loops, register_tile
from intarsia_loops.gpu.grid import bound, size_of
from intarsia_loops.gpu.launches import split_launches
from intarsia_loops.gpu.products import ProductTypes, conv_product, matmul_product
from intarsia_loops.gpu.stages import device_loops
from intarsia_loops.gpu.traits import GridTraits
from intarsia_loops.tensors import stages_of
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError
from intarsia_runtime.size import maximum, minimum, variable

pytestmark = pytest.mark.slow  # the interpreter carries out every product

F32 = DType.FLOAT32
NO_SHUFFLES = GridTraits("opencl", 256, 32, "load", "store")
RNG = np.random.default_rng(3)


def group_of(name: str, *shapes: tuple[int, ...], **attrs: object) -> FusedGroup:
    """One operator on float32 tensors, as a fused group."""
    op = OPERATORS[name]
    params = [Var(f"x{n}", TensorType(shape, F32)) for n, shape in enumerate(shapes)]
    body = call(op, *params, attrs=op.Attrs(**attrs))
    (item,) = fuse(Function(tuple(params), body)).items
    return item.group


def reference(group: FusedGroup, *arrays: np.ndarray) -> np.ndarray:
    """What the operator's reference says."""
    body = group.function.body
    return body.op.reference(body.attrs, *arrays)


def interpreted(kernel: PrimFunc, *arrays: np.ndarray) -> np.ndarray:
    """The first output of a kernel."""
    own = [np.zeros(b.shape, b.dtype.value) for b in kernel.params[len(arrays) :]]
    run(kernel, *arrays, *own)
    return own[0]


def barriers(kernel: PrimFunc) -> int:
    return sum(isinstance(stmt, Barrier) for stmt in statements(kernel.body))


@pytest.mark.parametrize(
    ("shape", "axes", "threads"), [((5, 40), (1,), 32), ((3, 2100), (1,), 256), ((70,), (0,), 32)]
)
def test_without_shuffles_a_reduction_is_a_tree_in_shared_memory(shape, axes, threads):
    group = group_of("sum", shape, axes=axes, keepdims=False)
    kernel = device_loops("f", stages_of(group.function), NO_SHUFFLES)
    x = RNG.integers(-9, 9, shape).astype(np.float32)
    np.testing.assert_array_equal(interpreted(kernel, x), reference(group, x))
    (launch,) = split_launches(kernel, NO_SHUFFLES)
    assert launch.dims[3:] == (threads, 1, 1)
    assert launch.waits
    assert barriers(kernel) == threads.bit_length() - 1


@pytest.mark.parametrize(("shape", "axes"), [((20000, 9), (1,)), ((4, 70, 300), (0, 1))])
def test_a_thread_sums_where_its_neighbours_read_neighbouring_elements(shape, axes):
    group = group_of("sum", shape, axes=axes, keepdims=False)
    kernel = device_loops("f", stages_of(group.function), replace(NO_SHUFFLES, warp=64))
    assert barriers(kernel) == (0 if shape[1] == 9 else 6)


def same_types(dtype: DType) -> ProductTypes:
    return ProductTypes(dtype, dtype)


def tiled(most_threads: int):
    """The loops of a product for blocks of at most so many threads."""

    def loops(product):
        tile = register_tile(product, most_threads)
        return None if tile is None else product_loops(product, tile)

    return loops


def test_a_product_of_tiles_in_shared_memory():
    group = group_of("matmul", (2, 33, 10), (10, 9))
    kernel = matmul_product(group, same_types).kernel(tiled(256))
    a, b = (RNG.normal(size=s).astype(np.float32) for s in ((2, 33, 10), (10, 9)))
    got = interpreted(kernel, a, b)
    np.testing.assert_allclose(got, reference(group, a, b), rtol=1e-4, atol=1e-4)


def test_a_convolution_is_a_product_of_its_windows():
    shapes = ((1, 3, 7, 6), (8, 3, 3, 3))
    attrs = {"strides": (2, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
    group = group_of("nn.conv", *shapes, **attrs)
    kernel = conv_product(group, same_types).kernel(tiled(256))
    x, w = (RNG.normal(size=s).astype(np.float32) for s in shapes)
    got = interpreted(kernel, x, w)
    np.testing.assert_allclose(got, reference(group, x, w), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("size", "most_threads"), [(7, 256), (8, 255)])
def test_products_that_no_tile_is_for(size, most_threads):
    group = group_of("matmul", (size, 64), (64, 64))
    assert matmul_product(group, same_types).kernel(tiled(most_threads)) is None


def test_a_launch_with_two_sizes_of_block():
    target, n = Buffer("out", (1,), F32), Buffer("n", (1,), INDEX)
    store = Store(target, (IntImm(0),), const(1.0, F32))
    four, eight = (bound(Thread.THREAD_X, TirVar("t"), size, store) for size in (4, 8))
    body = IfStmt(Load(n, (IntImm(0),), INDEX, 1) < 3, four, eight)
    with pytest.raises(UnsupportedError, match=r"of 4 and 8 iterations bound to thread\.x"):
        split_launches(PrimFunc("f", (n, target), 1, body), NO_SHUFFLES)


def test_a_block_that_no_device_has():
    target, x, y = Buffer("out", (1,), F32), TirVar("x"), TirVar("y")
    store = Store(target, (IntImm(0),), const(1.0, F32))
    body = bound(Thread.THREAD_Y, y, 64, bound(Thread.THREAD_X, x, 64, store))
    with pytest.raises(UnsupportedError, match="4096 threads in a block; 256 are the most"):
        split_launches(PrimFunc("f", (target,), 1, body), NO_SHUFFLES)


def test_a_parallel_loop_of_a_length_known_late_runs_on_one_thread():
    target, n, i = Buffer("out", (4, 4), F32), TirVar("n"), TirVar("i")
    store = Store(target, (n, i), const(1.0, F32))
    alone = PrimFunc("f", (target,), 1, For(i, cast(n, INDEX), ForKind.PARALLEL, store))
    (launch,) = split_launches(alone, NO_SHUFFLES)
    assert launch.dims == (1, 1, 1, 1, 1, 1)


def test_pointers_have_an_address_space_and_words_of_the_language_name_no_variable():
    source, target, i = Buffer("half", (4,), F32), Buffer("out", (4,), F32), TirVar("global")
    body = For(i, IntImm(4), ForKind.SERIAL, Store(target, (i,), Load(source, (i,), F32, 1)))
    words = Spelling(
        "opencl", VALUE_TYPES, MEMORY_TYPES, {}, index="int", kernel="__kernel void",
        space="__global ", reserved=frozenset({"half", "global"}),
    )  # fmt: skip
    assert print_kernel(PrimFunc("f", (source, target), 1, body), Functions(words)) == (
        "__kernel void kernel_f(__global const float *restrict half_1,\n"
        "                       __global float *restrict out)\n"
        "{\n"
        "    for (int global_1 = 0; global_1 < 4; ++global_1) {\n"
        "        out[global_1] = half_1[global_1];\n"
        "    }\n"
        "}\n"
    )


N, M = variable("N"), variable("M")


def shared_and_registers(kernel: PrimFunc) -> list[Buffer]:
    return [stmt.buffer for stmt in statements(kernel.body) if isinstance(stmt, Allocate)]


def test_a_product_of_open_sizes_has_tiles_of_known_sizes():
    group = group_of("matmul", (N, M), (M, 40))
    kernel = matmul_product(group, same_types).kernel(tiled(256))
    few, many = split_launches(simplify(flatten_open(kernel)), NO_SHUFFLES)
    for launch in (few, many):
        assert launch.dims[1:] == (1, 1, 256, 1, 1)
        assert {size.name for size in launch.function.sizes} == {"M", "N"}
    for rows, blocks in ((0, (0, 0)), (1, (2, 0)), (32, (2, 0)), (33, (0, 1)), (130, (0, 3))):
        started = [launch.dims[0].evaluate({"N": rows}) for launch in (few, many)]
        assert tuple(started) == blocks
    assert all(isinstance(buffer.elements, int) for buffer in shared_and_registers(kernel))
    assert not kernel.scratch


def test_rows_of_an_open_length_keep_no_row_in_shared_memory():
    group = group_of("nn.softmax", (N, M), axis=1)
    kernel = device_loops("f", stages_of(group.function), NO_SHUFFLES)
    assert all(isinstance(buffer.elements, int) for buffer in shared_and_registers(kernel))
    assert not kernel.scratch
    (launch,) = split_launches(flatten_open(kernel), NO_SHUFFLES)
    assert launch.dims == (N, 1, 1, 128, 1, 1)


def test_blocks_of_a_launch_are_an_expression_that_the_host_computes():
    group = group_of("nn.relu", (N, 5))
    kernel = flatten_open(device_loops("f", stages_of(group.function), NO_SHUFFLES))
    (launch,) = split_launches(simplify(kernel), NO_SHUFFLES)
    assert launch.dims == ((5 * N + 255) // 256, 1, 1, 256, 1, 1)
    assert [size.name for size in launch.function.sizes] == ["N"]


def test_a_parallel_loop_of_an_open_length_is_spread_over_blocks():
    target, i = Buffer("out", (N,), F32), TirVar("i")
    store = Store(target, (i,), const(1.0, F32))
    kernel = PrimFunc("f", (target,), 1, For(i, index(N), ForKind.PARALLEL, store))
    (launch,) = split_launches(flatten_open(kernel), NO_SHUFFLES)
    assert launch.dims == ((N + 255) // 256, 1, 1, 256, 1, 1)


def test_sizes_are_read_back_from_index_arithmetic():
    for size in (3, N, N * M + 2, (N + 3) // 4 % 5, minimum(N, 7), maximum(N - 3, M), N - 2 * M):
        assert size_of(index(size)) == size
    assert size_of(index(N) + TirVar("i")) is None
    assert size_of(TirVar("N")) is None  # a variable of that name, and not the size


def test_a_grid_that_the_kernel_itself_would_have_to_count():
    target, n = Buffer("out", (1,), F32), Buffer("n", (1,), INDEX)
    store = Store(target, (IntImm(0),), const(1.0, F32))
    blocks = Load(n, (IntImm(0),), INDEX, 1)
    body = For(TirVar("b"), blocks, ForKind.BOUND, store, Thread.BLOCK_X)
    with pytest.raises(UnsupportedError, match="how many blocks it has while it runs"):
        split_launches(PrimFunc("f", (n, target), 1, body), NO_SHUFFLES)
