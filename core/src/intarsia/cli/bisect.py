# SPDX-License-Identifier: Apache-2.0
"""``intarsia bisect``: which region makes a model's results differ from the reference, or crash.

``run --verify`` compares every region on what it was given; the model must run to its end for that.
This command asks only whether a build is good, with fewer and fewer regions left to accelerators,
each time in a child process; so it also finds what crashes, hangs, or is only wrong together.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias, cast

import click
from msgspec import Struct

from ..errors import (
    ArtifactError,
    GateFailed,
    IntarsiaError,
    ModelError,
    PluginError,
    ResourceError,
    ToolchainError,
    UnsupportedError,
    UsageError,
)
from .children import Ended, run_command
from .composed import ComposedCommand
from .model_options import parse_shape
from .output import echo, emit_json
from .session import Session
from .target_options import TargetChoice, target_options


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


@click.command("bisect", cls=ComposedCommand, families=("target",))
@click.argument("model", type=click.Path(path_type=Path))
@target_options()
@click.option("--shape", "shapes", multiple=True, metavar="NAME:N,N,...", help="Shape of an input.")
@click.option("--inputs", metavar="FILE", help="An .npz file; random arrays if not given.")
@click.option("--seed", default=0, show_default=True, help="Of random inputs.")
@click.option("--limit", type=click.FloatRange(0, min_open=True), default=600.0,
              show_default=True, metavar="SECONDS", help="When a run counts as bad.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(
    session: Session,
    model: Path,
    target: TargetChoice,
    shapes: Sequence[str],
    inputs: str | None,
    seed: int,
    limit: float,
    as_json: bool,
) -> None:
    """Find the regions of MODEL, an ONNX file, whose results differ or that crash.

    Exit code 10 if there are any, or if the fallback itself is wrong.
    """
    for shape in shapes:
        parse_shape(shape)
    host = session.host()
    common = [str(model), "--target", str(target.read(host))]
    for shape in shapes:
        common += ["--shape", shape]
    front = [word for name in session.disabled for word in ("--no-plugin", name)]
    suspects = _suspects(run_command([*front, "explain", *common, "--json"], limit))
    run = [*front, "run", *common, "--no-cache", "--verify", "--json", "--seed", str(seed)]
    run += ["--inputs", inputs] if inputs else []
    tried: list[str] = []

    def outcome(offloaded: Sequence[Suspect]) -> Ended:
        others = [s for s in suspects if s not in offloaded]
        ended = run_command([*run, *_without(others)], limit)
        names = ", ".join(s.name for s in offloaded) or "no region"
        tried.append(f"{names}: {ended.state}")
        echo(tried[-1], err=True)
        return ended

    def fails(offloaded: Sequence[Suspect]) -> bool:
        return outcome(offloaded).state != "ok"

    whole = outcome(suspects)
    said: dict[str, object] = {"model": str(model), "target": common[2], "state": whole.state}
    culprits: tuple[Suspect, ...] = ()
    alone = Ended(0)
    if whole.state != "ok":
        alone = outcome(())
        culprits = () if alone.state != "ok" else find_culprits(suspects, fails)
    rows = [{"name": s.name, "accelerator": s.kind, "nodes": list(s.nodes)} for s in culprits]
    if as_json:
        emit_json({**said, "fallback": alone.state, "culprits": rows, "tried": tried})
    _conclude(whole, alone, culprits)


def _conclude(whole: Ended, alone: Ended, culprits: Sequence[Suspect]) -> None:
    """Say what was found.

    Raises:
        GateFailed: Something is wrong.
    """
    if whole.state == "ok":
        echo("nothing differs from the reference", err=True)
        return
    if alone.state != "ok":
        raise GateFailed(
            f"the fallback alone is wrong, without any region: {alone.error or alone.state}",
            hint="run --verify with the fallback as the whole target",
        )
    named = ", ".join(f"'{s.name}' of '{s.kind}'" for s in culprits)
    nodes = [node for s in culprits for node in s.nodes]
    more = f" and {len(nodes) - 5} more" if len(nodes) > 5 else ""
    first = ", ".join(f"'{node}'" for node in nodes[:5])
    raise GateFailed(
        f"{named} make the run bad ({whole.state}): {whole.error}",
        hint=f"the nodes are {first}{more}; --place 'NODE!=KIND' gives them to the fallback",
    )


def _suspects(explained: Ended) -> list[Suspect]:
    """Read the regions from what ``explain`` said.

    Raises:
        IntarsiaError: It did not come to that; as that command ended.
    """
    if explained.state != "ok":
        said = explained.error.removeprefix("error: ") or explained.state
        raise _error_of(explained.code)(f"the model cannot be placed: {said}")
    rows = cast("list[dict[str, object]]", explained.said["regions"])
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
