# SPDX-License-Identifier: Apache-2.0
"""Cells of a matrix, regions of a bisection, findings about an artifact: what is made of runs."""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from intarsia.cli import check
from intarsia.cli.main import main
from intarsia_runtime.artifact.machine import Machine
from intarsia_runtime.artifact.passport import Passport, UnitEntry
from intarsia_runtime.artifact.plan import CallPlan
from intarsia_runtime.errors import ModelError
from intarsia_tools import bisect, children, matrix
from intarsia_tools.bisect import Suspect, find_culprits
from intarsia_tools.children import Ended, how_it_ended, run_command
from intarsia_tools.matrix import Cell, CellResult, read_results, result_of, run_cells

SUSPECTS = [Suspect(f"r{n}", "npu", (f"node[{n}]", f"n{n}")) for n in range(9)]


def bad_with(wanted: set[str], regions: Sequence[Suspect]) -> bool:
    return wanted <= {region.name for region in regions}


@pytest.mark.parametrize("wanted", [{"r0"}, {"r8"}, {"r4"}, {"r1", "r2"}, {"r0", "r8"}])
def test_halving_finds_the_regions_that_are_bad_together(wanted: set[str]) -> None:
    found = find_culprits(SUSPECTS, functools.partial(bad_with, wanted))
    assert {region.name for region in found} == wanted


def test_one_culprit_among_many_takes_few_builds() -> None:
    asked: list[int] = []

    def fails(regions: Sequence[Suspect]) -> bool:
        asked.append(len(regions))
        return bad_with({"r777"}, regions)

    many = [Suspect(f"r{n}", "npu", ()) for n in range(1024)]
    (found,) = find_culprits(many, fails)
    assert found.name == "r777"
    assert len(asked) <= 20


class Fake:
    """Runs of the command line, made up: those with a bad region offloaded end with a code."""

    def __init__(self, bad: str, code: int | None = 10, *, fallback: int = 0) -> None:
        self.bad, self.code, self.fallback = bad, code, fallback
        self.words: list[list[str]] = []

    def __call__(self, words: Sequence[str], seconds: float) -> Ended:
        self.words.append(list(words))
        if "explain" in words:
            regions = [{"name": s.name, "accelerator": s.kind, "nodes": s.nodes} for s in SUSPECTS]
            return Ended(0, {"regions": regions})
        kept = {s.name for s in SUSPECTS if f"{s.nodes[1]}!=npu" not in words}
        if self.fallback:
            return Ended(self.fallback, {}, "error: the fallback")
        return Ended(self.code, {}, "error: differs") if self.bad in kept else Ended(0)


def run_bisect(fake: Fake, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    pytest.importorskip("intarsia_llvm", reason="the target is read")
    monkeypatch.setattr(bisect, "run_command", fake)
    return main(["bisect", "net.onnx", "--target", "llvm", *words])


@pytest.mark.parametrize("code", [10, 5, None, -11])
def test_bisect_names_the_region_and_its_nodes(
    code: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = Fake("r6", code)
    assert run_bisect(fake, monkeypatch, "--json", "--shape", "x:1,3", "--inputs", "i.npz") == 10
    document = capsys.readouterr()
    found = json.loads(document.out)
    assert [row["name"] for row in found["culprits"]] == ["r6"]
    assert found["fallback"] == "ok"
    assert "'r6' of 'npu' make the run bad" in document.err
    assert "'node[6]', 'n6'" in document.err
    without = fake.words[2]
    assert "node[[]3]!=npu" in without  # a name is no pattern
    assert without[without.index("--inputs") + 1] == "i.npz"
    assert "x:1,3" in without


def test_bisect_says_when_all_is_well_or_the_fallback_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_bisect(Fake("none"), monkeypatch) == 0
    assert "nothing differs" in capsys.readouterr().err
    assert run_bisect(Fake("r1", fallback=4), monkeypatch) == 10
    assert "the fallback alone is wrong" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ended", "code"), [(2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (8, 8), (-11, 5), (None, 8)]
)
def test_bisect_needs_a_model_that_can_be_placed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ended: int | None,
    code: int,
) -> None:
    def refuse(words: Sequence[str], seconds: float) -> Ended:
        return Ended(ended, {}, "error: no such file")

    pytest.importorskip("intarsia_llvm", reason="the target is read")
    monkeypatch.setattr(bisect, "run_command", refuse)
    assert main(["bisect", "net.onnx", "--target", "llvm"]) == code
    assert "error: the model cannot be placed: no such file" in capsys.readouterr().err


def test_a_command_in_a_child_is_read_and_ended_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    good = run_command(["plugins", "list", "--json"], 60)
    assert good.state == "ok"
    assert "plugins" in good.document
    bad = run_command(["compile"], 60)
    assert (bad.state, bad.error.startswith("error: ")) == ("usage", True)
    monkeypatch.setattr(children.sys, "executable", "/bin/sleep")
    monkeypatch.setattr(
        children.subprocess, "Popen", functools.partial(_popen, children.subprocess.Popen)
    )
    start = time.monotonic()
    assert run_command(["30"], 0.3).state == "late"
    assert time.monotonic() - start < 10
    assert Ended(-11).state == "crash"


def _popen(real: type, words: Sequence[str], **named: object) -> object:
    return real([words[0], words[-1]], **named)


def cells(count: int = 4) -> list[Cell]:
    return [Cell(Path(f"m{n}.onnx"), "llvm", "llvm", f"key{n}") for n in range(count)]


