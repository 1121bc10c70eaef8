# SPDX-License-Identifier: Apache-2.0
"""Options of the ``c`` kind."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass

from intarsia.plugin import TargetError, option

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_WITH_MVE = frozenset({"cortex-m52", "cortex-m55", "cortex-m85"})
_WITH_DSP = frozenset({"cortex-m4", "cortex-m7", "cortex-m33", "cortex-m35p"}) | _WITH_MVE
_M_PROFILE = re.compile(r"armv(?:6s?-m|7e?-m|8(?:\.[0-9]+)?-m)\b")
_X86 = frozenset({"x86_64", "i686", "i586", "i386"})
_MACHINES = {"AMD64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True, kw_only=True)
class COptions:
    """What a user may set."""

    cc: str = option("cc", doc="C compiler: a name or a path")
    cflags: tuple[str, ...] = option((), doc="more flags: -march=native,-ffast-math")
    opt_level: int = option(
        2,
        doc="effort of the compiler; 3 takes GCC 2 to 3 times as long, for similar code",
        minimum=0,
        maximum=3,
    )
    mcpu: str = option("", doc="processor the code is for: native, haswell, cortex-m4")
    march: str = option("", doc="instruction set the code is for: armv7e-m, x86-64-v3, rv64gc")
    mtriple: str = option("", doc="machine to write sources for; this machine if empty")
    freestanding: bool = option(False, doc="sources only: no shared library for this machine")
    winograd: bool = option(
        True,
        doc="compute 3x3 convolutions with many channels by Winograd's method, up to twice as fast;"
        " their weights take 16/9 of the memory; never for microcontrollers",
    )
    prefix: str = option("", doc="start of every public name; made of the model's name if empty")

    @property
    def is_microcontroller(self) -> bool:
        """Whether the code is for a processor of Arm's M profile."""
        words = self.mcpu.startswith("cortex-m") or self.mtriple.startswith("thumb")
        return words or _M_PROFILE.match(self.march) is not None

    @property
    def is_x86(self) -> bool:
        """Whether the code is for a processor of x86."""
        return (self.mtriple or this_machine()).split("-")[0] in _X86

    @property
    def has_mve(self) -> bool:
        """Whether the processor named has the M profile's vectors, as far as its name says."""
        named = self.mcpu.split("+")[0] in _WITH_MVE and "+nomve" not in self.mcpu
        return named or "+mve" in self.march

    @property
    def has_dsp(self) -> bool:
        """Whether the processor named has the DSP instructions or the vectors of the M profile."""
        named = self.mcpu.split("+")[0] in _WITH_DSP and "+nodsp" not in self.mcpu
        return named or self.march.startswith("armv7e-m") or "+dsp" in self.march or self.has_mve

    @property
    def sources_only(self) -> bool:
        """Whether the code is for another machine than this, so nothing is compiled."""
        other = bool(self.mtriple) and self.mtriple.split("-")[0] != this_machine()
        return self.freestanding or self.is_microcontroller or other


def this_machine() -> str:
    """Return the first part of this machine's triple, e.g. ``x86_64``."""
    return _MACHINES.get(platform.machine(), platform.machine())


def canonicalize(options: COptions) -> COptions:
    """Check what the types do not say.

    Raises:
        TargetError: No compiler, two instruction sets, or a prefix that is no C identifier.
    """
    if not options.cc:
        raise TargetError("-cc is empty", hint="-cc=gcc, or leave it away for cc", option="cc")
    if options.march and options.mcpu and this_machine() == "x86_64" and not options.sources_only:
        raise TargetError(
            "-march: x86-64 compilers read -mcpu as -march, and both are given",
            hint="leave one of them out",
            option="march",
        )
    if options.prefix and not _PREFIX.fullmatch(options.prefix):
        raise TargetError(
            f"-prefix: '{options.prefix}' cannot start a name in C",
            hint="letters, digits and _, starting with a letter",
            option="prefix",
        )
    return options
