# SPDX-License-Identifier: Apache-2.0
"""A target kind that writes the loops of what no schedule takes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from intarsia.dtype import DType
from intarsia.errors import PluginError
from intarsia.ir.expr import Function, Var, call
from intarsia.ir.types import TensorType
from intarsia.lower.loops import default_loops
from intarsia.lower.lower import lower
from intarsia.ops import OPERATORS
from intarsia.target.kind import Role, TargetKind
from intarsia.target.target import Target
from intarsia.tir.func import PrimFunc
from intarsia.tir.stmt import Seq


@dataclass(frozen=True, kw_only=True)
class Options:
    """Nothing to set."""


def function():
    x = Var("x", TensorType((4, 8), DType.FLOAT32))
    return Function((x,), call(OPERATORS["exp"], x))


def lowered(loops):
    kind = TargetKind("toy", Role.BACKEND, Options, loops=loops)
    return lower(function(), (), target=Target(kind, Options())).module.functions


def test_the_kinds_own_loops_get_the_stages():
    seen = []

    def loops(name, stages, target):
        seen.append((name, [stage.shape for stage in stages.stages], target.kind.name))
        return default_loops("another_name", stages)

    (kernel,) = lowered(loops)
    assert kernel.name == "exp_0"
    assert seen == [("exp_0", [(4, 8)], "toy")]


@pytest.mark.parametrize("answer", [None, PrimFunc("f", (), 0, Seq(()))])
def test_an_answer_that_is_no_kernel_of_the_group(answer):
    with pytest.raises(PluginError, match="the loops of target kind 'toy' are no kernel"):
        lowered(lambda name, stages, target: answer)
