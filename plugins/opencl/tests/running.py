# SPDX-License-Identifier: Apache-2.0
"""Run lowered functions on a device, and compare them with references."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np

from intarsia_ir.graph.expr import Function, Var, call, get_item, make_tuple
from intarsia_ir.graph.types import TensorType, TupleType
from intarsia_ir.ops import OPERATORS
from intarsia_opencl.codegen import kernel_start
from intarsia_opencl.device import OpenclDevice
from intarsia_opencl.loader import OpenclModel
from intarsia_opencl.program import OpenclProgram
from intarsia_opencl.schedules import lower_function
from intarsia_opencl.source import print_source
from intarsia_opencl.target import ALIGNMENT
from intarsia_runtime.dtype import DType
from intarsia_runtime.loading import LoadRequest

TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 4e-5, "float64": 1e-10}


def numpy_type(dtype):
    return np.dtype(ml_dtypes.bfloat16) if dtype is DType.BFLOAT16 else np.dtype(dtype.value)


def lowered(target, name, inputs, attrs):
    """One operator as a function."""
    params = [Var(f"x{n}", TensorType(a.shape, DType(a.dtype.name))) for n, a in enumerate(inputs)]
    op = OPERATORS[name]
    body = call(op, *params, attrs=op.Attrs(**attrs))
    if isinstance(body.type, TupleType):
        body = make_tuple([get_item(body, n) for n in range(len(body.type.fields))])
    function = Function(tuple(params), body)
    return lower_function(function, (), target=target, alignment=ALIGNMENT)


class Module:
    """Modules whose kernels are one source.

    Args:
        target: Its options count.
        modules: What ``lower_function`` returned; kernels are renamed by their number.
        device: Where they run.
    """

    def __init__(self, target, modules, device):
        functions = [
            replace(function, name=f"c{n}_{function.name}")
            for n, module in enumerate(modules)
            for function in module.module.functions
        ]
        self.modules = modules
        self.source = print_source(functions, target.options)
        self.device = OpenclDevice(device, self.source.text)

    def run(self, number, *inputs):
        """Run one module; returns its outputs."""
        module, plan = self.modules[number], self.modules[number].module.plan
        starts = {
            f.name: tuple(kernel_start(s) for s in self.source.launches[f"c{number}_{f.name}"])
            for f in module.module.functions
        }
        program = OpenclProgram("auto", "", False, 1, 0, starts, {})
        constants = {name: np.ascontiguousarray(module.constants[name]) for name in plan.constants}
        request = LoadRequest("main", {}, constants, plan.inputs, plan.outputs, 1, 0, plan)
        model = OpenclModel(program, plan, request, self.device)
        outputs = [np.zeros(spec.shape, numpy_type(spec.dtype)) for spec in plan.outputs]
        model.run(*(np.ascontiguousarray(x) for x in inputs), *outputs)
        return outputs


def reference(name, inputs, attrs):
    """What the operator's reference says."""
    with np.errstate(all="ignore"):
        found = OPERATORS[name].reference(OPERATORS[name].Attrs(**attrs), *inputs)
    return found if isinstance(found, tuple) else (found,)


def assert_close(got, want, what, tolerance=None):
    """Compare arrays of any element type."""
    assert (got.shape, got.dtype) == (want.shape, want.dtype), what
    limit = TOLERANCE.get(want.dtype.name, 0.0) if tolerance is None else tolerance
    a, b = (v.astype(np.float64) if limit else v for v in (got, want))
    np.testing.assert_allclose(a, b, rtol=limit, atol=limit, err_msg=what)
