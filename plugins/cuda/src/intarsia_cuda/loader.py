# SPDX-License-Identifier: Apache-2.0
"""The runtime half: a compiled model on its device. Imports no compiler."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from intarsia_runtime.artifact.plan import CallPlan, RegionStep
from intarsia_runtime.errors import ArtifactError
from intarsia_runtime.loading import DeviceModel, LoadRequest, reads_formats

from .alone import LoneKernels
from .cpu_device import EmulatedDevice
from .device import CopyIn, CopyOut, CopyWithin, GpuDevice, Launch, Work
from .driver import CudaDevice
from .memory import aligned, bytes_of, uploaded
from .open_model import OpenCudaModel
from .program import (
    FILE,
    SCHEMA,
    DeviceProgram,
    DeviceSpot,
    StreamOperation,
    check_program,
    program_from_json,
    program_stamp,
)
from .regions import HostCall

if TYPE_CHECKING:
    import numpy as np


@reads_formats(SCHEMA)
def load(request: LoadRequest) -> DeviceModel:
    """Put a model on its device: code, weights, and one graph of everything a run does.

    Where accelerators take part, there is a graph for each stretch between their calls. A model of
    open sizes is recorded when its sizes are known.

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
        kind = LoadedModel if request.plan.open is None else OpenCudaModel
        model = kind(program, request.plan, request, device)
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
        self._arena = device.reserve(aligned(plan.workspace_bytes))
        self._places: dict[DeviceSpot, int] = {}
        self._host: dict[DeviceSpot, np.ndarray] = {}
        for place, specs in (("input", plan.inputs), ("output", plan.outputs)):
            for number, spec in enumerate(specs):
                spot = DeviceSpot(place, number)
                self._places[spot] = device.reserve(aligned(spec.bytes))
                self._host[spot] = device.staging(spec.bytes)
        self._places |= uploaded(plan, request, device)
        self._inputs = len(plan.inputs)
        self._parts = self._record(plan, request)
        self.kernel = LoneKernels(program, plan, device).kernel

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

    def _address(self, spot: DeviceSpot) -> int:
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
            self._host[DeviceSpot("input", number)][...] = bytes_of(array)
        for part in self._parts:
            part()
        for number, array in enumerate(arrays[self._inputs :]):
            bytes_of(array)[...] = self._host[DeviceSpot("output", number)]
