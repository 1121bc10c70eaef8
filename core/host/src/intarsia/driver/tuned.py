# SPDX-License-Identifier: Apache-2.0
"""What records of measurements say for a target: looked up by machine, operator and signature."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from intarsia_ir.tir.module import Lowered
from intarsia_ir.tir.records import Records, read_records
from intarsia_ir.tir.space import Choice, ScheduleSpace, ScheduleSpaces, Tuned
from intarsia_runtime.errors import ModelError, UsageError

from ..host.host import Host
from ..host.trial import CACHE
from ..target.target import CompositeTarget
from .stages import spaces_of

RECORDS = "INTARSIA_RECORDS"
"""Environment variable: the file with records, instead of the one in the user's data folder."""

NONE = "none"
"""Instead of the name of a file: no records."""


class _Best(Struct, frozen=True):
    """Looks up the best choice under each name of the machine, the first one first."""

    records: Records
    machines: Sequence[str]

    def __call__(self, space: ScheduleSpace, signature: str) -> Choice | None:
        for machine in self.machines:
            found = self.records.best(machine, space, signature)
            if found is not None:
                return found.choice
        return None


def machines_of(host: Host, target: CompositeTarget, spaces: ScheduleSpaces) -> tuple[str, ...]:
    """Return the names under which measurements for a target are kept, the one to use first.

    They are the hardware tag that the target was written with, if it was, and what the backend
    calls the machine.
    """
    hardware = host.hardware_of(target)
    names = (hardware.type, spaces.machine) if hardware is not None else (spaces.machine,)
    return tuple(dict.fromkeys(names))


def records_path(given: str | os.PathLike[str] | None, env: Mapping[str, str]) -> Path | None:
    """Return the file with records: as given, from the environment, or the user's; maybe none.

    Raises:
        UsageError: There is no home folder, and no file is given.
        ModelError: The environment names something that is no file.
    """
    named = os.fspath(given) if given is not None else env.get(RECORDS, "")
    if named == NONE:
        return None
    if named:
        return Path(named) if given is not None else _from_variable(Path(named))
    if env.get(CACHE):  # who moves what is remembered moves this too
        return Path(env[CACHE]) / "records.jsonl"
    from platformdirs import user_data_path  # builds with a file given do without

    try:
        return user_data_path("intarsia", appauthor=False) / "records.jsonl"
    except (OSError, RuntimeError):
        raise UsageError("no home folder for tuning records", hint="--records FILE") from None


def _from_variable(path: Path) -> Path:
    if path.exists() and not (path.is_file() and os.access(path, os.R_OK)):
        raise ModelError(
            f"{RECORDS} names '{path}', which is not a readable file",
            hint=f"a file that intarsia tune writes, or '{NONE}'",
        )
    return path


def tuned_for(
    host: Host, target: CompositeTarget, given: str | os.PathLike[str] | None
) -> Tuned | None:
    """Return what was measured for a target; ``None`` if there are no records of it.

    Args:
        host: Knows the fallback's hooks and the hardware.
        target: What is compiled for.
        given: A file of records, ``none``, or ``None`` for the user's own.

    Raises:
        UsageError: A file is given, and is not there.
        ModelError: It cannot be read.
    """
    path = records_path(given, os.environ)
    if path is None or not path.exists():
        if path is not None and given is not None:
            raise UsageError(f"there is no file of records '{path}'", hint="intarsia tune MODEL")
        if path is not None and os.environ.get(RECORDS):
            warnings.warn(f"{RECORDS} names '{path}', which is not there yet", stacklevel=2)
        return None
    spaces = spaces_of(host, target.fallback)
    if spaces is None:
        return None
    records = read_records(path)
    return Tuned(spaces, _Best(records, machines_of(host, target, spaces)))


def tuned_json(lowered: Lowered, tuned: Tuned | None) -> Mapping[str, object]:
    """Return what a passport says of records that decided; empty if none did."""
    if tuned is None or not lowered.chosen:
        return {}
    return {
        "machine": tuned.spaces.machine,
        "kernels": {
            name: {"signature": kernel.signature, "choice": dict(kernel.choice)}
            for name, kernel in lowered.chosen.items()
        },
    }
