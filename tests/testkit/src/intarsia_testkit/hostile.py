# SPDX-License-Identifier: Apache-2.0
"""Mutated artifacts: metadata changed at random, digests made anew, loaded and run in children.

What a loader reads steers native code. So whatever the metadata say, loading and running ends well
or with an error of Intarsia: no signal, no other exception, no hang. Machine code is left as it is,
but for being cut short: it is trusted, what steers it is not.
"""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np

from intarsia_runtime.artifact.digest import member_digest

Members = dict[str, bytes]

PASSPORT = "passport.json"
SECONDS_FOR_ONE = 30.0
"""A mutation that takes longer counts as one that never ends."""

NUMBERS: tuple[object, ...] = (
    *(-1, 0, 1, 2, 3, 7, 64, 255, 1 << 15, (1 << 31) - 1, 1 << 31, -(1 << 31), 1 << 32),
    *((1 << 63) - 1, 1 << 63, -(1 << 63), 1 << 64, 1 << 200, 0.5, -0.0, 1e308, -1e308),
    *(float("nan"), float("inf"), float("-inf")),
)
OTHERS: tuple[object, ...] = (
    *(None, True, False, "", "x", "\0", "../../x", "\udc80", "9" * 5000, list[object]()),
    *(dict[str, object](), [list[object]()]),
    *([0], [-1], {"a": 1}, "float64", "bfloat16", "bool", "int8", "int64"),
)


@dataclass(frozen=True)
class MutationOutcome:
    """What became of many mutations.

    Attributes:
        exits: How many ended with which exit code; 0 ran to the end.
        words: The beginnings of the messages of each exit code, and how many began so.
        faults: What must not happen: a signal, an exception of Python, a hang; one line each.
    """

    exits: Counter[int] = field(default_factory=Counter[int])
    words: dict[int, Counter[str]] = field(default_factory=dict[int, Counter[str]])
    faults: list[str] = field(default_factory=list[str])

    @property
    def total(self) -> int:
        """Number of mutations."""
        return sum(self.exits.values()) + len(self.faults)


def read_members(path: Path) -> Members:
    """Return the members of an artifact."""
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def write_members(members: Mapping[str, bytes], path: Path, *, anew: bool = True) -> None:
    """Write members as an artifact, with new digests unless the passport has lost its place."""
    members = dict(members)
    try:
        passport: Any = json.loads(members[PASSPORT])
        if anew:
            passport["members"] = {
                name: {"bytes": len(data), "sha256": member_digest(memoryview(data))}
                for name, data in members.items()
                if name != PASSPORT
            }
            members[PASSPORT] = json.dumps(passport).encode()
    except (KeyError, TypeError, ValueError, RecursionError):
        pass
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def mutate(members: Mapping[str, bytes], seed: int) -> tuple[str, Members]:
    """Return what was changed, and the changed members; the same seed gives the same change."""
    dice = random.Random(seed)
    changed = dict(members)
    says = [_one(changed, dice) for _ in range(dice.choice((1, 1, 1, 2, 3)))]
    return "; ".join(says), changed


def _one(members: Members, dice: random.Random) -> str:
    texts = [name for name, data in members.items() if _is_json(data)]
    units = [name for name in members if name.startswith("units/")]
    texts_of_units = [name for name in texts if name != PASSPORT]
    choice = dice.random()
    if texts_of_units and choice < 0.7:
        return _edit_json(members, dice.choice(texts_of_units), dice)
    if PASSPORT not in members:
        return "it has no passport any more"
    if choice < (0.75 if texts_of_units else 0.7):
        return _edit_json(members, PASSPORT, dice)
    if choice < 0.95 and units:
        return _edit_bytes(members, dice.choice(units), dice)
    return _edit_members(members, units, dice)


def _is_json(data: bytes) -> bool:
    return data[:1] in (b"{", b"[")


def _edit_json(members: Members, name: str, dice: random.Random) -> str:
    try:
        document: Any = json.loads(members[name])
    except (ValueError, RecursionError):
        return f"{name} is none any more"
    if dice.random() < 0.03:
        members[name] = members[name][: dice.randrange(len(members[name]))]
        return f"cut {name}"
    holders = _containers(document)
    # Digests are made anew, and a change of them would only be undone.
    holders = [row for row in holders if "members" not in row[0]] or holders
    path, holder = dice.choice(holders)
    says = _edit_container(holder, dice)
    members[name] = json.dumps(document).encode()
    if dice.random() < 0.01:
        depth = dice.choice((100, 5000, 100_000))
        members[name] = b"[" * depth + members[name] + b"]" * depth
        says = f"nested {depth} deep"
    return f"{name} {'.'.join(path)}: {says}"


