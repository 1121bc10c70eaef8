# SPDX-License-Identifier: Apache-2.0
"""Tables of 256 bytes: vectors of bytes are looked up in them at once on AVX-512."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from intarsia_ir.graph.expr import Expr, Function, Var, constant
from intarsia_ir.graph.types import TensorType
from intarsia_llvm.codegen import llvm_text
from intarsia_llvm.lowering import lower_function
from intarsia_runtime.dtype import DType

from .test_llvm_quantized import apply, byte_array, check, conv, given, linear, scalar

FLAGS = Path("/proc/cpuinfo").read_text()
CPUS = [
    pytest.param(
        cpu, marks=pytest.mark.skipif(flag not in FLAGS, reason=f"this processor has no {flag}")
    )
    for cpu, flag in (
        ("native", "sse2"),
        ("icelake-server", "avx512vbmi"),
        ("skylake-avx512", "avx512bw"),
        ("haswell", "avx2"),
    )
]
TYPES = [("uint8", "uint8"), ("int8", "int8"), ("uint8", "int8"), ("int8", "uint8")]


def looked_up(x: Expr, dtype: str) -> Expr:
    table = np.random.default_rng(3).permutation(256).astype(np.uint8).view(dtype)
    return apply("qnn.lookup", x, constant(table))


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(("dtype", "other"), TYPES)
def test_every_byte_is_looked_up_in_rows_of_any_length(runner, cpu, dtype, other):
    for shape in ((256,), (7,), (16,), (33,), (3, 63), (2, 65), (5, 130), (9, 3), (4, 16, 70)):
        x = Var("x", TensorType(shape, DType(dtype)))
        array = np.resize(np.arange(256, dtype=np.uint8).view(dtype), shape)
        table = np.random.default_rng(3).permutation(256).astype(np.uint8).view(other)
        (got,), _, _ = runner(Function((x,), looked_up(x, other)), array, mcpu=cpu)
        np.testing.assert_array_equal(got, table[array.astype(int) - np.iinfo(dtype).min])


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("channels", [8, 17, 64])
def test_a_table_ends_a_convolution(runner, cpu, dtype, channels):
    x = given(1, 8, 9, 11, dtype=DType(dtype))
    value = conv(x, byte_array("int8", channels, 8, 3, 3))
    check(runner, looked_up(value, dtype), x, cpu, apart=0)


@pytest.mark.parametrize("cpu", CPUS)
def test_a_table_ends_a_product_whose_results_become_floats(runner, cpu):
    x = given(37, 64)
    value = looked_up(linear("qnn.matmul", x, byte_array("int8", 64, 40), 40), "int8")
    body = apply("qnn.dequantize", value, scalar(0.5), scalar(3, "int8"))
    check(runner, body, x, cpu)


@pytest.mark.parametrize(
    ("cpu", "function"),
    [
        ("icelake-server", "vpermi2var.qi.512"),
        ("znver4", "vpermi2var.qi.512"),
        ("cooperlake", "vpermi2var.hi.512"),
        ("skylake-avx512", "vpermi2var.hi.512"),
        ("haswell", None),
    ],
)
def test_bytes_are_picked_by_the_widest_instruction(make_target, cpu, function):
    x = given(4, 64, dtype=DType.INT8)
    target = make_target(mcpu=cpu, mtriple="x86_64-unknown-linux-gnu")
    module = lower_function(Function((x,), looked_up(x, "uint8")), (), target=target).module
    text = llvm_text(module, target.options)
    assert ("vpermi2var" in text) is (function is not None)
    assert function is None or text.count(f"call <{64 if 'qi' in function else 32} x") >= 2
    assert function is None or function in text
