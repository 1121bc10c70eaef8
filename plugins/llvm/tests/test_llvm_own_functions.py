# SPDX-License-Identifier: Apache-2.0
"""LLVM's own functions in loops, and what LLVM says it knows."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from intarsia.driver.stages import compile_kernels
from intarsia.host.host import Host
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import INDEX, IntImm, Load, TirVar
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import TensorModule
from intarsia_ir.tir.stmt import For, ForKind, Store
from intarsia_ir.tir.target_call import call_target_intrinsic
from intarsia_llvm import processors as listing
from intarsia_llvm.functions import FUNCTIONS, PREFETCH, target_function
from intarsia_llvm.target import LlvmOptions
from intarsia_runtime.artifact.plan import CallPlan
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TargetError, ToolchainError, UnsupportedError, VerifyError

CASES = {
    "llvm.fma": lambda a, b, c: a * b + c,
    "llvm.copysign": np.copysign,
    "llvm.minnum": np.minimum,
    "llvm.maxnum": np.maximum,
    "llvm.fabs": np.abs,
    "llvm.sqrt": np.sqrt,
    "llvm.roundeven": np.round,
    "llvm.floor": np.floor,
    "llvm.ceil": np.ceil,
    "llvm.trunc": np.trunc,
}


def kernel(name, *dtypes, result=None):
    """One loop that calls a function of LLVM on elements of the inputs."""
    inputs = [Buffer(f"x{n}", (8,), dtype) for n, dtype in enumerate(dtypes)]
    i = TirVar("i", INDEX)
    args = [Load(x, (i,), x.dtype, 1) for x in inputs]
    call = call_target_intrinsic("llvm", name, *args, dtype=result)
    out = Buffer("y", (8,), call.dtype)
    return PrimFunc(
        "k", (*inputs, out), 1, For(i, IntImm(8), ForKind.SERIAL, Store(out, (i,), call))
    )


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_real_functions_compute(load_module, name, dtype):
    signature = target_function(name)
    rng = np.random.default_rng(7)
    arrays = [
        (4 * rng.random(8) + (0.0 if name == "llvm.sqrt" else -2.0)).astype(str(dtype))
        for _ in range(signature.arguments)
    ]
    got = np.zeros(8, str(dtype))
    load_module([kernel(name, *[dtype] * signature.arguments)]).get_function("k")(*arrays, got)
    np.testing.assert_allclose(got, CASES[name](*arrays), rtol=1e-6)


@pytest.mark.parametrize("name", ["llvm.ctpop", "llvm.ctlz", "llvm.cttz", "llvm.bswap"])
def test_bits_are_counted(load_module, name):
    data = np.array([1, 2, 3, 4, 255, 256, 65535, 2**31 - 1], np.int32)
    words = [f"{value:032b}" for value in data.tolist()]
    expected = {
        "llvm.ctpop": [word.count("1") for word in words],
        "llvm.ctlz": [len(word) - len(word.lstrip("0")) for word in words],
        "llvm.cttz": [len(word) - len(word.rstrip("0")) for word in words],
        "llvm.bswap": data.byteswap().tolist(),
    }[name]
    got = np.zeros(8, np.int32)
    load_module([kernel(name, DType.INT32)]).get_function("k")(data, got)
    assert got.tolist() == expected


def test_bits_become_another_type(load_module):
    data = np.linspace(-3, 3, 8).astype(np.float32)
    got = np.zeros(8, np.int32)
    load_module([kernel("llvm.bitcast", DType.FLOAT32, result=DType.INT32)]).get_function("k")(
        data, got
    )
    assert got.tolist() == data.view(np.int32).tolist()
    load_module([kernel("llvm.fptosi", DType.FLOAT32, result=DType.INT32)]).get_function("k")(
        data, got
    )
    assert got.tolist() == np.trunc(data).astype(np.int32).tolist()


@pytest.mark.parametrize(
    "function, error, message",
    [
        (kernel("llvm.rm", DType.FLOAT32), UnsupportedError, "'llvm' has no function 'llvm.rm'"),
        (kernel("llvm.fma", DType.FLOAT32), VerifyError, "takes 3 arguments, not 1"),
        (kernel("llvm.sqrt", DType.INT32), VerifyError, "'llvm.sqrt' does not take int32"),
        (kernel("llvm.bswap", DType.INT8), VerifyError, "'llvm.bswap' does not take int8"),
    ],
)
def test_a_build_refuses_what_llvm_has_not(function, error, message):
    plan = CallPlan((), (), (), (), 0, ())
    host = Host()
    target = host.target("llvm").fallback
    with pytest.raises(error, match=message):
        compile_kernels(host, TensorModule((function,), plan), target)


def test_every_function_is_known_by_name():
    assert all(target_function(name) is signature for name, signature in FUNCTIONS.items())
    assert target_function("llvm.memcpy") is None
    assert PREFETCH in FUNCTIONS


@pytest.mark.parametrize(
    "triple, processors, features",
    [
        ("aarch64-unknown-linux-gnu", {"cortex-a72", "neoverse-v1"}, {"+sve", "+dotprod"}),
        ("x86_64-unknown-linux-gnu", {"skylake-avx512", "znver3"}, {"+avx2", "+avx512f"}),
        ("riscv64-unknown-linux-gnu", {"sifive-u74"}, {"+v"}),
    ],
)
def test_llvm_lists_what_it_knows(triple, processors, features):
    options = LlvmOptions(mtriple=triple)
    listed = listing.known_values("mcpu", options)
    assert processors <= {row.value for row in listed.rows}
    assert listed.source.endswith(f"for {triple}")
    assert listed.machine
    assert processors <= {row.value for row in listing.known_values("mtune", options).rows}
    assert features <= {row.value for row in listing.known_values("mattr", options).rows}


def test_a_triple_that_llvm_does_not_know():
    with pytest.raises(TargetError, match="-mtriple: LLVM does not know 'zzz'"):
        listing.known_values("mcpu", LlvmOptions(mtriple="zzz"))


@pytest.mark.parametrize(
    "text, message",
    [
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a73x", "(?s)'cortex-a73x'.*did you mean"),
        ("llvm -mtriple=aarch64-linux-gnu -mtune=zzz", "(?s)no processor 'zzz'.*--values mtune"),
        (
            "llvm -mtriple=x86_64-linux-gnu -mattr=+nosuch",
            "(?s)no feature 'nosuch' for x86_64.*--values mattr",
        ),
        ("llvm -mtriple=aarch64-linux-gnu -mattr=+neo", "(?s)no feature 'neo' for aarch64"),
        ("llvm -mtriple=zzz", "LLVM does not know 'zzz'"),
    ],
)
def test_a_processor_that_llvm_would_ignore_is_refused(text, message):
    with pytest.raises(TargetError, match=message):
        Host().target(text)


def test_processors_of_other_machines_are_accepted():
    for text in ("aarch64-linux-gnu -mcpu=cortex-a72", "riscv64-linux-gnu", "armv7em-none-eabi"):
        assert Host().target(f"llvm -mtriple={text}")


def test_an_llvm_that_does_not_answer(monkeypatch):
    def hang(*_, **__):
        raise subprocess.TimeoutExpired("llvm", 1)

    monkeypatch.setattr(subprocess, "run", hang)
    listing.processors_and_features.cache_clear()  # another test asked too
    with pytest.raises(ToolchainError, match="LLVM does not say which processors it knows"):
        listing.processors_and_features("armv7-linux-gnueabihf")
