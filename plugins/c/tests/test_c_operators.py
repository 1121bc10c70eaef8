# SPDX-License-Identifier: Apache-2.0
"""Every operator, compiled: the cases of core's own operator tests, against the references.

The cases are drawn out of ``tests/unit/ops`` by running its tests with fixtures that write down
what they are asked. All kernels go into a few libraries.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from intarsia_c.lowering import lower_function as lower
from intarsia_ir.graph.expr import Function, Var, call, get_item, make_tuple
from intarsia_ir.graph.types import TensorType, TupleType
from intarsia_ir.ops import OPERATORS
from intarsia_runtime.dtype import DType
from intarsia_testkit.recorded_cases import recorded

from .calling import walk

CORE_TESTS = Path(__file__).resolve().parents[3] / "tests" / "unit" / "ops"
FILES = ("test_ops_elementwise", "test_ops_nn", "test_ops_shape")
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 4e-5, "float64": 1e-10}


def lowered(case, target):
    name, inputs, attrs = case
    params = [Var(f"x{n}", TensorType(x.shape, DType(x.dtype.name))) for n, x in enumerate(inputs)]
    op = OPERATORS[name]
    body = call(op, *params, attrs=op.Attrs(**attrs))
    if isinstance(body.type, TupleType):
        body = make_tuple([get_item(body, n) for n in range(len(body.type.fields))])
    return lower(Function(tuple(params), body), (), target=target)


@pytest.mark.parametrize("file", FILES)
def test_operators(load_module, make_target, file):
    cases = recorded(CORE_TESTS / f"{file}.py")
    assert len(cases) > 100
    target = make_target()
    modules = [lowered(case, target) for case in cases]
    functions = [
        replace(function, name=f"c{n}_{function.name}")
        for n, module in enumerate(modules)
        for function in module.module.functions
    ]
    library = load_module(functions, opt_level=0)
    for n, (case, module) in enumerate(zip(cases, modules, strict=True)):
        compare(library, case, module, n)


def compare(library, case, module, number):
    name, inputs, attrs = case
    plan = module.module.plan
    constants = [np.ascontiguousarray(module.constants[c]) for c in plan.constants]
    given = [np.ascontiguousarray(x) for x in inputs]
    outputs = walk(library, plan, given, constants, f"c{number}_{{}}".format)
    with np.errstate(all="ignore"):
        wanted = OPERATORS[name].reference(OPERATORS[name].Attrs(**attrs), *inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    what = f"{name} {attrs} of {[(x.dtype.name, x.shape) for x in inputs]}"
    for got, want in zip(outputs, wanted, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype), what
        tolerance = TOLERANCE.get(want.dtype.name, 0.0)
        a, b = (v.astype(np.float64) if tolerance else v for v in (got, want))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=what)
