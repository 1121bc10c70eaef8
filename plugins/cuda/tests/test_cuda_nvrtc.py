# SPDX-License-Identifier: Apache-2.0
"""Kernels to machine code, with neither a GPU nor a driver."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia_cuda.nvrtc import (
    Resources,
    compile_cuda,
    environment_version,
    nvrtc_version,
    read_resources,
)
from intarsia_cuda.occupancy import occupancy, print_resources
from intarsia_cuda.source import print_source
from intarsia_cuda.target import CudaOptions
from intarsia_runtime.errors import ToolchainError, UnsupportedError
from intarsia_testkit.open_models import save_cached_attention

from .running import lowered
from .test_cuda_kernels import CASES, product

DIGITS = Path(__file__).resolve().parents[3] / "tests" / "e2e" / "models" / "digits"
LOG = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'a' for 'sm_80'
ptxas info    : Function properties for a
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 31 registers, used 1 barriers, 2176 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'b' for 'sm_80'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""


def have_nvrtc():
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC compiles the kernels")


def compiled(make_target, case, **options):
    have_nvrtc()
    target = make_target(**options)
    module = lowered(target, *case).module
    source = print_source(module.functions, target.options)
    return source, compile_cuda(source.text, target.options)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100"])
def test_compiles_for_every_generation(make_target, arch):
    _, made = compiled(make_target, product((70, 45), (45, 40)), arch=arch)
    assert made.cubin.startswith(b"\x7fELF")
    assert f".target {arch}".encode() in made.ptx
    assert made.version.startswith("NVRTC 13")


@pytest.mark.parametrize(
    ("case", "wanted", "options"),
    [
        ("halves", "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", {"arch": "sm_75"}),
        ("bfloat16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", {}),
        ("matmul", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", {"fpmath_mode": "tf32"}),
        ("vectors of halves", "cp.async.cg.shared.global", {}),
        ("vectors of halves", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", {}),
        ("vectors of halves", "ldmatrix.sync.aligned.m8n8.x4.shared.b16", {"arch": "sm_75"}),
        ("rows by warps", "shfl.sync.down", {}),
        ("long vector", "ld.global.nc.v4", {}),
        ("long vector", "st.global.v4", {}),
        ("conv", "bar.sync", {}),
        ("half vector", "cvt.f32.f16", {}),
        ("half vector", "cvt.rn.f16.f32", {}),
    ],
)
def test_the_ptx_has_the_instruction(make_target, case, wanted, options):
    _, made = compiled(make_target, CASES[case], **options)
    assert wanted in made.ptx.decode()


def test_each_instruction_has_its_line(make_target):
    """The code stays: registers and shared memory are the same, and no instruction is added."""
    _, plain = compiled(make_target, CASES["matmul"])
    source, lines = compiled(make_target, CASES["matmul"], lineinfo=True)
    assert (b".debug_line" in lines.cubin, b".debug_line" in plain.cubin) == (True, False)
    text = lines.ptx.decode()
    assert re.search(r'^\s*\.file\s+1 "/kernels\.cu"', text, re.MULTILINE)
    rows = {int(row) for row in re.findall(r"^\s*\.loc\s+1 (\d+)", text, re.MULTILINE)}
    assert rows
    assert max(rows) <= source.text.count("\n")
    assert str(Path.cwd()).encode() not in lines.cubin + lines.ptx
    assert lines.resources == plain.resources
    assert instructions(text) == instructions(plain.ptx.decode())


def instructions(ptx):
    """What the lines of a PTX text do, without registers, labels and debug information."""
    found = re.findall(r"^\s+(?:@!?%\w+ )?([a-z][\w.]+)\s", ptx, re.MULTILINE)
    return [word for word in found if not word.startswith("b8")]


# Registers of a thread, shared bytes of a block; measured with NVRTC 13.0. None may spill.
HELD = {
    "matmul": (144, 17408),
    "conv": (168, 17408),
    "halves": (128, 19456),
    "halves in parts": (128, 0),  # it is in the pool
    "128 x 128 of halves": (168, 0),
    "128 x 64 of halves": (160, 0),
    "rows by warps": (32, 0),
    "one result": (16, 32),
    "long vector": (24, 0),
}


@pytest.mark.parametrize("case", list(HELD))
def test_registers_and_shared_memory_are_held(make_target, case):
    source, made = compiled(make_target, CASES[case], arch="sm_90")
    registers, shared = HELD[case]
    for name, launch in source.kernels:
        used = made.resources[name]
        assert used.registers <= registers, used
        assert used.shared_bytes <= shared, used
        assert (used.spill_bytes, used.stack_bytes) == (0, 0)
        assert occupancy(used, launch.threads, 90) >= 0.125


def test_reads_the_log():
    assert read_resources(LOG) == {"a": Resources(31, 2176, 28, 8), "b": Resources(8, 0, 0, 0)}


@pytest.mark.parametrize(
    ("used", "threads", "capability", "share"),
    [
        (Resources(32, 0, 0, 0), 256, 90, 1.0),
        (Resources(64, 0, 0, 0), 256, 90, 0.5),
        (Resources(32, 0, 0, 0), 32, 90, 0.5),  # 32 blocks of one warp
        (Resources(16, 48 * 1024, 0, 0), 256, 80, 24 / 64),  # 3 blocks of 49 KiB in 164
        (Resources(255, 0, 0, 0), 1024, 90, 0.0),  # does not start
        (Resources(32, 32 * 1024, 0, 0), 256, 75, 0.5),
    ],
)
def test_occupancy(used, threads, capability, share):
    assert occupancy(used, threads, capability) == share


def test_prints_a_row_for_each_kernel():
    text = print_resources(read_resources(LOG), {"a": 256, "b": 32}, CudaOptions())
    head, columns, first, second = text.splitlines()
    assert head == "sm_80"
    assert columns.split() == [
        *("kernel", "threads", "registers", "shared", "B", "spilled", "B", "occupancy")
    ]
    assert first.split() == ["a", "256", "31", "2176", "28", "100%"]
    assert second.split() == ["b", "32", "8", "0", "0", "50%"]


def test_a_build_is_the_same_byte_for_byte(tmp_path):
    have_nvrtc()
    files = [
        intarsia.build(DIGITS / "digits.onnx", target="cuda -arch=sm_90").save(tmp_path / name)
        for name in ("a.intarsia", "b.intarsia")
    ]
    assert files[0].read_bytes() == files[1].read_bytes()
    with zipfile.ZipFile(files[0]) as archive:
        members = {name.removeprefix("units/main/") for name in archive.namelist()}
        table = archive.read("units/main/resources.txt").decode()
    assert {"kernels.cu", "kernels.ptx", "kernels.cubin", "program.json"} <= members
    assert "occupancy" in table


def test_says_what_nvrtc_says(make_target):
    have_nvrtc()
    with pytest.raises(ToolchainError, match=r"(?s)refuses the kernels for sm_80.*undefined"):
        compile_cuda("__global__ void f() { missing(); }", make_target().options)


def test_says_that_cuda_13_left_a_gpu_behind(make_target):
    with pytest.raises(UnsupportedError, match="no longer compiles for sm_70"):
        compile_cuda("", make_target(arch="sm_70").options)


def test_says_that_nvrtc_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    with pytest.raises(ToolchainError, match="NVRTC is not installed"):
        nvrtc_version()


def test_a_build_without_nvrtc_has_a_key(monkeypatch):
    """Emulation needs none: what a build depends on is then that there is none."""
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    assert environment_version() == "no NVRTC"


class Broken:
    """NVRTC's binding without the library, and one that fails."""

    @staticmethod
    def nvrtcVersion():  # the binding's name
        raise RuntimeError("libnvrtc.so.13 not found\n")


