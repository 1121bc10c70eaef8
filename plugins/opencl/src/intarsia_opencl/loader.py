# SPDX-License-Identifier: Apache-2.0
"""The runtime half: a compiled model on its device. Imports no compiler."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from intarsia_runtime.abi import ArgumentBlock, SafeCall
from intarsia_runtime.artifact.plan import (
    Argument,
    ArgumentSource,
    CallPlan,
    CopyStep,
    KernelStep,
    RegionStep,
    Step,
    TensorSpec,
)
from intarsia_runtime.artifact.plan_walk import step_arguments
from intarsia_runtime.plugin import (
    ArtifactError,
    DeviceModel,
    LoadRequest,
    NativeCall,
    PluginError,
    reads_formats,
)

from .device import OpenclDevice, check_device, driver_errors, find_device
from .program import FILE, SCHEMA, SOURCE, OpenclProgram, read_program

if TYPE_CHECKING:
    import pyopencl as cl


@reads_formats(SCHEMA)
def load(request: LoadRequest) -> DeviceModel:
    """Put a model on its device: the driver builds the kernels, and weights go up once.

    Raises:
        ArtifactError: The unit is damaged, or for another device.
        ToolchainError: pyopencl is not installed, or the driver refuses the kernels.
        WorkerLost: There is no driver or no such device.
        ResourceError: No memory left on the device.
    """
    if request.plan is None:
        raise ArtifactError(f"'{request.name}' is a region, and opencl compiles whole models")
    program = read_program(request, request.plan)
    found = find_device(program.device_type, program.device)
    check_device(found, program)
    device = OpenclDevice(found, request.file(SOURCE).decode(errors="replace"))
    with driver_errors(), request.interpreting(FILE):
        model = OpenclModel(program, request.plan, request, device)
    return DeviceModel(model.run, model.kernel)


class OpenclModel:
    """A model in the memory of a device.

    Args:
        program: How kernels are started.
        plan: What a run does.
        request: Has the weights, and the functions of the accelerators' regions.
        device: Where to.
    """

    def __init__(
        self, program: OpenclProgram, plan: CallPlan, request: LoadRequest, device: OpenclDevice
    ) -> None:
        self._program, self._plan, self._device = program, plan, device
        self._arena = device.reserve(plan.workspace_bytes)
        self._parts: dict[tuple[int, int], cl.Buffer] = {}
        self._buffers: dict[tuple[ArgumentSource, int], cl.Buffer] = {}
        self._inputs = [device.reserve(spec.bytes) for spec in plan.inputs]
        self._outputs = [device.reserve(spec.bytes) for spec in plan.outputs]
        sides = ((ArgumentSource.INPUT, self._inputs), (ArgumentSource.OUTPUT, self._outputs))
        for place, buffers in sides:
            self._buffers |= {(place, number): b for number, b in enumerate(buffers)}
        for number in sorted(_constants_used(plan)):
            data = _bytes_of(np.ascontiguousarray(request.constants[plan.constants[number]]))
            buffer = self._buffers[ArgumentSource.CONSTANT, number] = device.reserve(data.nbytes)
            device.write(buffer, data)
            device.wait()
        self._steps = [act for step in plan.steps for act in self._step(step, request)]

    def _step(self, step: Step, request: LoadRequest) -> list[Callable[[], object]]:
        """Return what carries out a step of the plan, in order."""
        match step:
            case KernelStep():
                buffers = [self._buffer(argument) for argument in step.args]
                starts = self._program.functions[step.function]
                return [
                    self._device.launch(start, [buffers[n] for n in start.arguments])
                    for start in starts
                ]
            case CopyStep(source=source, destination=destination):
                to, origin, size = self._buffer(destination), self._buffer(source), source.bytes
                return [lambda: self._device.copy(to, origin, size)]
            case RegionStep():
                buffers = [self._buffer(argument) for argument in step.args]
                region = request.regions[step.region]
                return [_RegionCall(region, step, buffers, self._device).run]
            case _:
                raise request.damaged(f"opencl has no steps of the kind {type(step).__name__}")

    def _buffer(self, argument: Argument) -> cl.Buffer:
        if argument.place is not ArgumentSource.WORKSPACE:
            return self._buffers[argument.place, argument.index]
        key = (argument.index, argument.bytes)
        if key not in self._parts:
            part = self._parts[key] = self._device.part(self._arena, *key)
            if self._device.keeps_parts:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))  # it is never given back
        return self._parts[key]

    def run(self, *arrays: np.ndarray) -> None:
        """Carry out one run: inputs, then outputs to fill."""
        count = len(self._inputs)
        with driver_errors():
            for buffer, array in zip(self._inputs, arrays[:count], strict=True):
                self._device.write(buffer, _bytes_of(array))
            for act in self._steps:
                act()
            for buffer, array in zip(self._outputs, arrays[count:], strict=True):
                self._device.read(_bytes_of(array), buffer)
            self._device.wait()

    def kernel(self, name: str) -> Callable[..., None]:
        """Return one kernel of the plan, which copies all its arguments there and back."""
        if name not in self._program.functions:
            raise ArtifactError(f"the unit has no kernel '{name}'", hint="compile the model again")
        device, starts = self._device, self._program.functions[name]
        first = self._program.reads[name]

        def run(*arrays: np.ndarray) -> None:
            with driver_errors():
                buffers = [device.reserve(array.nbytes) for array in arrays]
                for buffer, array in zip(buffers, arrays, strict=True):
                    device.write(buffer, _bytes_of(array))
                for start in starts:
                    device.launch(start, [buffers[n] for n in start.arguments])()
                for buffer, array in zip(buffers[first:], arrays[first:], strict=True):
                    device.read(_bytes_of(array), buffer)
                device.wait()

        return run


class _RegionCall:
    """A call of an accelerator, on memory of the host that is copied from and to the device."""

    def __init__(
        self,
        region: NativeCall,
        step: RegionStep,
        buffers: list[cl.Buffer],
        device: OpenclDevice,
    ) -> None:
        self._region, self._buffers, self._device = region, buffers, device
        self._arrays = [np.zeros(argument.bytes, np.uint8) for argument in step.args]
        self._block = ArgumentBlock([TensorSpec("", a.shape, a.dtype) for a in step.args])
        for tensor, array in zip(self._block.tensors, self._arrays, strict=True):
            tensor.data = array.ctypes.data
        self._call = SafeCall(region.function)

    def run(self) -> None:
        device, block, region = self._device, self._block, self._region
        for array, buffer in zip(self._arrays, self._buffers, strict=True):
            device.read(array, buffer)
        device.wait()
        handle = region.handle or None
        status = self._call(handle, block.address, block.count, block.result_address)
        if status != 0:
            reason = region.describe_failure() if region.describe_failure else "it gave no reason"
            raise PluginError(f"a region failed: {reason}")
        for array, buffer in zip(self._arrays, self._buffers, strict=True):
            device.write(buffer, array)


def _constants_used(plan: CallPlan) -> set[int]:
    """Return the numbers of the constants that the plan reads."""
    return {
        argument.index
        for step in plan.steps
        for argument in step_arguments(step)
        if argument.place is ArgumentSource.CONSTANT
    }


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)
