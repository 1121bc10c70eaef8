# SPDX-License-Identifier: Apache-2.0
"""Options of the ``cuda`` kind."""

from __future__ import annotations

from dataclasses import dataclass, replace

from intarsia.plugin import IntarsiaError, TargetError, option

KIND = "cuda"
"""Name of the target kind."""

LOADER = "cuda"
"""Name in the entry-point group ``intarsia.loaders``."""

ARCHITECTURES = (
    *("sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a"),
    *("sm_100", "sm_100a", "sm_103", "sm_103a", "sm_110", "sm_110a"),
    *("sm_120", "sm_120a", "sm_121", "sm_121a"),
)
"""What NVRTC 13 compiles for; a test asks it."""

LEGACY = ("sm_50", "sm_52", "sm_53", "sm_60", "sm_61", "sm_62", "sm_70", "sm_72")
"""What it no longer compiles for: kernels for these can be written and emulated only."""

NATIVE = "native"
"""The architecture of the GPU of this machine."""

WARP = 32
"""Threads that run in step and can exchange registers."""


@dataclass(frozen=True, kw_only=True)
class CudaOptions:
    """What a user may set."""

    arch: str = option(
        "sm_80",
        doc="compute capability to compile for; native is that of the GPU here",
        choices=(NATIVE, *LEGACY, *ARCHITECTURES),
    )
    max_threads_per_block: int = option(
        256, doc="most threads of a block; a multiple of 32", minimum=WARP, maximum=1024
    )
    fpmath_mode: str = option(
        "strict",
        doc="how float32 products may be rounded, to use tensor cores",
        choices=("strict", "tf32", "bf16"),
    )
    fmad: bool = option(True, doc="join a product and a sum into one instruction")
    lineinfo: bool = option(
        False, doc="say which line of kernels.cu each instruction is of, for Nsight Compute and gdb"
    )
    wide_index: bool = option(
        False, doc="count in 64 bits, for tensors of open sizes with more than 1073741824 elements"
    )
    emulate: bool = option(False, doc="run the kernels on the CPU, to test them without a GPU")
    cxx: str = option("g++", doc="C++ compiler for -emulate: a name or a path")

    @property
    def capability(self) -> int:
        """Major and minor number of the architecture, as one number: 75, 80, 90."""
        return int(self.arch.removeprefix("sm_").rstrip("a"))


def canonicalize(options: CudaOptions) -> CudaOptions:
    """Replace ``native`` by what the GPU here is, and check options against each other.

    Raises:
        TargetError: A block that is no number of warps, an arithmetic that the architecture lacks,
            no compiler, or ``native`` without a GPU.
    """
    if options.arch == NATIVE:
        options = replace(options, arch=_native())
    if options.max_threads_per_block % WARP:
        raise TargetError(
            f"-max-threads-per-block={options.max_threads_per_block} is no multiple of {WARP}",
            hint=f"-max-threads-per-block={options.max_threads_per_block // WARP * WARP or WARP}",
            option="max-threads-per-block",
        )
    if options.fpmath_mode != "strict" and options.capability < 80:
        raise TargetError(
            f"{options.arch} has no tensor cores for -fpmath-mode={options.fpmath_mode}",
            hint="-arch=sm_80 or newer, or -fpmath-mode=strict",
        )
    if not options.cxx:
        raise TargetError(
            "-cxx is empty", hint="-cxx=clang++, or leave it away for g++", option="cxx"
        )
    return options


def _native() -> str:
    """Return the newest architecture whose code the GPU here runs."""
    from .driver import device_capability  # loads the driver

    try:
        capability = device_capability()
    except IntarsiaError as error:
        raise TargetError(
            f"-arch={NATIVE} asks for a GPU in this machine: {error.message}",
            hint="name the architecture, as in -arch=sm_90",
            option="arch",
        ) from error
    found = [
        name
        for name in (*LEGACY, *ARCHITECTURES)
        if name[-1].isdigit() and _runs(int(name.removeprefix("sm_")), capability)
    ]
    if not found:
        raise TargetError(
            f"the GPU here has compute capability {capability / 10}, which is not known",
            hint="name an older architecture: the driver compiles its PTX for this GPU",
            option="arch",
        )
    return found[-1]


def _runs(number: int, capability: int) -> bool:
    """Whether a GPU runs machine code: that of its own major number, up to its minor."""
    return number // 10 == capability // 10 and number <= capability
