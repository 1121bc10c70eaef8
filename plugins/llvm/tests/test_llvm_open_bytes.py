# SPDX-License-Identifier: Apache-2.0
"""Quantized networks of open batch, height, width and length as machine code: bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia_ir.graph.expr import Expr, Function, Var, constant, tensor_type
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.ops.evaluate import evaluate
from intarsia_runtime.artifact.plan import KernelStep
from intarsia_runtime.artifact.plan_walk import all_steps
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply

N, H, W = variable("N"), variable("H"), variable("W")
SIZES = [(1, 16, 16), (2, 37, 53), (1, 1, 1), (3, 5, 64), (1, 91, 7)]
KINDS = {"uint8": np.uint8, "int8": np.int8}


def number(value: float, kind: type = np.float32) -> Expr:
    """A scalar."""
    return constant(np.array(value, kind))


def qconv(data: Expr, shape: tuple[int, ...], kind: type, stride: int = 1, groups: int = 1) -> Expr:
    """A convolution in 8 bits with a bias, padded so that a stride of 1 keeps the size."""
    rng = np.random.default_rng(sum(shape))
    weight = rng.integers(-128, 128, shape).astype(np.int8)
    scales = constant((rng.random(shape[0], np.float32) + 0.5) / 4096)
    zero, bias = kind(3), constant(rng.integers(-999, 999, shape[0]).astype(np.int32))
    rank = len(shape) - 2
    operands = (number(0.1), number(int(zero), kind), constant(weight), scales)
    rest = (constant(np.zeros((), np.int8)), number(0.25), number(int(zero), kind), bias)
    return apply(
        "qnn.conv", data, *operands, *rest, strides=(stride,) * rank,
        padding=((shape[-1] // 2,) * 2,) * rank, dilation=(1,) * rank, groups=groups,
    )  # fmt: skip


def image_network(kind: type) -> IRModule:
    """Windows of 3x3, with a stride, in groups, of each channel alone, and of one element."""
    data = Var("data", TensorType((N, 3, H, W), DType(np.dtype(kind).name)))
    first = qconv(data, (32, 3, 3, 3), kind, stride=2)
    own = qconv(first, (32, 1, 3, 3), kind, groups=32)
    shared = qconv(own, (24, 8, 3, 3), kind, groups=4)
    return IRModule.from_function(Function((data,), qconv(shared, (19, 24, 1, 1), kind)))


def sound_network(kind: type) -> IRModule:
    """One-dimensional windows."""
    data = Var("data", TensorType((N, 5, W), DType(np.dtype(kind).name)))
    return IRModule.from_function(Function((data,), qconv(data, (33, 5, 7), kind)))


def product_network(kind: type) -> IRModule:
    """A product whose left operand has a zero point of the run."""
    data = Var("data", TensorType((N, H, 35), DType(np.dtype(kind).name)))
    zero = Var("zero", TensorType((), DType(np.dtype(kind).name)))
    weight = np.random.default_rng(1).integers(-128, 128, (35, 43)).astype(np.int8)
    operands = (data, zero, constant(weight), constant(np.zeros((), np.int8)))
    return IRModule.from_function(Function((data, zero), apply("qnn.matmul_integer", *operands)))


NETWORKS = {
    "image": (image_network, "cpu.qconv cpu.qdepthwise"),
    "sound": (sound_network, "cpu.qconv"),
    "product": (product_network, "cpu.qdense"),
}


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=skylake-avx512", "llvm -mcpu=haswell"])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_right_at_every_size(target: str, name: str, kind: str, tmp_path: Path) -> None:
    make, wanted_labels = NETWORKS[name]
    model = make(KINDS[kind])
    artifact = intarsia.build(model, target)
    steps = all_steps(artifact.passport.plan.steps)
    labels = " ".join(step.label for step in steps if isinstance(step, KernelStep))
    if target == "llvm" and "vnni" in " ".join(artifact.passport.cpu_features):
        assert all(label in labels for label in wanted_labels.split())
    artifact.save(tmp_path / "net.intarsia")
    try:
        executor = intarsia.load(tmp_path / "net.intarsia")
    except intarsia.ArtifactError as error:
        pytest.skip(str(error))
    for sizes in SIZES:
        known = dict(zip("NHW", sizes, strict=True))
        rng = np.random.default_rng(sizes[1])
        inputs = {}
        for param in model.main.params:
            shape = [known.get(str(size), size) for size in tensor_type(param).shape]
            info = np.iinfo(KINDS[kind])
            inputs[param.name] = rng.integers(info.min, info.max + 1, shape).astype(KINDS[kind])
        (got,) = executor.run(inputs).values()
        (wanted,) = evaluate(model.main, inputs)
        np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))
