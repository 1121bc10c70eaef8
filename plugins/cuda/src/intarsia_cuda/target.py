# SPDX-License-Identifier: Apache-2.0
"""Options of the ``cuda`` kind."""

from __future__ import annotations

from dataclasses import dataclass

from intarsia.plugin import TargetError, option

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

WARP = 32
"""Threads that run in step and can exchange registers."""


@dataclass(frozen=True, kw_only=True)
class CudaOptions:
    """What a user may set."""

    arch: str = option(
        "sm_80", doc="compute capability to compile for", choices=(*LEGACY, *ARCHITECTURES)
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
    emulate: bool = option(False, doc="run the kernels on the CPU, to test them without a GPU")
    cxx: str = option("g++", doc="C++ compiler for -emulate: a name or a path")

    @property
    def capability(self) -> int:
        """Major and minor number of the architecture, as one number: 75, 80, 90."""
        return int(self.arch.removeprefix("sm_").rstrip("a"))


def canonicalize(options: CudaOptions) -> CudaOptions:
    """Check options against each other.

    Raises:
        TargetError: A block that is no number of warps, an arithmetic that the architecture lacks,
            or no compiler.
    """
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
