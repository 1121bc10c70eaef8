# SPDX-License-Identifier: Apache-2.0
"""Quantized networks of open batch, height, width and length as machine code: bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia_ir.graph.expr import Expr, Function, Var, constant, make_tuple, tensor_type
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import Dim, TensorType, variable
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.evaluate import evaluate
from intarsia_llvm.plugin import rewrite_relay
from intarsia_loops.cpu.int8x4 import Int8x4Dense
from intarsia_runtime.artifact.plan import KernelStep, all_steps
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply

N, H, W = variable("N"), variable("H"), variable("W")
SIZES = [(1, 16, 16), (2, 37, 53), (1, 1, 1), (3, 5, 64), (1, 91, 7)]
KINDS = {"uint8": np.uint8, "int8": np.int8}


def number(value: float, kind: type = np.float32) -> Expr:
    """A scalar."""
    return constant(np.array(value, kind))


def qconv(
    data: Expr,
    shape: tuple[int, ...],
    kind: type,
    *,
    stride: int = 1,
    groups: int = 1,
    bits: int = 8,
) -> Expr:
    """A convolution in 8 bits with a bias, padded so that a stride of 1 keeps the size."""
    rng = np.random.default_rng(sum(shape))
    weight = rng.integers(-(1 << bits - 1), 1 << bits - 1, shape).astype(np.int8)
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


def narrow_network(kind: type) -> IRModule:
    """Weights of 7 bits, of which two products fit 16 bits together."""
    data = Var("data", TensorType((N, 5, H, W), DType(np.dtype(kind).name)))
    first = qconv(data, (37, 5, 3, 3), kind, bits=7)
    return IRModule.from_function(Function((data,), qconv(first, (19, 37, 1, 1), kind, bits=7)))


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


def samples_network(kind: type) -> IRModule:
    """Windows and pixels of samples of one size, of which there is an open number."""
    data = Var("data", TensorType((N, 16, 13, 9), DType(np.dtype(kind).name)))
    wide = qconv(qconv(data, (40, 16, 3, 3), kind, stride=2), (27, 40, 1, 1), kind)
    return IRModule.from_function(Function((data,), qconv(wide, (12, 27, 3, 3), kind)))


def rows_network(kind: type) -> IRModule:
    """A product of some rows of each sample with weights that no first-level cache holds."""
    data = Var("data", TensorType((N, 19, 600), DType(np.dtype(kind).name)))
    weight = np.random.default_rng(2).integers(-128, 128, (600, 300)).astype(np.int8)
    operands = (data, number(3, kind), constant(weight), constant(np.zeros((), np.int8)))
    return IRModule.from_function(Function((data,), apply("qnn.matmul_integer", *operands)))


def sums_network(kind: type, *sizes: int | Dim) -> IRModule:
    """Convolutions without a scale of data whose zero point is a value of the run."""
    data = Var("data", TensorType(sizes, DType(np.dtype(kind).name)))
    zero = Var("zero", TensorType((), DType(np.dtype(kind).name)))
    rank, results = len(sizes) - 2, []
    for shape, stride, groups in (((33, 8, 3), 1, 1), ((8, 1, 5), 2, 8), ((16, 4, 3), 1, 2)):
        shape = (*shape[:2], *shape[2:] * rank)
        weight = np.random.default_rng(sum(shape)).integers(-128, 128, shape).astype(np.int8)
        operands = (data, zero, constant(weight), constant(np.zeros((), np.int8)))
        padding = ((shape[-1] // 2, shape[-1] // 2 + stride - 1),) * rank
        attrs = {"strides": (stride,) * rank, "padding": padding, "dilation": (1,) * rank}
        results.append(apply("qnn.conv_integer", *operands, groups=groups, **attrs))
    return IRModule.from_function(Function((data, zero), make_tuple(results)))


def sums_of_images(kind: type) -> IRModule:
    """Sums of windows of 3x3, of each channel alone with a stride, and in groups."""
    return sums_network(kind, N, 8, H, W)


def sums_of_sounds(kind: type) -> IRModule:
    """The same of one dimension."""
    return sums_network(kind, N, 8, W)


NETWORKS = {
    "sums of images": (sums_of_images, "cpu.qconv cpu.qdepthwise"),
    "sums of sounds": (sums_of_sounds, "cpu.qconv cpu.qdepthwise"),
    "image": (image_network, "cpu.qconv cpu.qdepthwise"),
    "narrow": (narrow_network, "cpu.qconv"),
    "sound": (sound_network, "cpu.qconv"),
    "product": (product_network, "cpu.qdense"),
    "rows of samples": (rows_network, "cpu.qdense"),
    "samples": (samples_network, "cpu.qconv"),
}


@pytest.mark.parametrize(
    "target",
    [
        "llvm",
        "llvm -mcpu=skylake-avx512",
        "llvm -mcpu=haswell",
        "llvm -mcpu=sandybridge",
        "llvm -mcpu=x86-64",
    ],
)
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
        found = executor.run(inputs).values()
        for got, wanted in zip(found, evaluate(model.main, inputs), strict=True):
            np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(1, 8, 9, 11), (2, 8, 30)])
@pytest.mark.parametrize("cpu", ["native", "haswell", "x86-64"])
def test_sums_with_a_zero_point_of_the_run_at_known_sizes(
    cpu: str, sizes: tuple[int, ...], kind: str
) -> None:
    model, info = sums_network(KINDS[kind], *sizes), np.iinfo(KINDS[kind])
    rng = np.random.default_rng(1)
    with intarsia.build(model, f"llvm -mcpu={cpu}").load(threads=1) as executor:
        for zero in (info.min, 3, info.max):
            data = rng.integers(info.min, info.max + 1, sizes).astype(KINDS[kind])
            inputs = {"data": data, "zero": np.array(zero, KINDS[kind])}
            found = executor.run(inputs).values()
            for got, wanted in zip(found, evaluate(model.main, inputs), strict=True):
                np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))


@pytest.mark.parametrize(
    ("rows", "depth", "outputs", "is_ordered"),
    [
        ((N, H), 768, 768, True),  # a sequence
        ((N,), 768, 256, True),  # weights that a cache keeps
        ((N,), 768, 768, False),  # weights that arrive from memory, for one row most likely
        ((1,), 768, 256, False),
        ((5,), 768, 768, True),
    ],
)
def test_products_of_which_words_are_ordered(make_target, rows, depth, outputs, is_ordered) -> None:
    data = Var("data", TensorType((*rows, depth), DType.UINT8))
    weight = np.random.default_rng(3).integers(-128, 128, (depth, outputs)).astype(np.int8)
    operands = (data, number(3, np.uint8), constant(weight), constant(np.zeros((), np.int8)))
    function = Function((data,), apply("qnn.matmul_integer", *operands))
    changed = rewrite_relay(function, make_target(mcpu="haswell"))
    attrs = [node.attrs for node in calls(changed) if isinstance(node.attrs, Int8x4Dense.Attrs)]
    assert [found.is_ordered for found in attrs] == [is_ordered]
