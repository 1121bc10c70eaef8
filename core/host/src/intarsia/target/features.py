# SPDX-License-Identifier: Apache-2.0
"""What a processor can do, from its name and its features: a table, no backend needed.

Names are LLVM's: ``features("x86_64-linux-gnu", "znver4", ("-avx512vnni",)).has_avx512``. An
unknown processor has what ``-mattr`` adds, and what every processor of its architecture has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import asdict

from .options import option_rows, set_options
from .target import Target


class Features(Struct, frozen=True):
    """What code for a target may use.

    Attributes:
        is_x86_64: 64-bit x86.
        is_aarch64: 64-bit Arm.
        is_cortex_m: Arm microcontroller.
        has_sse42: SSE up to 4.2, and POPCNT.
        has_avx: 256-bit vectors of floats.
        has_f16c: Conversion of half precision.
        has_fma: Fused multiply-add.
        has_avx2: 256-bit vectors of integers.
        has_avx512: The 512-bit set of every server since Skylake: F, BW, CD, DQ, VL.
        has_avx512_vnni: Dot products of int8 in 512 bits.
        has_avx512_bf16: Dot products of bfloat16.
        has_avx512_fp16: Arithmetic in half precision.
        has_avx_vnni: Dot products of int8 in 256 bits.
        has_amx_int8: Matrix tiles of int8.
        has_amx_bf16: Matrix tiles of bfloat16.
        has_asimd: 128-bit vectors of an Arm A-profile.
        has_fp16_simd: Vectors of half precision.
        has_dotprod: Dot products of int8.
        has_matmul_i8: Matrix products of int8 in vector registers.
        has_bf16: Dot and matrix products of bfloat16.
        has_sve: Scalable vectors.
        has_sve2: Scalable vectors, second set.
        has_sme: Matrix tiles of an Arm A-profile.
        has_dsp: Packed integers in the scalar registers of an Arm M-profile.
        has_fpu: Floats in hardware on an Arm M-profile.
        has_fp64: Doubles in hardware on an Arm M-profile.
        has_mve: 128-bit vectors of integers of an Arm M-profile.
        has_mve_fp: 128-bit vectors of floats of an Arm M-profile.
    """

    is_x86_64: bool = False
    is_aarch64: bool = False
    is_cortex_m: bool = False
    has_sse42: bool = False
    has_avx: bool = False
    has_f16c: bool = False
    has_fma: bool = False
    has_avx2: bool = False
    has_avx512: bool = False
    has_avx512_vnni: bool = False
    has_avx512_bf16: bool = False
    has_avx512_fp16: bool = False
    has_avx_vnni: bool = False
    has_amx_int8: bool = False
    has_amx_bf16: bool = False
    has_asimd: bool = False
    has_fp16_simd: bool = False
    has_dotprod: bool = False
    has_matmul_i8: bool = False
    has_bf16: bool = False
    has_sve: bool = False
    has_sve2: bool = False
    has_sme: bool = False
    has_dsp: bool = False
    has_fpu: bool = False
    has_fp64: bool = False
    has_mve: bool = False
    has_mve_fp: bool = False

    def names(self) -> tuple[str, ...]:
        """Names of what it has, in the order of the attributes."""
        return tuple(name for name, there in asdict(self).items() if there)


_X86 = MappingProxyType(
    {
        "has_sse42": ("sse4.2", "popcnt"),
        "has_avx": ("avx",),
        "has_f16c": ("f16c",),
        "has_fma": ("fma",),
        "has_avx2": ("avx2",),
        "has_avx512": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
        "has_avx512_vnni": ("avx512vnni",),
        "has_avx512_bf16": ("avx512bf16",),
        "has_avx512_fp16": ("avx512fp16",),
        "has_avx_vnni": ("avxvnni",),
        "has_amx_int8": ("amx-int8",),
        "has_amx_bf16": ("amx-bf16",),
    }
)
_A_PROFILE = MappingProxyType(
    {
        "has_asimd": ("neon",),
        "has_fp16_simd": ("fullfp16",),
        "has_dotprod": ("dotprod",),
        "has_matmul_i8": ("i8mm",),
        "has_bf16": ("bf16",),
        "has_sve": ("sve",),
        "has_sve2": ("sve2",),
        "has_sme": ("sme",),
    }
)
_M_PROFILE = MappingProxyType(
    {
        "has_dsp": ("dsp",),
        "has_fpu": ("fp",),
        "has_fp64": ("fp64",),
        "has_mve": ("mve",),
        "has_mve_fp": ("mve.fp",),
    }
)

_NEEDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ssse3": ("sse3",),
        "sse4.1": ("ssse3",),
        "sse4.2": ("sse4.1",),
        "avx": ("sse4.2",),
        "f16c": ("avx",),
        "fma": ("avx",),
        "avx2": ("avx",),
        "avxvnni": ("avx2",),
        "avx512f": ("avx2", "f16c", "fma"),
        "avx512bw": ("avx512f",),
        "avx512cd": ("avx512f",),
        "avx512dq": ("avx512f",),
        "avx512vl": ("avx512f",),
        "avx512vnni": ("avx512f",),
        "avx512bf16": ("avx512bw",),
        "avx512fp16": ("avx512bw",),
        "amx-int8": ("amx-tile",),
        "amx-bf16": ("amx-tile",),
        "fullfp16": ("neon",),
        "dotprod": ("neon",),
        "i8mm": ("neon",),
        "bf16": ("neon",),
        "sve": ("fullfp16",),
        "sve2": ("sve",),
        "fp64": ("fp",),
        "mve": ("dsp",),
        "mve.fp": ("mve", "fp"),
    }
)
"""Feature to those it is built on: adding it adds them, removing one of them removes it."""

_OTHER_NAMES = MappingProxyType(
    {"vfp4d16sp": "fp", "fp-armv8d16sp": "fp", "fpregs": "fp", "vfp4d16": "fp64"}
    | {"fp-armv8d16": "fp64", "simd": "neon", "nofp": "-fp", "nodsp": "-dsp", "nomve": "-mve"}
)

_V2 = ("sse4.2", "popcnt")
_AVX = (*_V2, "avx")
_IVY = (*_AVX, "f16c")
_V3 = (*_IVY, "fma", "avx2")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_VNNI = (*_V4, "avx512vnni")
_COOPER = (*_VNNI, "avx512bf16")
_ZEN5 = (*_COOPER, "avxvnni")
_SAPPHIRE = (*_COOPER, "avx512fp16", "avxvnni", "amx-int8", "amx-bf16")
_ALDER = (*_V3, "avxvnni")

_V8_2 = ("dotprod", "fullfp16")
_V8_6 = (*_V8_2, "bf16", "i8mm")
_V9 = (*_V8_6, "sve2")

_M4 = ("dsp", "fp")
_M7 = ("dsp", "fp64")
_M55 = ("mve.fp", "fp64")


def _rows(*groups: tuple[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
    return MappingProxyType({name: has for names, has in groups for name in names.split()})


X86_CPUS = _rows(
    ("x86-64 k8 nocona core2 penryn amdfam10 btver1", ()),
    ("x86-64-v2 nehalem westmere corei7 silvermont slm goldmont goldmont-plus tremont", _V2),
    ("sandybridge corei7-avx btver2 bdver1", _AVX),
    ("ivybridge core-avx-i", _IVY),
    ("bdver2 bdver3", (*_IVY, "fma")),
    ("x86-64-v3 haswell core-avx2 broadwell skylake bdver4 znver1 znver2 znver3", _V3),
    ("x86-64-v4 skylake-avx512 skx cannonlake", _V4),
    ("cascadelake icelake-client icelake-server tigerlake rocketlake", _VNNI),
    ("cooperlake znver4", _COOPER),
    ("znver5", _ZEN5),
    ("sapphirerapids emeraldrapids graniterapids graniterapids-d", _SAPPHIRE),
    ("alderlake raptorlake meteorlake arrowlake arrowlake-s lunarlake pantherlake", _ALDER),
    ("gracemont sierraforest grandridge clearwaterforest", _ALDER),
    ("knl knm", (*_V3, "avx512cd")),
)
"""x86 processors by LLVM's name."""

