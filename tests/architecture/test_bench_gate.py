# SPDX-License-Identifier: Apache-2.0
"""The gate on performance, the page it fills, and what is committed, with made-up numbers."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from msgspec.structs import replace
from tests.bench.chains import write_chain
from tests.bench.costs import Cost, Opened, growth
from tests.bench.fastest_peer import by_fastest
from tests.bench.gate import Regression, read_ratios, regressions, this_machine, write_ratios
from tests.bench.masked import VARIABLE
from tests.bench.report import (
    BEGIN,
    END,
    MACHINES,
    PAGE,
    Costs,
    file_of,
    page_text,
    ratios_of,
    with_means,
)

from intarsia_tools.bench_row import BenchRow

ROW = BenchRow("net", "llvm", "onnxruntime", 1, 2.0, 4.0, 0.5, 0.4, 0.6)
OPENED = Opened(Cost(0.2, 0.01, 2e6), Cost(0.4, 0.04, 4e6), 0.5, 0.25, 0.5)
COST = [Costs("net", "llvm", 1.25, OPENED)]


@pytest.mark.parametrize(
    "was, now, is_worse",
    [
        (1.0, 1.0, False),
        (1.0, 1.149, False),
        (1.0, 1.151, True),
        (0.5, 0.58, True),
        (2.0, 1.0, False),
        (2.0, 2.29, False),
    ],
)
def test_a_ratio_may_be_15_percent_worse(was: float, now: float, is_worse: bool) -> None:
    expected = [Regression("a", was, now)] if is_worse else []
    assert regressions({"a": was}, {"a": now, "new": 99.0}) == expected


def test_what_is_not_measured_any_more_fails_too() -> None:
    (gone,) = regressions({"a": 1.0}, {})
    assert str(gone) == "a: was 1.000, is not measured any more"
    assert str(Regression("a", 0.5, 0.6)) == "a: was 0.500, is 0.600 (+20 %)"


def test_ratios_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "ratios.json"
    assert read_ratios(path) == {}
    write_ratios("large", {"b": 1.23456, "a": 0.5}, path)
    write_ratios("huge", {"a": 0.1}, path)
    write_ratios("huge", {"a": 0.2}, path)
    assert read_ratios(path) == {"huge": {"a": 0.2}, "large": {"a": 0.5, "b": 1.235}}
    assert list(json.loads(path.read_text())["machines"]["large"]) == ["a", "b"]
    path.write_text('{"schema": 3}')
    with pytest.raises(ValueError, match="schema 3, not 2"):
        read_ratios(path)


def test_ratios_are_kept_as_what_is_tuned() -> None:
    arch, processor, bits, *unit = this_machine().split("/")
    assert arch
    assert processor
    assert int(bits) % 128 == 0
    assert unit in ([], ["amx"])


def test_a_masked_processor_has_a_name_and_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "haswell")
    assert this_machine().endswith("/as-haswell")
    rows = by_fastest([ROW, replace(ROW, target="dnnl, llvm")])
    text = page_text("huge", rows, COST, {100: 1.0, 1000: 1.9, 2000: 2.9})
    assert "masked" in text
    assert "AVX2, FMA and F16C, without AVX-512, VNNI and AMX; CPUID answers as haswell's" in text
    assert "\n2 threads:" not in text


def test_the_page_of_a_machine_has_every_number() -> None:
    measured = [ROW, replace(ROW, peer="openvino", peer_ms=2.5, ratio=0.8)]
    rows = by_fastest([*measured, *(replace(row, target="dnnl, llvm") for row in measured)])
    assert [row.peers for row in rows] == 2 * [{"onnxruntime": 4.0, "openvino": 2.5}]
    assert ratios_of(rows[:1], COST) == {
        "latency net [llvm] 1": 0.8, "open net [llvm]": 0.5, "open again net [llvm]": 0.25,
        "memory net [llvm]": 0.5,
    }  # fmt: skip
    text = page_text("huge", rows, COST, {100: 1.0, 1000: 1.9, 2000: 2.9})
    assert "that of the fastest of ONNX Runtime and OpenVINO in the same round" in text
    ours = "2 | 0.80 | 0.40 to 0.60"
    assert f"| net | 4 | 2.5 | {ours} | {ours} |" in text
    assert "| **geometric mean, fp32** | | | | **0.80** | | | **0.80** | |" in text
    opened = "200 | 400 | 0.50 | 10.0 | 40.0 | 0.25 | 2 | 4 | 0.50 | 1.2"
    assert f"| net | `llvm` | {opened} |" in text
    assert "costs 1.00 times" in text
    assert text.startswith("# Measured on `huge`\n")
    assert "(huge-latency.svg)" in text


def test_the_means_of_all_machines_stand_between_the_marks() -> None:
    ratios = {
        f"latency {model} [{target}] {threads}": ratio
        for target in ("dnnl, llvm", "llvm")
        for threads in (1, 2)
        for model, ratio in (("a", 0.5), ("b", 2.0 * threads), ("c_qdq", 0.25))
    }
    fp32_alone = {name: ratio for name, ratio in ratios.items() if "_qdq" not in name}
    text = with_means(f"a\n{BEGIN}\nold\n{END}\nb\n", {"x/2": ratios, "x/1": fp32_alone})
    first, *rows, last = text.splitlines()[1:-1]
    assert (first, last) == (BEGIN, END)
    assert rows == [
        "| processor | models | `dnnl, llvm`, 1 thread | `llvm`, 1 thread "
        "| `dnnl, llvm`, 2 threads | `llvm`, 2 threads |",
        "|---|---|--:|--:|--:|--:|",
        "| [`x/1`](performance/x-1.md) | fp32 | 1.00 | 1.00 | 1.41 | 1.41 |",
        "| [`x/2`](performance/x-2.md) | fp32 | 1.00 | 1.00 | 1.41 | 1.41 |",
        "| [`x/2`](performance/x-2.md) | 8 bits | 0.25 | 0.25 | 0.25 | 0.25 |",
    ]
    one_thread = {name: ratio for name, ratio in ratios.items() if name.endswith("1")}
    text = with_means(f"{BEGIN}\nold\n{END}\n", {"x/3": one_thread})
    assert "| [`x/3`](performance/x-3.md) | 8 bits | 0.25 | 0.25 | | |" in text
    with pytest.raises(ValueError, match="no marks"):
        with_means("a", {})


def test_a_peer_that_takes_some_models_has_a_column_with_gaps() -> None:
    measured = [
        replace(row, target=target)
        for target in ("dnnl, llvm", "llvm")
        for row in (ROW, replace(ROW, peer="inductor", peer_ms=1.0, ratio=2.0))
    ]
    rows = by_fastest([*measured, *(replace(row, model="other") for row in measured[::2])])
    text = page_text("huge", rows, COST, {100: 1.0, 1000: 1.9, 2000: 2.9})
    assert "ONNX Runtime and PyTorch (inductor), which takes 1 of the models, in the" in text
    assert "| model | ONNX Runtime, ms | PyTorch (inductor), ms | `dnnl, llvm`, ms |" in text
    assert "| net | 4 | 1 | 2 | 2.00 |" in text
    assert "| other | 4 | | 2 | 0.50 |" in text
    assert "| **geometric mean, fp32** | | | | **1.00** |" in text


def test_growth_is_one_for_a_line_and_more_for_a_curve() -> None:
    assert growth({0: 5.0, 10: 6.0, 20: 7.0}) == pytest.approx(1)
    assert growth({1: 1.0, 10: 100.0, 20: 400.0}) > 1.5


def test_a_chain_has_the_nodes_that_are_asked_for(tmp_path: Path) -> None:
    model = onnx.load(write_chain(tmp_path / "chain.onnx", 25))
    onnx.checker.check_model(model)
    assert len(model.graph.node) == 25


@pytest.mark.parametrize("machine", sorted(read_ratios()))
def test_what_is_committed_of_a_machine_is_of_one_run(machine: str) -> None:
    text = (MACHINES / file_of(machine, ".md")).read_text()
    for name, ratio in read_ratios()[machine].items():
        assert f"{ratio:.2f}" in text, name
    for ending in ("-latency.svg", "-compile-time.svg"):
        assert (MACHINES / file_of(machine, ending)).is_file()


def test_the_means_on_the_page_are_those_of_what_is_committed() -> None:
    assert PAGE.read_text() == with_means(PAGE.read_text(), read_ratios())


def test_some_machine_was_measured() -> None:
    assert read_ratios()
