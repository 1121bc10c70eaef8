# SPDX-License-Identifier: Apache-2.0
"""Groups that differ in the expressions of their open sizes alone are one kernel."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia_ir.graph.expr import Expr, Function, Var, constant, tensor_type
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.ops.slicing import TO_END
from intarsia_ir.tir.forward import forwarded
from intarsia_llvm.emit.module import emit_module
from intarsia_llvm.lowering import lower_function
from intarsia_llvm.target import LlvmOptions, machine
from intarsia_loops.targets import LoopTarget
from intarsia_runtime.artifact.archive import open_artifact
from intarsia_runtime.dtype import DType
from intarsia_runtime.executors.open import OpenExecutor
from intarsia_runtime.program import LoadedProgram
from intarsia_testkit.expressions import apply

B, H, W = variable("B"), variable("H"), variable("W")
SIZES = ((1, 16, 16), (2, 9, 31), (1, 1, 1), (3, 40, 2))
POOL = {"kernel": (2, 2), "strides": (2, 2), "padding": ((0, 1), (0, 1)), "dilation": (1, 1)}


def taps(channels: int) -> Expr:
    """Weights of a 3x3 convolution, the same ones each time."""
    rng = np.random.default_rng(channels)
    return constant((rng.random((channels, channels, 3, 3), np.float32) - 0.5) / 4)


def layer(data: Expr, weight: Expr) -> Expr:
    """A convolution that keeps the size, and what follows it."""
    same = ((1, 1), (1, 1))
    attrs = {"strides": (1, 1), "padding": same, "dilation": (1, 1), "groups": 1}
    return apply("nn.relu", apply("nn.conv", data, weight, **attrs))


def pyramid(levels: int) -> IRModule:
    """Equal layers on images of half the size of the one before."""
    data = Var("data", TensorType((B, 8, H, W), DType.FLOAT32))
    value: Expr = data
    for _ in range(levels):
        value = apply("nn.max_pool", layer(value, taps(8)), **POOL)
    return IRModule.from_function(Function((data,), value))


def given(size: tuple[int, int, int]) -> dict[str, np.ndarray]:
    """An image batch."""
    rng = np.random.default_rng(sum(size))
    return {"data": rng.standard_normal((size[0], 8, *size[1:])).astype(np.float32)}


def test_equal_layers_of_other_sizes_are_one_kernel(tmp_path: Path) -> None:
    model = pyramid(3)
    intarsia.build(model, "llvm").save(tmp_path / "net.intarsia")
    with intarsia.load(tmp_path / "net.intarsia", threads=1) as executable:
        for size in SIZES:
            (wanted,) = evaluate(model.main, given(size), model)
            (found,) = executable.run(given(size)).values()
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_profiles_call_the_forward_of_each_step(tmp_path: Path) -> None:
    intarsia.build(pyramid(3), "llvm").save(tmp_path / "net.intarsia")
    program = LoadedProgram(open_artifact(tmp_path / "net.intarsia"), 1)
    rows = OpenExecutor(program).profile(given((2, 9, 31)), 2)
    assert len([row for row in rows if "relu" in str(row)]) == 3


@pytest.fixture
def target() -> LoopTarget[object]:
    return intarsia.Target("llvm -mcpu=haswell").fallback


def test_a_forward_passes_what_the_sizes_are(target: LoopTarget[object]) -> None:
    functions = lower_function(pyramid(2).main, target=target).module.functions
    calls = {f.name: forwarded(f) for f in functions if forwarded(f) is not None}
    shared = set(calls.values())
    assert len(calls) == 2 * len(shared)
    for function in functions:
        if function.name in shared:
            assert {size.name for size in function.sizes} >= {"size0", "size1"}
        if function.name in calls:
            assert {size.name for size in function.sizes} <= {"B", "H", "W", "<threads>"}


def test_a_kernel_alone_has_no_forward(target: LoopTarget[object]) -> None:
    functions = lower_function(pyramid(1).main, target=target).module.functions
    assert not any(map(forwarded, functions))


def chain(*channels: int, groups: bool = False) -> IRModule:
    """Layers of several channels on one image, 1x1 between depthwise ones where asked for."""
    data = Var("data", TensorType((B, channels[0], H, W), DType.FLOAT32))
    value: Expr = data
    rng = np.random.default_rng(len(channels))
    for before, count in pairwise(channels):
        kernel, padding = ((1, 1), ((0, 0), (0, 0))) if groups else ((3, 3), ((1, 1), (1, 1)))
        attrs = {"strides": (1, 1), "padding": padding, "dilation": (1, 1), "groups": 1}
        taps = constant((rng.random((count, before, *kernel), np.float32) - 0.5) / before)
        value = apply("nn.relu", apply("nn.conv", value, taps, **attrs))
        if groups:
            own = {"padding": ((1, 1), (1, 1)), "strides": (1, 1), "dilation": (1, 1)}
            taps = constant(rng.random((count, 1, 3, 3), np.float32) - 0.5)
            value = apply("tanh", apply("nn.conv", value, taps, groups=count, **own))
    return IRModule.from_function(Function((data,), value))


@pytest.mark.parametrize("groups", [False, True])
def test_layers_of_other_channels_are_one_kernel(
    tmp_path: Path, target: LoopTarget[object], groups: bool
) -> None:
    model = chain(16, 32, 64, 96, 128, groups=groups)
    functions = lower_function(model.main, target=target).module.functions
    calls = {f.name: forwarded(f) for f in functions if forwarded(f) is not None}
    for operators in {"nn_conv_nn_relu", "nn_conv_tanh" if groups else "nn_conv_nn_relu"}:
        alike = {kernel for kernel in calls if kernel.startswith(operators)}
        assert len(alike) == 4
        assert len({calls[kernel] for kernel in alike}) == 1
    intarsia.build(model, "llvm").save(tmp_path / "net.intarsia")
    with intarsia.load(tmp_path / "net.intarsia", threads=1) as executable:
        for batch, height, width in SIZES:
            data = {"data": np.ones((batch, 16, height, width), np.float32)}
            data["data"] *= np.random.default_rng(1).random(data["data"].shape, np.float32)
            (wanted,) = evaluate(model.main, data, model)
            (found,) = executable.run(data).values()
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_groups_that_state_a_size_keep_their_kernels(target: LoopTarget[object]) -> None:
    data = Var("data", TensorType((B, W), DType.FLOAT32))
    first = apply("broadcast_to", apply("mean", data, axes=(1,), keepdims=True), shape=(B, W))
    second = apply("broadcast_to", apply("mean", data, axes=(1,), keepdims=True), shape=(B, W + 1))
    function = Function((data,), apply("concatenate", first, second, axis=1))
    assert tensor_type(function.body).shape == (B, 2 * W + 1)
    functions = lower_function(function, target=target).module.functions
    stated = [f for f in functions if "broadcast" in f.name]
    assert stated
    assert not any(map(forwarded, stated))


def test_wrappers_are_for_forwards_and_not_for_what_they_share(
    target: LoopTarget[LlvmOptions],
) -> None:
    module = lower_function(pyramid(2).main, target=target).module
    text = emit_module(module, machine(target.options), 1)
    exported = set(re.findall(r"define i32 @__tvm_ffi_(\w+)", text)) - {"main"}
    assert exported == {f.name for f in module.functions} - {forwarded(f) for f in module.functions}


def test_an_empty_part_of_an_open_row_keeps_no_size_of_the_group() -> None:
    """Elements of (0, W) are 0 whatever W is: the model knows no size0, its variable."""
    params = [
        Var(name, TensorType((4, size), DType.FLOAT32))
        for name, size in zip("hw", (H, W), strict=True)
    ]
    empty = {"begin": (0, 0), "end": (0, TO_END), "strides": (1, 1)}
    joined = [
        apply("concatenate", apply("strided_slice", x, **empty), apply("exp", x), axis=0)
        for x in params
    ]
    model = IRModule.from_function(Function(tuple(params), apply("concatenate", *joined, axis=1)))
    with intarsia.build(model, "llvm").load(threads=1) as executable:
        for _, height, width in SIZES:
            feeds = {"h": np.ones((4, height), np.float32), "w": np.zeros((4, width), np.float32)}
            (wanted,) = evaluate(model.main, feeds, model)
            (found,) = executable.run(feeds).values()
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
