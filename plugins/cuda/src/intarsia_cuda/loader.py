# SPDX-License-Identifier: Apache-2.0
"""The runtime half: a compiled model on its device. Imports no compiler."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from intarsia_runtime.artifact.plan import CallPlan, RegionStep
from intarsia_runtime.errors import ArtifactError
from intarsia_runtime.loading import DeviceModel, LoadRequest, reads_formats

from .cpu_device import EmulatedDevice
from .device import ALIGNMENT, CopyIn, CopyOut, CopyWithin, GpuDevice, Launch, Work
from .driver import CudaDevice
from .program import (
    FILE,
    SCHEMA,
    DeviceProgram,
    Spot,
    StreamOperation,
    check_program,
    constants_used,
    program_from_json,
    program_stamp,
)
from .regions import HostCall

if TYPE_CHECKING:
    import numpy as np


@reads_formats(SCHEMA)
def load(request: LoadRequest) -> DeviceModel:
    """Put a model on its device: code, weights, and one graph of everything a run does.

    Where accelerators take part, there is a graph for each stretch between their calls.

    Raises:
        ArtifactError: The unit is damaged, or for another GPU.
        ToolchainError: The binding of the driver is not installed.
        WorkerLost: There is no driver or no GPU.
        ResourceError: No memory left on the device.
    """
    if request.plan is None:
        raise ArtifactError(f"'{request.name}' is a region, and cuda compiles whole models")
    with request.interpreting(FILE):
        program = program_from_json(request.file(FILE))
        check_program(program, request.plan)
        device = _device(program, request.plan, request)
        model = LoadedModel(program, request.plan, request, device)
    return DeviceModel(model.run, model.kernel)


def _device(program: DeviceProgram, plan: CallPlan, request: LoadRequest) -> GpuDevice:
    if program.emulated:
        stamp = program_stamp(request.file(FILE), plan)
        return EmulatedDevice(request.file("emulated.so"), stamp)
    return CudaDevice([request.file("kernels.cubin"), request.file("kernels.ptx") + b"\0"])


class LoadedModel:
    """A model in the memory of a device.

    Args:
        program: What a run does.
        plan: Sizes of inputs, outputs and workspace.
        request: Has the weights, and the functions of the accelerators' regions.
        device: Where to.
    """

    def __init__(
        self, program: DeviceProgram, plan: CallPlan, request: LoadRequest, device: GpuDevice
    ) -> None:
        self._program, self._device = program, device
        self._close = weakref.finalize(self, device.close)
        self._arena = device.reserve(_aligned(plan.workspace_bytes))
        self._places: dict[Spot, int] = {}
        self._host: dict[Spot, np.ndarray] = {}
        for place, specs in (("input", plan.inputs), ("output", plan.outputs)):
            for number, spec in enumerate(specs):
                spot = Spot(place, number)
                self._places[spot] = device.reserve(_aligned(spec.bytes))
                self._host[spot] = device.staging(spec.bytes)
        for number in constants_used(plan):
            data = request.constants[plan.constants[number]]
            address = device.reserve(_aligned(data.nbytes))
            device.upload(address, data)
            self._places[Spot("constant", number)] = address
        self._inputs = len(plan.inputs)
        self._parts = self._record(plan, request)

    def _record(self, plan: CallPlan, request: LoadRequest) -> list[Callable[[], None]]:
        """Return what a run does: graphs, and calls of regions between them."""
        parts: list[Callable[[], None]] = []
        work: list[Work] = []
        for item in self._program.operations:
            if item.what != "region":
                work.append(self._work(item))
                continue
            step = plan.steps[item.step]
            if not isinstance(step, RegionStep):
                raise ArtifactError(f"{FILE} does not fit the plan: step {item.step} is no region")
            places = [self._address(spot) for spot in item.spots]
            call = HostCall(request.regions[step.region], step.args, self._device)
            out = [CopyOut(a, p) for a, p in zip(call.arrays, places, strict=True)]
            parts += [self._device.record([*work, *out]), call.run]
            work = [CopyIn(p, a) for a, p in zip(call.arrays, places, strict=True)]
        return [*parts, self._device.record(work)] if work else parts

    def kernel(self, name: str) -> Callable[..., None]:
        """Return one kernel of the plan, which copies all its arguments there and back."""
        if name not in self._program.functions:
            raise ArtifactError(f"the unit has no kernel '{name}'", hint="compile the model again")
        launches, first = self._program.functions[name], self._program.reads[name]
        ready: list[tuple[list[np.ndarray], Callable[[], None]]] = []

        def run(*arrays: np.ndarray) -> None:
            if not ready:
                ready.append(self._alone(launches, [array.nbytes for array in arrays]))
            staged, replay = ready[0]
            for host, array in zip(staged, arrays, strict=True):
                host[...] = _bytes_of(array)
            replay()
            for host, array in zip(staged[first:], arrays[first:], strict=True):
                _bytes_of(array)[...] = host

        return run

    def _alone(
        self, launches: Sequence[tuple[str, tuple[int, ...]]], sizes: Sequence[int]
    ) -> tuple[list[np.ndarray], Callable[[], None]]:
        places = [self._device.reserve(_aligned(size)) for size in sizes]
        staged = [self._device.staging(size) for size in sizes]
        work: list[Work] = [CopyIn(p, h) for p, h in zip(places, staged, strict=True)]
        for kernel, numbers in launches:
            start = self._program.kernels[kernel]
            work.append(Launch(kernel, start, tuple(places[n] for n in numbers)))
        work += [CopyOut(h, p) for p, h in zip(places, staged, strict=True)]
        return staged, self._device.record(work)

    def _address(self, spot: Spot) -> int:
        if spot.place == "workspace":
            return self._arena + spot.index
        return self._places[spot]

    def _work(self, item: StreamOperation) -> Work:
        places = tuple(self._address(spot) for spot in item.spots)
        match item.what:
            case "in":
                return CopyIn(places[0], self._host[item.spots[0]])
            case "out":
                return CopyOut(self._host[item.spots[0]], places[0])
            case "copy":
                return CopyWithin(places[0], places[1], item.bytes)
            case "launch" if item.kernel in self._program.kernels:
                return Launch(item.kernel, self._program.kernels[item.kernel], places)
            case _:
                raise ArtifactError(f"{FILE} has the unknown operation '{item.what}'")

    def run(self, *arrays: np.ndarray) -> None:
        """Carry out one run: inputs, then outputs to fill."""
        for number, array in enumerate(arrays[: self._inputs]):
            self._host[Spot("input", number)][...] = _bytes_of(array)
        for part in self._parts:
            part()
        for number, array in enumerate(arrays[self._inputs :]):
            _bytes_of(array)[...] = self._host[Spot("output", number)]


def _aligned(size: int) -> int:
    return -(-max(size, 1) // ALIGNMENT) * ALIGNMENT


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view("uint8")
