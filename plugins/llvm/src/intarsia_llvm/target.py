# SPDX-License-Identifier: Apache-2.0
"""Options of the ``llvm`` kind, and what they say of the machine."""

from __future__ import annotations

import platform
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache

from intarsia.errors import TargetError
from intarsia.runtime.cpu import this_machine
from intarsia.target.options import did_you_mean, option

from .machine import Machine

# Features in the order in which x86 processors got them: LLVM's name, and the Linux kernel's.
X86_FEATURES = {
    "sse3": "pni",
    "ssse3": "ssse3",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "popcnt": "popcnt",
    "avx": "avx",
    "f16c": "f16c",
    "fma": "fma",
    "avx2": "avx2",
    "bmi": "bmi1",
    "bmi2": "bmi2",
    "lzcnt": "abm",
    "movbe": "movbe",
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512cd": "avx512cd",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "amx-tile": "amx_tile",
    "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16",
}

X86_OTHERS = {
    "avx512bitalg": "avx512_bitalg",
    "avx512fp16": "avx512_fp16",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avxvnni": "avx_vnni",
    "pclmul": "pclmulqdq",
    "prfchw": "3dnowprefetch",
    "rdrnd": "rdrand",
    "sha": "sha_ni",
}
"""Features that nobody gets unasked, where LLVM's name is not the kernel's."""