def _containers(document: object) -> list[tuple[tuple[str, ...], Any]]:
    """Return all objects and lists that hold something."""
    found: list[tuple[tuple[str, ...], Any]] = []
    pending: list[tuple[tuple[str, ...], Any]] = [((), document)]
    while pending:
        path, node = pending.pop()
        items = _items(node)
        if items:
            found.append((path, node))
        pending += [((*path, str(key)), value) for key, value in items]
    return found


def _items(node: object) -> list[tuple[object, object]]:
    if isinstance(node, dict):
        return list(cast("dict[object, object]", node).items())
    if isinstance(node, list):
        return list(enumerate(cast("list[object]", node)))
    return []


def _edit_container(holder: dict[Any, Any] | list[Any], dice: random.Random) -> str:
    keys: list[Any] = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    key = dice.choice(keys)
    before = holder[key]
    match dice.randrange(8):
        case 0:
            del holder[key]
            return f"dropped {key!r}"
        case 1:
            if isinstance(holder, list):
                holder.insert(dice.randrange(len(holder) + 1), deepcopy(before))
            else:
                holder["new"] = deepcopy(before)
            return f"doubled {key!r}"
        case 2:
            other = dice.choice(keys)
            holder[key], holder[other] = holder[other], holder[key]
            return f"swapped {key!r} and {other!r}"
        case 3:
            holder[key] = dice.choice(OTHERS)
        case 4 if isinstance(before, int | float):
            holder[key] = before + dice.choice((-1, 1, 2, 16, -16))
        case _ if isinstance(before, str):
            holder[key] = dice.choice((before[:-1], before + "0", "float64", "", "abs", "x"))
        case _:
            holder[key] = dice.choice(NUMBERS)
    return f"{key!r} = {holder[key]!r:.40}, was {before!r:.40}"


