# SPDX-License-Identifier: Apache-2.0
"""The file of records: what is written is read; what is broken is left out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from intarsia.driver.tuned import records_path
from intarsia_ir.tir import records
from intarsia_ir.tir.records import Record, read_records
from intarsia_ir.tir.space import ScheduleSpace
from intarsia_runtime.errors import ModelError, ResourceError, UsageError
from intarsia_tools import append
from intarsia_tools.append import append_record

SPACE = ScheduleSpace("cpu.conv", 1, (), lambda *_: None)


def row(**changes: object) -> Record:
    fields = {"machine": "m", "operator": "cpu.conv", "space": 1, "signature": "s", "threads": 1}
    return Record(**{**fields, **changes})  # type: ignore[arg-type]


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "records.jsonl"
    rows = [row(choice={"rows": 4}, ratio=0.5, microseconds=3.25), row(state="best", trials=3)]
    for one in rows:
        append_record(path, one)
    assert list(read_records(path).rows) == rows
    assert read_records(tmp_path / "none.jsonl").rows == ()


def test_the_last_search_that_ended_decides(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    for one in (
        row(state="best", choice={"rows": 4}),
        row(choice={"rows": 8}, ratio=0.1),
        row(state="best", choice={"rows": 6}),
        row(state="best", choice={"rows": 2}, machine="other"),
        row(state="best", choice={"rows": 3}, space=2),
    ):
        append_record(path, one)
    found = read_records(path)
    best = found.best("m", SPACE, "s")
    assert best is not None
    assert best.choice == {"rows": 6}
    assert found.best("m", SPACE, "another") is None
    assert [r.choice for r in found.trials("m", SPACE, "s", 1)] == [{"rows": 8}]
    assert found.trials("m", SPACE, "s", 2) == ()


@pytest.mark.filterwarnings("error")
def test_a_torn_line_is_none_and_the_next_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    append_record(path, row())
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    assert len(read_records(path).rows) == 1
    append_record(path, row(threads=2))
    with pytest.warns(UserWarning, match="1 lines of .* are no records"):
        assert [r.threads for r in read_records(path).rows] == [1, 2]


@pytest.mark.parametrize(
    "change",
    [{"schema": 2}, {"space": "1"}, {"ratio": 1}, {"choice": {"rows": True}}, {"choice": 3}],
)
def test_lines_of_another_form_are_left_out(tmp_path: Path, change: dict) -> None:
    path = tmp_path / "records.jsonl"
    append_record(path, row())
    fields = {**json.loads(path.read_bytes()), **change}
    path.write_text(f"{json.dumps(fields)}\n[1]\nnoise\n{'[' * 100_000}\n")
    with pytest.warns(UserWarning, match="4 lines"):
        assert read_records(path).rows == ()


def test_what_cannot_be_read_or_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="cannot read records"):
        read_records(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="cannot write records"):
        append_record(tmp_path / "file" / "records.jsonl", row())
    path = tmp_path / "records.jsonl"
    append_record(path, row())
    monkeypatch.setattr(records, "_LARGEST", 10)
    with pytest.raises(ModelError, match="too large"):
        read_records(path)
    monkeypatch.setattr(append, "_LOCK_SECONDS", 0.05)
    with (
        FileLock(tmp_path / "records.jsonl.lock"),
        pytest.raises(ResourceError, match=r"keeps .* locked"),
    ):
        append_record(path, row())


def test_two_processes_append_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    code = (
        "import sys; from pathlib import Path; from intarsia_ir.tir.records import *\n"
        "from intarsia_tools.append import *\n"
        "for n in range(25): append_record(Path(sys.argv[1]), Record(machine='m', operator='o',"
        " space=1, signature=f'{sys.argv[2]}{n}', threads=1))"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in ("a", "b")
    ]
    assert [child.wait(60) for child in children] == [0, 0]
    assert len({r.signature for r in read_records(path).rows}) == 50


def test_the_place_is_given_set_or_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert records_path("a.jsonl", {"INTARSIA_RECORDS": "b"}) == Path("a.jsonl")
    assert records_path(None, {"INTARSIA_RECORDS": "b"}) == Path("b")
    assert records_path(None, {"INTARSIA_RECORDS": "none"}) is None
    assert records_path("none", {}) is None
    assert records_path(None, {"INTARSIA_CACHE_DIR": "c"}) == Path("c/records.jsonl")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert records_path(None, {}) == tmp_path / "intarsia" / "records.jsonl"

    def homeless(*_: object, **__: object) -> Path:
        raise RuntimeError

    monkeypatch.setattr("platformdirs.user_data_path", homeless)
    with pytest.raises(UsageError, match="no home folder"):
        records_path(None, {})
