# SPDX-License-Identifier: Apache-2.0
"""Sums of extreme bytes: exact on every instruction set, beside sums of 64 bits by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia_ir.graph.expr import Function, Var, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply

FLAGS = Path("/proc/cpuinfo").read_text()
CPUS = [
    pytest.param(
        cpu, marks=pytest.mark.skipif(flag not in FLAGS, reason=f"this processor has no {flag}")
    )
    for cpu, flag in (
        ("x86-64-v2", "sse4_1"),
        ("haswell", "avx2"),
        ("skylake-avx512", "avx512bw"),
        ("icelake-server", "avx512_vnni"),
        ("x86-64", "sse2"),
    )
]
"""Pairs of 16 bits in vectors of 4, 8 and 16 lanes, VNNI, and pairs without ``pmaddubsw``."""


def every(value: int, shape: tuple[int, ...]) -> np.ndarray:
    """The same everywhere."""
    return np.full(shape, value, np.int8)


def alternating(shape: tuple[int, ...]) -> np.ndarray:
    """-128 and 127 in turn."""
    count = int(np.prod(shape))
    return np.resize(np.array([-128, 127], np.int8), count).reshape(shape)


def few(shape: tuple[int, ...]) -> np.ndarray:
    """Small weights, and a pair here and there whose products pass 16 bits together."""
    rng = np.random.default_rng(5)
    made = rng.integers(-64, 65, shape).astype(np.int8)
    made[rng.random(shape) < 0.03] = 127
    made[rng.random(shape) < 0.03] = -128
    return made


def rare(shape: tuple[int, ...]) -> np.ndarray:
    """Small weights, and two pairs whose products pass 16 bits together: these are magnitudes."""
    made = np.random.default_rng(7).integers(-64, 65, shape).astype(np.int8)
    flat = made.reshape(shape[0], -1) if len(shape) == 4 else made.T
    taps = int(np.prod(shape[2:])) if len(shape) == 4 else 1
    flat[3, : 2 * taps], flat[9, -2 * taps :] = 127, -128
    return made


WEIGHTS = {
    "127": lambda shape: every(127, shape),
    "-127": lambda shape: every(-127, shape),
    "-128": lambda shape: every(-128, shape),
    "alternating": alternating,
    "few": few,
    "rare": rare,
}
DATA = {
    "lowest": lambda info, shape: np.full(shape, info.min),
    "highest": lambda info, shape: np.full(shape, info.max),
    "both": lambda info, shape: np.random.default_rng(6).choice([info.min, info.max], shape),
}


def compare(
    name: str, weight: np.ndarray, kind: str, shape: tuple[int, ...], cpu: str,
    wanted: Callable[[np.ndarray], np.ndarray], **attrs: object,
) -> None:  # fmt: skip
    """Compile sums of bytes with constant weights, and run them for all data."""
    data, zero = Var("data", TensorType(shape, DType(kind))), constant(np.zeros((), kind))
    operands = (data, zero, constant(weight), constant(np.zeros((), np.int8)))
    model = IRModule.from_function(Function((data,), apply(name, *operands, **attrs)))
    with intarsia.build(model, f"llvm -mcpu={cpu}").load(threads=1) as executor:
        for title, draw in DATA.items():
            drawn = draw(np.iinfo(kind), shape).astype(kind)
            (found,) = executor.run({"data": drawn}).values()
            np.testing.assert_array_equal(np.asarray(found), wanted(drawn), err_msg=title)


def windows_of(data: np.ndarray, weight: np.ndarray, pad: int, groups: int) -> np.ndarray:
    """A convolution in 64 bits, tap by tap."""
    wide = np.pad(data.astype(np.int64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    own, (outputs, inner, height, width) = len(weight) // groups, weight.shape
    rows, columns = wide.shape[2] - height + 1, wide.shape[3] - width + 1
    total = np.zeros((len(data), outputs, rows, columns), np.int64)
    for output in range(outputs):
        first = output // own * inner
        for y in range(height):
            for x in range(width):
                part = wide[:, first : first + inner, y : y + rows, x : x + columns]
                taps = weight[output, :, y, x].astype(np.int64)
                total[:, output] += np.einsum("nchw,c->nhw", part, taps)
    return total


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(
    ("image", "shape", "groups"),
    [((1, 20, 7, 9), (33, 20, 3, 3), 1), ((2, 64, 5, 5), (48, 64, 1, 1), 1),
     ((1, 16, 6, 6), (16, 8, 3, 3), 2), ((1, 24, 5, 5), (24, 1, 3, 3), 24)],
)  # fmt: skip
def test_convolutions_of_extreme_bytes_are_exact(image, shape, groups, weights, kind, cpu):
    weight, pad = WEIGHTS[weights](shape), shape[2] // 2
    compare(
        "qnn.conv_integer", weight, kind, image, cpu,
        lambda data: windows_of(data, weight, pad, groups),
        strides=(1, 1), padding=((pad, pad),) * 2, dilation=(1, 1), groups=groups,
    )  # fmt: skip


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 640, 33), (29, 65, 40), (9, 4608, 120)])
def test_products_of_extreme_bytes_are_exact(rows, depth, columns, weights, kind, cpu):
    """The last shape has so many weights that tiles take masks from them (``ordered_words.py``)."""
    weight = WEIGHTS[weights]((depth, columns))
    compare(
        "qnn.matmul_integer", weight, kind, (rows, depth), cpu,
        lambda data: data.astype(np.int64) @ weight.astype(np.int64),
    )  # fmt: skip
