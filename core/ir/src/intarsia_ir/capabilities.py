# SPDX-License-Identifier: Apache-2.0
"""What a target kind states of its device: levels of memory, and which convolutions it reduces."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Memory:
    """One level of a device's memory.

    Attributes:
        name: ``global``, ``shared``, ``sram``...
        alignment: Alignment of buffers in bytes.
        size: Bytes; 0 means unknown or bounded by the machine.
        shared_by: Of a cache, the cores that share it.
    """

    name: str = "global"
    alignment: int = 64
    size: int = 0
    shared_by: int = 1


@dataclass(frozen=True, slots=True)
class ReducedConvolution:
    """Convolutions without strides or groups that a backend computes by Winograd's method.

    Attributes:
        kernel: Sizes of the kernel.
        channels: Fewest input and output channels.
        results: Fewest elements of a channel of the result.
    """

    kernel: tuple[int, ...]
    channels: int
    results: int


WINOGRAD = ReducedConvolution((3, 3), channels=32, results=25)
"""3x3 windows that gain: the transformed weights grow to 16/9, and are read once."""