_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")
_AVX = (*_V2, "avx")
_V3 = (*_AVX, "f16c", "fma", "avx2", "bmi", "bmi2", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_VNNI = (*_V4, "avx512vnni")
_BF16 = (*_VNNI, "avx512bf16")
_AMX = (*_BF16, "amx-tile", "amx-int8", "amx-bf16")

X86_CPUS = {
    "x86-64": (),
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": _V4,
    "nehalem": _V2,
    "westmere": _V2,
    "sandybridge": _AVX,
    "ivybridge": (*_AVX, "f16c"),
    "haswell": _V3,
    "broadwell": _V3,
    "skylake": _V3,
    "skylake-avx512": _V4,
    "cascadelake": _VNNI,
    "cooperlake": _BF16,
    "icelake-client": _VNNI,
    "icelake-server": _VNNI,
    "tigerlake": _VNNI,
    "rocketlake": _VNNI,
    "sapphirerapids": _AMX,
    "emeraldrapids": _AMX,
    "graniterapids": _AMX,
    "alderlake": _V3,
    "raptorlake": _V3,
    "meteorlake": _V3,
    "arrowlake": _V3,
    "arrowlake-s": _V3,
    "lunarlake": _V3,
    "pantherlake": _V3,
    "sierraforest": _V3,
    "silvermont": _V2,
    "goldmont": _V2,
    "tremont": _V2,
    "gracemont": _V3,
    "znver1": _V3,
    "znver2": _V3,
    "znver3": _V3,
    "znver4": _BF16,
    "znver5": _BF16,
}
"""x86 processors by LLVM's name: what code for them may use."""


@dataclass(frozen=True, kw_only=True)
class LlvmOptions:
    """What a user may set."""

    mcpu: str = option("native", doc="processor by LLVM's name; native means this machine")
    mattr: tuple[str, ...] = option((), doc="features to add or remove: +avx2,-avx512f")
    mtune: str = option("", doc="processor to schedule instructions for; mcpu if empty")
    mtriple: str = option("", doc="LLVM's name of the machine; this machine if empty")
    mfloat_abi: str = option(
        "",
        choices=("", "hard", "soft"),
        doc="where 32-bit Arm code passes floats; becomes part of -mtriple: hard is eabihf",
    )
    num_threads: int = option(0, doc="threads; 0 means all", minimum=0, maximum=1024)
    opt_level: int = option(
        1,
        doc="effort of LLVM's optimiser; kernels come unrolled and in vectors, so that 2 and 3 take"
        " about twice as long and give nearly the same code",
        minimum=0,
        maximum=3,
    )
    winograd: bool = option(
        True,
        doc="compute 3x3 convolutions with many channels by Winograd's method, up to twice as fast;"
        " their weights take 16/9 of the memory, and the last bits of results differ",
    )
    fpmath_mode: str = option(
        "strict",
        choices=("strict", "bf16"),
        doc="what fp32 convolutions and products with constant weights may compute in: bf16, where"
        " the processor has a matrix unit for it (AMX); values between them are kept in it",
    )


@cache
def host_triple() -> str:
    """Return this machine's triple, e.g. ``x86_64-unknown-linux-gnu``."""
    name = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    systems = {"Darwin": "apple-darwin", "Windows": "pc-windows-msvc"}
    return f"{name}-{systems.get(platform.system(), 'unknown-linux-gnu')}"


@cache
def host_cpu() -> tuple[str, tuple[str, ...]]:
    """Return the name and the features of this machine's processor.

    The name alone must not be trusted: virtual machines mask and mix what it stands for.
    """
    from llvmlite import binding  # an SDK: loaded when a target asks for it

    has, usable = binding.get_host_cpu_features(), this_machine().cpu_features
    names = tuple(
        name
        for name, kernel_name in X86_FEATURES.items()
        if has.get(name) and (usable is None or kernel_name in usable)
    )
    return binding.get_host_cpu_name(), names


def canonicalise(options: LlvmOptions) -> LlvmOptions:
    """Replace ``native`` by what this machine is, and check names.

    Raises:
        TargetError: An unknown processor or feature, or ``native`` for another machine.
    """
    options = _with_float_abi(options)
    triple = options.mtriple or host_triple()
    for feature in options.mattr:
        if feature[:1] not in ("+", "-"):
            raise TargetError(f"-mattr: '{feature}' starts with neither + nor -")
    if not is_x86(triple):
        cpu = "generic" if options.mcpu == "native" else options.mcpu
        return replace(options, mtriple=triple, mcpu=cpu)
    if options.mcpu == "native":
        if triple.split("-")[0] != host_triple().split("-")[0]:
            raise TargetError(
                f"-mcpu=native is this machine ({host_triple()}), not {triple}",
                hint="name the processor, e.g. -mcpu=x86-64-v3",
            )
        name, features = host_cpu()
        found = tuple(f"+{feature}" for feature in features)
        return replace(
            options,
            mtriple=triple,
            mcpu="x86-64",
            mtune=options.mtune or (name if name in X86_CPUS else ""),
            mattr=(*found, *options.mattr),
        )
    if options.mcpu not in X86_CPUS:
        raise TargetError(
            f"-mcpu: no x86 processor '{options.mcpu}'",
            hint=feature_hint(options.mcpu, X86_FEATURES | X86_OTHERS)
            or did_you_mean(options.mcpu, X86_CPUS)
            or f"one of {', '.join(X86_CPUS)}",
        )
    return replace(options, mtriple=triple)


def _with_float_abi(options: LlvmOptions) -> LlvmOptions:
    """Say where floats are passed in the triple, which has a word for it.

    Raises:
        TargetError: The machine has one way only.
    """
    if not options.mfloat_abi:
        return options
    triple = options.mtriple or host_triple()
    front, _, abi = triple.rpartition("-")
    if not triple.startswith(("arm", "thumb")) or not abi.removesuffix("hf").endswith("eabi"):
        raise TargetError(
            f"-mfloat-abi is for 32-bit Arm; {triple} passes floats in one way only",
            hint="leave it out, or e.g. -mtriple=armv7-linux-gnueabihf",
        )
    abi = abi.removesuffix("hf") + ("hf" if options.mfloat_abi == "hard" else "")
    return replace(options, mtriple=f"{front}-{abi}", mfloat_abi="")


def feature_hint(name: str, features: Collection[str]) -> str:
    """Return what to write where a feature was named as a processor; empty if it is none."""
    return f"'{name}' is a feature of processors: -mattr=+{name}" if name in features else ""


def is_x86(triple: str) -> bool:
    """Say whether a triple is one of 64-bit x86."""
    return triple.split("-")[0] in ("x86_64", "amd64")


def is_bare(triple: str) -> bool:
    """Say whether a triple is one of a machine without an operating system."""
    return "none" in triple.split("-")[1:3]


def _whole(triple: str) -> str:
    """Write a triple of three words, as compilers take them, with the vendor that LLVM expects.

    Read word by word, ``thumbv7em-none-eabihf`` has a vendor ``none`` and an unknown ABI: LLVM
    would pass floats in other registers than the libraries of the board.
    """
    words = triple.split("-")
    return "-".join([words[0], "unknown", *words[1:]]) if words[1:2] == ["none"] else triple


def machine(options: LlvmOptions) -> Machine:
    """Return what the options mean for code generation."""
    options = canonicalise(options)
    triple = options.mtriple
    if not is_x86(triple):
        wide = triple.startswith(("aarch64", "arm64"))
        features = ",".join(options.mattr)
        registers, bare = 32 if wide else 16, is_bare(triple)
        triple = _whole(triple)
        return Machine(triple, options.mcpu, "", features, 4, registers, (), wide, bare=bare)
    active = dict.fromkeys(X86_CPUS[options.mcpu])
    for feature in options.mattr:
        if feature.startswith("+"):
            active[feature[1:]] = None
        else:
            active.pop(feature[1:], None)
    names = X86_FEATURES | X86_OTHERS
    needed = [name for name in X86_FEATURES if name in active]
    needed += sorted(name for name in active if name not in X86_FEATURES)
    known = tuple(names.get(name, name) for name in needed)
    wide = "avx512f" in active and "avx512vl" in active and "avx512dq" in active
    lanes = 16 if wide else 8 if "avx" in active else 4
    removed = [feature for feature in options.mattr if feature.startswith("-")]
    features = ",".join([*(f"+{name}" for name in active), *removed, "-prefer-256-bit"])
    tune = options.mtune or options.mcpu
    dot = "avxvnni" in active or (wide and "avx512vnni" in active)
    tiles = wide and "amx-tile" in active
    pairs = options.fpmath_mode == "bf16" and tiles and "amx-bf16" in active
    return Machine(
        triple,
        "x86-64",
        tune,
        features,
        lanes,
        registers=32 if wide else 16,
        cpu_features=known,
        half="f16c" in active,
        dot=dot,
        scale=wide,
        amx=tiles and "amx-int8" in active,
        pairs=pairs,
        bfloat=pairs and "avx512bf16" in active,
    )
