# SPDX-License-Identifier: Apache-2.0
"""Options of the ``opencl`` kind."""

from __future__ import annotations

from dataclasses import dataclass

from intarsia.plugin import TargetError, option

KIND = "opencl"
"""Name of the target kind."""

LOADER = "opencl"
"""Name in the entry-point group ``intarsia.loaders``."""

ALIGNMENT = 512
"""Alignment of buffers in the workspace, in bytes: a buffer may start inside of another where the
device's ``CL_DEVICE_MEM_BASE_ADDR_ALIGN`` allows it. OpenCL asks for 128 at least; 512 bytes are
NVIDIA's, the largest known."""

_DEVICES = ("auto", "gpu", "accelerator", "cpu")


@dataclass(frozen=True, kw_only=True)
class OpenclOptions:
    """What a user may set."""

    device_type: str = option(
        "auto",
        doc="devices to run on; auto takes a GPU, else an accelerator, else a CPU",
        choices=_DEVICES,
    )
    device: str = option("", doc="part of the name of the device or of its platform")
    max_work_group_size: int = option(
        256, doc="most work-items of a group; a power of two", minimum=16, maximum=1024
    )
    local_memory: int = option(
        32768, doc="bytes of local memory that a group may use", minimum=8192, maximum=1 << 20
    )
    fp64: bool = option(True, doc="whether the device computes in float64 (cl_khr_fp64)")
    fmad: bool = option(True, doc="join a product and a sum into one instruction")
    wide_index: bool = option(
        False, doc="count in 64 bits, for tensors of open sizes with more than 1073741824 elements"
    )


def canonicalize(options: OpenclOptions) -> OpenclOptions:
    """Check options.

    Raises:
        TargetError: A size of groups that is no power of two.
    """
    size = options.max_work_group_size
    if size & (size - 1):
        raise TargetError(
            f"-max-work-group-size={size} is no power of two",
            hint=f"-max-work-group-size={1 << (size.bit_length() - 1)}",
            option="max-work-group-size",
        )
    return options
