# SPDX-License-Identifier: Apache-2.0
"""How many warps of a kernel a multiprocessor holds at once.

Limits are those of the table "Technical Specifications per Compute Capability" in NVIDIA's CUDA C++
Programming Guide; registers are given out by 256 to a warp.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from .nvrtc import Resources
from .target import WARP, CudaOptions

_REGISTERS = 65536
_REGISTER_UNIT = 256
_KIB = 1024


class MultiprocessorLimits(Struct, frozen=True):
    """What one multiprocessor has.

    Attributes:
        warps: That it holds.
        blocks: That it holds.
        shared_bytes: Shared memory; every block takes ``reserved_bytes`` more than it asks for.
        reserved_bytes: Shared memory that the system takes for each block.
    """

    warps: int
    blocks: int
    shared_bytes: int
    reserved_bytes: int = _KIB


def limits_of(capability: int) -> MultiprocessorLimits:
    """Return the limits of an architecture, given as 75 or 90."""
    if capability == 75:
        return MultiprocessorLimits(32, 16, 64 * _KIB, 0)
    if capability in (80, 87):
        return (
            MultiprocessorLimits(64, 32, 164 * _KIB)
            if capability == 80
            else MultiprocessorLimits(48, 16, 164 * _KIB)
        )
    if capability in (90, 100, 103):
        return MultiprocessorLimits(64, 32, 228 * _KIB)
    if capability == 110:
        return MultiprocessorLimits(48, 24, 228 * _KIB)
    if capability == 89:
        return MultiprocessorLimits(48, 24, 100 * _KIB)
    if capability in (120, 121):
        return MultiprocessorLimits(48, 24, 100 * _KIB)
    return MultiprocessorLimits(48, 16, 100 * _KIB)


def occupancy(resources: Resources, threads: int, capability: int) -> float:
    """Return the part of a multiprocessor's warps that blocks of ``threads`` fill, 0 to 1."""
    limits = limits_of(capability)
    warps = -(-threads // WARP)
    unit = _REGISTER_UNIT
    registers = -(-max(1, resources.registers) * WARP // unit) * unit
    by_registers = _REGISTERS // registers // warps
    taken = resources.shared_bytes + limits.reserved_bytes
    by_shared = limits.shared_bytes // taken if taken else limits.blocks
    blocks = min(limits.blocks, limits.warps // warps, by_registers, by_shared)
    return blocks * warps / limits.warps


def print_resources(
    resources: Mapping[str, Resources], threads: Mapping[str, int], options: CudaOptions
) -> str:
    """Return a table with one row for each kernel."""
    rows: list[tuple[str, ...]] = [
        ("kernel", "threads", "registers", "shared B", "spilled B", "occupancy")
    ]
    for name, count in threads.items():
        used = resources[name]
        share = occupancy(used, count, options.capability)
        numbers = (count, used.registers, used.shared_bytes, used.spill_bytes)
        rows.append((name, *(str(n) for n in numbers), f"{share:.0%}"))
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    lines = [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]
    return "\n".join([f"{options.arch}", *lines]) + "\n"