ARM_CPUS = _rows(
    ("generic cortex-a34 cortex-a35 cortex-a53 cortex-a57 cortex-a72 cortex-a73", ("neon",)),
    ("cyclone apple-a7 apple-a8 apple-a9 apple-a10 kryo thunderx thunderx2t99 falkor", ("neon",)),
    ("apple-a11 apple-a12 carmel", ("fullfp16",)),
    ("cortex-a55 cortex-a65 cortex-a65ae cortex-a75 cortex-a76 cortex-a76ae cortex-a77", _V8_2),
    ("cortex-a78 cortex-a78ae cortex-a78c cortex-x1 cortex-x1c neoverse-e1 neoverse-n1", _V8_2),
    ("tsv110 exynos-m4 exynos-m5 thunderx3t110 saphira", ("dotprod",)),
    ("apple-a13 apple-a14 apple-m1", _V8_2),
    ("apple-a15 apple-a16 apple-a17 apple-m2 apple-m3", _V8_6),
    ("ampere1 ampere1a ampere1b oryon-1", _V8_6),
    ("apple-m4", (*_V8_6, "sme")),
    ("a64fx", ("sve",)),
    ("neoverse-v1 neoverse-512tvb", (*_V8_6, "sve")),
    ("cortex-a510 cortex-a520 cortex-a520ae cortex-a710 cortex-a715 cortex-a720", _V9),
    ("cortex-a720ae cortex-a725 cortex-x2 cortex-x3 cortex-x4 cortex-x925", _V9),
    ("neoverse-n2 neoverse-n3 neoverse-v2 neoverse-v3 neoverse-v3ae cobalt-100 grace", _V9),
)
"""64-bit Arm processors by LLVM's name."""

