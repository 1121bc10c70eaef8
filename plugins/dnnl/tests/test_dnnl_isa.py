# SPDX-License-Identifier: Apache-2.0
"""A hypervisor that shows AMX's feature bits, but not how large its tiles are."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from intarsia_dnnl import isa
from intarsia_dnnl.isa import describes_tiles, keep_from_hidden_tiles, usable_features
from intarsia_runtime.cpu import this_machine
from intarsia_runtime.errors import PluginError

AMX = 0xFEF
VECTORS = 0x1EF


class Library:
    """Stands for the vendor's: what it was told, and what it would use."""

    def __init__(self, effective: int) -> None:
        self.effective = effective
        self.told: list[int] = []
        self.used = False

    def dnnl_set_max_cpu_isa(self, value: int) -> int:
        self.told.append(value)
        if not self.used:
            self.effective &= value
        return 2 if self.used else 0

    def dnnl_get_effective_cpu_isa(self) -> int:
        self.used = True
        return self.effective


def limited(library: Library, cpuinfo: Path) -> Library:
    keep_from_hidden_tiles(library, cpuinfo)  # type: ignore[arg-type]  # two of its functions
    return library


@pytest.fixture
def cpuinfo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with AMX that ends before the leaf about tiles."""
    machine = replace(this_machine(), cpu_features=frozenset({"avx512f", "amx_tile", "amx_bf16"}))
    monkeypatch.setattr(isa, "this_machine", lambda: machine)
    for name in isa.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\ncpuid level\t: 28\nflags\t\t: avx512f amx_tile amx_bf16\n")
    return file


@pytest.mark.parametrize(
    ("text", "expected"),
    [("cpuid level\t: 28\n", False), ("cpuid level\t: 29\n", True), ("Features\t: asimd\n", True)],
)
def test_the_kernel_says_how_far_the_leaves_go(tmp_path: Path, text: str, expected: bool) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert describes_tiles(tmp_path / "cpuinfo") is expected


def test_a_unit_without_sizes_is_not_used(cpuinfo: Path) -> None:
    assert usable_features(cpuinfo) == {"avx512f"}
    assert limited(Library(AMX), cpuinfo).effective == VECTORS


def test_a_unit_with_sizes_is_used(cpuinfo: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.write_text(cpuinfo.read_text().replace("28", "32"))
    assert usable_features(full) == {"avx512f", "amx_tile", "amx_bf16"}
    assert limited(Library(AMX), full).told == []


def test_a_second_region_finds_the_limit_in_place(cpuinfo: Path) -> None:
    library = limited(Library(AMX), cpuinfo)
    assert limited(library, cpuinfo).effective == VECTORS


def test_a_limit_of_the_user_stays(cpuinfo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    library = limited(Library(0x7), cpuinfo)
    assert (library.effective, library.told) == (0x7, [])


def test_who_used_the_library_before_is_named(cpuinfo: Path) -> None:
    library = Library(AMX)
    library.dnnl_get_effective_cpu_isa()
    with pytest.raises(PluginError, match="whose tiles this virtual machine does not describe"):
        limited(library, cpuinfo)


LIMITED = """
import os, sys
from pathlib import Path
for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
    os.environ.pop(name, None)
from intarsia_dnnl import isa, sdk
from intarsia_runtime.cpu import this_machine
from msgspec.structs import replace
machine = replace(this_machine(), cpu_features=frozenset({"amx_tile"}))
isa.this_machine = lambda: machine
isa.keep_from_hidden_tiles.__defaults__ = (Path(sys.argv[1]),)
print(sdk.Dnnl()._library.dnnl_get_effective_cpu_isa())
"""


def test_the_library_itself_obeys(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("cpuid level\t: 28\n")
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "cpuinfo")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ctypes.c_uint(int(done.stdout)).value & ~VECTORS == 0


@pytest.mark.parametrize(
    ("limit", "left"),
    [
        ("SSE41", {"sse4_1"}),
        ("avx2", {"sse4_1", "avx2"}),
        ("AVX2_VNNI", {"sse4_1", "avx2", "avx_vnni"}),
        ("AVX512_CORE", {"sse4_1", "avx2", "avx512f"}),
        ("AVX512_CORE_VNNI", {"sse4_1", "avx2", "avx512f", "avx512_vnni"}),
        ("DEFAULT", {"sse4_1", "avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16"}),
    ],
)
def test_a_limit_takes_features_away(
    monkeypatch: pytest.MonkeyPatch, limit: str, left: set[str]
) -> None:
    names = {"sse4_1", "avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16"}
    machine = replace(this_machine(), cpu_features=frozenset(names))
    monkeypatch.setattr(isa, "this_machine", lambda: machine)
    monkeypatch.delenv("DNNL_MAX_CPU_ISA", raising=False)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert usable_features() == left


QUANTIZED = """
import sys
import numpy as np
from intarsia_runtime.errors import PluginError
from intarsia_dnnl.codegen import compile_region
from intarsia_dnnl.loader import load
from intarsia_dnnl.target import DnnlOptions
from intarsia_testkit.expressions import function_of
from {tests}.regions import region_of, request_for, verdicts
from {tests}.test_dnnl_quantized import conv, given_bytes, weights

function = function_of(conv(given_bytes(1, 8, 5, 5), weights(8, 8, 3, 3)))
request = request_for(function, compile_region(region_of(function), DnnlOptions()))
try:
    load(request)
except PluginError as error:
    print(error)
    print(error.hint)
"""


@pytest.mark.skipif(not isa.exact_feature(), reason="this processor saturates without any limit")
def test_a_limit_under_which_products_of_bytes_saturate_is_refused_when_loading() -> None:
    """They were up to 50 quanta off."""
    tests = Path(__file__).parent
    limited = subprocess.run(
        [sys.executable, "-c", QUANTIZED.format(tests=tests.name)],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
        cwd=tests.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ONEDNN_MAX_CPU_ISA keeps oneDNN from the instructions" in limited.stdout, limited
    assert "-int8=off" in limited.stdout


def test_products_of_bytes_are_not_taken_under_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert isa.exact_feature() in ("", "asimddp")
