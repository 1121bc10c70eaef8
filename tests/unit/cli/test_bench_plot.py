# SPDX-License-Identifier: Apache-2.0
"""Charts of ``bench``: bars, quartiles, and the line of the peer, from made-up rows."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from intarsia.cli.main import main
from intarsia_runtime.errors import UsageError
from intarsia_tools.bench_plot import check_plot, plot_rows
from intarsia_tools.bench_row import BenchRow

ROWS = [
    BenchRow("resnet", "fast, llvm", "onnxruntime", 1, 9.0, 10.0, 0.9, 0.8, 0.95),
    BenchRow("bert <base>", "llvm", "onnxruntime", 2, 12.0, 10.0, 1.2, 1.1, 1.4),
]


def text_of(path: Path) -> str:
    return " ".join(ElementTree.parse(path).getroot().itertext())


def test_a_chart_says_what_was_measured_and_is_the_same_again(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots are Matplotlib's")
    path = tmp_path / "bench.svg"
    plot_rows(ROWS, path, "7 rounds")
    text = text_of(path)
    for word in ("resnet, fast, llvm, 1 thread vs onnxruntime", "bert <base>", "2 threads",
                 "below 1 is faster", "7 rounds"):  # fmt: skip
        assert word in text
    first = path.read_bytes()
    plot_rows(ROWS, path, "7 rounds")
    assert path.read_bytes() == first
    plot_rows([*ROWS[:1], BenchRow("x", "llvm", "onnxruntime", 1, 1, 1, 3, 2, 4)], path, "7 rounds")
    assert path.read_bytes() != first


def test_without_a_peer_bars_are_times(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots are Matplotlib's")
    plot_rows([BenchRow("net", "llvm", "", 1, 2.5)], tmp_path / "t.svg", "")
    assert "milliseconds" in text_of(tmp_path / "t.svg")
    plot_rows([BenchRow("net", "llvm", "", 1, 2.5)], tmp_path / "t.png", "")
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


def test_a_plot_that_cannot_be_is_said_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="names no format"):
        check_plot(tmp_path / "bench.gif")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match="not installed"):
        check_plot(tmp_path / "bench.svg")
    words = ["bench", "absent.onnx", "--target", "llvm", "--plot", str(tmp_path / "b.svg")]
    assert main(words) == 2
    assert "intarsia[plot]" in capsys.readouterr().err
