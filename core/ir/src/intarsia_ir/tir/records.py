# SPDX-License-Identifier: Apache-2.0
"""Records of measured schedules: a file of JSON lines that ``tune`` appends to and builds read."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar, cast

from msgspec import Struct, field

from intarsia_runtime.errors import ModelError

from .space import Choice, ScheduleSpace

SCHEMA = 1
_LARGEST = 256 << 20

T = TypeVar("T")


class Record(Struct, frozen=True, kw_only=True):
    """What was measured of one choice.

    Attributes:
        machine: What it was measured for.
        operator: The space.
        space: Version of the space.
        signature: Of the fused group.
        threads: Threads that it ran with.
        choice: Knob to value; empty is what the rules choose.
        state: ``ok``, ``failed``, ``late`` (beyond the time limit), ``wrong`` (other results than
            the rules' kernel), or ``best``: a search ended with it.
        ratio: Its time by that of the rules' kernel, measured in turn; 0 if it has none.
        microseconds: Its time.
        trials: Of ``best``: how many choices the search had tried.
    """

    machine: str
    operator: str
    space: int
    signature: str
    threads: int
    choice: Choice = field(default_factory=lambda: MappingProxyType[str, int]({}))
    state: str = "ok"
    ratio: float = 0.0
    microseconds: float = 0.0
    trials: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the line as plain JSON."""
        return {
            "schema": SCHEMA,
            "machine": self.machine,
            "operator": self.operator,
            "space": self.space,
            "signature": self.signature,
            "threads": self.threads,
            "choice": dict(self.choice),
            "state": self.state,
            "ratio": float(self.ratio),
            "microseconds": float(self.microseconds),
            "trials": self.trials,
        }

    @property
    def key(self) -> tuple[str, str, int, str]:
        """What a build looks up."""
        return self.machine, self.operator, self.space, self.signature


class Records(Struct, frozen=True):
    """The records of a file.

    Attributes:
        path: The file.
        rows: In the order in which they were written.
    """

    path: Path
    rows: tuple[Record, ...]

    def best(self, machine: str, space: ScheduleSpace, signature: str) -> Record | None:
        """What the last search that ended found; ``None`` if none did."""
        key = (machine, space.operator, space.version, signature)
        found = (row for row in reversed(self.rows) if row.state == "best" and row.key == key)
        return next(found, None)

    def trials(
        self, machine: str, space: ScheduleSpace, signature: str, threads: int
    ) -> tuple[Record, ...]:
        """All choices that were tried."""
        key = (machine, space.operator, space.version, signature)
        return tuple(
            row
            for row in self.rows
            if row.state != "best" and row.key == key and row.threads == threads
        )


def read_records(path: Path) -> Records:
    """Read a file of records; none if it does not exist. Lines that are none are left out.

    Raises:
        ModelError: It cannot be read, or is larger than any file of records.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise ModelError(f"'{path}' is too large for a file of records")
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return Records(path, ())
    except OSError as error:
        raise ModelError(f"cannot read records from '{path}': {error.strerror}") from None
    found = [_parse(line) for line in lines[:-1] if line.strip()]
    rows = tuple(row for row in found if row is not None)
    is_torn = not rows and bool(lines[-1].strip())  # beside whole lines, it is being written
    if len(rows) < len(found) + is_torn:
        lost = len(found) + is_torn - len(rows)
        warnings.warn(f"{lost} lines of '{path}' are no records, and not used", stacklevel=2)
    return Records(path, rows)


def _parse(line: bytes) -> Record | None:
    """Read one line; ``None`` if it is no record of this schema."""
    try:
        value: object = json.loads(line)
        if not isinstance(value, dict):
            return None
        return _record(cast("dict[str, object]", value))
    except (ValueError, RecursionError):
        return None


def _record(fields: Mapping[str, object]) -> Record | None:
    if fields.get("schema") != SCHEMA:
        return None
    choice = cast("dict[str, object]", _get(fields, "choice", dict))
    return Record(
        machine=_get(fields, "machine", str),
        operator=_get(fields, "operator", str),
        space=_get(fields, "space", int),
        signature=_get(fields, "signature", str),
        threads=_get(fields, "threads", int),
        choice=MappingProxyType({name: _get(choice, name, int) for name in choice}),
        state=_get(fields, "state", str),
        ratio=float(_get(fields, "ratio", float)),
        microseconds=float(_get(fields, "microseconds", float)),
        trials=_get(fields, "trials", int),
    )


def _get(fields: Mapping[str, object], name: str, kind: type[T]) -> T:
    value = fields.get(name)
    if type(value) is not kind:
        raise ValueError(f"{name} is no {kind.__name__}")
    return value
