# SPDX-License-Identifier: Apache-2.0
"""Graphs to lower, and what carries a plan out with the interpreter."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import intarsia_ir.ops
from intarsia_ir.graph.expr import Call, Constant, Function, Tuple, TupleGetItem, Var, call
from intarsia_ir.graph.op import collect_operators
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import post_order
from intarsia_ir.tir.evaluate import numpy_dtype
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.module import Lowered
from intarsia_ir.tir.passes.simplify import simplify
from intarsia_ir.tir.passes.specialize import specialize
from intarsia_ir.tir.passes.unroll import unroll
from intarsia_ir.tir.passes.vectorize import vectorize
from intarsia_ir.tir.verify import verify_func
from intarsia_loops import lower as lowering
from intarsia_runtime.artifact.plan import Argument, ArgumentSource, CopyStep, KernelStep
from intarsia_runtime.dtype import DType
from intarsia_testkit.closed_plan import close_plan

MODULES = [
    importlib.import_module(f"intarsia_ir.ops.{module.name}")
    for module in pkgutil.iter_modules(intarsia_ir.ops.__path__)
]
OPERATORS = collect_operators(MODULES)


@dataclass(frozen=True)
class Toy:
    """What :func:`lower` gives to the loop compiler: a target, and a backend's schedules for it."""

    schedules: dict[str, Callable | dict[str, Callable]]
    keys: tuple[str, ...] = ("loops", "cpu")
    memory: tuple[object, ...] = ()
    options: object = None


def make_target(**schedules: Callable) -> Toy:
    """A backend with these schedules; two underscores stand for a dot."""
    return Toy({name.replace("__", "."): schedule for name, schedule in schedules.items()})


def lower(function: Function, regions: tuple, *, target: Toy, **named: Any) -> Lowered:
    """Lower for a backend of the tests."""
    return lowering.lower(function, regions, target=target, schedules=target.schedules, **named)


def apply(name: str, *args, **attrs) -> Call:
    """Apply an operator by name."""
    op = OPERATORS[name]
    return call(op, *args, attrs=op.Attrs(**attrs))


def var(name: str, *shape: int, dtype: DType = DType.FLOAT32) -> Var:
    """A parameter."""
    return Var(name, TensorType(shape, dtype))


def carry_out(
    lowered: Lowered,
    inputs: list,
    *,
    compiled: bool = False,
    sizes: Mapping[str, int] | None = None,
) -> list:
    """Follow a plan on the interpreter; ``compiled`` runs the passes of backends first.

    ``sizes`` are values of the size variables of a plan of open sizes.
    """
    sizes = sizes or {}
    plan = close_plan(lowered.module.plan, sizes)
    workspace = np.full(plan.workspace_bytes, 0xA5, np.uint8)
    places = {
        ArgumentSource.INPUT: inputs,
        ArgumentSource.OUTPUT: [np.zeros(o.shape, numpy_dtype(o.dtype)) for o in plan.outputs],
        ArgumentSource.CONSTANT: [lowered.constants[name] for name in plan.constants],
    }
    kernels = {function.name: function for function in lowered.module.functions}

    def array(argument: Argument):
        if argument.place is ArgumentSource.WORKSPACE:
            piece = workspace[argument.index : argument.index + argument.bytes]
            return piece.view(numpy_dtype(argument.dtype)).reshape(argument.shape)
        return places[argument.place][argument.index].reshape(argument.shape)

    for step in plan.steps:
        if isinstance(step, CopyStep):
            array(step.destination)[...] = array(step.source)
        else:
            assert isinstance(step, KernelStep)
            kernel = kernels[step.function]
            kernel = vectorize(simplify(unroll(kernel))) if compiled else kernel
            verify_func(kernel)
            kernel = specialize(kernel, sizes) if sizes else kernel
            run(kernel, *(array(argument) for argument in step.args))
    return places[ArgumentSource.OUTPUT]


def reference(function: Function, inputs: list) -> list:
    """Evaluate a function by the NumPy definitions of its operators."""
    known = dict(zip(function.params, inputs, strict=True))
    for node in post_order(function.body):
        match node:
            case Constant():
                known[node] = node.data
            case Call():
                known[node] = node.op.reference(node.attrs, *(known[arg] for arg in node.args))
            case Tuple():
                known[node] = tuple(known[field] for field in node.fields)
            case TupleGetItem():
                known[node] = known[node.tuple][node.index]
            case _:
                pass
    return [known[output] for output in function.outputs]


@pytest.fixture
def graphs() -> SimpleNamespace:
    """``apply``, ``var`` and what checks a lowered function against its reference."""

    def check(body, *params: Var, compiled: bool = True, seed: int = 0) -> Lowered:
        rng = np.random.default_rng(seed)
        function = Function(params, body)
        inputs = [
            (rng.standard_normal(p.type.static_shape) * 3).astype(p.type.dtype.value)
            for p in params
        ]
        lowered = lower(function, (), target=make_target())
        got = carry_out(lowered, inputs, compiled=compiled)
        for mine, theirs in zip(got, reference(function, inputs), strict=True):
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(mine, theirs, rtol=3e-5, atol=3e-5)
        return lowered

    return SimpleNamespace(apply=apply, var=var, check=check, target=make_target)
