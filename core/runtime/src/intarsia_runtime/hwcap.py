# SPDX-License-Identifier: Apache-2.0
"""CPU features as Linux hands them to every process, in the auxiliary vector.

A user-mode emulator shows programs the ``/proc/cpuinfo`` of the machine it runs on, but an
auxiliary vector of the processor it emulates. Names and bits are those of the kernel
(``arch/*/include/uapi/asm/hwcap.h`` and ``arch/*/kernel/cpuinfo.c``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import MappingProxyType

from msgspec import Struct

AT_HWCAP, AT_HWCAP2 = 16, 26


class _Bits(Struct, frozen=True):
    """Names of the bits from bit 0; ``-`` for a bit without a name."""

    hwcap: tuple[str, ...]
    hwcap2: tuple[str, ...] = ()


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_AARCH64 = _Bits(
    _names(
        "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma "
        "lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb paca "
        "pacg"
    ),
    _names(
        "dcpodp sve2 sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svef32mm "
        "svef64mm svebf16 i8mm bf16 dgh rng bti mte ecv afp rpres mte3 sme smei16i64 smef64f64 "
        "smei8i32 smef16f32 smeb16f32 smef32f32 smefa64 wfxt ebf16 sveebf16 cssc rprfm sve2p1 sme2 "
        "sme2p1 smei16i32 smebi32i32 smeb16b16 smef16f16 mops hbc sveb16b16 lrcpc3 lse128 fpmr lut "
        "faminmax f8cvt f8fma f8dp4 f8dp2 f8e4m3 f8e5m2"
    ),
)
_ARM = _Bits(
    _names(
        "swp half thumb 26bit fastmult fpa vfp edsp java iwmmxt crunch thumbee neon vfpv3 vfpv3d16 "
        "tls vfpv4 idiva idivt vfpd32 lpae evtstrm fphp asimdhp asimddp asimdfhm asimdbf16 i8mm"
    ),
    _names("aes pmull sha1 sha2 crc32 sb ssbs"),
)
_RISCV = _Bits(tuple("abcdefghijklmnopqrstuvwxyz"))  # a bit for each single-letter extension
_ARCHES = MappingProxyType({"aarch64": _AARCH64, "arm": _ARM, "riscv64": _RISCV, "riscv32": _RISCV})

_RISCV_INCLUDES = (
    "a: zaamo zalrsc; b: zba zbb zbs; c: zca; m: zmmul; v: zve64d; zve64d: zve64f; "
    "zve64f: zve64x zve32f; zve64x: zve32x; zfh: zfhmin; zvfh: zvfhmin; zvbb: zvkb"
)
_RISCV_IMPLIES = MappingProxyType(
    {
        name: _names(text)
        for name, _, text in (row.strip().partition(":") for row in _RISCV_INCLUDES.split(";"))
    }
)
"""What a kernel may leave unsaid, since the extension in front includes it."""


def hwcap_features(
    arch: str, getauxval: Callable[[int], int] | None = None
) -> frozenset[str] | None:
    """Return the features that the auxiliary vector names.

    Args:
        arch: As a passport names it.
        getauxval: The C function; by default that of this process.

    Returns:
        Names as the Linux kernel has them; ``None`` where the vector says nothing by name.
    """
    bits = _ARCHES.get(arch)
    ask = getauxval or _getauxval()
    if bits is None or ask is None:
        return None
    words = ((ask(AT_HWCAP), bits.hwcap), (ask(AT_HWCAP2), bits.hwcap2))
    names = {name for word, row in words for bit, name in enumerate(row) if word >> bit & 1}
    return frozenset(names) or None


def known_names(arch: str) -> frozenset[str]:
    """Return the features that the auxiliary vector could name."""
    bits = _ARCHES.get(arch, _Bits(()))
    return frozenset((*bits.hwcap, *bits.hwcap2))


def with_implied(arch: str, features: frozenset[str]) -> frozenset[str]:
    """Add what features include and a kernel may leave unsaid."""
    if not arch.startswith("riscv"):
        return features
    found, new = set(features), set(features)
    while new:
        new = {name for one in new for name in _RISCV_IMPLIES.get(one, ())} - found
        found |= new
    return frozenset(found)


def _getauxval() -> Callable[[int], int] | None:
    try:
        function = ctypes.CDLL(None).getauxval
    except (OSError, AttributeError, TypeError):  # no such function on this system
        return None
    function.restype, function.argtypes = ctypes.c_ulong, (ctypes.c_ulong,)
    return lambda key: int(function(key))
