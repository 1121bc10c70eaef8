# SPDX-License-Identifier: Apache-2.0
"""The Support Library, where ``ETHOSN_ROOT`` names one; and what is said where there is none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import intarsia
from intarsia_ethos_n import library
from intarsia_ethos_n.codegen import compile_region
from intarsia_ethos_n.constraints import check
from intarsia_ethos_n.library import SupportLibrary, environment, find_root, open_library
from intarsia_ethos_n.network import print_network
from intarsia_ethos_n.target import EthosNOptions
from intarsia_ethos_n.variants import VARIANTS
from intarsia_ethos_n.verdict import Level
from intarsia_ir.graph.expr import Expr
from intarsia_runtime.errors import ResourceError, ToolchainError
from intarsia_testkit.qdq_models import mobile_net

from .cases import CASES, chain, parts
from .grid import grid
from .quantized import region_of

ROUNDS = 60
NO_PLANS = ("n78-1tops-2ple", "n78-2tops-2ple", "n78-2tops-4ple")


@pytest.fixture
def real() -> SupportLibrary:
    """Return the library, or skip the test."""
    root = find_root()
    if root is None:
        pytest.skip("no Ethos-N Support Library: ETHOSN_ROOT names none")
    return open_library(root)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_table_says_what_the_library_says(real: SupportLibrary, variant: str) -> None:
    options = EthosNOptions(variant=variant)
    cases = grid(list(VARIANTS).index(variant), ROUNDS)
    theirs = real.query(print_network(cases), options)
    assert len(theirs) == len(cases.operations) > 1000
    differences = [
        (operation, mine, right)
        for operation, right in zip(cases.operations, theirs, strict=True)
        for mine in (check(operation, cases.tensors, options.memory),)
        if mine.level is not right.level
    ]
    assert differences == []


def test_the_grid_asks_for_everything() -> None:
    kinds: dict[str, set[Level]] = {}
    cases = grid(0, ROUNDS)
    for operation in cases.operations:
        verdict = check(operation, cases.tensors, VARIANTS["n78-1tops-2ple"])
        assert (verdict.reason == "") == (verdict.level is Level.SUPPORTED)
        kinds.setdefault(operation.kind, set()).add(verdict.level)
    assert len(kinds) == 20
    assert kinds.pop("space-to-depth") == {Level.ESTIMATE_ONLY, Level.UNSUPPORTED}
    assert all(Level.SUPPORTED in levels and len(levels) > 1 for levels in kinds.values())


@pytest.mark.parametrize("make", CASES)
def test_every_case_is_compiled(
    real: SupportLibrary, make: Callable[[], Expr], monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = compile_region(region_of(make()), EthosNOptions())
    assert unit.files["compiled.bin"].startswith(b"ENCN")
    buffers = json.loads(unit.files["buffers.json"])
    assert len(buffers["output-bytes"]) == (2 if make is parts else 1)
    assert unit.versions == {"ethos-n-support-library": real.version}


def test_performance_is_estimated(real: SupportLibrary) -> None:
    unit = compile_region(region_of(chain()), EthosNOptions(performance=True))
    passes = json.loads(unit.files["performance.json"])["Stream"]
    assert sum(each["Mce"]["Operations"] for each in passes) > 10_000
    assert "performance.json" not in compile_region(region_of(chain()), EthosNOptions()).files


def test_switches_reach_the_compiler(real: SupportLibrary) -> None:
    without = {name: False for name in EthosNOptions.__dataclass_fields__ if "block_con" in name}
    with pytest.raises(ToolchainError, match="no plan"):
        compile_region(region_of(chain()), EthosNOptions(**without))


@pytest.mark.parametrize("variant", NO_PLANS)
def test_variants_without_plans_are_named(real: SupportLibrary, variant: str) -> None:
    with pytest.raises(ToolchainError, match=f"on {variant}: .* no plan") as caught:
        compile_region(region_of(chain()), EthosNOptions(variant=variant))
    assert "n78-4tops" in (caught.value.hint or "")


@pytest.mark.slow
def test_a_mobile_net_is_one_compiled_network(real: SupportLibrary, tmp_path: Path) -> None:
    model = mobile_net().SerializeToString()
    artifact = intarsia.build(model, "ethos-n, c", require_offload=90, max_regions=1)
    assert "ethos-n-support-library" in str(artifact.passport)


def test_a_simulation_is_not_compiled_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ETHOSN_ROOT", raising=False)
    unit = compile_region(region_of(chain()), EthosNOptions(simulate=True))
    assert set(unit.files) == {"network.json", "weights.bin", "options.json"}
    assert json.loads(unit.files["options.json"])["performance"] is False
    assert unit.versions == {}


def test_a_folder_without_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETHOSN_ROOT", str(tmp_path))
    assert find_root() == tmp_path
    assert environment() == f"{tmp_path} without a library"
    with pytest.raises(ToolchainError, match=r"has no ethosn_support_library/Support\.hpp"):
        open_library(tmp_path)


def fake_root(folder: Path) -> Path:
    header = folder / "include" / "ethosn_support_library" / "Support.hpp"
    header.parent.mkdir(parents=True)
    header.write_text("// nothing\n")
    (folder / "lib").mkdir()
    (folder / "lib" / "libEthosNSupport.so").write_bytes(b"nothing")
    return folder


def test_the_environment_knows_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ETHOSN_ROOT", raising=False)
    assert environment() == "no library"
    monkeypatch.setenv("ETHOSN_ROOT", str(fake_root(tmp_path)))
    assert "of 7 bytes" in environment()


def test_a_library_that_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler")
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(ToolchainError, match=r"shim does not compile against .*error"):
        open_library(fake_root(tmp_path))


def test_no_compiler_for_the_shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ToolchainError, match=r"no C\+\+ compiler"):
        open_library(fake_root(tmp_path))


def program(folder: Path, body: str) -> Path:
    path = folder / "shim"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_a_library_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = program(tmp_path, "echo 'cannot load' >&2; exit 1")
    monkeypatch.setattr(library, "_shim", lambda *_: broken)
    with pytest.raises(ToolchainError, match="does not run: cannot load"):
        open_library(fake_root(tmp_path / "root"))


def test_a_library_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "TIMEOUT", 0.3)
    slow = SupportLibrary(program(tmp_path, "exec sleep 60"), "0")
    with pytest.raises(ResourceError, match=r"more than 0\.3 s"):
        slow.compile("r", b"", b"", EthosNOptions())


def test_a_shim_that_cannot_be_run(tmp_path: Path) -> None:
    gone = SupportLibrary(tmp_path / "gone", "0")
    with pytest.raises(ToolchainError, match="cannot run"):
        gone.estimate("r", b"", b"", EthosNOptions())
