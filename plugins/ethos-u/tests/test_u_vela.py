# SPDX-License-Identifier: Apache-2.0
"""Vela as a program: what it takes, what it leaves, and how it fails."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from intarsia_ethos_u import vela
from intarsia_ethos_u.codegen import compile_region, emit
from intarsia_ethos_u.target import ACCELERATORS, EthosUOptions
from intarsia_ethos_u.tosa.flatbuffer import to_flatbuffer
from intarsia_ethos_u.vela import compile_tosa, find_vela, parse_summary, version_of
from intarsia_ir.graph.expr import Expr
from intarsia_runtime.errors import ResourceError, ToolchainError

from .cases import CASES, binary, chain
from .quantized import region_of
from .tools import needs_vela


def script(folder: Path, body: str) -> str:
    """Write a program that stands in for Vela."""
    path = folder / "vela"
    path.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    path.chmod(0o755)
    return str(path)


def tosa_of(body: Expr) -> bytes:
    return to_flatbuffer(*emit(region_of(body)))


@needs_vela
@pytest.mark.parametrize("family", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
def test_a_region_is_compiled_for_each_family(family: str) -> None:
    unit = compile_region(region_of(chain()), EthosUOptions(accelerator_config=family))
    estimate = json.loads(unit.files["estimate.json"])
    assert unit.files["command_stream.bin"].startswith(b"COP1")
    assert estimate["accelerator-config"] == family
    assert estimate["estimates"]["cycles_total"] > 1000
    assert estimate["estimates"]["nn_macs"] > 10_000
    assert 0 < estimate["weight-bytes"] == len(unit.files["weights.bin"])
    assert unit.weight_bytes == estimate["weight-bytes"] + estimate["command-stream-bytes"]
    assert unit.scratch_bytes == estimate["arena-bytes"] + estimate["fast-bytes"] > 3 * 12 * 12
    assert unit.constants == {}
    assert [place["bytes"] for place in estimate["inputs"]] == [3 * 12 * 12]
    assert [place["bytes"] for place in estimate["outputs"]] == [10]
    assert unit.versions == {"vela": version_of(find_vela())}


@needs_vela
@pytest.mark.slow
@pytest.mark.parametrize("make", CASES)
@pytest.mark.parametrize("family", ["ethos-u55-128", "ethos-u85-256"])
def test_every_case_is_compiled(make: Callable[[], Expr], family: str) -> None:
    result = compile_tosa("case", tosa_of(make()), EthosUOptions(accelerator_config=family))
    assert len(result.command_stream) > 200
    assert result.arena_bytes > 0


@needs_vela
def test_the_same_region_gives_the_same_bytes() -> None:
    units = [compile_region(region_of(chain()), EthosUOptions(keep_tosa=True)) for _ in range(2)]
    assert units[0].files == units[1].files
    assert "region.tosa" in units[0].files


@needs_vela
def test_options_reach_vela() -> None:
    options = EthosUOptions(optimise="size", arena_cache_size=4096, memory_mode="Sram_Only")
    unit = compile_region(region_of(binary("qnn.add")()), options)
    assert json.loads(unit.files["estimate.json"])["memory-mode"] == "Sram_Only"
    with pytest.raises(ToolchainError, match="No_Such"):
        compile_region(region_of(chain()), EthosUOptions(memory_mode="No_Such"))


@pytest.mark.parametrize("config", ACCELERATORS)
def test_every_configuration_has_a_system(config: str) -> None:
    system, mode = EthosUOptions(accelerator_config=config).system
    assert system.startswith("Ethos_U" + config[7:9])
    assert EthosUOptions(accelerator_config=config, system_config="Mine").system == ("Mine", mode)


def test_no_such_program() -> None:
    with pytest.raises(ToolchainError, match="no program '/nowhere/vela'"):
        find_vela("/nowhere/vela")


def test_vela_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vela.shutil, "which", lambda *_, **__: None)
    with pytest.raises(ToolchainError, match="not installed") as caught:
        find_vela()
    assert "intarsia-ethos-u[vela]" in (caught.value.hint or "")


def test_a_program_that_is_no_vela(tmp_path: Path) -> None:
    path = script(tmp_path, "sys.exit('not today')")
    with pytest.raises(ToolchainError, match="--version fails: not today"):
        version_of(Path(path))
    assert vela.installed_version(path) == ""
    text = tmp_path / "text"
    text.write_text("no program")
    with pytest.raises(ToolchainError, match="cannot run"):
        version_of(text)


def test_a_refusal_names_the_region_and_the_reason(tmp_path: Path) -> None:
    path = script(tmp_path, "print('9.9') if '--version' in sys.argv else sys.exit('too odd')")
    with pytest.raises(ToolchainError, match=r"vela 9\.9 refuses region 'r': too odd"):
        compile_tosa("r", b"TOSA", EthosUOptions(vela=path))


def test_a_vela_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vela, "TIMEOUT", 0.5)
    body = "import time\nprint('1') if '--version' in sys.argv else time.sleep(60)"
    with pytest.raises(ResourceError, match=r"more than 0\.5 s"):
        compile_tosa("r", b"TOSA", EthosUOptions(vela=script(tmp_path, body)))


def test_the_summary_table() -> None:
    table = "experiment,accelerator,cycles_npu,sram_memory_used\ndefault,U55,1130.0,0.5\n"
    assert parse_summary(table) == {"cycles_npu": 1130.0, "sram_memory_used": 0.5}
    with pytest.raises(ToolchainError, match="0 rows"):
        parse_summary("experiment,cycles_npu\n")
