# SPDX-License-Identifier: Apache-2.0
"""The drivers of OpenCL and their devices.

The only module that imports pyopencl, and it does so late. Every error of the driver becomes one of
Intarsia's.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from intarsia_runtime.plugin import ArtifactError, ResourceError, ToolchainError, WorkerLost

if TYPE_CHECKING:
    import pyopencl as cl

    from .program import OpenclProgram

_NO_MEMORY = (-4, -5, -6, -61)  # of the device, its resources, the host; larger than any buffer
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