def _edit_bytes(members: Members, name: str, dice: random.Random) -> str:
    data = members[name]
    if not data:
        return f"{name} is empty"
    if data[:4] == b"\x7fELF" and dice.random() < 0.6:
        return _edit_elf(members, name, dice)
    cut = dice.choice((0, 1, len(data) - 1, dice.randrange(len(data)), len(data) // 2))
    members[name] = data[:cut]
    return f"cut {name} at {cut}"


def _edit_elf(members: Members, name: str, dice: random.Random) -> str:
    """Change a number of the headers: of the program's, or, where there are none, of sections'.

    The file has 64 bits, little endian.
    """
    data = bytearray(members[name])
    if len(data) < 64:
        return f"{name} is none any more"
    start, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    fields = [(at, "<Q") for at in (24, 32, 40)] + [(at, "<H") for at in range(52, 64, 2)]
    for row in range(count):
        at = start + row * 56
        if at + 56 <= len(data) and struct.unpack_from("<I", data, at)[0] in (1, 2):
            fields += [(at + offset, "<Q") for offset in (8, 16, 32, 40, 48)] * 2
    sections, rows = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    for row in range(0 if count else rows):
        at = sections + row * 64
        if at + 64 <= len(data):
            # Which bytes are code, how they are aligned, and what is relocated, is code itself.
            fields += [(at + offset, "<Q") for offset in (24, 56)]
            fields += [(at + offset, "<I") for offset in (0, 40)]
    at, form = dice.choice(fields)
    (before,) = struct.unpack_from(form, data, at)
    top = (1 << 8 * struct.calcsize(form)) - 1
    values = (0, 1, top, before + 1, before + 4096, max(0, before - 64), before << 1, len(data))
    value = dice.choice(values) & top
    struct.pack_into(form, data, at, value)
    members[name] = bytes(data)
    return f"{name} byte {at}: {value:#x}, was {before:#x}"


def _edit_members(members: Members, units: Sequence[str], dice: random.Random) -> str:
    name = dice.choice(units or list(members))
    other = dice.choice(list(members))
    match dice.randrange(3):
        case 0:
            del members[name]
            return f"removed {name}"
        case 1:
            members[name], members[other] = members[other], members[name]
            return f"swapped {name} and {other}"
        case _:
            members[f"{name}.new"] = members[name]
            return f"added {name}.new"


def fuzz(
    artifact: Path,
    count: int,
    *,
    seed: int = 0,
    batch: int = 500,
    memory: int = 6 << 30,
    say: Callable[[str], object] | None = None,
) -> MutationOutcome:
    """Load and run ``count`` mutations of an artifact in child processes.

    Args:
        artifact: A good one.
        count: How many.
        seed: Of the first; the others follow.
        batch: Most mutations of one child.
        memory: Address space of a child in bytes.
        say: Called with what goes wrong, as it does.
    """
    outcome = MutationOutcome()
    begin, end = seed, seed + count
    while begin < end:
        until = min(end, begin + batch)
        done, reason = _child(artifact, begin, until, memory, outcome)
        if done < until:
            label, _ = mutate(read_members(artifact), done)
            fault = f"seed {done}: {reason} ({label})"
            outcome.faults.append(fault)
            if say is not None:
                say(fault)
            done += 1
        begin = done
    return outcome


def _child(
    artifact: Path, begin: int, end: int, memory: int, outcome: MutationOutcome
) -> tuple[int, str]:
    """Run a batch; returns the first seed that is not done, and what the child died of."""
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        arguments = (str(artifact), str(begin), str(end), folder, str(memory))
        with open(Path(folder) / "stderr", "wb") as errors:
            child = subprocess.Popen(
                [sys.executable, "-m", __name__, *arguments], stdout=errors, stderr=errors
            )
            ended = _wait(child, log)
        lines = log.read_text().splitlines() if log.exists() else []
        for line in lines:
            code, _, text = line.partition(" ")
            if code == "fault":
                outcome.faults.append(text)
            else:
                outcome.exits[int(code)] += 1
                outcome.words.setdefault(int(code), Counter())[text] += 1
        words = (Path(folder) / "stderr").read_text(errors="replace").strip()
    done = begin + len(lines)
    return done, f"{ended}: {words[-300:]}" if done < end else ""


def _wait(child: subprocess.Popen[bytes], log: Path) -> str:
    """Wait for a child as long as it gets on; returns how it ended."""
    size, since = -1, time.monotonic()
    while True:
        try:
            code = child.wait(0.2)
            return f"signal {-code}" if code < 0 else f"exit {code}"
        except subprocess.TimeoutExpired:
            now = log.stat().st_size if log.exists() else 0
            if now != size:
                size, since = now, time.monotonic()
            elif time.monotonic() - since > SECONDS_FOR_ONE:
                child.kill()
                child.wait()
                return "never ends"


def _work(artifact: Path, begin: int, end: int, folder: Path, memory: int) -> None:
    """Run a batch in this process; one line a mutation."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    members = read_members(artifact)
    place = folder / "mutated.intarsia"
    with open(folder / "log", "w", encoding="utf-8") as log:
        for seed in range(begin, end):
            label, changed = mutate(members, seed)
            write_members(changed, place)
            ended = _try(place)
            is_end = ended.partition(" ")[0].isdecimal()
            text = ended if is_end else f"fault seed {seed}: {ended} ({label!a})"
            log.write(" ".join(ascii(text)[1:-1].replace("\\n", " ").split()) + "\n")
            log.flush()
            place.unlink()


def _try(path: Path) -> str:
    """Load and run an artifact: the exit code it would have, or what must not be."""
    from intarsia_runtime.errors import IntarsiaError
    from intarsia_runtime.load import load

    try:
        with load(path, threads=1) as executable:
            inputs: dict[str, Any] = {}
            for spec in executable.inputs:
                shape = tuple(4 if not isinstance(n, int) else n for n in spec.shape or ())
                if int(np.prod([float(n) for n in shape])) > 1 << 24:
                    return "8"
                inputs[spec.name] = np.ones(shape, np.dtype(_dtype(spec)))
            executable.run(inputs)
            return "0"
    except IntarsiaError as error:
        text = f"{error.exit_code} {str(error).partition(' hint:')[0]:.300}"
        return text if type(error) is not IntarsiaError else repr(error)
    except MemoryError:
        return "8"
    except BaseException as error:
        import traceback

        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} at {Path(where.filename).name}:{where.lineno}"


def _dtype(spec: Any) -> str:
    dtype = spec.kind if hasattr(spec, "kind") else spec.dtype  # of a program; of a plan
    name = str(getattr(dtype, "value", dtype))
    return name if hasattr(np, name) or name == "bool" else "float32"


if __name__ == "__main__":
    _work(
        Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5])
    )
    os._exit(0)
