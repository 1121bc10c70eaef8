# SPDX-License-Identifier: Apache-2.0
"""Models by targets, each cell in a process of its own; goes on where it was.

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

from msgspec import Struct

from intarsia.driver.importing import source_digests
from intarsia.driver.version import __version__
from intarsia.host.host import Host
from intarsia_runtime.errors import IntarsiaError, ModelError

from .append import append_line
from .children import LATE, Ended, run_command
from .watch import Watch, quiet

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


class CellResult(Struct, frozen=True):
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


def run_matrix(
    models: Sequence[Path],
    targets: Mapping[str, str],
    *,
    host: Host | None = None,
    disabled: Sequence[str] = (),
    results: Path | None = None,
    jobs: int = 1,
    limit: float = 600.0,
    threads: int = 1,
    repeat: int = 5,
    verify: bool = True,
    progress: Watch = quiet,
) -> list[CellResult]:
    """Compile and run each model for each target, each in a process of its own.

    Args:
        models: ONNX files.
        targets: Canonical target by the name that results call it.
        host: The plugins, whose versions decide what is done again; those installed if ``None``.
        disabled: Plugins that the processes leave out.
        results: Where finished cells are kept; with it, a second call goes on. ``None`` keeps none.
        jobs: Cells at a time; times mean something with one only.
        limit: Seconds after which a cell is given up.
        threads: Threads of a run.
        repeat: Timed runs.
        verify: Compare with the reference.
        progress: Shows how far it is; it is told of each cell.

    Returns:
        A result for each cell, model by model; what fails is a state of its cell.

    Raises:
        ModelError: The file with results cannot be read.
        ResourceError: It cannot be written.
    """
    versions = _versions(host or Host(), targets)
    options = ["--repeat", str(repeat), "--threads", str(threads)]
    options += ["--verify"] if verify else []
    cells = [
        _cell(model, text, canonical, (versions, options))
        for model in models
        for text, canonical in targets.items()
    ]
    front = [word for name in disabled for word in ("--no-plugin", name)]

    def run(cell: Cell) -> CellResult:
        words = ["run", str(cell.model), "--target", cell.canonical, "--json", *options]
        return result_of(cell, run_command([*front, *words], limit))

    with progress("running", len(cells)) as advance:
        return run_cells(cells, run, results, jobs, advance)


def run_cells(
    cells: Sequence[Cell],
    run: Callable[[Cell], CellResult],
    results: Path | None,
    jobs: int,
    advance: Callable[[int], None],
) -> list[CellResult]:
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

    def measure(cell: Cell) -> CellResult:
        kept = done.get(cell.key)
        row = run(cell) if kept is None else _kept(cell, kept)
        if kept is None and results is not None:
            fields = {"key": cell.key, "target": cell.target, "model": cell.model.stem}
            document = {"state": row.state, "milliseconds": row.milliseconds, "error": row.error}
            append_line(results, json.dumps({**fields, **document}))
        advance(1)
        return row

    if jobs == 1:
        return [measure(cell) for cell in cells]
    with ThreadPoolExecutor(jobs) as pool:
        try:
            return list(pool.map(measure, cells))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def result_of(cell: Cell, ended: Ended) -> CellResult:
    """Say what a command that ran a cell came to."""
    milliseconds = ended.document.get("median_ms", 0.0)
    return CellResult(
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


def _kept(cell: Cell, row: Mapping[str, object]) -> CellResult:
    milliseconds = cast("float", row["milliseconds"])
    return CellResult(cell, str(row["state"]), milliseconds, str(row["error"]), again=True)


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
    return [f"intarsia {__version__}", *(f"{o.distribution} {o.version}" for o in owners)]
