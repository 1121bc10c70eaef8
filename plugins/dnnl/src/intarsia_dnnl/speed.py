# SPDX-License-Identifier: Apache-2.0
"""How fast the library multiplies beside the code of the fallback, by instruction sets.

Rates are those of whole models on one thread (``python -m tests.bench.placement``), in fp32, in
multiples of code for SSE2. Products of matrices, where both are best: ``gemm`` of 1024, BERT.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from pathlib import Path

from intarsia_runtime.plugin import this_machine

from .isa import CPUINFO, EXACT, first_processor, usable_features
from .narrow import gains_by_bfloat16
from .target import DnnlOptions

EVEN = 1.06
"""The lead for which the other limits of regions were measured."""
_SSE41, _AVX2, _AVX512 = 1.3, 4.0, 8.0
_LIBRARY = {_AVX512: 0.95, _AVX2: 0.9, _SSE41: 1.03}
"""The library's speed by the fallback's, both with the same instructions. (Measured, time by the
fallback's. AVX-512: Sapphire Rapids, BERT 1.18, gemm 1.05, ViT 1.05 to 1.19, MiniLM 1.09 to 1.6,
ResNet-50 1.13, in 8 bits on the matrix unit 1.11, Magika 1.30, MobileNet-v2 1.16; Zen 4, BERT 1.01,
gemm 0.99, ViT 0.98 to 1.04, ResNet-50 1.18, in 8 bits 1.02. AVX2: BERT 1.41, gemm 1.07, ViT 1.07 to
1.37, ResNet-50 1.23, MobileNet-v2 1.13. SSE4.1: gemm 0.93, BERT 0.99, Magika and MobileNet-v2 1.00,
ResNet-50 1.21.)"""
_HALVED_FAMILIES = range(26)
"""Families of AMD's processors that do AVX-512 in halves: Zen 4 is 25, Zen 5 is 26."""
_BFLOAT16 = 1.9
"""What bfloat16 gains over fp32 without a matrix unit. (BERT 1.91, gemm 1.93, MiniLM 1.5 to 1.8.)

Beside code in bfloat16 it gains nothing. (AMX, time by the fallback's: BERT 1.00, ResNet-50 1.03,
gemm 1.10, MobileNet-v2 1.76, Basic Pitch 3.3, VGG-16 0.97.)
"""
_BYTES = 2.0
"""What sums of four products of bytes gain over those that fallbacks add in 16 bits."""


def lead(
    theirs: AbstractSet[str] | None,
    options: DnnlOptions,
    *,
    bytewise: bool = False,
    both_narrow: bool = False,
    cpuinfo: Path = CPUINFO,
) -> float:
    """Return how many times faster the library is than the fallback's code, at its best.

    Args:
        theirs: Features that code of the fallback may use; those of this processor if ``None``.
        options: What the user set.
        bytewise: Whether products of 8-bit integers are meant.
        both_narrow: Whether the fallback, too, multiplies in bfloat16 where it has instructions.
        cpuinfo: The kernel's list of processors.
    """
    ours = usable_features()
    if not ours & {"sse4_1", "avx2"}:
        return EVEN  # not x86: never measured
    theirs = (this_machine().cpu_features if theirs is None else theirs) or frozenset[str]()
    family = _amd_family(cpuinfo)
    level = _level(ours)
    found = _LIBRARY[level] * _rate(level, family) / _rate(_level(theirs), family)
    if bytewise:
        return found if theirs & {*EXACT} else found * _BYTES
    narrow = gains_by_bfloat16(options.fpmath_mode) and "avx512_bf16" in ours
    gains = narrow and not (both_narrow and "avx512_bf16" in theirs)
    return found * _BFLOAT16 if gains else found


def part_of_limits(lead: float) -> float:
    """Return what part of the limits for :data:`EVEN` holds for another lead.

    What a call or a byte at the border costs has to be less than what the work gains: of the
    library's time for the work, ``lead - 1``.
    """
    return min(1.0, (EVEN - 1) / (lead - 1)) if lead > EVEN else 1.0


def _level(features: AbstractSet[str]) -> float:
    """Return the rate of the widest instructions."""
    if "avx512bw" in features:
        return _AVX512
    if "fma" in features or "avx2" in features:
        return _AVX2
    return _SSE41 if "sse4_1" in features else 1.0


def _rate(level: float, family: int | None) -> float:
    """Return the rate of instructions on this processor."""
    halved = level == _AVX512 and family is not None and family in _HALVED_FAMILIES
    return _AVX2 if halved else level


def _amd_family(cpuinfo: Path) -> int | None:
    """Return the family of a processor of AMD; ``None`` for others."""
    row = first_processor(cpuinfo)
    is_amd = row.get("vendor_id") == "AuthenticAMD" and row.get("cpu family", "").isdecimal()
    return int(row["cpu family"]) if is_amd else None
