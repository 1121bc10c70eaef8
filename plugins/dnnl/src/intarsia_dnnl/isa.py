# SPDX-License-Identifier: Apache-2.0
"""Which instructions the library may use, where a hypervisor shows only half of the matrix unit.

The library sizes AMX's tiles by what the processor says of them (CPUID leaf 0x1D). Some virtual
machines show the unit's feature bits and end their leaves before that one. The library then
configures tiles of palette 0, which is none, and the first instruction on a tile is illegal.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from intarsia_runtime.plugin import PluginError, this_machine

CPUINFO = Path("/proc/cpuinfo")
VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""Variables with which users limit the library."""

LIMITS = {
    "SSE41": 0x1,
    "AVX": 0x3,
    "AVX2": 0x7,
    "AVX2_VNNI": 0xF,
    "AVX2_VNNI_2": 0x1F,
    "AVX512_CORE": 0x27,
    "AVX512_CORE_VNNI": 0x67,
    "AVX512_CORE_BF16": 0xE7,
    "AVX512_CORE_FP16": 0x1EF,
    "AVX512_CORE_AMX": 0xFEF,
    "AVX512_CORE_AMX_FP16": 0x1FEF,
    "AVX10_1_512": 0x1EF,
    "AVX10_1_512_AMX": 0xFEF,
    "AVX10_1_512_AMX_FP16": 0x1FEF,
    "DEFAULT": ~0,
    "ALL": ~0,
}
"""Values of those variables, as the library's sets of instructions. The library takes any other one
for no limit and says nothing; we say it."""
_SETS = (
    ("avx2", 0x4),
    ("avx_vnni", 0x8),
    ("avx512_vnni", 0x40),
    ("avx512_bf16", 0x80),
    ("avx512_fp16", 0x100),
    ("avx512", 0x20),
    ("amx_", 0xE00),
)
"""How names of features begin, and what has to be in the set; the first that fits counts."""

_TILE_LEAF = 0x1D
_LIMIT = 0x1EF  # dnnl_cpu_isa_avx512_core_fp16: everything below AMX
_MATRIX_UNIT = 0xE00  # bits of dnnl_cpu_isa_avx512_core_amx that are not in it


def usable_features(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """Return this processor's features that the library may use, as the Linux kernel names them."""
    allowed = _LIMIT if hides_tiles(cpuinfo) else ~0
    for variable in VARIABLES:
        allowed &= _limit_of(variable)
    features = this_machine().cpu_features or frozenset[str]()
    return frozenset(name for name in features if _set_of(name) & allowed == _set_of(name))


def _limit_of(variable: str) -> int:
    """The set of instructions that a variable allows; all if it is unset, or unknown to us."""
    text = os.environ.get(variable, "").strip().upper()
    if text and text not in LIMITS:
        known = ", ".join(LIMITS)
        warnings.warn(
            f"{variable} is '{text[:40]}', no limit that is known here: {known}", stacklevel=2
        )
    return LIMITS.get(text, ~0)


def _set_of(feature: str) -> int:
    return next((bits for name, bits in _SETS if feature.startswith(name)), 0)


def hides_tiles(cpuinfo: Path = CPUINFO) -> bool:
    """Whether the processor shows AMX, and not its tiles."""
    features = this_machine().cpu_features or frozenset[str]()
    return "amx_tile" in features and not describes_tiles(cpuinfo)


def describes_tiles(cpuinfo: Path = CPUINFO) -> bool:
    """Whether the processor has the CPUID leaf about tiles; so it is if the kernel does not say."""
    return int(first_processor(cpuinfo).get("cpuid level", _TILE_LEAF)) >= _TILE_LEAF


@cache
def first_processor(cpuinfo: Path = CPUINFO) -> Mapping[str, str]:
    """Return what the kernel lists of the first processor, by its names of it."""
    rows = cpuinfo.read_text(errors="replace").partition("\n\n")[0].splitlines()
    return {key.strip(): value.strip() for key, _, value in (row.partition(":") for row in rows)}


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


EXACT = ("avx512_vnni", "avx_vnni", "asimddp")
"""Processor features with which products of 8-bit integers are added in 32 bits. Without one, the
library's kernels for x86 add pairs of them in 16 bits, and saturate."""


def exact_feature() -> str:
    """Return the first of :data:`EXACT` that this processor has; empty if it has none."""
    features = usable_features()
    return next((name for name in EXACT if name in features), "")


def check_limit() -> None:
    """Refuse products of 8-bit integers where a user's limit makes them saturate.

    Raises:
        PluginError: The processor adds them in 32 bits, and the library may not.
    """
    features = this_machine().cpu_features or frozenset[str]()
    if exact_feature() or features.isdisjoint(EXACT):
        return
    limits = " and ".join(name for name in VARIABLES if name in os.environ)
    raise PluginError(
        f"{limits} keeps oneDNN from the instructions that add 8-bit products in 32 bits,"
        " and others saturate",
        hint="unset it, or compile with it set, or with -int8=off",
        where="dnnl",
    )
