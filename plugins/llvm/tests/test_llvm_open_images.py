# SPDX-License-Identifier: Apache-2.0
"""A convolution network of open batch, height and width as machine code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia_ir.graph.expr import Expr, Function, Var, constant, tensor_type
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.artifact.archive import open_artifact
from intarsia_runtime.artifact.plan import THREADS
from intarsia_runtime.artifact.plan_sizes import slot_offsets
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ModelError
from intarsia_runtime.executors.open import OpenExecutor
from intarsia_runtime.program import LoadedProgram
from intarsia_runtime.size import Size
from intarsia_testkit.expressions import apply

N, C, H, W = variable("N"), variable("C"), variable("H"), variable("W")
SIZES = [(1, 32, 32), (2, 37, 53), (1, 1, 1), (3, 5, 64), (1, 91, 7)]


def weight(*shape: int) -> Expr:
    """A constant."""
    rng = np.random.default_rng(sum(shape))
    return constant((rng.random(shape, np.float32) - 0.5) / 4)


def conv(data: Expr, taps: Expr, stride: int = 1, groups: int = 1) -> Expr:
    """A convolution with a bias, padded so that a stride of 1 keeps the size."""
    outputs, _, kernel, _ = tensor_type(taps).static_shape
    pad = kernel // 2
    bias = weight(outputs)
    both = ((pad, pad), (pad, pad))
    attrs = {"strides": (stride, stride), "padding": both, "dilation": (1, 1), "groups": groups}
    return apply("nn.relu", apply("nn.conv", data, taps, bias, **attrs))


def network(batch: Size = N, height: Size = H, width: Size = W) -> IRModule:
    """A first layer, an inverted residual, a convolution of 3x3, a pool and a classifier."""
    data = Var("data", TensorType((batch, 3, height, width), DType.FLOAT32))
    first = conv(data, weight(32, 3, 3, 3), stride=2)
    wide = conv(first, weight(72, 32, 1, 1))
    own = conv(wide, weight(72, 1, 3, 3), groups=72)
    added = apply("add", conv(own, weight(32, 72, 1, 1)), first)
    deep = conv(added, weight(40, 32, 3, 3))
    window = {"kernel": (3, 3), "strides": (2, 2), "padding": ((1, 1), (1, 1))}
    pooled = apply("nn.max_pool", deep, dilation=(1, 1), **window)
    mean = apply("mean", pooled, axes=(2, 3))
    return IRModule.from_function(Function((data,), apply("matmul", mean, weight(40, 10))))


def test_a_network_runs_at_every_size(tmp_path: Path) -> None:
    model = network()
    intarsia.build(model, "llvm").save(tmp_path / "net.intarsia")
    executor = intarsia.load(tmp_path / "net.intarsia")
    for n, h, w in SIZES:
        data = np.random.default_rng(h).random((n, 3, h, w), np.float32)
        (got,) = executor.run({"data": data}).values()
        (wanted,) = evaluate(model.main, {"data": data})
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("inner", "outputs"), [(5, 3), (64, 40), (700, 20)])
def test_a_single_1x1_convolution_is_a_product_at_every_size(
    tmp_path: Path, inner: int, outputs: int
) -> None:
    data = Var("data", TensorType((N, inner, H, W), DType.FLOAT32))
    model = IRModule.from_function(Function((data,), conv(data, weight(outputs, inner, 1, 1))))
    intarsia.build(model, "llvm").save(tmp_path / "net.intarsia")
    rng = np.random.default_rng(3)
    with intarsia.load(tmp_path / "net.intarsia", threads=2) as executable:
        for n, h, w in [*SIZES, (1, 3, 7), (2, 4, 4), (1, 7, 7), (0, 4, 4), (1, 64, 64)]:
            given = {"data": rng.random((n, inner, h, w), np.float32)}
            (wanted,) = evaluate(model.main, given)
            (found,) = executable.run(given).values()
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_depth_becomes_space_where_channels_are_open(tmp_path: Path) -> None:
    data = Var("data", TensorType((1, C, H, W), DType.FLOAT32))
    model = IRModule.from_function(Function((data,), apply("nn.depth_to_space", data, block=2)))
    intarsia.build(model, "llvm").save(tmp_path / "net.intarsia")
    executor = intarsia.load(tmp_path / "net.intarsia")
    for channels, (_, h, w) in zip((4, 12, 20), SIZES, strict=False):
        values = np.random.default_rng(h).random((1, channels, h, w), np.float32)
        (got,) = executor.run({"data": values}).values()
        (wanted,) = evaluate(model.main, {"data": values})
        np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))
    with pytest.raises(ModelError, match="must divide the channels: C % 4 is 2, not 0"):
        executor.run({"data": np.zeros((1, 6, 2, 2), np.float32)})


def test_depth_becomes_space_at_every_size(tmp_path: Path) -> None:
    data = Var("data", TensorType((N, 9, H, W), DType.FLOAT32))
    picture = apply("nn.depth_to_space", data, block=3)
    model = IRModule.from_function(Function((data,), apply("nn.relu", picture)))
    intarsia.build(model, "llvm").save(tmp_path / "net.intarsia")
    executor = intarsia.load(tmp_path / "net.intarsia")
    for n, h, w in SIZES:
        values = np.random.default_rng(h).random((n, 9, h, w), np.float32) - 0.5
        (got,) = executor.run({"data": values}).values()
        (wanted,) = evaluate(model.main, {"data": values})
        np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))


@pytest.mark.parametrize("threads", [1, 2])
def test_memory_is_that_of_a_plan_for_the_sizes_alone(tmp_path: Path, threads: int) -> None:
    intarsia.build(network(), "llvm").save(tmp_path / "open.intarsia")
    program = LoadedProgram(open_artifact(tmp_path / "open.intarsia"), threads)
    executor = OpenExecutor(program)
    assert program.open is not None
    for n, h, w in [(1, 32, 32), (1, 64, 96), (2, 150, 130)]:
        data = np.random.default_rng(h).random((n, 3, h, w), np.float32)
        intarsia.build(network(n, h, w), "llvm").save(tmp_path / "alone.intarsia")
        least = open_artifact(tmp_path / "alone.intarsia").passport.plan.workspace_bytes
        executor.run([data])
        (reserved,) = [memory.nbytes for memory in program.open.workspaces]
        assert reserved <= 1.15 * least, (n, h, w)


def test_threads_reserve_no_strips_of_sound(tmp_path: Path) -> None:
    data = Var("data", TensorType((N, 32, W), DType.FLOAT32))
    attrs = {"strides": (1,), "padding": ((5, 5),), "dilation": (5,), "groups": 1}
    taps = weight(32, 32, 3)
    model = IRModule.from_function(Function((data,), apply("nn.conv", data, taps, **attrs)))
    intarsia.build(model, "llvm").save(tmp_path / "net.intarsia")
    sizes = open_artifact(tmp_path / "net.intarsia").passport.plan.open
    assert sizes is not None
    for threads in (1, 2):
        reserved = slot_offsets(sizes, {"N": 1, "W": 5000, THREADS: threads})[1]
        assert reserved == 2 * 4 * 32 * 5000  # the data and the result, channels last
    executor = intarsia.load(tmp_path / "net.intarsia", threads=2)
    for n, w in [(1, 1), (2, 504), (1, 512), (1, 1711)]:  # one strip, several, the last overlaps
        values = np.random.default_rng(w).random((n, 32, w), np.float32)
        (got,) = executor.run({"data": values}).values()
        (wanted,) = evaluate(model.main, {"data": values})
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-4, atol=1e-4)


def test_a_strip_is_as_large_as_its_share_of_an_image(tmp_path: Path) -> None:
    data = Var("data", TensorType((N, 96, H, W), DType.FLOAT32))
    body = conv(data, weight(8, 96, 3, 3), stride=2)
    model = IRModule.from_function(Function((data,), body))
    intarsia.build(model, "llvm").save(tmp_path / "net.intarsia")
    sizes = open_artifact(tmp_path / "net.intarsia").passport.plan.open
    assert sizes is not None
    one, two = (
        slot_offsets(sizes, {"N": 1, "H": 64, "W": 32, THREADS: threads})[1] for threads in (1, 2)
    )
    assert 0 < two - one <= 4 * 96 * 9 * 33 + 64  # rows that 4 rows of results read
    executor = intarsia.load(tmp_path / "net.intarsia", threads=2)
    # Rows in one piece and in two, few and many images: all have strips of another height.
    for n, h, w in [(1, 64, 32), (1, 5, 700), (2, 37, 500), (9, 33, 30), (1, 90, 401)]:
        values = np.random.default_rng(w).random((n, 96, h, w), np.float32)
        (got,) = executor.run({"data": values}).values()
        (wanted,) = evaluate(model.main, {"data": values})
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-3, atol=1e-3)


def test_groups_of_tiles_share_large_weights_at_every_size(tmp_path: Path) -> None:
    data = Var("data", TensorType((N, 160, H, W), DType.FLOAT32))
    model = IRModule.from_function(Function((data,), conv(data, weight(160, 160, 3, 3))))
    intarsia.build(model, "llvm").save(tmp_path / "net.intarsia")
    assert "winograd" in open_artifact(tmp_path / "net.intarsia").passport.plan.steps[1].label
    executor = intarsia.load(tmp_path / "net.intarsia", threads=2)
    # Fewer tiles than a group, one group and small ones, an overlap, several bands.
    for n, h, w in [(1, 1, 1), (1, 7, 9), (1, 13, 17), (3, 8, 7), (1, 60, 44)]:
        values = np.random.default_rng(h).random((n, 160, h, w), np.float32)
        (got,) = executor.run({"data": values}).values()
        (wanted,) = evaluate(model.main, {"data": values})
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("cpu", ["native", "haswell"])
def test_images_stay_channels_last_between_convolutions(tmp_path: Path, cpu: str) -> None:
    """Wide depthwise windows, the model's own transposes around a product, repeated pixels."""
    data = Var("data", TensorType((N, 3, H, W), DType.FLOAT32))
    first = conv(data, weight(72, 3, 3, 3))
    own = conv(first, weight(72, 1, 7, 7), groups=72)
    rows = apply("matmul", apply("transpose", own, axes=(0, 2, 3, 1)), weight(72, 72))
    added = apply("add", apply("transpose", rows, axes=(0, 3, 1, 2)), first)
    single = apply("reshape", added, shape=extents((N, 72, H, 1, W, 1)))
    repeated = apply("broadcast_to", single, shape=extents((N, 72, H, 2, W, 2)))
    larger = apply("reshape", repeated, shape=extents((N, 72, H * 2, W * 2)))
    body = conv(larger, weight(9, 72, 1, 1))
    model = IRModule.from_function(Function((data,), body))
    intarsia.build(model, f"llvm -mcpu={cpu}").save(tmp_path / "net.intarsia")
    executor = intarsia.load(tmp_path / "net.intarsia")
    for n, h, w in [(1, 7, 7), (2, 1, 1), (1, 5, 2), (1, 3, 6), (2, 9, 14), (1, 2, 31)]:
        values = np.random.default_rng(w).random((n, 3, h, w), np.float32)
        (got,) = executor.run({"data": values}).values()
        (wanted,) = evaluate(model.main, {"data": values})
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-4, atol=1e-4)
