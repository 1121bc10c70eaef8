# SPDX-License-Identifier: Apache-2.0
"""Which region makes a model's results differ from the reference, or crash.

``run --verify`` compares every region on what it was given; the model must run to its end for that.
Bisecting asks only whether a build is good, with fewer and fewer regions left to accelerators,
each time in a child process; so it also finds what crashes, hangs, or is only wrong together.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias, cast

from msgspec import Struct

from intarsia_runtime.errors import (
    ArtifactError,
    IntarsiaError,
    ModelError,
    PluginError,
    ResourceError,
    ToolchainError,
    UnsupportedError,
    UsageError,
)

from .children import Ended, run_command


class Suspect(Struct, frozen=True):
    """A region.

    Attributes:
        name: As ``explain`` calls it.
        kind: The accelerator that computes it.
        nodes: Names of its nodes.
    """

    name: str
    kind: str
    nodes: tuple[str, ...]


Fails: TypeAlias = Callable[[Sequence[Suspect]], bool]
"""``fails(regions)``: whether a build with these regions offloaded, and no others, is bad."""


def find_culprits(suspects: Sequence[Suspect], fails: Fails) -> tuple[Suspect, ...]:
    """Return few regions that together are bad, by halving; one, if one alone is.

    Args:
        suspects: Regions that together are bad.
        fails: Says it of some of them.
    """
    found, parts = list(suspects), 2
    while len(found) > 1:
        size = -(-len(found) // parts)
        pieces = [found[at : at + size] for at in range(0, len(found), size)]
        smaller = next((piece for piece in pieces if fails(piece)), None)
        if smaller is None and parts > 2:
            rests = [[s for s in found if s not in piece] for piece in pieces]
            smaller = next((rest for rest in rests if fails(rest)), None)
        if smaller is not None:
            found, parts = smaller, 2
        elif size == 1:
            break
        else:
            parts = min(len(found), 2 * parts)
    return tuple(found)


class BisectResult(Struct, frozen=True):
    """What makes a build bad.

    Attributes:
        whole: How the run with all regions ended.
        alone: How that of the fallback without any region did; ``ok`` if it was not run.
        culprits: Few regions that together are bad; empty if nothing is, or the fallback is.
        tried: Every run in words: which regions it had, and how it ended.
    """

    whole: Ended
    alone: Ended
    culprits: tuple[Suspect, ...]
    tried: tuple[str, ...]


def bisect_model(
    model: Path,
    target: str,
    *,
    shapes: Sequence[str] = (),
    inputs: str | None = None,
    seed: int = 0,
    limit: float = 600.0,
    disabled: Sequence[str] = (),
    tell: Callable[[str], object] | None = None,
) -> BisectResult:
    """Find the regions of a model whose results differ from the reference, or that crash.

    Every run is a process of its own.

    Args:
        model: The ONNX file.
        target: The canonical target.
        shapes: Shapes of inputs as ``--shape`` takes them: ``input:1,3,224,224``.
        inputs: An ``.npz`` file; random arrays if ``None``.
        seed: Of random arrays.
        limit: Seconds after which a run counts as bad.
        disabled: Plugins that the processes leave out.
        tell: Told of each run, in words, when it ended.

    Raises:
        IntarsiaError: The model cannot be placed; the class is that of the command ``explain``.
    """
    common = [str(model), "--target", target]
    for shape in shapes:
        common += ["--shape", shape]
    front = [word for name in disabled for word in ("--no-plugin", name)]
    suspects = _suspects(run_command([*front, "explain", *common, "--json"], limit))
    run = [*front, "run", *common, "--no-cache", "--verify", "--json", "--seed", str(seed)]
    run += ["--inputs", inputs] if inputs else []
    tried: list[str] = []

    def outcome(offloaded: Sequence[Suspect]) -> Ended:
        others = [s for s in suspects if s not in offloaded]
        ended = run_command([*run, *_without(others)], limit)
        names = ", ".join(s.name for s in offloaded) or "no region"
        tried.append(f"{names}: {ended.state}")
        if tell is not None:
            tell(tried[-1])
        return ended

    def fails(offloaded: Sequence[Suspect]) -> bool:
        return outcome(offloaded).state != "ok"

    whole, alone = outcome(suspects), Ended(0)
    culprits: tuple[Suspect, ...] = ()
    if whole.state != "ok":
        alone = outcome(())
        culprits = () if alone.state != "ok" else find_culprits(suspects, fails)
    return BisectResult(whole, alone, culprits, tuple(tried))


def _suspects(explained: Ended) -> list[Suspect]:
    """Read the regions from what ``explain`` said.

    Raises:
        IntarsiaError: It did not come to that; as that command ended.
    """
    if explained.state != "ok":
        reason = explained.error.removeprefix("error: ") or explained.state
        raise _error_of(explained.code)(f"the model cannot be placed: {reason}")
    rows = cast("list[dict[str, object]]", explained.document["regions"])
    return [
        Suspect(str(row["name"]), str(row["accelerator"]), tuple(cast("list[str]", row["nodes"])))
        for row in rows
    ]


def _error_of(code: int | None) -> type[IntarsiaError]:
    """The error with which a command ends as one did in a child process."""
    kinds = (UsageError, ModelError, UnsupportedError, ToolchainError, ArtifactError, ResourceError)
    late = ResourceError if code is None else PluginError
    return next((kind for kind in kinds if kind.exit_code == code), late)


def _without(regions: Sequence[Suspect]) -> list[str]:
    """Options that keep regions from their accelerators."""
    words: list[str] = []
    for region in regions:
        for node in region.nodes:
            words += ["--place", f"{glob.escape(node)}!={region.kind}"]
    return words
