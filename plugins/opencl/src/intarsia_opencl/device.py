# SPDX-License-Identifier: Apache-2.0
"""A device through its OpenCL driver: memory, kernels, and a queue that works in order.

The only module that imports pyopencl, and it does so late. Every error of the driver becomes one of
Intarsia's.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia_runtime.plugin import ArtifactError, ResourceError, ToolchainError, WorkerLost

if TYPE_CHECKING:
    import numpy as np
    import pyopencl as cl

    from .program import KernelStart, OpenclProgram

OPTIONS = ("-cl-std=CL1.2",)
CORRECTLY_ROUNDED = "-cl-fp32-correctly-rounded-divide-sqrt"
"""Division and square root of float32 as IEEE 754 rounds them, where the device can; else they may
be off by 2.5 and 3 units in the last place."""

MESSAGE_LINES = 12
_NO_MEMORY = (-4, -5, -6, -61)  # of the device, its resources, the host; larger than any buffer
_NOT_BUILT = (-11, -15, -17)  # build, compile or link failure
_NO_KERNEL = (-46, -52)  # kernel name, arguments
_NO_GROUPS = (-53, -54, -55)  # dimensions, group size, item size
_NO_PLATFORM = -1001
_HOME = "PYOPENCL_HOME"
_NO_DEVICE = -1


def require_opencl() -> Any:
    """Return pyopencl.

    Raises:
        ToolchainError: It is not installed, or does not load.
    """
    is_first = "pyopencl" not in sys.modules
    given = os.environ.get(_HOME)
    try:
        opencl = importlib.import_module("pyopencl")
    except (ImportError, OSError) as cause:
        raise ToolchainError(
            f"pyopencl is not installed: {cause}", hint="pip install intarsia-opencl"
        ) from None
    if is_first:
        # The environment belongs to the process. What pyopencl puts there is for the loader of
        # drivers, which reads it once: when it is first asked for platforms.
        with suppress(opencl.Error):
            opencl.get_platforms()
        if given is None:
            os.environ.pop(_HOME, None)
    return opencl


def find_device(device_type: str, name: str) -> cl.Device:
    """Return the device that the options ``-device-type`` and ``-device`` choose.

    Raises:
        ToolchainError: pyopencl is not installed.
        WorkerLost: There is no driver, or it has no such device.
    """
    opencl = require_opencl()
    devices = all_devices()
    if not devices:
        raise WorkerLost(
            "no OpenCL driver is installed here",
            hint="install the driver of the device, or pocl for this machine's CPU",
        )
    named = [d for d in devices if name.lower() in f"{d.platform.name} {d.name}".lower()]
    kinds = ("gpu", "accelerator", "cpu") if device_type == "auto" else (device_type,)
    for kind in kinds:
        wanted = getattr(opencl.device_type, kind.upper())
        for device in named:
            if device.type & wanted:
                return device
    known = ", ".join(f"'{device.name.strip()}'" for device in devices)
    raise WorkerLost(
        f"no OpenCL device is '-device-type={device_type}{f' -device={name}' if name else ''}'; "
        f"there is {known}",
        hint="compile the model again for one of these devices",
    )


def all_devices() -> list[cl.Device]:
    """Return the devices of all drivers; none if there is no driver.

    Raises:
        ToolchainError: pyopencl is not installed.
        WorkerLost: A driver fails.
    """
    opencl = require_opencl()
    with driver_errors():
        try:
            platforms = opencl.get_platforms()
        except opencl.LogicError as error:
            if error.code == _NO_PLATFORM:
                return []
            raise
        return [device for platform in platforms for device in _devices_of(platform)]


def _devices_of(platform: Any) -> list[cl.Device]:
    try:
        return platform.get_devices()
    except require_opencl().Error as error:
        if error.code == _NO_DEVICE:
            return []
        raise


def describe(device: cl.Device) -> str:
    """Return name and driver of a device."""
    return f"{device.name.strip()}, {device.platform.name.strip()} {device.driver_version}"


@contextmanager
def driver_errors() -> Generator[None]:
    """Turn errors of the driver into Intarsia's.

    Raises:
        ResourceError: Memory or another resource of the device ran out.
        ArtifactError: The kernels are not for this device.
        WorkerLost: The device or its driver failed.
    """
    opencl = require_opencl()
    try:
        yield
    except opencl.Error as error:
        code = int(error.code)
        if code in _NO_MEMORY:
            raise ResourceError(
                f"the OpenCL device has no memory or resources left: {error}",
                hint="use a smaller batch or input, or a smaller -max-work-group-size",
            ) from error
        if code in (*_NO_GROUPS, *_NO_KERNEL):
            smaller = ", with a smaller -max-work-group-size" if code in _NO_GROUPS else ""
            raise ArtifactError(
                f"the OpenCL device cannot start a kernel: {error}",
                hint=f"compile the model again{smaller}",
            ) from error
        raise WorkerLost(
            f"the OpenCL device or its driver failed: {error}",
            hint="intarsia doctor shows which device is found",
        ) from error


def check_device(device: cl.Device, program: OpenclProgram) -> None:
    """Check that a device can run a program.

    Raises:
        ArtifactError: It is too small, or cannot compute in float64.
    """
    name = device.name.strip()
    most = int(device.max_work_group_size)
    if program.group_items > most:
        raise ArtifactError(
            f"kernels have groups of {program.group_items} work-items, and '{name}' takes {most}",
            hint=f"compile the model again with -max-work-group-size={1 << most.bit_length() - 1}",
        )
    memory = int(device.local_mem_size)
    if program.local_bytes > memory:
        raise ArtifactError(
            f"kernels take {program.local_bytes} bytes of local memory, and '{name}' has {memory}",
            hint=f"compile the model again with -local-memory={memory}",
        )
    if program.fp64 and "cl_khr_fp64" not in device.extensions.split():
        raise ArtifactError(
            f"kernels compute in float64, which '{name}' cannot",
            hint="compile a model in float32",
        )


def _cache() -> str:
    """The folder for what drivers built that keep nothing themselves."""
    from platformdirs import user_cache_path  # pyopencl brings it

    given = os.environ.get("INTARSIA_CACHE_DIR")
    folder = Path(given) if given else user_cache_path("intarsia", appauthor=False)
    return os.fspath(folder / "opencl")


class OpenclDevice:
    """A device with a built program, and a queue that works in order.

    Args:
        device: What :func:`find_device` returned.
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
