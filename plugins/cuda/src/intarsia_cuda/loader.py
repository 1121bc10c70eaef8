# SPDX-License-Identifier: Apache-2.0
"""The runtime half: a compiled model on its device. Imports no compiler."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from intarsia.artifact.plan import CallPlan
from intarsia.errors import ArtifactError
from intarsia.runtime.loading import LoadRequest

from .device import ALIGNMENT, CopyIn, CopyOut, CopyWithin, Device, Launch, Work
from .driver import CudaDevice
from .emulated import EmulatedDevice
from .program import FILE, DeviceProgram, Operation, Spot, constants_used, program_from_json

if TYPE_CHECKING:
    import numpy as np


def load(request: LoadRequest) -> Callable[..., None]:
    """Put a model on its device: code, weights, and one graph of everything a run does.

    Raises:
        ArtifactError: The unit is damaged, or for another GPU.
        ToolchainError: The binding of the driver is not installed.
        WorkerLost: There is no driver or no GPU.
        ResourceError: No memory left on the device.
    """
    program = program_from_json(_file(request.files, FILE))
    if request.plan is None:
        raise ArtifactError(f"'{request.name}' is a region, and cuda compiles whole models")
    return LoadedModel(program, request.plan, request, _device(program, request.files)).run


def _file(files: Mapping[str, bytes], name: str) -> bytes:
    if name not in files:
        raise ArtifactError(f"the unit has no {name}", hint="compile the model again")
    return files[name]


def _device(program: DeviceProgram, files: Mapping[str, bytes]) -> Device:
    if program.emulated:
        return EmulatedDevice(_file(files, "emulated.so"))
    return CudaDevice([_file(files, "kernels.cubin"), _file(files, "kernels.ptx") + b"\0"])


class LoadedModel:
    """A model in the memory of a device.

    Args:
        program: What a run does.
        plan: Sizes of inputs, outputs and workspace.
        request: Has the weights.
        device: Where to.
    """

    def __init__(
        self, program: DeviceProgram, plan: CallPlan, request: LoadRequest, device: Device
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
        self._replay = device.record([self._work(item) for item in program.operations])

    def _address(self, spot: Spot) -> int:
        if spot.place == "workspace":
            return self._arena + spot.index
        return self._places[spot]

    def _work(self, item: Operation) -> Work:
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
        self._replay()
        for number, array in enumerate(arrays[self._inputs :]):
            _bytes_of(array)[...] = self._host[Spot("output", number)]


def _aligned(size: int) -> int:
    return -(-max(size, 1) // ALIGNMENT) * ALIGNMENT


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view("uint8")
