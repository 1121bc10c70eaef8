# SPDX-License-Identifier: Apache-2.0
"""``intarsia verify``: compare an artifact with the reference of the model it was compiled from."""

from __future__ import annotations

from pathlib import Path

import click

from intarsia.cli.idle import say_not_compared
from intarsia.cli.output import echo, emit_json, table
from intarsia.cli.session import Session
from intarsia.driver.arrays import RANDOM, plain_arrays, read_inputs
from intarsia.driver.shapes import open_shapes
from intarsia_ir.example_sizes import example_sizes
from intarsia_runtime.executors.random_inputs import seeded_state
from intarsia_runtime.load import Executable, load

from ..verify import verify_run


@click.command("verify")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--inputs", default=RANDOM, show_default=True, help="An .npz file, or 'random'.")
@click.option("--seed", type=click.IntRange(0, 2**32), default=0, help="Seed of random inputs.")
@click.option("--threads", type=click.IntRange(1), help="Threads; all processors by default.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(
    session: Session,
    artifact: Path,
    model: Path,
    inputs: str,
    seed: int,
    threads: int | None,
    as_json: bool,
) -> None:
    """Run ARTIFACT and compare outputs and regions with the reference of MODEL, its source.

    Exits with 10 if anything differs from the NumPy reference of every operator.
    """

    def begin(executor: str | None) -> Executable:
        return load(artifact, threads=threads, executor=executor)

    with begin(None) as executable:
        passport = executable.passport
        arrays = read_inputs(inputs, executable.inputs, seed, example_sizes(passport))
        drawn = {**arrays, **seeded_state(passport.plan, seed)}
        results = plain_arrays(executable.run(drawn))
    shapes = open_shapes(session.host(), model, arrays)
    found = verify_run(
        model,
        passport,
        begin,
        inputs=drawn,
        results=results,
        host=session.host(),
        shapes=shapes,
    )
    if not found.is_comparable:
        echo("the regions cannot be compared: they were cut in another way", err=True)
    say_not_compared(passport, len(found.regions))
    checks = (*found.regions, *found.outputs)
    if as_json:
        emit_json(
            {
                "verify": [check.to_json() for check in found.outputs],
                "regions": [check.to_json() for check in found.regions],
            }
        )
    else:
        rows = [(c.name, "ok" if c.ok else "DIFFERS", f"{c.max_error:.3g}") for c in checks]
        table(rows, ("region or output", "verdict", "largest error"))
    found.require_agreement()
