# SPDX-License-Identifier: Apache-2.0
"""Runs a command on this machine as on an older processor: CPUID answers as that one does.

``python -m tests.bench.masked haswell COMMAND ...``. Every library of the command's processes that
asks CPUID is masked in the same way: our code generator, oneDNN, OpenVINO, and ONNX Runtime, which
has no switch of its own. Clocks, caches and ports stay those of this machine. See
``cpuid_mask.c``; needs Linux, a C compiler, and a processor whose CPUID can fault.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

SOURCE = Path(__file__).with_name("cpuid_mask.c")

MASKS: Mapping[str, str] = MappingProxyType(
    {
        "nehalem": "SSE4.2, without AVX",
        "haswell": "AVX2, FMA and F16C, without AVX-512, VNNI and AMX",
        "alderlake": "AVX2 and AVX-VNNI, without AVX-512 and AMX",
        "skylake-avx512": "AVX-512 (F, CD, BW, DQ, VL), without VNNI, FP16 and AMX",
        "icelake-server": "AVX-512 with VNNI, without FP16, BF16 and AMX",
    }
)
"""Processor to what it has, as ``cpuid_mask.c`` knows them."""

VARIABLE = "CPUID_MASK"
"""Environment variable with the processor's name."""

_GLIBC = "AVX512F_Usable AVX512VL_Usable AVX512BW_Usable AVX512F AVX512VL AVX512BW AVX512CD"


def name() -> str | None:
    """Return the processor that this process is shown; ``None`` if it is not masked."""
    return os.environ.get(VARIABLE)


def words() -> str | None:
    """Return what the processor of a masked process has; ``None`` if this one is not masked."""
    shown = name()
    return None if shown is None else f"{MASKS[shown]}; CPUID answers as {shown}'s"


def compile_mask(folder: Path) -> Path:
    """Return the library to preload.

    Raises:
        FileNotFoundError: There is no C compiler.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("no C compiler 'cc'")
    library = folder / "cpuid_mask.so"
    flags = ["-O2", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(SOURCE), "-o", str(library), "-ldl"], check=True)
    return library


def masked_environment(processor: str, library: Path) -> dict[str, str]:
    """Return the environment of a masked process."""
    tunables = ",".join(f"-{feature}" for feature in _GLIBC.split())
    masked = {VARIABLE: processor, "LD_PRELOAD": str(library)}
    if "avx512" not in processor and "server" not in processor:
        masked["GLIBC_TUNABLES"] = f"glibc.cpu.hwcaps={tunables}"  # copies of memory
    return {**os.environ, **masked}


def main(arguments: list[str]) -> int:
    """Run the command; 2 if there is none, or no such processor."""
    if len(arguments) < 2 or arguments[0] not in MASKS:
        print(f"usage: python -m tests.bench.masked {{{','.join(MASKS)}}} COMMAND ...")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        environment = masked_environment(arguments[0], compile_mask(Path(folder)))
        return subprocess.run(arguments[1:], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