class Failing:
    @staticmethod
    def nvrtcVersion():  # the binding's name
        return 7, 0, 0


def test_says_that_nvrtc_does_not_load():
    with pytest.raises(ToolchainError, match=r"does not load: libnvrtc.so.13 not found\n  hint"):
        nvrtc_version(Broken)


def test_says_that_nvrtc_fails():
    with pytest.raises(ToolchainError, match="a call of NVRTC failed: 7"):
        nvrtc_version(Failing)


def test_products_of_quantized_operators_are_not_joined_with_sums(make_target):
    """The compiler joins a product and a sum where it is free to; a float kernel shows that."""
    scale, zero = np.float32(0.1), np.uint8(3)
    quantized = (np.zeros((8, 8), np.uint8), scale, zero)
    case = ("qnn.add", (*quantized, *quantized, scale, zero), {})
    _, made = compiled(make_target, case, arch="sm_90")
    assert b"mul.rn.f32" in made.ptx
    assert b"fma.rn.f32" not in made.ptx.partition(b".entry")[2].partition(b"div.rn")[0]
    case = ("nn.gelu", (np.zeros((8, 8), np.float32),), {})
    assert b"fma.rn.f32" in compiled(make_target, case, arch="sm_90")[1].ptx


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_kernels_of_open_sizes_compile_and_hardly_spill(tmp_path, arch):
    have_nvrtc()
    path = save_cached_attention(tmp_path)
    artifact = intarsia.build(path, target=f"cuda -arch={arch}").save(tmp_path / "m.intarsia")
    with zipfile.ZipFile(artifact) as archive:
        rows = archive.read("units/main/resources.txt").decode().splitlines()[2:]
        text = archive.read("units/main/kernels.cu").decode()
    assert "(int32_t)S_given" in text
    columns = [row.split() for row in rows if row]
    assert len(columns) > 5
    spilled = {column[0]: int(column[4]) for column in columns if int(column[4])}
    # Addresses of 16 results for each thread, in a matrix whose rows and columns are open.
    assert set(spilled) <= {"kernel_matmul_1_k1"}
    assert max(spilled.values(), default=0) <= 64
