# SPDX-License-Identifier: Apache-2.0
"""A model must fit into the memory of the device that it is compiled for."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from intarsia.driver.build import build
from intarsia.driver.memory_bounds import MemoryBound, check_memory_bounds, memory_bounds
from intarsia.host.host import Host
from intarsia.target.kind import Memory
from intarsia_ir.graph.expr import Function, Var, call, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.nn import Matmul
from intarsia_runtime.artifact.unit import CompiledUnit
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ResourceError

from .toy import Backend, host_of


def model() -> IRModule:
    """Weights of 60 bytes, an input of 80 and an output of 48."""
    x = Var("x", TensorType((4, 5), DType.FLOAT32))
    weight = constant(np.ones((5, 3), np.float32), name="w")
    return IRModule.from_function(
        Function((x,), call(Matmul, x, weight, attrs=Matmul.Attrs()), ("y",))
    )


def host_with(size: int, device: int = 1) -> Host:
    """A host whose backend has so many bytes of memory."""
    backend = Backend(device=device)
    backend.kind = dataclasses.replace(backend.kind, memory=(Memory("tiny", size=size),))
    return host_of(backend)


def test_a_model_that_does_not_fit_is_refused_with_both_numbers() -> None:
    with pytest.raises(ResourceError) as caught:
        build(model(), "toy", host=host_with(187))
    assert caught.value.exit_code == 8
    assert "'toy': it needs 188 of 187 bytes of tiny" in caught.value.message
    assert "weights 60, workspace 0, inputs and outputs 128" in caught.value.message
    assert "--allow-overflow" in caught.value.hint


@pytest.mark.parametrize("size", [188, 0])
def test_a_model_that_fits_is_compiled(size: int) -> None:
    assert build(model(), "toy", host=host_with(size)).passport.plan.constants == ("w",)


def test_overflow_may_be_allowed() -> None:
    with pytest.warns(UserWarning, match="needs 188 of 187 bytes of tiny"):
        artifact = build(model(), "toy", host=host_with(187), allow_overflow=True)
    assert artifact.passport.target == "toy"


def test_a_backend_of_unknown_memory_bounds_nothing() -> None:
    host = host_with(0)
    assert memory_bounds(host, host.target("toy")) == ()
    host = host_with(9)
    assert memory_bounds(host, host.target("toy")) == (MemoryBound("tiny", 9, True, True),)


def test_memory_of_accelerators_counts_once_for_each_of_them() -> None:
    host = host_with(999)
    plan = build(model(), "toy", host=host).passport.plan
    regions = [
        CompiledUnit("npu_0", "npu", {}, weight_bytes=200, scratch_bytes=400),
        CompiledUnit("npu_1", "npu", {}, weight_bytes=100, scratch_bytes=300),
        CompiledUnit("dsp_0", "dsp", {}, scratch_bytes=112),
    ]
    with pytest.raises(ResourceError) as caught:
        check_memory_bounds(host, host.target("toy"), plan, [60], regions=regions)
    assert "it needs 1,000 of 999 bytes of tiny" in caught.value.message
    assert "weights 360, workspace 512, inputs and outputs 128" in caught.value.message
