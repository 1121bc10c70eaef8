# SPDX-License-Identifier: Apache-2.0
"""Every library of a masked process sees the older processor, and its crashes stay crashes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .masked import MASKS, VARIABLE, compile_mask, main, masked_environment

FLAGS = set(Path("/proc/cpuinfo").read_text().split()) if sys.platform == "linux" else set[str]()

OF_AMD = {
    "nehalem": "amdfam10",
    "haswell": "znver3",
    "alderlake": "znver3",
    "skylake-avx512": "znver4",
    "icelake-server": "znver4",
}
"""What LLVM calls a masked processor of AMD: the vendor stays."""

ASK = """
import faulthandler
faulthandler.enable()
from llvmlite import binding
from intarsia_runtime.cpu import this_machine
features = binding.get_host_cpu_features()
ours = this_machine().cpu_features
print(binding.get_host_cpu_name(), features["avx2"], features["avx512f"], features["avx512vnni"])
print("avx2" in ours, "avx512f" in ours, "avx512_vnni" in ours, "amx_int8" in ours)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library to preload, or skip."""
    if "avx512_vnni" not in FLAGS:
        pytest.skip("needs a processor with AVX512-VNNI")
    try:
        return compile_mask(tmp_path_factory.mktemp("mask"))
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.mark.bench
@pytest.mark.parametrize("name", MASKS)
def test_llvm_and_the_runtime_see_the_processor(name: str, library: Path) -> None:
    argv, environment = [sys.executable, "-c", ASK], masked_environment(name, library)
    run = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    avx2, avx512 = name != "nehalem", name in ("skylake-avx512", "icelake-server")
    vnni = name == "icelake-server"
    shown = OF_AMD[name] if "AuthenticAMD" in FLAGS else name
    assert run.stdout.splitlines() == [
        f"{shown} {avx2} {avx512} {vnni}",
        f"{avx2} {avx512} {vnni} False",
    ]


@pytest.mark.bench
def test_other_faults_reach_the_handler_of_the_process(library: Path) -> None:
    code = "import faulthandler, ctypes; faulthandler.enable(); ctypes.string_at(0)"
    environment = masked_environment("haswell", library)
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert run.returncode == -signal.SIGSEGV
    assert b"Segmentation fault" in run.stderr


@pytest.mark.bench
def test_a_processor_without_a_mask_ends_the_process(library: Path) -> None:
    environment = {**masked_environment("haswell", library), VARIABLE: "zen9"}
    run = subprocess.run([sys.executable, "-c", ""], env=environment, capture_output=True)
    assert (run.returncode, b"names no processor" in run.stderr) == (2, True)


@pytest.mark.bench
def test_the_command_needs_a_processor_it_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zen9", "true"]) == 2
    assert "haswell" in capsys.readouterr().out
