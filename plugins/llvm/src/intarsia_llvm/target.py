# SPDX-License-Identifier: Apache-2.0
"""Options of the ``llvm`` kind, and what they say of the machine."""

from __future__ import annotations

import platform
from collections.abc import Collection
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from intarsia.plugin.backend import did_you_mean, option
from intarsia_runtime.errors import TargetError

if TYPE_CHECKING:
    from intarsia_runtime.artifact import machine as artifact

    from .machine import CodegenMachine

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
    "avxvnni": "avx_vnni",
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512cd": "avx512cd",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512vnni": "avx512_vnni",
    "avx512vbmi": "avx512vbmi",
    "avx512bf16": "avx512_bf16",
    "amx-tile": "amx_tile",
    "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16",
}

X86_OTHERS = {
    "avx512bitalg": "avx512_bitalg",
    "avx512fp16": "avx512_fp16",
    "avx512ifma": "avx512ifma",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "pclmul": "pclmulqdq",
    "prfchw": "3dnowprefetch",
    "rdrnd": "rdrand",
    "sha": "sha_ni",
}
"""Features that nobody gets unasked, where LLVM's name is not the kernel's."""

_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")
_AVX = (*_V2, "avx")
_V3 = (*_AVX, "f16c", "fma", "avx2", "bmi", "bmi2", "lzcnt", "movbe")
_V3_VNNI = (*_V3, "avxvnni")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_VNNI = (*_V4, "avx512vnni")
_BF16 = (*_VNNI, "avx512bf16")
_VBMI = (*_VNNI, "avx512vbmi")
_ZNVER4 = (*_VBMI, "avx512bf16")
_AMX = (*_ZNVER4, "amx-tile", "amx-int8", "amx-bf16")

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
    "icelake-client": _VBMI,
    "icelake-server": _VBMI,
    "tigerlake": _VBMI,
    "rocketlake": _VBMI,
    "sapphirerapids": _AMX,
    "emeraldrapids": _AMX,
    "graniterapids": _AMX,
    "alderlake": _V3_VNNI,
    "raptorlake": _V3_VNNI,
    "meteorlake": _V3_VNNI,
    "arrowlake": _V3_VNNI,
    "arrowlake-s": _V3_VNNI,
    "lunarlake": _V3_VNNI,
    "pantherlake": _V3_VNNI,
    "sierraforest": _V3_VNNI,
    "silvermont": _V2,
    "goldmont": _V2,
    "tremont": _V2,
    "gracemont": _V3_VNNI,
    "znver1": _V3,
    "znver2": _V3,
    "znver3": _V3,
    "znver4": _ZNVER4,
    "znver5": _ZNVER4,
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
        doc="effort of LLVM's optimizer; kernels come unrolled and in vectors, so that 2 and 3 take"
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
        choices=("strict", "bf16", "fp16"),
        doc="what convolutions and products with constant weights may compute in: bf16, those of"
        " fp32 where the processor multiplies it (AMX, AVX512-BF16, BFMMLA); values between stay in"
        " it; fp16, those of float16 on AArch64 with float16 arithmetic: sums are float16, too",
    )


@cache
def host_triple() -> str:
    """Return this machine's triple, e.g. ``x86_64-unknown-linux-gnu``."""
    name = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    systems = {"Darwin": "apple-darwin", "Windows": "pc-windows-msvc"}
    return f"{name}-{systems.get(platform.system(), 'unknown-linux-gnu')}"


@cache
def host_cpu() -> tuple[str, tuple[str, ...]]:
    """Return the name and the features of this machine's processor, as LLVM has them.

    The name alone must not be trusted: virtual machines mask and mix what it stands for. LLVM
    itself is asked only where neither the kernel nor :data:`_MODELS` has the answer.
    """
    from intarsia_runtime.cpu import this_machine

    usable = this_machine().cpu_features
    if not is_x86(host_triple()):
        from llvmlite import binding  # an SDK: loaded when a target asks for it

        from .isa import attributes_of

        found = attributes_of(host_triple(), usable or frozenset())
        return binding.get_host_cpu_name(), tuple(feature[1:] for feature in found)
    name = model_name(_cpuinfo()) if usable is not None else None
    if name is not None and usable is not None:
        return name, tuple(ours for ours, kernel in X86_FEATURES.items() if kernel in usable)
    from llvmlite import binding

    has = binding.get_host_cpu_features()
    names = tuple(
        ours
        for ours, kernel in X86_FEATURES.items()
        if has.get(ours) and (usable is None or kernel in usable)
    )
    return binding.get_host_cpu_name(), names