CORTEX_M_CPUS = _rows(
    ("cortex-m0 cortex-m0plus cortex-m1 cortex-m3 cortex-m23 sc000 sc300", ()),
    ("cortex-m4 cortex-m33 cortex-m35p", _M4),
    ("cortex-m7", _M7),
    ("cortex-m52 cortex-m55 cortex-m85", _M55),
)
"""Arm microcontrollers by LLVM's name, with every option that the core may have."""


def features(triple: str, cpu: str, attributes: Iterable[str] = ()) -> Features:
    """Return what code for a processor may use.

    Args:
        triple: LLVM's name of the machine.
        cpu: The processor; ``+nodsp``, ``+nofp`` and ``+nomve`` behind it take options away.
        attributes: ``+feature`` and ``-feature``, in order.
    """
    arch = triple.split("-")[0]
    name, _, extras = cpu.partition("+")
    switches = [f"+{word}" for word in extras.split("+") if word] + list(attributes)
    if arch in ("x86_64", "amd64"):
        has = _active(X86_CPUS.get(name, ()), switches)
        return Features(is_x86_64=True, **_named(_X86, has))
    if arch in ("aarch64", "arm64"):
        has = _active(ARM_CPUS.get(name, ("neon",)), switches)
        return Features(is_aarch64=True, **_named(_A_PROFILE, has))
    if name in CORTEX_M_CPUS or arch.startswith("thumb"):
        has = _active(CORTEX_M_CPUS.get(name, ()), switches)
        return Features(is_cortex_m=True, **_named(_M_PROFILE, has))
    return Features()


def target_features(target: Target) -> Features:
    """Return what code for a target may use, from its ``-mtriple``, ``-mcpu`` and ``-mattr``."""
    values = set_options(option_rows(target.kind.options), target.options)
    attributes = values.get("mattr", ())
    listed = attributes if isinstance(attributes, tuple) else ()
    return features(
        str(values.get("mtriple", "")),
        str(values.get("mcpu", "")),
        tuple(str(attribute) for attribute in listed),
    )


def _named(table: Mapping[str, tuple[str, ...]], has: set[str]) -> dict[str, bool]:
    return {name: set(needed) <= has for name, needed in table.items()}


def _active(start: Iterable[str], switches: Iterable[str]) -> set[str]:
    has: set[str] = set()
    for name in start:
        _add(has, name)
    for switch in switches:
        sign, name = switch[:1], _OTHER_NAMES.get(switch[1:], switch[1:])
        if name.startswith("-"):
            sign, name = "-", name[1:]
        if sign == "+":
            _add(has, name)
        elif sign == "-":
            _remove(has, name)
    return has


def _add(has: set[str], name: str) -> None:
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one not in has:
            has.add(one)
            waiting += _NEEDS.get(one, ())


def _remove(has: set[str], name: str) -> None:
    waiting = [name]
    while waiting:
        one = waiting.pop()
        has.discard(one)
        waiting += [other for other in has if one in _NEEDS.get(other, ())]
