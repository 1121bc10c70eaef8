# SPDX-License-Identifier: Apache-2.0
"""A level of a device's memory: what bounds a build and chooses the sizes of tiles."""

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