_MODELS = {
    ("GenuineIntel", 6): {
        "haswell": "3c 3f 45 46",
        "broadwell": "3d 47 4f 56",
        "skylake": "4e 5e 8e 9e a5 a6",
        "rocketlake": "a7",
        "icelake-client": "7d 7e",
        "icelake-server": "6a 6c",
        "tigerlake": "8c 8d",
        "sapphirerapids": "8f",
        "emeraldrapids": "cf",
        "graniterapids": "ad",
    },
    ("AuthenticAMD", 25): {"znver3": "0* 2* 3* 4* 5*", "znver4": "1* 6* 7* a*"},
    ("AuthenticAMD", 26): {"znver5": "0* 1* 2* 3* 4* 5* 6*"},
}
"""Vendor and family to LLVM's name and its models, in hexadecimal (LLVM: ``Host.cpp``).

Models whose name depends on features (Intel's 55) are not here.
"""


def model_name(cpuinfo: str) -> str | None:
    """Return LLVM's name of the first x86 processor that the kernel lists; ``None`` if not known.

    Args:
        cpuinfo: The beginning of ``/proc/cpuinfo``.
    """
    rows = cpuinfo.partition("\n\n")[0].splitlines()
    row = {key.strip(): value.strip() for key, _, value in (r.partition(":") for r in rows)}
    try:
        family, model = int(row["cpu family"]), f"{int(row['model']):02x}"
    except (KeyError, ValueError):
        return None
    for name, models in _MODELS.get((row.get("vendor_id", ""), family), {}).items():
        if any(fnmatchcase(model, pattern) for pattern in models.split()):
            return name
    return None


def _cpuinfo() -> str:
    try:
        with Path("/proc/cpuinfo").open("rb") as stream:
            return stream.read(4096).decode(errors="replace")
    except OSError:
        return ""


def canonicalize(options: LlvmOptions) -> LlvmOptions:
    """Replace ``native`` by what this machine is, and check names.

    Raises:
        TargetError: An unknown processor or feature, or ``native`` for another machine.
    """
    options = _with_float_abi(options)
    triple = options.mtriple or host_triple()
    for feature in options.mattr:
        if feature[:1] not in ("+", "-"):
            raise TargetError(f"-mattr: '{feature}' starts with neither + nor -", option="mattr")
    same = _arch(triple) == _arch(host_triple())
    if options.mcpu == "native" and same:
        name, features = host_cpu()
        found = tuple(f"+{feature}" for feature in features)
        known = X86_CPUS if is_x86(triple) else () if name == "generic" else (name,)
        return replace(
            options,
            mtriple=triple,
            mcpu="x86-64" if is_x86(triple) else "generic",
            mtune=options.mtune or (name if name in known else ""),
            mattr=(*found, *options.mattr),
        )
    if not is_x86(triple):
        cpu = "generic" if options.mcpu == "native" else options.mcpu
        base = _RV64GC if _is_plain_riscv(triple, cpu) else ()
        given = () if set(base) <= set(options.mattr) else base
        return replace(options, mtriple=triple, mcpu=cpu, mattr=(*given, *options.mattr))
    if options.mcpu == "native":
        raise TargetError(
            f"-mcpu=native is this machine ({host_triple()}), not {triple}",
            hint="name the processor, e.g. -mcpu=x86-64-v3",
            option="mcpu",
        )
    if options.mcpu not in X86_CPUS:
        raise TargetError(
            f"-mcpu: no x86 processor '{options.mcpu}'",
            hint=feature_hint(options.mcpu, X86_FEATURES | X86_OTHERS)
            or did_you_mean(options.mcpu, X86_CPUS)
            or f"one of {', '.join(X86_CPUS)}",
            option="mcpu",
        )
    return replace(options, mtriple=triple)


def is_known(options: LlvmOptions) -> bool:
    """Say whether every name in canonical options is in the tables of x86 above."""
    ours = {*X86_CPUS, *X86_FEATURES, *X86_OTHERS}
    names = {options.mcpu, *(feature[1:] for feature in options.mattr)}
    return is_x86(options.mtriple) and names <= ours and options.mtune in {*ours, ""}


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
            option="mfloat-abi",
        )
    abi = abi.removesuffix("hf") + ("hf" if options.mfloat_abi == "hard" else "")
    return replace(options, mtriple=f"{front}-{abi}", mfloat_abi="")


def feature_hint(name: str, features: Collection[str]) -> str:
    """Return what to write where a feature was named as a processor; empty if it is none."""
    return f"'{name}' is a feature of processors: -mattr=+{name}" if name in features else ""


