# SPDX-License-Identifier: Apache-2.0
"""A device with a built program: its memory, its kernels, and a queue that works in order."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia_runtime.plugin import ArtifactError, ToolchainError

from .driver import driver_errors, require_opencl

if TYPE_CHECKING:
    import numpy as np
    import pyopencl as cl

    from .program import KernelStart

OPTIONS = ("-cl-std=CL1.2",)
CORRECTLY_ROUNDED = "-cl-fp32-correctly-rounded-divide-sqrt"
"""Division and square root of float32 as IEEE 754 rounds them, where the device can; else they may
be off by 2.5 and 3 units in the last place."""

MESSAGE_LINES = 12
_NOT_BUILT = (-11, -15, -17)  # build, compile or link failure


def _cache() -> str:
    """The folder for what drivers built that keep nothing themselves."""
    from platformdirs import user_cache_path  # pyopencl brings it

    given = os.environ.get("INTARSIA_CACHE_DIR")
    folder = Path(given) if given else user_cache_path("intarsia", appauthor=False)
    return os.fspath(folder / "opencl")


class OpenclDevice:
    """A device with a built program, and a queue that works in order.

    Args:
        device: What :func:`intarsia_opencl.driver.find_device` returned.
        source: OpenCL C.

    Raises:
        ToolchainError: The driver refuses the source; its messages are in the error.
        ResourceError: No memory left.
        WorkerLost: The device failed.
    """

    def __init__(self, device: cl.Device, source: str) -> None:
        self._opencl = opencl = require_opencl()
        with driver_errors():
            self._context = opencl.Context([device])
            self._queue = opencl.CommandQueue(self._context, device)
            self._program = self._built(device, source)
        self.alignment = int(device.mem_base_addr_align) // 8
        # NVIDIA's driver (580) ends the process where parts of a buffer are given back.
        self.keeps_parts = device.platform.name.startswith("NVIDIA")

    def _built(self, device: cl.Device, source: str) -> Any:
        opencl = self._opencl
        rounded = opencl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
        options = [*OPTIONS, *([CORRECTLY_ROUNDED] if device.single_fp_config & rounded else [])]
        try:
            with warnings.catch_warnings():
                # Drivers remark on what they optimize; a refusal is an error.
                warnings.simplefilter("ignore", opencl.CompilerWarning)
                return opencl.Program(self._context, source).build(options, cache_dir=_cache())
        except opencl.Error as error:
            if int(error.code) not in _NOT_BUILT:
                raise
            told = [line for line in str(error).splitlines() if line and line[0] not in "(-"]
            lines = [line for line in told if not line.startswith(("cl", "Build on "))]
            message = "\n".join(lines[:MESSAGE_LINES])
            raise ToolchainError(
                f"the OpenCL driver of '{device.name.strip()}' refuses the kernels:\n{message}"
            ) from None

    def reserve(self, size: int) -> cl.Buffer:
        """Return a buffer of ``size`` bytes, or of 1 if that is 0."""
        flags = self._opencl.mem_flags.READ_WRITE
        return self._opencl.Buffer(self._context, flags, max(size, 1))

    def part(self, buffer: cl.Buffer, offset: int, size: int) -> cl.Buffer:
        """Return ``size`` bytes of a buffer as a buffer.

        Raises:
            ArtifactError: The device cannot begin a buffer there.
        """
        if offset % self.alignment:
            raise ArtifactError(
                f"a buffer begins at byte {offset} of the workspace, and the device's buffers begin"
                f" at multiples of {self.alignment}",
                hint="this device is not supported",
            )
        return buffer.get_sub_region(offset, max(size, 1))

    def write(self, buffer: cl.Buffer, data: np.ndarray) -> None:
        """Copy bytes of the host to a buffer; ``data`` must stay until :meth:`wait`."""
        if data.nbytes:
            self._opencl.enqueue_copy(self._queue, buffer, data, is_blocking=False)

    def read(self, data: np.ndarray, buffer: cl.Buffer) -> None:
        """Copy a buffer to bytes of the host, which are there after :meth:`wait`."""
        if data.nbytes:
            self._opencl.enqueue_copy(self._queue, data, buffer, is_blocking=False)

    def copy(self, to: cl.Buffer, source: cl.Buffer, size: int) -> None:
        """Copy the first ``size`` bytes of a buffer to another one."""
        if size:
            self._opencl.enqueue_copy(self._queue, to, source, byte_count=size)

    def launch(
        self, start: KernelStart, buffers: Sequence[cl.Buffer], sizes: Sequence[int] = ()
    ) -> Callable[[], object]:
        """Return what starts a kernel with its own arguments.

        Args:
            start: How; all of it is numbers.
            buffers: Its buffers.
            sizes: Values of the size variables behind them.

        Raises:
            ArtifactError: The kernel takes another number of buffers.
        """
        kernel = self._opencl.Kernel(self._program, start.name)
        given = (*buffers, *(size.to_bytes(8, sys.byteorder, signed=True) for size in sizes))
        if int(kernel.num_args) != len(given):
            raise ArtifactError(
                f"'{start.name}' takes {kernel.num_args} buffers and is given {len(given)}",
                hint="compile the model again",
            )
        for number, argument in enumerate(given):
            kernel.set_arg(number, argument)
        enqueue, queue = self._opencl.enqueue_nd_range_kernel, self._queue

        def run() -> object:
            return enqueue(queue, kernel, start.groups, start.items, g_times_l=True)

        return run

    def wait(self) -> None:
        """Wait for all that was asked for."""
        self._queue.finish()
