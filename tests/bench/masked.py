# SPDX-License-Identifier: Apache-2.0
"""Runs a command on this machine as on an older processor: CPUID answers as that one does.

``python -m tests.bench.masked haswell COMMAND ...``. Every library of the command's processes that
asks CPUID is masked in the same way: our code generator, oneDNN, OpenVINO, and ONNX Runtime, which
has no switch of its own. Clocks, caches and ports stay those of this machine. See
``cpuid_mask.c``; needs Linux and a C compiler. Where CPUID does not fault (the flag ``cpuid_fault``
of /proc/cpuinfo is missing, as on most virtual machines of AMD), ``cpuid_patch.c`` replaces the
instruction in the libraries of :data:`PACKAGES` as they are loaded; ``objdump`` of binutils finds
it, once for each library (a minute in all).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

SOURCE = Path(__file__).with_name("cpuid_mask.c")
PATCH = Path(__file__).with_name("cpuid_patch.c")

PACKAGES = ("onnxruntime", "openvino", "llvmlite")
"""Installed packages whose libraries ask CPUID, beside oneDNN."""

CPUID = b"\x0f\xa2"

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


def can_fault() -> bool:
    """Return whether CPUID can be made to fault on this machine."""
    return "cpuid_fault" in Path("/proc/cpuinfo").read_text().split()


def compile_mask(folder: Path) -> Path:
    """Return the library to preload; beside it is what else a masked process needs.

    Raises:
        FileNotFoundError: There is no C compiler, or no ``objdump`` where CPUID does not fault.
    """
    library = _compile(SOURCE, folder / "cpuid_mask.so")
    if not can_fault():
        _compile(PATCH, folder / "cpuid_patch.so")
        (folder / "sites").write_text("".join(map(_site_lines, _libraries())))
    return library


def _compile(source: Path, library: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("no C compiler 'cc'")
    flags = ["-O2", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(source), "-o", str(library), "-ldl"], check=True)
    return library


def _libraries() -> Iterator[Path]:
    """Yield the libraries of :data:`PACKAGES`, and oneDNN, that have CPUID's two bytes."""
    packages = Path(sysconfig.get_path("platlib"))
    found = {
        *(file.resolve() for name in PACKAGES for file in (packages / name).rglob("*.so*")),
        *(file.resolve() for file in Path(sys.prefix, "lib").glob("libdnnl.so*")),
    }
    yield from (file for file in sorted(found) if CPUID in file.read_bytes())


def _site_lines(library: Path) -> str:
    """Return a line for each CPUID of a library, as ``cpuid_patch.c`` reads them, from a cache."""
    objdump = shutil.which("objdump")
    if objdump is None:
        raise FileNotFoundError("no 'objdump' (package binutils), and CPUID does not fault here")
    file = library.stat()
    cache = Path(tempfile.gettempdir(), "intarsia-cpuid-sites")
    cache.mkdir(exist_ok=True)
    kept = cache / f"{file.st_dev}-{file.st_ino}-{file.st_size}-{file.st_mtime_ns}"
    if not kept.exists():
        print(f"looking for CPUID in {library.name}", file=sys.stderr)
        argv = [objdump, "-d", "--no-show-raw-insn", str(library)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            sites = [line.split(":")[0].strip() for line in process.stdout if "\tcpuid" in line]
        if process.returncode:
            raise RuntimeError(f"{' '.join(argv)} failed")
        kept.write_text("".join(f"{file.st_dev} {file.st_ino} {site}\n" for site in sites))
    return kept.read_text()


def masked_environment(processor: str, library: Path) -> dict[str, str]:
    """Return the environment of a masked process, by a library of :func:`compile_mask`."""
    tunables = ",".join(f"-{feature}" for feature in _GLIBC.split())
    masked = {VARIABLE: processor, "LD_PRELOAD": str(library)}
    if not can_fault():
        masked["LD_AUDIT"] = str(library.with_name("cpuid_patch.so"))
        masked["CPUID_SITES"] = str(library.with_name("sites"))
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
