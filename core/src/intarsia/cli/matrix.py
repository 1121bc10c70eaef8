# SPDX-License-Identifier: Apache-2.0
"""``intarsia matrix``: models by targets, each cell in a process of its own; goes on where it was.

A cell that is done is a line in the file of results, under all that decides it: the model's bytes,
the canonical target, the versions. A cell that was running when its command was killed is no line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import cast

import click
from msgspec import Struct

from ..build.importing import source_digests
from ..build.pack import own_version
from ..build.records import append_line
from ..errors import GateFailed, IntarsiaError, ModelError
from ..host.host import Host
from .children import LATE, Ended, run_command
from .composed import ComposedCommand, help_all_option
from .output import echo, emit_json, progress, table
from .session import Session
from .target_options import NameType, read_targets

PASSING = frozenset({LATE, "lost", "resource"})
"""States that say more of the moment than of the cell: such a cell is done again."""


class Cell(Struct, frozen=True):
    """A model for a target.

    Attributes:
        model: The ONNX file.
        target: As written.
        canonical: The target with all its options.
        key: Digest of all that decides the result.
    """

    model: Path
    target: str
    canonical: str
    key: str


class Result(Struct, frozen=True):
    """What became of a cell.

    Attributes:
        cell: The cell.
        state: ``ok``; ``gate`` if results differ; or what the exit code says, e.g. ``unsupported``.
        milliseconds: Median of a run; 0 if there was none.
        error: Why it is not ok.
        again: Whether it was done by an earlier command.
    """

    cell: Cell
    state: str
    milliseconds: float = 0.0
    error: str = ""
    again: bool = False

    def to_json(self) -> dict[str, object]:
        """Return the row as the command line prints it."""
        return {
            "model": self.cell.model.stem,
            "target": self.cell.target,
            "state": self.state,
            "median_ms": self.milliseconds or None,
            "error": self.error,
            "again": self.again,
        }


@click.command("matrix", cls=ComposedCommand, families=("target",))
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--target", "targets", multiple=True, required=True, type=NameType("target"),
              help="Once for each target.")  # fmt: skip
@click.option("--results", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Where finished cells are kept; with it, a second command goes on.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True,
              help="Cells at a time; times mean something with one only.")  # fmt: skip
@click.option("--limit", type=click.FloatRange(0, min_open=True), default=600.0,
              show_default=True, metavar="SECONDS", help="When to give a cell up.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--repeat", type=click.IntRange(1), default=5, show_default=True, help="Timed runs.")
@click.option("--verify/--no-verify", default=True, show_default=True,
              help="Compare with the reference.")  # fmt: skip
@click.option("--check", is_flag=True, help="Exit with 10 if a cell is not ok.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@help_all_option()
@click.pass_context
def command(
    ctx: click.Context,
    models: Sequence[Path],
    targets: Sequence[str],
    results: Path | None,
    jobs: int,
    limit: float,
    threads: int,
    repeat: int,
    verify: bool,
    check: bool,
    as_json: bool,
) -> None:
    """Compile and run each of MODELS, ONNX files, for each target, and compare the results."""
    session: Session = ctx.obj
    chosen = {text: str(parts) for text, parts in read_targets(ctx, targets).items()}
    versions = _versions(session.host(), chosen)
    options = ["--repeat", str(repeat), "--threads", str(threads)]
    options += ["--verify"] if verify else []
    cells = [
        _cell(model, text, canonical, (versions, options))
        for model in models
        for text, canonical in chosen.items()
    ]
    front = [word for name in session.disabled for word in ("--no-plugin", name)]

    def run(cell: Cell) -> Result:
        words = ["run", str(cell.model), "--target", cell.canonical, "--json", *options]
        return result_of(cell, run_command([*front, *words], limit))

    with progress("running", len(cells)) as advance:
        found = run_cells(cells, run, results, jobs, advance)
    if as_json:
        emit_json({"cells": [row.to_json() for row in found]})
    else:
        _print(found)
    bad = [row for row in found if row.state != "ok"]
    if check and bad:
        named = ", ".join(f"{row.cell.model.stem} for '{row.cell.target}'" for row in bad[:3])
        raise GateFailed(f"{len(bad)} of {len(found)} cells are not ok: {named}")


def run_cells(
    cells: Sequence[Cell],
    run: Callable[[Cell], Result],
    results: Path | None,
    jobs: int,
    advance: Callable[[int], None],
) -> list[Result]:
    """Run every cell that is not done, and keep each result as soon as it is there.

    Args:
        cells: In the order of the results.
        run: Runs one; may be called by several threads.
        results: File with what was done, or ``None``.
        jobs: Cells at a time.
        advance: Told of each cell.

    Raises:
        ModelError: The file with results cannot be read.
        ResourceError: It cannot be written.
    """
    done = {} if results is None else read_results(results)

    def finish(cell: Cell) -> Result:
        kept = done.get(cell.key)
        row = run(cell) if kept is None else _kept(cell, kept)
        if kept is None and results is not None:
            fields = {"key": cell.key, "target": cell.target, "model": cell.model.stem}
            said = {"state": row.state, "milliseconds": row.milliseconds, "error": row.error}
            append_line(results, json.dumps({**fields, **said}))
        advance(1)
        return row

    if jobs == 1:
        return [finish(cell) for cell in cells]
    with ThreadPoolExecutor(jobs) as pool:
        try:
            return list(pool.map(finish, cells))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def result_of(cell: Cell, ended: Ended) -> Result:
    """Say what a command that ran a cell came to."""
    milliseconds = ended.said.get("median_ms", 0.0)
    return Result(
        cell,
        ended.state,
        float(milliseconds) if isinstance(milliseconds, int | float) else 0.0,
        "" if ended.state == "ok" else ended.error,
    )


def read_results(path: Path) -> dict[str, Mapping[str, object]]:
    """Read what earlier commands did, by the digest of a cell; lines that are torn are left out.

    Raises:
        ModelError: The file cannot be read.
    """
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ModelError(f"cannot read results from '{path}': {error.strerror}") from None
    found: dict[str, Mapping[str, object]] = {}
    for line in lines:
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            row = cast("dict[str, object]", json.loads(line))
            if row["state"] in PASSING:
                continue
            found[str(row["key"])] = {
                "state": str(row["state"]),
                "milliseconds": float(str(row["milliseconds"])),
                "error": str(row["error"]),
            }
    return found


def _kept(cell: Cell, row: Mapping[str, object]) -> Result:
    milliseconds = cast("float", row["milliseconds"])
    return Result(cell, str(row["state"]), milliseconds, str(row["error"]), again=True)


def _cell(model: Path, target: str, canonical: str, others: object) -> Cell:
    """Return a cell; a model that cannot be read is one too, and its run will say so."""
    try:
        digests: object = source_digests(model)
    except IntarsiaError as error:
        digests = str(error)
    text = json.dumps([digests, canonical, others], sort_keys=True)
    return Cell(model, target, canonical, sha256(text.encode()).hexdigest())


def _versions(host: Host, targets: Mapping[str, str]) -> list[str]:
    kinds = {part.kind.name for text in targets.values() for part in host.target(text).targets}
    owners = [host.owner(kind) for kind in sorted(kinds)]
    return [f"intarsia {own_version()}", *(f"{o.distribution} {o.version}" for o in owners)]


def _print(rows: Sequence[Result]) -> None:
    targets = list(dict.fromkeys(row.cell.target for row in rows))
    models = list(dict.fromkeys(row.cell.model for row in rows))
    by_place = {(row.cell.model, row.cell.target): row for row in rows}
    cells = [[m.stem, *(_word(by_place[m, t]) for t in targets)] for m in models]
    table(cells, ("model", *targets))
    for row in rows:
        if row.error:
            echo(f"{row.cell.model.stem} for '{row.cell.target}': {row.error}")


def _word(row: Result) -> str:
    return f"{row.milliseconds:.2f} ms" if row.state == "ok" else row.state.upper()