_RV64GC = ("+m", "+a", "+f", "+d", "+c")
"""What every RISC-V Linux has, and what its libraries pass floats by (the ABI lp64d)."""


def _is_plain_riscv(triple: str, cpu: str) -> bool:
    """Say whether a processor is that of any RISC-V machine with an operating system."""
    plain = cpu in ("generic", "generic-rv64", "generic-rv32")
    return plain and triple.startswith("riscv") and not is_bare(triple)


def _arch(triple: str) -> str:
    return triple.split("-")[0]


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


_WITHOUT_MODEL = ("oryon-1", "ampere1b")
"""Processors whose scheduling model in LLVM 22 lacks instructions, which ends the process; they get
their features without the model."""


def machine(options: LlvmOptions) -> CodegenMachine:
    """Return what the options mean for code generation."""
    from .isa import attributes_of, resolve
    from .machine import CodegenMachine

    options = canonicalize(options)
    triple = _whole(options.mtriple)
    if not is_x86(triple):
        wide = triple.startswith(("aarch64", "arm64"))
        registers, bare = 32 if wide else 16, is_bare(triple)
        cpu, found = options.mcpu, resolve(triple, options.mcpu, options.mattr)
        if cpu in _WITHOUT_MODEL:
            attributes = (*attributes_of(triple, found.offered), *options.mattr)
            cpu, found = "generic", resolve(triple, "generic", attributes)
        tune = options.mtune if cpu == "generic" else ""
        bf16 = options.fpmath_mode == "bf16" and wide and "bf16" in found.needed
        return CodegenMachine(
            triple,
            cpu,
            tune,
            found.attributes,
            4,
            registers,
            found.needed,
            wide,
            bare=bare,
            signed_dot=wide and "asimddp" in found.needed,
            signed_matrix=wide and "i8mm" in found.needed,
            bf16_matrix=bf16,
            half_sums=options.fpmath_mode == "fp16" and wide and "asimdhp" in found.needed,
            bfloat=bf16,
            signed_pairs=wide and not {"-neon", "-fp-armv8"} & set(options.mattr),  # all have it
        )
    return _x86_machine(options)


def least_machine(options: LlvmOptions) -> artifact.Machine:
    """Return the machine with nothing but what code for the options may use."""
    from intarsia_runtime.artifact import machine as artifact

    from .isa import resolve

    model = machine(options)
    arch, offered = _arch(model.triple), frozenset(model.cpu_features)
    if not is_x86(model.triple):
        offered = resolve(model.triple, options.mcpu, options.mattr).offered
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch)
    return artifact.Machine("linux", "arm" if arch.startswith(("arm", "thumb")) else arch, offered)


def _x86_machine(options: LlvmOptions) -> CodegenMachine:
    from .isa import active_features
    from .machine import CodegenMachine

    wanted = dict.fromkeys(X86_CPUS[options.mcpu])
    for feature in options.mattr:
        if feature.startswith("+"):
            wanted[feature[1:]] = None
        else:
            wanted.pop(feature[1:], None)
    removed = [feature for feature in options.mattr if feature.startswith("-")]
    features = ",".join([*(f"+{name}" for name in wanted), *removed, "-prefer-256-bit"])
    # LLVM adds what a feature includes, and takes away what includes a removed one.
    names = X86_FEATURES | X86_OTHERS
    asked = (*X86_FEATURES, *sorted(X86_OTHERS.keys() | wanted.keys() - X86_FEATURES.keys()))
    active = active_features(options.mtriple, "x86-64", features, asked)
    wide = "avx512f" in active and "avx512vl" in active and "avx512dq" in active
    lanes = 16 if wide else 8 if "avx" in active else 4
    dot = "avxvnni" in active or (wide and "avx512vnni" in active)
    tiles = wide and "amx-tile" in active
    bf16 = options.fpmath_mode == "bf16" and wide
    amx_bf16 = bf16 and tiles and "amx-bf16" in active
    return CodegenMachine(
        options.mtriple,
        "x86-64",
        options.mtune or options.mcpu,
        features,
        lanes,
        registers=32 if wide else 16,
        cpu_features=tuple(names.get(name, name) for name in active),
        half="f16c" in active,
        dot=dot,
        scale=wide,
        amx=tiles and "amx-int8" in active,
        amx_bf16=amx_bf16,
        bf16_dot=bf16 and not amx_bf16 and "avx512bf16" in active,
        bfloat=bf16 and "avx512bf16" in active,
        pairs=lanes == 4 or {16: "avx512bw", 8: "avx2"}[lanes] in active,  # all have SSE2
        byte_pairs={16: "avx512bw", 8: "avx2", 4: "ssse3"}[lanes] in active,
    )
