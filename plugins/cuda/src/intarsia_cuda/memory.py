# SPDX-License-Identifier: Apache-2.0
"""What models have in a device's memory: bytes as it counts them, and weights.

Imports no compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_runtime.artifact.plan import CallPlan
from intarsia_runtime.loading import LoadRequest

from .device import ALIGNMENT, GpuDevice
from .program import DeviceSpot, constants_used

if TYPE_CHECKING:
    import numpy as np


def aligned(size: int) -> int:
    """Return how many bytes are reserved for ``size`` of them."""
    return -(-max(size, 1) // ALIGNMENT) * ALIGNMENT


def bytes_of(array: np.ndarray) -> np.ndarray:
    """Return a view of the bytes of a contiguous array."""
    return array.reshape(-1).view("uint8")


def uploaded(plan: CallPlan, request: LoadRequest, device: GpuDevice) -> dict[DeviceSpot, int]:
    """Copy the weights that a plan reads to the device; return where they are."""
    places: dict[DeviceSpot, int] = {}
    for number in constants_used(plan):
        data = request.constants[plan.constants[number]]
        address = device.reserve(aligned(data.nbytes))
        device.upload(address, data)
        places[DeviceSpot("constant", number)] = address
    return places
