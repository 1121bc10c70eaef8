# SPDX-License-Identifier: Apache-2.0
"""Measuring claims: once, in a child process, kept by content, whatever a claim does to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from intarsia.host.host import Host
from intarsia.plugin import Support, SupportRow, SupportTable, Target, hookimpl, op
from intarsia_ir.graph.expr import Function, Var, call, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.activation import Relu
from intarsia_ir.ops.nn import Matmul
from intarsia_ir.partition.measured import MeasuredSeconds
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ToolchainError, UnsupportedError
from intarsia_tools import claims
from intarsia_tools.claims import costs_path, measure_claims, read_costs
from intarsia_tools.timing import run

from .toy import Accelerator, host_of

ONE = TensorType((1,), DType.FLOAT32)
TIMES = "def seconds(text): return {'an empty run': 1e-5, 'fast': 3e-3, 'toy': 2e-3}[text]\n"


def model(rows: int = 4) -> IRModule:
    x = Var("x", TensorType((rows, 5), DType.FLOAT32))
    weight = constant(np.ones((5, 3), np.float32), name="w")
    product = call(Matmul, x, weight, attrs=Matmul.Attrs())
    return IRModule.from_function(Function((x,), call(Relu, product), ("y",)))


class Maker:
    """Stands for a build: what it makes holds what it was made of."""

    def __init__(self, *, whole: bool = True, refuses: Exception | None = None) -> None:
        self.made: list[str] = []
        self.whole, self.refuses = whole, refuses

    def __call__(self, module: IRModule, target: Any) -> Any:
        kind = target.accelerators[0].kind.name if target.accelerators else "toy"
        is_empty = module.main.params[0].type == ONE
        text = "an empty run" if is_empty else kind
        self.made.append(text)
        if self.refuses is not None and target.accelerators:
            raise self.refuses
        placement = SimpleNamespace(offloaded=int(self.whole), nodes=1)

        def save(path: Path) -> Path:
            path.write_text(text)
            return path

        return SimpleNamespace(placement=placement, save=save)


def child(body: str) -> str:
    """A child that answers for each file what ``body`` says of its ``text``."""
    return (
        "import json, os, sys, time\njob = json.load(sys.stdin)\n"
        + TIMES
        + "for f in job['files']:\n"
        f"    text = open(f).read()\n    {body}\n"
        "    open(job['answer'], 'a').write(json.dumps(seconds(text)) + '\\n')\n"
    )


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """A cache of this test, and a child whose answers are known; its body can be set."""
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))

    def answers(body: str) -> None:
        monkeypatch.setattr(claims, "_CHILD", child(body))

    answers("pass")
    return answers


def measured(make: Maker, host: Host | None = None, rows: int = 4) -> MeasuredSeconds:
    host = host or host_of()
    return measure_claims(host, model(rows), host.target("fast, toy"), make)


def test_claims_and_their_calls_are_measured_less_an_empty_run() -> None:
    found = measured(Maker())
    (claim,) = found.claims.items()
    (own,) = found.own.items()
    assert claim[0][0] == "fast"
    assert claim[0][1].startswith("matmul(x0: Tensor[(4, 5), float32]")
    assert claim[1] == pytest.approx(3e-3 - 1e-5)
    assert own == (claim[0][1], pytest.approx(2e-3 - 1e-5))


def test_what_is_known_is_not_measured_again() -> None:
    first, again, other = Maker(), Maker(), Maker()
    assert measured(first) == measured(again)
    assert first.made == ["an empty run", "toy", "fast"]
    assert again.made == []
    measured(other, rows=8)
    assert other.made == ["toy", "fast"]


def test_another_version_of_the_host_or_another_processor_is_measured_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured(Maker())
    monkeypatch.setattr(claims, "__version__", "9.9")
    newer = Maker()
    measured(newer)
    assert len(newer.made) == 3
    monkeypatch.setattr(claims, "_machine", lambda: {"cpu": "other"})
    elsewhere = Maker()
    measured(elsewhere)
    assert len(elsewhere.made) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "body", ["os._exit(9) if text == 'toy' else None", "time.sleep(60 * (text == 'toy'))"]
)
def test_one_that_dies_or_hangs_costs_itself_alone(
    kept: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    monkeypatch.setattr(claims, "SECONDS", 1.0)
    kept(body)
    found = measured(Maker())
    assert found.own == {}
    assert list(found.claims.values()) == [pytest.approx(3e-3 - 1e-5)]
    again = Maker()
    measured(again)
    assert again.made == []


@pytest.mark.parametrize(
    "make",
    [
        Maker(whole=False),
        Maker(refuses=UnsupportedError("no")),
        Maker(refuses=ToolchainError("cc")),
    ],
)
def test_what_does_not_compile_alone_is_not_measured(make: Maker) -> None:
    found = measured(make)
    assert found.claims == {}
    assert len(found.own) == 1


def test_what_a_plugin_states_and_light_calls_are_not_measured() -> None:
    class States(Accelerator):
        @hookimpl
        def annotate(self, target: Target) -> SupportTable:
            rows = [SupportRow("matmul", op("matmul"), lambda _: Support.yes(seconds=1e-6))]
            return SupportTable([*rows, SupportRow("relu", op("nn.relu"), lambda _: Support.yes())])

    make = Maker()
    found = measured(make, host_of(accelerator=States()))
    assert make.made == ["an empty run", "toy"]
    assert found.claims == {}
    assert len(found.own) == 1


def test_damaged_lines_are_measured_anew(tmp_path: Path) -> None:
    measured(Maker())
    path = tmp_path / "cache" / "claims.jsonl"
    assert path == costs_path({"INTARSIA_CACHE_DIR": str(tmp_path / "cache")})
    lines = path.read_text().splitlines()
    broken = [lines[0][:40], "[1]", '{"schema": 99, "key": "x", "seconds": 1.0}', *lines[1:]]
    path.write_text("\n".join(broken) + "\n")
    assert len(read_costs(path)) == 2
    again = Maker()
    measured(again)
    assert again.made == ["an empty run"]
    assert read_costs(tmp_path / "none") == {}


def test_a_folder_that_cannot_be_written_costs_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="what was measured is not kept"):
        assert measured(Maker()).claims


def test_an_artifact_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("nothing")
    files = [str(tmp_path / name) for name in ("missing", "broken")]
    run({"files": files, "answer": str(tmp_path / "answer")})
    said = [json.loads(line) for line in (tmp_path / "answer").read_text().splitlines()]
    assert len(said) == 2
    assert all(isinstance(one, str) and one for one in said)
