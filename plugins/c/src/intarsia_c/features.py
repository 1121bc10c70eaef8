# SPDX-License-Identifier: Apache-2.0
"""CPU features that a C compiler may use, from what it says of itself.

Names are those of the Linux kernel, as in the passports of artifacts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_X86 = {
    "SSE3": "pni",
    "SSSE3": "ssse3",
    "SSE4_1": "sse4_1",
    "SSE4_2": "sse4_2",
    "POPCNT": "popcnt",
    "AVX": "avx",
    "AVX2": "avx2",
    "FMA": "fma",
    "F16C": "f16c",
    "BMI": "bmi1",
    "BMI2": "bmi2",
    "LZCNT": "abm",
    "MOVBE": "movbe",
    "AVX512F": "avx512f",
    "AVX512BW": "avx512bw",
    "AVX512CD": "avx512cd",
    "AVX512DQ": "avx512dq",
    "AVX512VL": "avx512vl",
    "AVX512VNNI": "avx512_vnni",
    "AVX512VBMI": "avx512vbmi",
    "AVX512BF16": "avx512_bf16",
    "AVX512FP16": "avx512_fp16",
    "AVXVNNI": "avx_vnni",
    "AVX512IFMA": "avx512ifma",
    "AVX512VBMI2": "avx512_vbmi2",
    "AVX512BITALG": "avx512_bitalg",
    "AVX512VPOPCNTDQ": "avx512_vpopcntdq",
    "GFNI": "gfni",
    "FMA4": "fma4",
    "XOP": "xop",
    "TBM": "tbm",
    "SSE4A": "sse4a",
}
_ARM = {
    "ARM_FEATURE_CRC32": "crc32",
    "ARM_FEATURE_ATOMICS": "atomics",
    "ARM_FEATURE_QRDMX": "asimdrdm",
    "ARM_FEATURE_FP16_SCALAR_ARITHMETIC": "fphp",
    "ARM_FEATURE_FP16_VECTOR_ARITHMETIC": "asimdhp",
    "ARM_FEATURE_FP16_FML": "asimdfhm",
    "ARM_FEATURE_DOTPROD": "asimddp",
    "ARM_FEATURE_JCVT": "jscvt",
    "ARM_FEATURE_COMPLEX": "fcma",
    "ARM_FEATURE_RCPC": "lrcpc",
    "ARM_FEATURE_FRINT": "frint",
    "ARM_FEATURE_MATMUL_INT8": "i8mm",
    "ARM_FEATURE_BF16": "bf16",
    "ARM_FEATURE_BF16_VECTOR_ARITHMETIC": "bf16",
    "ARM_FEATURE_SVE": "sve",
    "ARM_FEATURE_SVE2": "sve2",
    "ARM_FEATURE_SVE_MATMUL_FP32": "svef32mm",
    "ARM_FEATURE_SVE_MATMUL_FP64": "svef64mm",
    "ARM_FEATURE_MOPS": "mops",
}
_ARM_32 = {
    "ARM_FP": "vfp",
    "ARM_NEON": "neon",
    "ARM_FEATURE_FMA": "vfpv4",
    "ARM_FEATURE_DSP": "edsp",
    "ARM_ARCH_EXT_IDIV": "idiva",
}
_AARCH64_VERSIONS = {
    (8, 3): ("lrcpc",),
    (8, 4): ("ilrcpc", "flagm", "uscat"),
    (8, 5): ("flagm2", "frint"),
}
"""What versions of the architecture add that has no macro in every compiler."""

_DEFINE = re.compile(r"^#define (\w+) ?(.*)$", re.MULTILINE)
_ARCH = re.compile(r"\.arch\s+armv(\d)(?:\.(\d))?-a(\S*)")
_EXTENSION = re.compile(r"riscv_([a-z][a-z0-9]*)")
_LEAST_VERSION = 1000  # 1.0 is 1000000; other macros of RISC-V are small numbers
_SILENT = re.compile(r"[ieg]|zi(?:csr|fencei)|zmmul|za(?:amo|lrsc)|zc[adf]|zv[el]\w*")


def read_macros(text: str) -> dict[str, str]:
    """Return predefined macros by name, without the underlines around it."""
    return {name.strip("_"): value for name, value in _DEFINE.findall(text)}


def named_features(macros: Mapping[str, str]) -> tuple[str, ...]:
    """Return the features that macros name: of x86, 32-bit Arm or RISC-V.

    Of RISC-V, what an extension includes is left out: it follows.
    """
    rows = _ARM | _ARM_32 if "arm" in macros or "ARM_EABI" in macros else _X86
    found = dict.fromkeys(name for macro, name in rows.items() if macro in macros)
    for macro, value in macros.items():
        match = _EXTENSION.fullmatch(macro)
        versioned = match is not None and value.isdecimal() and int(value) >= _LEAST_VERSION
        if match is not None and versioned and not _SILENT.fullmatch(match[1]):
            found[match[1]] = None
    return tuple(found)


def aarch64_features(macros: Mapping[str, str], assembly: str) -> tuple[str, ...]:
    """Return the features that macros name, and those of the version that ``.arch`` names."""
    found = dict.fromkeys(name for macro, name in _ARM.items() if macro in macros)
    match = _ARCH.search(assembly)
    if match is not None:
        major, minor = int(match[1]), int(match[2] or 0)
        version = (8, 5 + minor) if major > 8 else (major, minor)  # Armv9.0 includes Armv8.5
        for since, names in _AARCH64_VERSIONS.items():
            found |= dict.fromkeys(names if version >= since else ())
        if "+rcpc" in match[3]:
            found["lrcpc"] = None
    return tuple(found)
