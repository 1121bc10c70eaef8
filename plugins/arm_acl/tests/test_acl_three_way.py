# SPDX-License-Identifier: Apache-2.0
"""Two accelerators and a backend: what each takes, at which borders, on which processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intarsia
from intarsia_ir.graph.expr import Constant, Expr, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.partition.cost import Plan
from intarsia_runtime.errors import TargetError
from intarsia_testkit.expressions import apply, expected, fresh, function_of, number, var

from .aarch64_python import Unavailable, make_python
from .emulation import ROOT, missing
from .regions import integers
from .test_acl_composite import RUN

TARGET = "ethos-n -simulate, arm_acl, llvm -mtriple=aarch64-linux-gnu"
WINDOW = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}


def zero(value: int = 0) -> Constant:
    return constant(np.array(value, np.int8))


def conv(x: Expr, inputs: int, outputs: int, **attrs: Any) -> Expr:
    """An int8 convolution between tensors in steps of 0.05."""
    weight = constant(integers(outputs, inputs, 3, 3, seed=outputs))
    bias = constant(np.arange(outputs, dtype=np.int32) * 10)
    operands = (x, number(0.05), zero(), weight, number(0.01), zero(), number(0.2), zero(), bias)
    return apply("qnn.conv", *operands, **(WINDOW | attrs))


def network() -> Expr:
    """For each of the three something that the others have not: 8 bits, floats, the error function.

    The dilated convolution is none of the NPU's, so its neighbours are two regions there.
    """
    x = apply("qnn.quantize", var("x", 1, 3, 12, 12), number(0.05), zero())
    x = conv(conv(x, 3, 8), 8, 8)
    x = conv(x, 8, 8, dilation=(2, 2), padding=((2, 2), (2, 2)))
    x = apply("qnn.dequantize", conv(x, 8, 4), number(0.2), zero())
    x = apply("nn.relu", apply("erf", apply("multiply", x, number(0.1))))
    return apply("nn.softmax", apply("reshape", x, shape=(1, 576)), axis=1)


@pytest.fixture(scope="module")
def module() -> IRModule:
    pytest.importorskip("intarsia_ethos_n", reason="no intarsia-ethos-n")
    pytest.importorskip("intarsia_llvm", reason="no intarsia-llvm")
    return IRModule.from_function(function_of(network()))


@pytest.fixture(scope="module")
def artifact(module: IRModule) -> intarsia.Artifact:
    reason = missing()
    if reason:
        pytest.skip(reason)
    if ROOT:
        pytest.skip("tests of the system's release of the library; ROOT names another")
    return intarsia.build(module, TARGET, plan=Plan.GREEDY)


def test_each_takes_its_own(artifact: intarsia.Artifact) -> None:
    rows = {row.name: row for row in artifact.placement.regions}
    assert {name.rsplit("_", 1)[0] for name in rows} == {"ethos_n", "arm_acl"}
    first = rows["ethos_n_0"]
    assert len(first.nodes) == 2
    # Int8 in the model's order at the border: 3 and 8 channels of 12 x 12, both turned inside.
    assert (first.bytes_in, first.bytes_out, first.turned) == (3 * 144, 8 * 144, 2)
    assert all(row.turned == 0 for name, row in rows.items() if name.startswith("arm_acl"))
    turned = sum(row.turned for row in rows.values())
    assert f", {turned} images turned between NCHW and NHWC" in str(artifact.placement)
    assert artifact.passport.arch == "aarch64"


@pytest.mark.slow
def test_the_runtime_runs_all_three(artifact: intarsia.Artifact, tmp_path: Path) -> None:
    """Scales and zero points cross the borders: one quantum more or less at each at most."""
    try:
        python = make_python(tmp_path / "root", "intarsia_ethos_n")
    except Unavailable as reason:
        pytest.skip(str(reason))
    path = artifact.save(tmp_path / "model.intarsia")
    data = fresh(1, 3, 12, 12)
    np.savez(tmp_path / "x.npz", x=data)
    python.run("-c", RUN, str(path), str(tmp_path / "x.npz"))
    (result,) = np.load(f"{tmp_path / 'x.npz'}.out.npz").values()
    (right,) = expected(function_of(network()), [data])
    assert np.argmax(result) == np.argmax(right)
    np.testing.assert_allclose(result, right, rtol=0.06)


@pytest.mark.parametrize("target", ["dnnl, arm_acl, llvm", "arm_acl, llvm"])
def test_two_processors_in_one_process_are_refused(module: IRModule, target: str) -> None:
    """Before anything is compiled, and whoever would have taken what."""
    pytest.importorskip("intarsia_dnnl", reason="no intarsia-dnnl")
    triple = " -mtriple=x86_64-linux-gnu"
    with pytest.raises(TargetError) as caught:
        intarsia.build(module, target + triple)
    assert "'arm_acl' makes code for aarch64, 'llvm' for x86_64" in str(caught.value)
    assert "-mtriple=aarch64-linux-gnu, or leave 'arm_acl' away" in str(caught.value)
