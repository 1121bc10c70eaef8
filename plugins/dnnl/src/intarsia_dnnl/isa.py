# SPDX-License-Identifier: Apache-2.0
"""Which instructions the library may use, where a hypervisor shows only half of the matrix unit.

The library sizes AMX's tiles by what the processor says of them (CPUID leaf 0x1D). Some virtual
machines show the unit's feature bits and end their leaves before that one. The library then
configures tiles of palette 0, which is none, and the first instruction on a tile is illegal.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

from intarsia.errors import PluginError
from intarsia.runtime.cpu import this_machine

CPUINFO = Path("/proc/cpuinfo")
VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""Variables with which users limit the library."""

_TILE_LEAF = 0x1D
_LIMIT = 0x1EF  # dnnl_cpu_isa_avx512_core_fp16: everything below AMX
_MATRIX_UNIT = 0xE00  # bits of dnnl_cpu_isa_avx512_core_amx that are not in it


def usable_features(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """Return this processor's features that the library may use, as the Linux kernel names them."""
    features = this_machine().cpu_features or frozenset[str]()
    if not hides_tiles(cpuinfo):
        return features
    return frozenset(name for name in features if not name.startswith("amx_"))


def hides_tiles(cpuinfo: Path = CPUINFO) -> bool:
    """Whether the processor shows AMX, and not its tiles."""
    features = this_machine().cpu_features or frozenset[str]()
    return "amx_tile" in features and not describes_tiles(cpuinfo)


@cache
def describes_tiles(cpuinfo: Path = CPUINFO) -> bool:
    """Whether the processor has the CPUID leaf about tiles; so it is if the kernel does not say."""
    for line in cpuinfo.read_text(errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "cpuid level":
            return int(value) >= _TILE_LEAF
    return True


def keep_from_hidden_tiles(library: ctypes.CDLL, cpuinfo: Path = CPUINFO) -> None:
    """Keep a library from AMX where it would fail; before its first use in the process.

    A limit of the user's (:data:`VARIABLES`) stays.

    Raises:
        PluginError: Who used the library before us, or the user, has it use AMX.
    """
    if not hides_tiles(cpuinfo):
        return
    if not any(name in os.environ for name in VARIABLES):
        library.dnnl_set_max_cpu_isa(_LIMIT)  # refused if it is in use, maybe with this limit
    if library.dnnl_get_effective_cpu_isa() & _MATRIX_UNIT:
        raise PluginError(
            "oneDNN would use AMX, whose tiles this virtual machine does not describe"
            " (CPUID leaf 0x1D), and end the process",
            hint=f"set {VARIABLES[0]}=AVX512_CORE_FP16",
            where="dnnl",
        )
