# SPDX-License-Identifier: Apache-2.0
"""The runtime half: a compiled model on its device. Imports no compiler."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from intarsia_runtime.abi import ArgumentBlock, SafeCall
from intarsia_runtime.artifact.close_plan import close_step
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
    ResourceError,
    reads_formats,
)
from intarsia_runtime.size import value_of

from .device import OpenclDevice
from .driver import check_device, driver_errors, find_device
from .program import FILE, SCHEMA, SOURCE, OpenclProgram, read_program

if TYPE_CHECKING:
    import pyopencl as cl

Shapes: TypeAlias = "tuple[tuple[int, ...], ...]"


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
        self._shapes: Shapes | None = None  # of the inputs of open sizes that all is ready for
        for number in sorted(_constants_used(plan)):
            data = _bytes_of(np.ascontiguousarray(request.constants[plan.constants[number]]))
            buffer = self._buffers[ArgumentSource.CONSTANT, number] = device.reserve(data.nbytes)
            device.write(buffer, data)
            device.wait()
        self._steps: list[Callable[[], object]] = []
        if plan.open is None:
            self._keep_tensors(plan, [spec.bytes for spec in (*plan.inputs, *plan.outputs)])
            self._steps = [act for step in plan.steps for act in self._step(step, request)]
        elif not all(isinstance(step, KernelStep | CopyStep) for step in plan.steps):
            raise request.damaged("a step of an open plan is neither a kernel nor a copy")

    def _keep_tensors(self, plan: CallPlan, sizes: Sequence[int]) -> None:
        """Have buffers for inputs and outputs; those that are large enough stay."""
        numbered = [(ArgumentSource.INPUT, n) for n in range(len(plan.inputs))]
        numbered += [(ArgumentSource.OUTPUT, n) for n in range(len(plan.outputs))]
        for key, size in zip(numbered, sizes, strict=True):
            self._keep(key, size)

    def _keep(self, key: tuple[ArgumentSource, int], size: int) -> None:
        """Have a buffer of at least ``size`` bytes; one that grows again grows by more."""
        old = self._buffers.get(key)
        if old is None or old.size < size:
            self._buffers.pop(key, None)
            room = 0 if old is None else size >> 1
            del old  # given back before there is another
            self._buffers[key] = self._device.reserve(size + room)

    def _lay_out(self, plan: CallPlan, shapes: Shapes) -> None:
        """Compute sizes and launches for inputs of other shapes than those before.

        Raises:
            ResourceError: No memory left on the device.
        """
        sizes = plan.open
        if sizes is None or shapes == self._shapes:
            return
        self._shapes, self._steps = None, []  # until all of it is done
        values = {s.name: shapes[s.input][s.axis] for s in sizes.variables}
        specs = (*plan.inputs, *plan.outputs)
        self._keep_tensors(plan, [value_of(spec.bytes, values) for spec in specs])
        for number, size in enumerate(sizes.slots):
            self._keep((ArgumentSource.WORKSPACE, number), value_of(size, values))
        for step in plan.steps:
            step = close_step(step, values)
            self._check_elements(step)
            if isinstance(step, KernelStep):
                self._steps += self._launches(step, values)
            elif isinstance(step, CopyStep):
                self._steps.append(self._copy(step))
        self._shapes = shapes

    def _check_elements(self, step: Step) -> None:
        """Refuse tensors with more elements than kernels count."""
        most = self._program.most_elements
        largest = max([prod(argument.shape) for argument in step_arguments(step)], default=0)
        if most and largest > most:
            raise ResourceError(
                f"a tensor would have {largest} elements, and the kernels count {most}",
                hint="compile the model with -wide-index",
            )

    def _launches(self, step: KernelStep, values: Mapping[str, int]) -> list[Callable[[], object]]:
        """Return what starts a kernel of the plan."""
        buffers = [self._buffer(argument) for argument in step.args]
        found: list[Callable[[], object]] = []
        for start in self._program.functions[step.function]:
            closed = start.closed(values)
            if closed is not None:
                taken = [buffers[n] for n in start.arguments]
                sizes = [values[name] for name in start.sizes]
                found.append(self._device.launch(closed, taken, sizes))
        return found

    def _copy(self, step: CopyStep) -> Callable[[], object]:
        to, origin = self._buffer(step.destination), self._buffer(step.source)
        size = step.source.bytes
        return lambda: self._device.copy(to, origin, size)

    def _step(self, step: Step, request: LoadRequest) -> list[Callable[[], object]]:
        """Return what carries out a step of the plan, in order."""
        match step:
            case KernelStep():
                return self._launches(step, {})
            case CopyStep():
                return [self._copy(step)]
            case RegionStep():
                buffers = [self._buffer(argument) for argument in step.args]
                region = request.regions[step.region]
                return [_RegionCall(region, step, buffers, self._device).run]
            case _:
                raise request.damaged(f"opencl has no steps of the kind {type(step).__name__}")

    def _buffer(self, argument: Argument) -> cl.Buffer:
        if argument.place is not ArgumentSource.WORKSPACE or self._plan.open is not None:
            return self._buffers[argument.place, argument.index]
        key = (argument.index, argument.bytes)
        if key not in self._parts:
            part = self._parts[key] = self._device.part(self._arena, *key)
            if self._device.keeps_parts:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))  # it is never given back
        return self._parts[key]

    def run(self, *arrays: np.ndarray) -> None:
        """Carry out one run: inputs, then outputs to fill."""
        count = len(self._plan.inputs)
        with driver_errors():
            self._lay_out(self._plan, tuple([array.shape for array in arrays[:count]]))
            for number, array in enumerate(arrays[:count]):
                self._device.write(self._buffers[ArgumentSource.INPUT, number], _bytes_of(array))
            for act in self._steps:
                act()
            for number, array in enumerate(arrays[count:]):
                self._device.read(_bytes_of(array), self._buffers[ArgumentSource.OUTPUT, number])
            self._device.wait()

    def kernel(self, name: str, *sizes: int) -> Callable[..., None]:
        """Return one kernel of the plan, which copies all its arguments there and back.

        Args:
            name: Of the kernel.
            sizes: Values of the size variables that it takes.
        """
        if name not in self._program.functions:
            raise ArtifactError(f"the unit has no kernel '{name}'", hint="compile the model again")
        device, starts = self._device, self._program.functions[name]
        first = self._program.reads[name]
        steps = [s for s in self._plan.steps if isinstance(s, KernelStep) and s.function == name]
        values = dict(zip(steps[0].sizes, sizes, strict=True)) if steps else {}

        def run(*arrays: np.ndarray) -> None:
            with driver_errors():
                buffers = [device.reserve(array.nbytes) for array in arrays]
                for buffer, array in zip(buffers, arrays, strict=True):
                    device.write(buffer, _bytes_of(array))
                for start in starts:
                    closed = start.closed(values)
                    if closed is not None:
                        taken = [values[size] for size in start.sizes]
                        device.launch(closed, [buffers[n] for n in start.arguments], taken)()
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
