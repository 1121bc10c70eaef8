# SPDX-License-Identifier: Apache-2.0
"""``intarsia explain``: for every node and every accelerator, a yes or a no with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import click

from intarsia_ir.diagnostics import Remark
from intarsia_ir.given_values import parse_value
from intarsia_ir.partition.cost import Plan
from intarsia_ir.partition.report import (
    Placement,
    RegionRow,
    Verdict,
    bytes_text,
    check_gates,
    seconds_text,
)
from intarsia_ir.partition.rules import parse_place_rule
from intarsia_ir.passes.fuse_quantize import FUSE_QUANTIZE
from intarsia_ir.size_values import largest
from intarsia_runtime.errors import UnsupportedError, UsageError, did_you_mean

from ..driver.build import request_partition
from ..driver.model_partition import ModelPartition, partition_model
from ..driver.optional import require_tools
from ..driver.stages import read_target
from ..host.host import Host
from ..target.target import CompositeTarget
from .composed import ComposedCommand
from .model_options import keep_model, limit_options, parse_shape
from .output import echo, emit_json, table
from .session import Session
from .target_options import NameType, TargetChoice, target_options
from .verdicts import print_verdicts

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("explain", cls=ComposedCommand, families=("target",))
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("nodes", nargs=-1, metavar="[NODE]...")
@target_options()
@click.option(
    "--shape",
    multiple=True,
    metavar="NAME:N,N,...",
    help="Shape of an input; of several values of a size, the largest is used.",
)
@click.option("--value", multiple=True, metavar="NAME=VALUE",
              help="Make an input a constant.")  # fmt: skip
@click.option("--executor", type=NameType("executor"), metavar="EXECUTOR",
              help="How the model is executed: vm for inputs of open sizes.")  # fmt: skip
@click.option(
    "--plan",
    type=click.Choice([plan.value for plan in Plan]),
    default=Plan.COST.value,
    show_default=True,
    help="How to choose regions.",
)
@click.option(
    "--place", multiple=True, metavar="NODES=KIND", help="Place matching NODES on KIND at any cost."
)
@click.option("--measure", is_flag=True, help="Measure each claim once; --plan cost uses it.")
@click.option("--require-offload", type=click.FloatRange(0, 100), metavar="PCT", help="As compile.")
@click.option("--max-regions", type=click.IntRange(0), metavar="N", help="As compile.")
@click.option("--html", type=_FILE, metavar="FILE", help="Write a page with the graph.")
@click.option("--dot", type=_FILE, metavar="FILE", help="Write the graph for Graphviz.")
@click.option("--netron", type=_FILE, metavar="FILE", help="Write the model with its placement.")
@click.option("--model-explorer", type=_FILE, metavar="FILE",
              help="Write the graph for Model Explorer, as JSON.")  # fmt: skip
@limit_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(
    session: Session,
    model: Path,
    nodes: tuple[str, ...],
    target: TargetChoice,
    shape: tuple[str, ...],
    value: tuple[str, ...],
    executor: str | None,
    plan: str,
    place: tuple[str, ...],
    measure: bool,
    require_offload: float | None,
    max_regions: int | None,
    html: Path | None,
    dot: Path | None,
    netron: Path | None,
    model_explorer: Path | None,
    as_json: bool,
    time_limit: float | None,
    memory_limit: int | None,
) -> None:
    """Show which accelerator takes each NODE of MODEL, or why none does; NODE may be a pattern."""
    host = session.host()
    parts = read_target(host, target.read(host), None)
    model_partition = partition_model(
        request_partition(
            model,
            parts,
            executor=executor,
            host=host,
            shapes=largest(dict(parse_shape(text) for text in shape)),
            values=dict(parse_value(text) for text in value),
            plan=Plan(plan),
            rules=tuple(parse_place_rule(text) for text in place),
            measure=measure,
            time_limit=time_limit,
            memory_limit=memory_limit,
        )
    )
    notes = [remark for remark in model_partition.remarks if remark.stage == FUSE_QUANTIZE.name]
    placement = model_partition.placement
    verdicts = _chosen(placement.verdicts, nodes)
    drawings = {"html": html, "dot": dot, "netron": netron, "model_explorer": model_explorer}
    if any(drawings.values()):
        _draw(model_partition, model, parts, drawings)
    if as_json:
        emit_json(
            {
                **_owners(host, parts),
                **placement.to_json(),
                "verdicts": [row.to_json() for row in verdicts],
                "notes": [{"node": note.span.name, "note": note.message} for note in notes],
            }
        )
    else:
        print_verdicts(verdicts, chosen=bool(nodes))
        _print(placement, notes)
    check_gates(placement, require_offload=require_offload, max_regions=max_regions)


def _owners(host: Host, target: CompositeTarget) -> dict[str, object]:
    """Return what JSON says of the target: whose its kinds are, and in which versions."""
    owners = {part.kind.name: host.owner(part.kind.name) for part in target.targets}
    return {
        "target": str(target),
        "plugins": {kind: owner.distribution for kind, owner in owners.items()},
        "versions": {owner.distribution: owner.version for owner in owners.values()},
    }


def _draw(
    model_partition: ModelPartition,
    model: Path,
    target: CompositeTarget,
    files: Mapping[str, Path | None],
) -> None:
    """Write the drawings that have a file.

    Raises:
        UnsupportedError: The model is a program.
        UsageError: The tools are not installed, or a file is the model.
    """
    if "main" not in model_partition.pieces:
        raise UnsupportedError(
            "a drawing needs a model that is compiled as a whole; this one runs as a program",
            hint="--json prints its placement and the nodes that run on the host",
        )
    with require_tools("a drawing"):
        from intarsia_tools.drawing.placed_graph import placed_graph
        from intarsia_tools.drawing.write import draw
    for path in files.values():
        keep_model(model, path)
    graph = placed_graph(
        model_partition.pieces["main"].main, model_partition.placement, target.fallback.kind.name
    )
    for path in draw(graph, model, str(target), files):
        echo(f"wrote {path}", err=True)


def _chosen(verdicts: Sequence[Verdict], wanted: Sequence[str]) -> list[Verdict]:
    """Return the rows of the nodes that the user names; all without names.

    Raises:
        UsageError: A name or pattern fits no node.
    """
    names = dict.fromkeys(row.node for row in verdicts)
    chosen: set[str] = set()
    for pattern in wanted:
        found = [n for n in names if n == pattern or fnmatchcase(n, pattern)]
        if not found:
            hint = did_you_mean(pattern, names) if names else "the target has no accelerator"
            raise UsageError(f"no node is called '{pattern}' after preparation", hint=hint)
        chosen.update(found)
    return [row for row in verdicts if not wanted or row.node in chosen]


def _print(placement: Placement, notes: Sequence[Remark]) -> None:
    if placement.regions:
        regions = [_region(region) for region in placement.regions]
        priced = ("cost", "on the fallback") if placement.cost else ()
        table(regions, ("region", "accelerator", "nodes", "bytes in", "bytes out", *priced))
        echo("")
    for row in placement.regions:
        if row.turned:
            images = "image is" if row.turned == 1 else "images are"
            echo(f"{row.name}: {row.turned} {images} turned between NCHW and NHWC")
    for pair in placement.apart:
        echo(
            f"'{pair.producer.name}' and '{pair.consumer.name}' are in two regions of "
            f"'{pair.kind}': merged, they would make a cycle through '{pair.via.name}'"
        )
    for note in notes:
        echo(f"{note.span.name}: {note.message}")
    if placement.cost is not None:
        echo(str(placement.cost))
    for row in placement.host:
        echo(f"'{row.node}' ({row.op}) runs on the host: {row.reason}")
    echo(str(placement))


def _region(region: RegionRow) -> tuple[str | int, ...]:
    row = (region.name, region.accelerator, len(region.nodes))
    sizes = bytes_text(region.bytes_in), bytes_text(region.bytes_out)
    if region.cost is None:
        return (*row, *sizes)
    here = region.cost.work + region.cost.border
    return (*row, *sizes, seconds_text(here), seconds_text(region.cost.fallback))
