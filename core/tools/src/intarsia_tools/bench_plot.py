# SPDX-License-Identifier: Apache-2.0
"""Draws what ``bench`` measured; the only file that needs matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from intarsia_ir.writing.new_file import atomic_write
from intarsia_runtime.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .bench_row import BenchRow

FORMATS = ("svg", "png", "pdf")
"""Endings of files that can be written."""

_ROW_INCHES = 0.34
_WIDTH_INCHES = 8.0
_OURS, _SLOWER = "#2a6f97", "#c8553d"


def check_plot(path: Path) -> None:
    """See, before anything is measured, that a plot can be written.

    Raises:
        UsageError: Matplotlib is not installed, or the name ends with no format.
    """
    if path.suffix.removeprefix(".") not in FORMATS:
        raise UsageError(
            f"'{path}' names no format of plots", hint=f"one of .{', .'.join(FORMATS)}"
        )
    try:
        import matplotlib as _  # noqa: F401  (seconds at its first start: it looks for fonts)
    except ImportError:
        raise UsageError(
            "plots need Matplotlib, which is not installed", hint="pip install 'intarsia[plot]'"
        ) from None


def plot_rows(rows: Sequence[BenchRow], path: Path, title: str) -> None:
    """Draw a bar for each row: the ratio to the peer with its quartiles, or the time without one.

    The same rows give the same bytes of an ``.svg``.

    Args:
        rows: In the order from top to bottom; all with a peer, or none.
        path: Its ending is the format.
        title: Above the bars.

    Raises:
        ResourceError: The disk is full.
        UsageError: The place cannot be written to.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "intarsia", "svg.fonttype": "none"}):
        height = 1.3 + _ROW_INCHES * len(rows)
        figure = Figure(figsize=(_WIDTH_INCHES, height), layout="constrained")
        axes = figure.subplots()
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_yticks(range(len(rows)), [_label(row) for row in rows], fontsize=8)
        axes.invert_yaxis()
        if any(row.peer for row in rows):
            _ratios(axes, rows)
        else:
            axes.barh(range(len(rows)), [row.median_ms for row in rows], color=_OURS)
            axes.set_xlabel("milliseconds, median over rounds")
        axes.spines[["top", "right"]].set_visible(False)
        content = io.BytesIO()
        form = path.suffix.removeprefix(".")
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
        figure.savefig(content, format=form, metadata=metadata)
    with atomic_write(path) as file:
        file.write(content.getvalue())


def _ratios(axes: Axes, rows: Sequence[BenchRow]) -> None:
    middles = [row.ratio for row in rows]
    low = [max(0.0, row.ratio - row.ratio_low) for row in rows]
    high = [max(0.0, row.ratio_high - row.ratio) for row in rows]
    colours = [_OURS if ratio <= 1 else _SLOWER for ratio in middles]
    places = range(len(rows))
    axes.barh(places, middles, xerr=[low, high], color=colours, ecolor="#333333", capsize=2)
    axes.axvline(1.0, color="#333333", linewidth=1, linestyle="--")
    axes.set_xlabel("our time by the peer's, median and quartiles over rounds; below 1 is faster")
    axes.set_xlim(left=0)


def _label(row: BenchRow) -> str:
    threads = "1 thread" if row.threads == 1 else f"{row.threads} threads"
    against = f" vs {row.peer}" if row.peer else ""
    return f"{row.model}, {row.target}, {threads}{against}"
