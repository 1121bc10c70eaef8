# SPDX-License-Identifier: Apache-2.0
"""The gate on performance: ratios to a peer, measured in one run, against those last committed.

Times say more of the machine and of what else it does than of the code; a ratio measured in turn
does not. It does depend on the processor: each has ratios of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from intarsia.driver.stages import read_target, spaces_of
from intarsia.host.host import Host

from . import masked

TOLERANCE = 0.15
"""By how much a ratio may be worse than the committed one."""

RATIOS = Path(__file__).parent / "ratios.json"
"""The ratios last committed."""

SCHEMA = 2


@dataclass(frozen=True)
class Regression:
    """A ratio that is worse than it was, or that is gone.

    Attributes:
        name: What was measured.
        was: The committed ratio.
        now: The new one; ``None`` if it was not measured.
    """

    name: str
    was: float
    now: float | None

    def __str__(self) -> str:
        if self.now is None:
            return f"{self.name}: was {self.was:.3f}, is not measured any more"
        worse = 100 * (self.now / self.was - 1)
        return f"{self.name}: was {self.was:.3f}, is {self.now:.3f} ({worse:+.0f} %)"


def regressions(
    committed: Mapping[str, float], new: Mapping[str, float], tolerance: float = TOLERANCE
) -> list[Regression]:
    """Return what is worse than committed by more than the tolerance; a new row is none.

    Args:
        committed: Name of a measurement to its ratio, ours by the peer's.
        new: The same, measured now.
        tolerance: 0.15 allows 15 % more.
    """
    found: list[Regression] = []
    for name, was in committed.items():
        now = new.get(name)
        if now is None or now > was * (1 + tolerance):
            found.append(Regression(name, was, now))
    return found


def this_machine() -> str:
    """Return the name under which ratios are kept: the one under which ``tune`` keeps its times.

    A masked processor has a name of its own (``masked.py``).
    """
    host = Host()
    spaces = spaces_of(host, read_target(host, "llvm", None).fallback)
    assert spaces is not None  # the backend can be tuned
    mask = masked.name()
    return spaces.machine if mask is None else f"{spaces.machine}/as-{mask}"


def read_ratios(path: Path = RATIOS) -> dict[str, dict[str, float]]:
    """Read the committed ratios of each machine; none if the file is not there."""
    if not path.exists():
        return {}
    value = json.loads(path.read_text())
    if value.get("schema") != SCHEMA:
        raise ValueError(f"{path} has schema {value.get('schema')!r}, not {SCHEMA}")
    return {
        str(machine): {str(name): float(ratio) for name, ratio in ratios.items()}
        for machine, ratios in value["machines"].items()
    }


def write_ratios(machine: str, ratios: Mapping[str, float], path: Path = RATIOS) -> None:
    """Write ratios of a machine to be committed, in the order of their names."""
    all_ratios = {**read_ratios(path), machine: ratios}
    rounded = {
        machine: {name: round(ratio, 3) for name, ratio in sorted(of_one.items())}
        for machine, of_one in sorted(all_ratios.items())
    }
    path.write_text(json.dumps({"schema": SCHEMA, "machines": rounded}, indent=1) + "\n")
