# SPDX-License-Identifier: Apache-2.0
"""What the printer of the C family refuses, with C's own spelling table."""

from __future__ import annotations

import pytest

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import (
    INDEX,
    Binary,
    BinaryOp,
    CallTarget,
    Load,
    PrimExpr,
    Ramp,
    Read,
    TirVar,
    cast,
    index,
    intrinsic,
)
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.stmt import Store
from intarsia_ir.tir.tensor import placeholder
from intarsia_loops.codegen.c_functions import Functions
from intarsia_loops.codegen.c_source import print_kernel
from intarsia_loops.codegen.lanes import lane_of
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError, VerifyError


def refused(value: PrimExpr, *buffers: Buffer) -> None:
    y = Buffer("y", (1,), DType.FLOAT32)
    function = PrimFunc("k", (*buffers, y), 1, Store(y, (index(0),), value))
    spelling = pytest.importorskip("intarsia_c.spelling", reason="the spelling table of C").C99
    print_kernel(function, Functions(spelling))


def test_what_has_no_spelling_is_refused() -> None:
    x = Buffer("x", (1,), DType.FLOAT32)
    one = Load(x, (index(0),), DType.FLOAT32, 1)
    with pytest.raises(UnsupportedError, match="no function 'system' of 'c'"):
        refused(CallTarget("c", "system", (one,), DType.FLOAT32, 1), x)
    with pytest.raises(UnsupportedError, match="no function 'expf' of 'other'"):
        refused(CallTarget("other", "expf", (one,), DType.FLOAT32, 1), x)
    with pytest.raises(UnsupportedError, match="has no meaning"):
        refused(Binary(BinaryOp.AND, one, one, DType.FLOAT32, 1), x)
    with pytest.raises(VerifyError, match="outside its loop"):
        refused(cast(TirVar("lost"), DType.FLOAT32))
    with pytest.raises(VerifyError, match="outside its allocation"):
        refused(one)
    with pytest.raises(VerifyError, match="2 indices"):
        refused(Load(x, (index(0), index(0)), DType.FLOAT32, 1), x)
    with pytest.raises(VerifyError, match="never lowered"):
        refused(Read(placeholder("t", (1,), DType.FLOAT32), (index(0),), DType.FLOAT32))
    with pytest.raises(UnsupportedError, match="intrinsic 'sqrt' of int64"):
        refused(cast(intrinsic(Intrinsic.SQRT, index(4)), DType.FLOAT32))
    with pytest.raises(VerifyError, match="a vector stands where"):
        refused(Load(x, (Ramp(index(0), 1, 4),), DType.FLOAT32, 4), x)
    with pytest.raises(VerifyError, match="'v' is a vector"):
        lane_of(TirVar("v", INDEX, 4), index(0))
