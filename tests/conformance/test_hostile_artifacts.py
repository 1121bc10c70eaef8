# SPDX-License-Identifier: Apache-2.0
"""Artifacts whose metadata were changed, with digests made anew: refused by name, or run well.

Every format of unit that this machine loads is mutated. ``-m exhaustive`` runs 5 000 mutations of
each, a sample of which runs always.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import intarsia
from intarsia_runtime.errors import ArtifactError, PluginError
from intarsia_runtime.load import load
from intarsia_testkit.hostile import fuzz, mutate, read_members, write_members

from .hostile_units import FORMATS, NEEDS_CC, float_model, native_loops, program_model

SAMPLE, WHOLE = 40, 5000
REFUSED = {0, 3, 4, 5, 6, 7, 8, 9}
"""How a mutation may end. 3 and 4: a program says what no operator does. 5: a library says no. 6
and 9: a driver or a device is not here."""


@pytest.fixture(scope="session", params=FORMATS)
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good artifact with units of one format."""
    make, loader = FORMATS[request.param]
    if request.param in NEEDS_CC and shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    path = tmp_path_factory.mktemp("hostile") / f"{request.param}.intarsia"
    built = make()
    built.save(path)
    made = {unit.loader for unit in built.passport.units}
    assert loader in made, f"{request.param} gave {made}"
    return path


def test_a_sample_of_mutations_ends_well(artifact: Path) -> None:
    outcome = fuzz(artifact, SAMPLE, batch=SAMPLE)
    assert outcome.faults == []
    assert outcome.total == SAMPLE
    assert set(outcome.exits) <= REFUSED, outcome.words
    assert outcome.exits[7] > SAMPLE // 4, outcome.exits


@pytest.mark.exhaustive
def test_thousands_of_mutations_end_well(artifact: Path) -> None:
    outcome = fuzz(artifact, WHOLE, seed=1000)
    assert outcome.faults == []
    assert outcome.total == WHOLE
    assert set(outcome.exits) <= REFUSED, outcome.words


def test_a_smaller_workspace_is_refused(float_artifact: Path, tmp_path: Path) -> None:
    members = read_members(float_artifact)
    passport = json.loads(members["passport.json"])
    plan = passport["plan"]
    used = [a for step in plan["steps"] for a in step["args"] if a["place"] == "workspace"]
    assert used
    for argument in used:
        argument["index"] = 0
    plan["workspace_bytes"] //= 2
    for argument in used:
        argument["shape"] = [1]
    members["passport.json"] = json.dumps(passport).encode()
    write_members(members, tmp_path / "small.intarsia")
    with pytest.raises(ArtifactError, match="'main' was compiled for another plan") as caught:
        load(tmp_path / "small.intarsia")
    assert caught.value.exit_code == 7


def test_another_plan_of_a_region_is_refused(tmp_path: Path) -> None:
    native_loops().save(tmp_path / "good.intarsia")
    members = read_members(tmp_path / "good.intarsia")
    plan = json.loads(members["units/products_0/plan.json"])
    plan["workspace_bytes"] += 64
    members["units/products_0/plan.json"] = json.dumps(plan).encode()
    write_members(members, tmp_path / "other.intarsia")
    with pytest.raises(ArtifactError, match="'products_0' was compiled for another plan"):
        load(tmp_path / "other.intarsia")


def test_a_program_for_the_loader_of_a_region_is_refused(tmp_path: Path) -> None:
    intarsia.build(program_model(), target="llvm").save(tmp_path / "good.intarsia")
    members = read_members(tmp_path / "good.intarsia")
    passport = json.loads(members["passport.json"])
    unit = next(unit for unit in passport["units"] if unit["loader"] == "onnx-program")
    unit.update(loader="dnnl", plugin="intarsia-dnnl")
    for unit["format"] in range(1, 9):
        members["passport.json"] = json.dumps(passport).encode()
        write_members(members, tmp_path / "other.intarsia")
        with pytest.raises((PluginError, ArtifactError), match="the loader 'dnnl'") as caught:
            load(tmp_path / "other.intarsia")
        if isinstance(caught.value, PluginError):
            return
    pytest.fail("no format is read")


@pytest.mark.parametrize("part", [0.0, 1 / 64, 1 / 4, 1 / 2, 63 / 64, 1.0])
def test_a_library_cut_short_is_refused(float_artifact: Path, tmp_path: Path, part: float) -> None:
    members = read_members(float_artifact)
    code = members["units/main/lib.so"]
    members["units/main/lib.so"] = code[: int((len(code) - 1) * part)]
    write_members(members, tmp_path / "cut.intarsia")
    with pytest.raises(ArtifactError, match="the code of 'main'"):
        load(tmp_path / "cut.intarsia")


@pytest.fixture(scope="module")
def float_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("float") / "m.intarsia"
    intarsia.build(float_model(), target="llvm").save(path)
    return path


def test_a_format_that_no_loader_here_reads_is_refused(
    float_artifact: Path, tmp_path: Path
) -> None:
    members = read_members(float_artifact)
    passport = json.loads(members["passport.json"])
    assert passport["units"][0]["format"] == 1
    passport["units"][0]["format"] = 99
    members["passport.json"] = json.dumps(passport).encode()
    write_members(members, tmp_path / "later.intarsia")
    with pytest.raises(ArtifactError, match=r"unit 'main' has format 99 .* reads 0, 1"):
        load(tmp_path / "later.intarsia")


def test_half_a_character_is_refused(float_artifact: Path, tmp_path: Path) -> None:
    members = read_members(float_artifact)
    passport = json.loads(members["passport.json"])
    passport["plan"]["steps"][0]["kernel"] = "\udc80"
    members["passport.json"] = json.dumps(passport).encode()
    write_members(members, tmp_path / "half.intarsia")
    with pytest.raises(ArtifactError, match="surrogates not allowed"):
        load(tmp_path / "half.intarsia")


def test_mutations_are_the_same_for_the_same_seed(float_artifact: Path) -> None:
    members = read_members(float_artifact)
    changed = [mutate(members, seed) for seed in range(50)]
    assert changed == [mutate(members, seed) for seed in range(50)]
    assert len({says for says, _ in changed}) > 40
