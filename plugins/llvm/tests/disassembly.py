# SPDX-License-Identifier: Apache-2.0
"""Which instructions of an object need a CPU feature that nobody named.

The object is disassembled and each different instruction assembled again by the GNU assembler,
which is told of the named features only and refuses the others. It knows instructions by its own
tables, not by LLVM's.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Collection
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

_LINE = re.compile(r"^\s+[0-9a-f]+:\s+(\S.*)$", re.MULTILINE)
_TARGET = re.compile(r"\b(?:0x)?[0-9a-f]+ <[^>]*>")
_SPELLED = (  # what the disassembler writes otherwise than the assembler reads it
    (re.compile(r" :\d+\]"), "]"),
    (re.compile(r"^(vmov\S*\.f\d\d \S+), #-?\d+$"), r"\1, #1.0"),
    (re.compile(r"^mov(s?)\.w (\w+), (\w+), (\w+) (#\d+)$"), r"\4\1.w \2, \3, \5"),
    (re.compile(r"^(?:data16 )+"), ""),
    (_TARGET, ".+8"),
)
_REFUSED = re.compile(r"^[^:]*:(\d+): Error: (.*)$", re.MULTILINE)


def _x86(features: Collection[str]) -> list[str]:
    names = {"pni": "sse3", "sse4_1": "sse4.1", "sse4_2": "sse4.2", "bmi1": "bmi", "abm": "lzcnt"}
    return [".arch generic64", *(f".arch .{names.get(name, name)}" for name in features)]


def _aarch64(features: Collection[str]) -> list[str]:
    names = {
        "crc32": "crc",
        "atomics": "lse",
        "asimdrdm": "rdma",
        "fphp": "fp16",
        "asimdhp": "fp16",
        "asimdfhm": "fp16fml",
        "asimddp": "dotprod",
        "lrcpc": "rcpc",
        "fcma": "compnum",
        "svef32mm": "f32mm",
        "svef64mm": "f64mm",
        # The assembler knows these by a version of the architecture only, or they add nothing.
        **dict.fromkeys(("jscvt", "uscat", "ilrcpc", "flagm2", "frint"), ""),
    }
    known = (names.get(name, name) for name in features)
    version = ".arch armv8.5-a" if "frint" in features else ""
    version = version or (".arch armv8.4-a" if "ilrcpc" in features else "")
    version = version or (".arch armv8.2-a" if "asimddp" in features else ".arch armv8-a")
    return [version, *(f".arch_extension {name}" for name in known if name)]


def _arm(features: Collection[str]) -> list[str]:
    unit = "neon-" if "neon" in features else ""
    unit += "fp-armv8" if "v8" in features else "vfpv4" if "vfpv4" in features else "vfpv3"
    lines = [".syntax unified", f".arch armv{8 if 'v8' in features else 7}-a"]
    lines += [f".fpu {unit.replace('neon-vfpv3', 'neon')}", ".arm"]
    return [*lines, *([".arch_extension idiv"] if "idiva" in features else [])]


def _cortex_m(features: Collection[str]) -> list[str]:
    archs = {"v8m.main": "8-m.main", "v8m": "8-m.base", "v7": "7-m"}
    arch = next((arch for name, arch in archs.items() if name in features), "6s-m")
    arch = "7e-m" if arch == "7-m" and "dsp" in features else arch
    wide = "fp64" in features
    units = {"fp-armv8d16sp": f"fpv5-{'' if wide else 'sp-'}d16", "vfp4d16sp": "fpv4-sp-d16"}
    unit = next((unit for name, unit in units.items() if name in features), "")
    lines = [".syntax unified", f".arch armv{arch}", ".thumb"]
    lines += [f".fpu {unit}"] if unit else []
    return [*lines, *([".arch_extension dsp"] if "dsp" in features and "8" in arch else [])]


def _riscv(features: Collection[str]) -> list[str]:
    letters = "".join(name for name in features if len(name) == 1)
    # Version 2.40 knows neither of these two; Zvfh has the encodings of V.
    others = [name for name in features if len(name) > 1 and name not in ("zvfh", "zicond")]
    return [f'.attribute arch, "{"_".join(["rv64i" + letters, *others])}"']


class Tools(Struct, frozen=True):
    """The GNU tools of an instruction set.

    Attributes:
        prefix: In front of their names.
        header: Lines that allow the instructions of features, as passports name those.
        comment: What the disassembler puts in front of remarks.
        flags: Of the assembler.
        pools: Whether constants lie between the functions.
    """

    prefix: str
    header: Callable[[Collection[str]], list[str]]
    comment: str
    flags: tuple[str, ...] = ()
    pools: bool = False

    @property
    def missing(self) -> str:
        """Name of a tool that is not installed; empty if all are."""
        names = (self.prefix + name for name in ("objdump", "as"))
        return next((name for name in names if shutil.which(name) is None), "")


TOOLS = MappingProxyType(
    {
        "x86_64": Tools("", _x86, "#"),
        "aarch64": Tools("aarch64-linux-gnu-", _aarch64, "//"),
        "armv7": Tools("arm-none-eabi-", _arm, "@", pools=True),
        "thumb": Tools(
            *("arm-none-eabi-", _cortex_m, "@", ("-mimplicit-it=always",)),
            pools=True,
        ),
        "riscv64": Tools("riscv64-linux-gnu-", _riscv, "#"),
    }
)


def instructions(code: bytes, tools: Tools, folder: Path) -> list[str]:
    """Return the different instructions of an object or a library, without addresses."""
    (folder / "code.o").write_bytes(code)
    command = [tools.prefix + "objdump", "-d", "--no-show-raw-insn", "code.o"]
    text = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    found: dict[str, None] = {}
    for line in _LINE.findall(text):
        line = line.partition(tools.comment)[0].replace("\t", " ").strip()
        for pattern, spelled in _SPELLED:
            line = pattern.sub(spelled, line)
        if line and not (tools.pools and line.startswith(".")):
            found[line] = None
    return list(found)


def outside(code: bytes, tools: Tools, features: Collection[str], folder: Path) -> list[str]:
    """Return the instructions that the assembler refuses when it is told of ``features``.

    What the disassembler does not know is one of them, unless it is Zicond's.
    """
    header, found = tools.header(features), instructions(code, tools, folder)
    (folder / "again.s").write_text("\n".join([*header, *found, ""]))
    command = [tools.prefix + "as", *tools.flags, "-o", "again.o", "again.s"]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stderr
    refused = [(int(number) - len(header) - 1, words) for number, words in _REFUSED.findall(said)]
    assert all(number >= 0 for number, _ in refused), said  # the header is not understood
    unknown = [line for line in found if line.startswith(".") and "zicond" not in features]
    return [*unknown, *(f"{found[number]}: {words}" for number, words in refused)]
