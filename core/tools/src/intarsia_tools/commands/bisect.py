# SPDX-License-Identifier: Apache-2.0
"""``intarsia bisect``: which region makes a model's results differ from the reference, or crash."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from intarsia.cli.composed import ComposedCommand
from intarsia.cli.model_options import parse_shape
from intarsia.cli.output import echo, emit_json
from intarsia.cli.session import Session
from intarsia.cli.target_options import TargetChoice, target_options
from intarsia_runtime.errors import GateFailed

from ..bisect import BisectResult, bisect_model


@click.command("bisect", cls=ComposedCommand, families=("target",))
@click.argument("model", type=click.Path(path_type=Path))
@target_options()
@click.option("--shape", "shapes", multiple=True, metavar="NAME:N,N,...", help="Shape of an input.")
@click.option("--inputs", metavar="FILE", help="An .npz file; default: random arrays.")
@click.option("--seed", type=click.IntRange(0, 2**32), default=0, help="Seed of random inputs.")
@click.option("--limit", type=click.FloatRange(0, min_open=True), default=600.0,
              show_default=True, metavar="SECONDS", help="Time limit of a run.")  # fmt: skip
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

    Exits with 10 if there are any, or if the results of the fallback itself differ.
    """
    for shape in shapes:
        parse_shape(shape)
    canonical = str(target.read(session.host()))

    def tell(line: str) -> None:
        echo(line, err=True)

    found = bisect_model(
        model,
        canonical,
        shapes=shapes,
        inputs=inputs,
        seed=seed,
        limit=limit,
        disabled=session.disabled,
        tell=tell,
    )
    culprits = [
        {"name": s.name, "accelerator": s.kind, "nodes": list(s.nodes)} for s in found.culprits
    ]
    if as_json:
        emit_json(
            {
                "model": str(model),
                "target": canonical,
                "state": found.whole.state,
                "fallback": found.alone.state,
                "culprits": culprits,
                "tried": list(found.tried),
            }
        )
    _conclude(found)


def _conclude(found: BisectResult) -> None:
    """Say what was found.

    Raises:
        GateFailed: Something is wrong.
    """
    whole, alone, culprits = found.whole, found.alone, found.culprits
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
