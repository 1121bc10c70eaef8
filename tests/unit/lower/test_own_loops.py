# SPDX-License-Identifier: Apache-2.0
"""A target kind that writes the loops of what no schedule takes."""

from __future__ import annotations

import pytest

from intarsia_ir.graph.expr import Function, Var, call
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import const
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.passes.stack_to_scratch import stack_to_scratch
from intarsia_ir.tir.stmt import Allocate, ForKind, Seq
from intarsia_loops.cpu.loops import parallel, serial, store
from intarsia_loops.loops import default_loops
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import PluginError, VerifyError

from .conftest import lower, make_target

F32 = DType.FLOAT32


def function():
    x = Var("x", TensorType((4, 8), DType.FLOAT32))
    return Function((x,), call(OPERATORS["exp"], x))


def lowered(loops):
    return lower(function(), (), target=make_target(), loops=loops).module.functions


def test_the_kinds_own_loops_get_the_stages():
    seen = []

    def loops(name, stages, target):
        seen.append((name, [stage.shape for stage in stages.stages], target.keys[0]))
        return default_loops("another_name", stages)

    (kernel,) = lowered(loops)
    assert kernel.name == "exp_0"
    assert seen == [("exp_0", [(4, 8)], "loops")]


@pytest.mark.parametrize("answer", [None, PrimFunc("f", (), 0, Seq(()))])
def test_an_answer_that_is_no_kernel_of_the_group(answer):
    with pytest.raises(PluginError, match="the backend's default loops are no kernel"):
        lowered(lambda name, stages, target: answer)


def deep(size):
    """Loops that keep ``size`` numbers for each row."""

    def loops(name, stages, target):
        x, y = Buffer("x", (3, 4), F32), Buffer("y", (3, 4), F32)
        kept = Buffer("kept", (size,), F32, MemoryScope.STACK)
        fill = serial(size, lambda j: store(kept, (j,), const(0, F32)))
        return PrimFunc("f", (x, y), 1, parallel(3, lambda i: Allocate(kept, fill)))

    return loops


def bound(loops, **hooks):
    (kernel,) = lower(function(), (), target=make_target(), loops=loops, **hooks).module.functions
    return kernel


def test_large_temporaries_lie_in_the_workspace():
    assert bound(deep(8192)).scratch == 0
    kernel = bound(deep(8193))
    assert [b.shape for b in kernel.scratch_params] == [(8193,)]
    assert kernel.body.kind is ForKind.SERIAL  # as no thread has a copy of its own


def test_a_kind_says_where_its_temporaries_lie():
    kernel = bound(deep(100), bound_stack=lambda kernel, target: stack_to_scratch(kernel))
    assert [b.shape for b in kernel.scratch_params] == [(100,)]


def test_a_kind_that_leaves_too_much_on_the_stack_is_refused():
    with pytest.raises(VerifyError, match="80000 bytes on the stack of a thread, and may keep"):
        bound(deep(20_000), bound_stack=lambda kernel, target: kernel)


def test_threads_of_devices_have_more():
    assert bound(deep(20_000), on_device=True).scratch == 0
    with pytest.raises(VerifyError, match="bytes on the stack of a thread"):
        bound(deep(200_000), on_device=True)


@pytest.mark.parametrize(("size", "taken"), [(1 << 20, True), (17 << 20, False)])
def test_a_schedule_that_wastes_memory_is_not_used(size, taken):
    def schedule(group, target):
        return deep(size)("f", None, target)

    op = OPERATORS["nn.softmax"]
    x = Var("x", TensorType((3, 4), F32))
    softmax = Function((x,), call(op, x, attrs=op.Attrs(axis=1)))
    (kernel,) = lower(softmax, (), target=make_target(nn__softmax=schedule)).module.functions
    assert (kernel.scratch == 1) is taken
