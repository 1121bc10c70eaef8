# SPDX-License-Identifier: Apache-2.0
"""Bits that are read as another element type, against views of arrays."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_ir.tir.expr import FloatImm, intrinsic
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import VerifyError

PAIRS = [
    *(("float16", "uint16"), ("float16", "int16"), ("bfloat16", "int16"), ("int16", "bfloat16")),
    *(("uint16", "float16"), ("float16", "bfloat16"), ("float32", "int32"), ("uint32", "float32")),
    *(("float64", "uint64"), ("int64", "float64"), ("int8", "uint8"), ("int64", "uint64")),
    *(("bool", "int8"), ("float32", "float32")),
]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_bits_stay(check_operator, source, target) -> None:
    """All numbers of 16 bits but signaling NaN, whose kind a processor changes; some of others."""
    kind = np.dtype(ml_dtypes.bfloat16) if source == "bfloat16" else np.dtype(source)
    raw = np.random.default_rng(3).integers(0, 1 << 63, 100, np.uint64) * np.uint64(2)
    raw = raw.astype(f"u{kind.itemsize}")
    if kind.itemsize == 2:
        raw = np.arange(1 << 16).astype(np.uint16)
        for name in (source, target):
            if name.endswith("float16"):
                mask = 0x7C00 if name == "float16" else 0x7F80
                raw = raw[((raw & mask) != mask) | ((raw & (0x7FFF ^ mask)) == 0)]
    x = raw % 2 == 1 if source == "bool" else raw.view(kind)
    wanted = x.view(numpy_dtype(DType(target)))
    check_operator(wanted, "bitcast", x, dtype=DType(target))


def test_bits_of_what_has_no_type_of_its_width() -> None:
    with pytest.raises(VerifyError, match="'bits' of float16 has no meaning"):
        intrinsic(Intrinsic.BITS, FloatImm(1.0, DType.FLOAT16))
