# SPDX-License-Identifier: Apache-2.0
"""Tiles in shared memory, tensor cores, shuffles and vectors against the references."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from intarsia_runtime.dtype import DType

from .running import Module, assert_close, lowered, reference

RNG = np.random.default_rng(11)
BARRIER, COMMIT = "__syncthreads();", "ix_async_commit();"


def numbers(*shape, dtype=np.float32):
    if np.issubdtype(dtype, np.integer):
        return RNG.integers(-9, 10, shape).astype(dtype)
    return RNG.normal(size=shape).astype(dtype)


def conv(data, weight, *, stride=1, pad=0, dilation=1, groups=1, bias=False, dtype=np.float32):
    rank = len(data) - 2
    attrs = {
        "strides": (stride,) * rank,
        "padding": ((pad, pad),) * rank,
        "dilation": (dilation,) * rank,
        "groups": groups,
    }
    inputs = [numbers(*data, dtype=dtype), numbers(*weight, dtype=dtype)]
    inputs += [numbers(weight[0], dtype=dtype)] if bias else []
    return "nn.conv", tuple(inputs), attrs


def product(a, b, *, dtype=np.float32, **attrs):
    return "matmul", (numbers(*a, dtype=dtype), numbers(*b, dtype=dtype)), attrs


def total(shape, axes, name="sum", dtype=np.float32):
    return name, (numbers(*shape, dtype=dtype),), {"axes": axes, "keepdims": False}


CASES = {
    "matmul": product((70, 45), (45, 130)),
    "whole tiles": product((64, 32), (32, 128)),
    "one step": product((64, 16), (16, 64)),
    "large tiles": product((128, 100, 20), (128, 20, 128)),
    "parts of K": product((20, 700), (700, 40)),
    "uneven parts of K": product((70, 1200), (1200, 90)),
    "halves in parts": product((70, 1600), (1600, 80), dtype=np.float16),
    "vectors": product((70, 64), (64, 132)),
    "vectors of halves": product((70, 64), (64, 136), dtype=np.float16),
    "halves along columns": product(
        (3, 40, 72), (64, 40), transpose_a=True, transpose_b=True, dtype=np.float16
    ),
    "128 x 128 of halves": product((64, 200, 72), (64, 72, 128), dtype=np.float16),
    "128 x 64 of halves": product((20, 200, 72), (20, 72, 256), dtype=np.float16),
    "64 x 64 of halves": product((10, 100, 72), (10, 72, 264), dtype=np.float16),
    "32 x 64 of halves": product((10, 60, 72), (10, 72, 264), dtype=np.float16),
    "vectors along columns": product((3, 40, 72), (64, 40), transpose_a=True, transpose_b=True),
    "transposed": product((3, 40, 70), (65, 40), transpose_a=True, transpose_b=True),
    "rows of a batch": product((5, 3, 1, 40), (40, 70)),
    "one matrix for a batch": product((4, 9, 20), (1, 50, 20), transpose_b=True),
    "broadcast batch": product((4, 1, 33, 20), (3, 20, 40)),
    "doubles": product((40, 50), (50, 60), dtype=np.float64),
    "integers": product((40, 50), (50, 60), dtype=np.int32),
    "halves": product((70, 45), (45, 130), dtype=np.float16),
    "bfloat16": product((70, 45), (45, 130), dtype=ml_dtypes.bfloat16),
    "conv": conv((2, 5, 17, 19), (36, 5, 3, 3), pad=1, bias=True),
    "strided conv": conv((1, 16, 20, 20), (64, 16, 3, 3), stride=2, pad=1),
    "dilated groups": conv((2, 8, 15, 15), (32, 4, 3, 3), dilation=2, groups=2),
    "depthwise": conv((1, 12, 14, 14), (12, 1, 3, 3), pad=1, groups=12),
    "pointwise": conv((1, 40, 12, 12), (70, 40, 1, 1)),
    "conv in parts": conv((1, 70, 7, 7), (96, 70, 3, 3), pad=1, bias=True),
    "pointwise vectors": conv((2, 64, 8, 8), (72, 64, 1, 1)),
    "conv 1d": conv((2, 6, 50), (40, 6, 5), pad=2),
    "conv 3d": conv((1, 4, 6, 7, 8), (33, 4, 2, 3, 2)),
    "half conv": conv((1, 8, 12, 12), (33, 8, 3, 3), pad=1, dtype=np.float16),
    "rows by warps": total((40, 700), (1,)),
    "columns": total((700, 40), (0,)),
    "one result": total((37, 3000), (0, 1)),
    "largest": total((5, 5000), (1,), "max"),
    "halves summed": total((9, 600), (1,), dtype=np.float16),
    "any": ("any", (numbers(6, 400) > 2.5,), {"axes": (1,), "keepdims": False}),
    "softmax": ("nn.softmax", (numbers(7, 1000),), {"axis": 1}),
    "long softmax": ("nn.softmax", (numbers(3, 4, 1500),), {"axis": 2}),
    "layer norm": (
        "nn.layer_norm",
        (numbers(2, 5, 300), numbers(300), numbers(300)),
        {"axis": 2},
    ),
    "layer norm of halves": (
        "nn.layer_norm",
        (numbers(7, 40, dtype=np.float16), numbers(40, dtype=np.float16)),
        {"axis": 1},
    ),
    "long vector": ("exp", (numbers(33, 64),), {}),
    "odd vector": ("exp", (numbers(7, 9),), {}),
    "half vector": ("nn.relu", (numbers(4, 4096, dtype=np.float16),), {}),
}


@pytest.fixture(scope="module")
def module(make_target, place):
    options, load = place
    target = make_target(**options)
    return load(target, [lowered(target, *case) for case in CASES.values()])


@pytest.mark.parametrize("number", range(len(CASES)), ids=list(CASES))
def test_agrees_with_the_reference(module, number):
    name, inputs, attrs = list(CASES.values())[number]
    for got, want in zip(module.run(number, *inputs), reference(name, inputs, attrs), strict=True):
        scale = np.abs(want.astype(np.float64)).max() if want.size else 1.0
        kinds = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-5, "float64": 1e-12}
        limit = kinds.get(want.dtype.name, 0.0)
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        error = np.abs(got.astype(np.float64) - want.astype(np.float64)).max()
        assert error <= limit * scale, f"{error} of {scale}"


def kernels_of(module, number):
    """Text of each kernel of a case."""
    found = {}
    for launches in module.modules[number].module.functions:
        for launch in module.source.launches[f"c{number}_{launches.name}"]:
            name = f"kernel_{launch.function.name}"
            found[name] = re.search(rf"{name}\(.*?\n}}\n", module.text, re.DOTALL)[0]
    return found


@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        ("matmul", "__shared__"),
        ("conv", "__shared__"),
        ("vectors", "ix_copy_16("),
        ("vectors of halves", "ix_async_16("),
        ("vectors of halves", "ix_ldmatrix("),
        ("vectors of halves", "ix_ldmatrix_trans("),
        ("vectors along columns", "ix_copy_16("),
        ("pointwise vectors", "ix_copy_16("),
        ("halves", "ix_mma_f16("),
        ("half conv", "ix_mma_f16("),
        ("bfloat16", "ix_mma_bf16("),
        ("rows by warps", "ix_shuffle_down("),
        ("one result", "__syncthreads("),
        ("softmax", "ix_shuffle_down("),
        ("long vector", "ix_copy_16("),
        ("half vector", "ix_copy_16("),
    ],
)
def test_uses_what_the_gpu_is_good_at(module, case, wanted):
    kernels = kernels_of(module, list(CASES).index(case))
    assert any(wanted in text for text in kernels.values()), kernels


@pytest.mark.parametrize("case", ["softmax", "long softmax", "layer norm", "layer norm of halves"])
def test_stages_along_a_row_are_one_kernel(module, case):
    assert len(kernels_of(module, list(CASES).index(case))) == 1


@pytest.mark.parametrize("mode", ["tf32", "bf16"])
def test_float32_on_tensor_cores_only_where_asked(make_target, place, mode):
    case = product((70, 45), (45, 40))
    options, load = place
    strict = make_target(**options)
    assert "ix_mma" not in load(strict, [lowered(strict, *case)]).text
    target = make_target(**options, fpmath_mode=mode)
    module = load(target, [lowered(target, *case)])
    assert f"ix_mma_{mode}(" in module.text
    (got,) = module.run(0, *case[1])
    (want,) = reference(*case)
    error = np.abs(got - want).max() / np.abs(want).max()
    assert 1e-6 < error < {"tf32": 2e-3, "bf16": 1e-2}[mode]


def test_what_follows_a_product_is_in_its_kernel(make_target):
    target = make_target()
    case = product((40, 30), (30, 50))
    function = lowered(target, *case, behind=("nn.relu", "tanh"))
    module = Module(target, [function])
    assert module.text.count("__global__") == 1
    (got,) = module.run(0, *case[1])
    want = np.tanh(np.maximum(reference(*case)[0], 0))
    assert_close(got, want, "fused", 1e-5)


@pytest.mark.parametrize("threads", [64, 1024])
def test_other_blocks(make_target, place, threads):
    """Fewer threads than a tile needs, and more than it takes."""
    options, load = place
    agrees_with_references(make_target(**options, max_threads_per_block=threads), load)


def test_another_gpu(make_target):
    """No tensor cores for bfloat16."""
    agrees_with_references(make_target(arch="sm_75"), Module)


def agrees_with_references(target, load):
    names = ("matmul", "bfloat16", "rows by warps", "one result", "softmax", "long vector")
    cases = [CASES[name] for name in names]
    module = load(target, [lowered(target, *case) for case in cases])
    limit = target.options.max_threads_per_block
    assert all(launch.threads <= limit for _, launch in module.source.kernels)
    for number, case in enumerate(cases):
        for got, want in zip(module.run(number, *case[1]), reference(*case), strict=True):
            scale = np.abs(want.astype(np.float64)).max()
            error = np.abs(got.astype(np.float64) - want.astype(np.float64)).max()
            assert error <= scale * (8e-3 if want.dtype == ml_dtypes.bfloat16 else 1e-5)


def test_every_half_and_its_neighbourhood(make_target, place):
    """Conversions between float16 and float32, bit by bit."""
    options, load = place
    target = make_target(**options)
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    wide = every.astype(np.float32)
    steps = np.array([-4097, -4096, -4095, -1, 0, 1, 4095, 4096, 4097], np.int32)
    near = (wide.view(np.int32)[:, None] + steps).view(np.float32).reshape(-1)
    casts = [
        ("cast", (every,), {"dtype": DType.FLOAT32}),
        ("cast", (near,), {"dtype": DType.FLOAT16}),
    ]
    module = load(target, [lowered(target, *case) for case in casts])
    np.testing.assert_array_equal(module.run(0, every)[0], wide)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(module.run(1, near)[0], near.astype(np.float16))


NEEDED = [(case, BARRIER) for case in ("matmul", "conv", "halves", "one result", "doubles")]
NEEDED += [("halves in parts", wait) for wait in (BARRIER, "ix_async_wait(2);", COMMIT)]


@pytest.mark.parametrize(("case", "wait"), NEEDED)
def test_every_wait_is_needed(make_target, case, wait):
    """A kernel without one of its barriers, or waits for copies, gives wrong numbers."""
    target = make_target()
    name, inputs, attrs = CASES[case]
    function = lowered(target, name, inputs, attrs)
    whole = Module(target, [function])
    (want,) = whole.run(0, *inputs)
    count = whole.text.count(wait)
    assert count >= 1
    for skipped in range(count):

        def without(text, number=skipped):
            parts = text.split(wait)
            return wait.join(parts[: number + 1]) + ";" + wait.join(parts[number + 1 :])

        broken = Module(target, [function], without)
        assert broken.text.count(wait) == count - 1
        (got,) = broken.run(0, *inputs)
        assert not np.allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=1e-2, atol=1e-2
        ), f"{wait} {skipped} of {case} may go"
