# SPDX-License-Identifier: Apache-2.0
"""Run lowered functions, emulated or on the GPU, and compare them with references."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import ml_dtypes
import numpy as np

from intarsia_cuda.codegen import kernel_start
from intarsia_cuda.cpu_device import EmulatedDevice
from intarsia_cuda.driver import CudaDevice
from intarsia_cuda.emulate import compile_emulated
from intarsia_cuda.loader import LoadedModel
from intarsia_cuda.lowering import lower_function as lower
from intarsia_cuda.nvrtc import compile_cuda
from intarsia_cuda.program import DeviceProgram, plan_operations
from intarsia_cuda.source import print_source
from intarsia_ir.graph.expr import Function, Var, call, get_item, make_tuple
from intarsia_ir.graph.types import TensorType, TupleType
from intarsia_ir.ops import OPERATORS
from intarsia_loops.codegen.c_source import kernel_name
from intarsia_runtime.dtype import DType
from intarsia_runtime.loading import LoadRequest

TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 4e-5, "float64": 1e-10}


def numpy_type(dtype):
    return np.dtype(ml_dtypes.bfloat16) if dtype is DType.BFLOAT16 else np.dtype(dtype.value)


def variables(*arrays):
    return [Var(f"x{n}", TensorType(a.shape, DType(a.dtype.name))) for n, a in enumerate(arrays)]


def lowered(target, name, inputs, attrs, behind=()):
    """One operator as a function, with element-wise operators behind it."""
    params = variables(*inputs)
    op = OPERATORS[name]
    body = call(op, *params, attrs=op.Attrs(**attrs))
    for unary in behind:
        body = call(OPERATORS[unary], body)
    if isinstance(body.type, TupleType):
        body = make_tuple([get_item(body, n) for n in range(len(body.type.fields))])
    return lower(Function(tuple(params), body), (), target=target)


class KeptDevice(EmulatedDevice):
    """Serves one model after another: the end of one does not close it."""

    def close(self):
        self._memory.clear()


class KeptGpu(CudaDevice):
    """As :class:`KeptDevice`; memory is freed, and starts out full of NaN."""

    def reserve(self, size):
        address = super().reserve(size)
        self.upload(address, np.full(size, 0xFF, np.uint8))
        return address

    def close(self):
        for address in self._memory:
            self._cuda.cuMemFreeAsync(address, self._stream)
        self._memory.clear()


class Module:
    """Modules whose kernels lie in one library.

    Args:
        target: Its options count.
        modules: What ``lower`` returned; kernels are renamed by their number.
        change: Changes the text before it is compiled.
        flags: More flags for the compiler of the emulation.
    """

    emulated = True

    def __init__(self, target, modules, change=None, flags=()):
        functions = [
            replace(function, name=f"c{n}_{function.name}")
            for n, module in enumerate(modules)
            for function in module.module.functions
        ]
        self.modules = modules
        self.source = print_source(functions, target.options)
        self.text = self.source.text if change is None else change(self.source.text)
        self.device = self.load(target, flags)

    def load(self, _target, flags):
        """Return the device with the kernels."""
        names = [name for name, _ in self.source.kernels]
        return KeptDevice(compile_emulated(self.text, names, flags=flags))

    def run(self, number, *inputs):
        """Run one module; returns its outputs."""
        lowered_module = self.modules[number]
        plan = lowered_module.module.plan
        launches = {
            f.name: [
                (kernel_name(launch.function), launch.params)
                for launch in self.source.launches[f"c{number}_{f.name}"]
            ]
            for f in lowered_module.module.functions
        }
        program = DeviceProgram(
            "sm_80",
            self.emulated,
            {name: kernel_start(launch) for name, launch in self.source.kernels},
            launches,
            {},
            plan_operations(plan, launches),
        )
        constants: Mapping = {
            name: np.ascontiguousarray(lowered_module.constants[name]) for name in plan.constants
        }
        request = LoadRequest("main", {}, constants, plan.inputs, plan.outputs, 1, 0, plan)
        model = LoadedModel(program, plan, request, self.device)
        outputs = [np.zeros(spec.shape, numpy_type(spec.dtype)) for spec in plan.outputs]
        model.run(*(np.ascontiguousarray(x) for x in inputs), *outputs)
        return outputs


class GpuModule(Module):
    """The same on the GPU of this machine."""

    emulated = False

    def load(self, target, _flags):
        """Return the GPU with the kernels."""
        compiled = compile_cuda(self.text, target.options)
        return KeptGpu([compiled.cubin])


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
