# SPDX-License-Identifier: Apache-2.0
"""Calls of accelerators between two stretches of work of the device, on memory of the host."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_runtime.abi import ArgumentBlock, SafeCall
from intarsia_runtime.artifact.plan import Argument, TensorSpec
from intarsia_runtime.errors import PluginError
from intarsia_runtime.loading import NativeCall

from .device import GpuDevice


class HostCall:
    """A region with tensors of its own on the host, which the device copies to and from.

    Args:
        region: What to call.
        args: Its tensors.
        device: Gives memory that it can copy.

    Attributes:
        arrays: Bytes of each tensor.
    """

    def __init__(self, region: NativeCall, args: Sequence[Argument], device: GpuDevice) -> None:
        self._region = region
        self.arrays = [device.staging(argument.bytes) for argument in args]
        self._block = ArgumentBlock([TensorSpec("", a.shape, a.dtype) for a in args])
        for tensor, array in zip(self._block.tensors, self.arrays, strict=True):
            tensor.data = array.ctypes.data
        self._call = SafeCall(region.function)

    def run(self) -> None:
        """Call the region.

        Raises:
            PluginError: It failed.
        """
        block = self._block
        status = self._call(
            self._region.handle or None, block.address, block.count, block.result_address
        )
        if status != 0:
            why = self._region.describe_failure
            raise PluginError(f"a region failed: {why() if why else 'it gave no reason'}")