def test_cells_that_are_done_are_not_done_again(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    states = {"key0": "ok", "key1": "gate", "key2": "late", "key3": "unsupported"}
    asked: list[str] = []

    def run(cell: Cell) -> CellResult:
        asked.append(cell.key)
        return CellResult(cell, states[cell.key], 1.5, "why")

    first = run_cells(cells(), run, results, 1, lambda _: None)
    assert [row.state for row in first] == list(states.values())
    with results.open("a") as file:
        file.write('{"key": "key9", "sta')  # killed while it wrote
    asked.clear()
    second = run_cells(cells(), run, results, 1, lambda _: None)
    assert asked == ["key2"]  # being late says more of the moment
    assert [row.again for row in second] == [True, True, False, True]
    assert second[0].milliseconds == 1.5
    assert set(read_results(results)) == {"key0", "key1", "key3"}


def test_several_cells_run_at_a_time_in_the_order_they_are_given(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=30)

    def run(cell: Cell) -> CellResult:
        both.wait()
        return CellResult(cell, "ok")

    steps: list[int] = []
    found = run_cells(cells(), run, tmp_path / "r.jsonl", 2, steps.append)
    assert [row.cell.key for row in found] == [f"key{n}" for n in range(4)]
    assert steps == [1, 1, 1, 1]

    def broken(cell: Cell) -> CellResult:
        raise ModelError("no")

    with pytest.raises(ModelError):
        run_cells(cells(), broken, None, 2, steps.append)


def test_results_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    assert read_results(tmp_path / "none") == {}
    with pytest.raises(ModelError, match="cannot read results"):
        read_results(tmp_path)


def test_a_cell_says_how_its_command_ended() -> None:
    (cell,) = cells(1)
    assert result_of(cell, Ended(0, {"median_ms": 2.5})) == CellResult(cell, "ok", 2.5)
    bad = result_of(cell, Ended(4, {}, "error: no such operator"))
    assert bad.to_json() == {
        "model": "m0", "target": "llvm", "state": "unsupported", "median_ms": None,
        "error": "error: no such operator", "again": False,
    }  # fmt: skip


def test_the_matrix_is_printed_and_gated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("intarsia_llvm", reason="the target is read")

    def run(words: Sequence[str], seconds: float) -> Ended:
        return Ended(0, {"median_ms": 2.0}) if "a.onnx" in words[1] else Ended(4, {}, "error: no")

    monkeypatch.setattr(matrix, "run_command", run)
    words = ["matrix", "a.onnx", "b.onnx", "--target", "llvm"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "2.00 ms" in out
    assert "UNSUPPORTED" in out
    assert main([*words, "--check", "--json"]) == 10
    document = capsys.readouterr()
    assert [cell["state"] for cell in json.loads(document.out)["cells"]] == ["ok", "unsupported"]
    assert "1 of 2 cells are not ok: b for 'llvm'" in document.err


def test_an_artifact_is_held_against_targets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("intarsia_llvm", reason="needs a backend that generates code")
    pytest.importorskip("onnx")
    from onnx import TensorProto, helper, save

    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])]
    result = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", given, result)
    opset = [helper.make_opsetid("", 18)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=10), tmp_path / "m.onnx")
    artifact = tmp_path / "m.intarsia"
    words = ["compile", str(tmp_path / "m.onnx"), "-o", str(artifact), "--target"]
    assert main([*words, "llvm -mcpu=haswell -mtriple=x86_64-unknown-linux-gnu"]) == 0
    capsys.readouterr()

    def held(*more: str) -> tuple[int, str]:
        code = main(["check", str(artifact), *more])
        document = capsys.readouterr()
        return code, document.out + document.err

    machine = "-mtriple=x86_64-unknown-linux-gnu"
    assert held("--on", f"llvm -mcpu=znver4 {machine}")[0] == 0
    code, document = held("--on", f"llvm -mcpu=nehalem {machine}")
    assert code == 7
    assert "it needs the CPU features" in document
    code, document = held("--on", "raspberrypi/4b")
    assert code == 7
    assert "not for linux/aarch64" in document
    code, document = held("--on", f"llvm -mcpu=nehalem {machine}", "--json")
    found = json.loads(document.partition("\nerror:")[0])
    assert (found["ok"], found["checks"][0]["ok"], found["checks"][1]["ok"]) == (False, True, False)
    artifact.write_bytes(artifact.read_bytes()[:-200])
    assert held()[0] == 7


def test_an_artifact_for_another_machine_or_without_its_plugin_cannot_run_here() -> None:
    plan = CallPlan((), (), (), (), 0, ())
    units = (UnitEntry("main", "shared-library", ()), UnitEntry("r0", "absent", (), plugin="x==1"))
    one = Passport(name="m", intarsia="0", target="t", os="linux", arch="riscv64", plan=plan,
                   units=units, cpu_features=("v",))  # fmt: skip
    assert not check._machine(one, Machine("linux", "x86_64", frozenset())).ok
    assert not check._machine(one, Machine("linux", "riscv64", frozenset())).ok
    assert check._machine(one, Machine("linux", "riscv64", frozenset({"v"}))).ok
    (row,) = check._plugins(one)
    assert (row.what, row.ok) == ("loader absent", False)
    assert row.detail == "it needs x==1, which is not installed"


@pytest.mark.parametrize(
    ("code", "document"),
    [
        (3, "ended with exit code 3"),
        (-4, "was ended by SIGILL (Illegal instruction)"),
        (-1000, "was ended by signal 1000"),
    ],
)
def test_a_childs_end_is_told_in_words(code: int, document: str) -> None:
    assert how_it_ended(code) == document
