# SPDX-License-Identifier: Apache-2.0
"""What a plugin says of every case, and what its options change."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product, zip_longest
from typing import TypeAlias, cast

from intarsia.driver.stages import compile_regions, partition_module
from intarsia.host.host import Host
from intarsia.target.options import OptionRow
from intarsia.target.target import CompositeTarget
from intarsia_ir.graph.expr import Call
from intarsia_ir.graph.match import match_pattern, root_operators
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.walk import count_uses
from intarsia_ir.partition.annotate import annotate
from intarsia_ir.partition.cost import Plan
from intarsia_ir.regions.region import Region
from intarsia_ir.regions.support import Code, SupportTable
from intarsia_runtime.artifact.unit import CompiledUnit
from intarsia_runtime.errors import IntarsiaError, UnsupportedError

from .blocks import (
    DEEP,
    LARGE,
    choose_blocks,
    heavy_graph,
    other_blocks,
    plain_graphs,
    sample_graph,
)
from .cases.case import Case
from .open_graphs import tokens
from .running import Batch, compile_module
from .subject import Subject

Shapes: TypeAlias = "Sequence[tuple[int, ...]]"
SIZES: tuple[Shapes, ...] = ((), LARGE, DEEP)
"""Of the graphs that options are observed on, the small ones first: what concerns threads, tiles or
the layout of weights shows in larger tensors only."""

_LONG = 24
"""Calls of a long chain: some plugins give back regions by their number of calls."""


@dataclass(frozen=True, eq=False)
class CaseVerdict:
    """What a predicate answered to a case."""

    row: str
    case: Case
    answer: object


def all_verdicts(subject: Subject) -> Iterator[CaseVerdict]:
    """Ask every row about every case of its root operator, operands as inputs and as constants."""
    table = subject.table(subject.host())
    for name, cases in subject.cases().items():
        rows = [row for row in table.rows if name in (root_operators(row.pattern) or (name,))]
        if not rows:
            continue
        for fixed in (False, True):
            batch = Batch(cases, fixed=fixed)
            uses = count_uses([batch.main.body])
            for case, results in zip(cases, batch.results, strict=True):
                root = _root(results[0])
                for row in rows:
                    try:
                        found = match_pattern(row.pattern, root, uses)
                        if found is not None:
                            yield CaseVerdict(row.name, case, row.predicate(found))
                    except Exception as error:  # a predicate is plugin code
                        yield CaseVerdict(row.name, case, error)


def _root(result: object) -> Call:
    inner = getattr(result, "tuple", result)
    assert isinstance(inner, Call)
    return inner


def accepted(table: SupportTable, cases: Sequence[Case], *, fixed: bool) -> tuple[list[Case], str]:
    """The cases that the plugin takes, and why it does not take the first of the others."""
    batch = Batch(cases, fixed=fixed)
    verdicts = annotate(batch.main, [("subject", table)]).verdicts
    taken: list[Case] = []
    refusal = ""
    for case, results in zip(cases, batch.results, strict=True):
        verdict = verdicts[_root(results[0])][0]
        if verdict.code is Code.OK:
            taken.append(case)
        else:
            refusal = refusal or f"{verdict.code.value}: {verdict.detail}"
    return taken, refusal


def observe_options(subject: Subject, rows: Sequence[OptionRow]) -> list[str]:
    """One line for every option of which no value changes anything that can be seen.

    What nothing shows alone is tried beside the options of each of the subject's contexts.
    """
    host = Host()
    silent = tuple(rows)
    for context, shapes in product(("", *subject.contexts), SIZES):
        if silent:
            default = list(_observations(subject, host, context, shapes))
            silent = tuple(
                row for row in silent if not _shows(subject, host, row, context, default, shapes)
            )
    return [
        f"-{row.flag} changes nothing (tried {', '.join(_values(row)) or 'none to try'})"
        for row in silent
    ]


def _shows(
    subject: Subject,
    host: Host,
    row: OptionRow,
    context: str,
    default: Sequence[str],
    shapes: Shapes,
) -> bool:
    """Whether a value of an option changes what is seen; looks no further than the first change."""
    if f"-{row.flag}=" in context:
        return False
    for value in _values(row):
        try:
            seen = _observations(subject, host, f"{context} -{row.flag}={value}", shapes)
            if any(one != other for one, other in zip_longest(seen, default)):
                return True
        except IntarsiaError:  # an option that refuses a value looks at it
            return True
    return False


def _values(row: OptionRow) -> list[str]:
    """Other values than the default, as a user would write them."""
    if row.choices:
        return [str(choice) for choice in row.choices if choice != row.default]
    match row.type:
        case "bool":
            return ["false" if row.default else "true"]
        case "int" | "float":
            low = 0 if row.minimum is None else int(row.minimum)
            tried = [low, low + 1, low + 2, low + 3, 1_000_000, 1_000_000_000]
            high = tried[-1] if row.maximum is None else int(row.maximum)
            values = [v for v in dict.fromkeys([*tried, high]) if low <= v <= high]
            return [str(value) for value in values if value != row.default]
        case "list of int":
            return ["1", "2,3"]
        case _:
            return ["none", "/nonexistent", "+x"]


def _observations(subject: Subject, host: Host, options: str, shapes: Shapes) -> Iterator[str]:
    """All that a build shows, what is cheap to see first: verdicts, regions kept, units."""
    target = subject.composite(host, options)
    if subject.is_accelerator:
        table = subject.table(host, options)
        for name, cases in subject.cases().items():
            if any(name in (root_operators(row.pattern) or (name,)) for row in table.rows):
                verdicts = annotate(Batch(cases, fixed=True).main, [("subject", table)]).verdicts
                yield from (
                    f"{verdict[0].code} {verdict[0].detail}" for verdict in verdicts.values()
                )
    own = subject.table(host) if subject.is_accelerator else None
    blocks = choose_blocks(own)
    used = other_blocks(blocks, own, shapes) if shapes else blocks
    module = sample_graph(used)
    cuts = [
        partition_module(host, made, target, Plan.GREEDY)
        for made in (module, *plain_graphs(used, _LONG))
    ]
    yield from (" ".join(region.nodes) for kept in cuts for region in kept.regions)
    if subject.is_accelerator and host.has_hook(target.accelerators[0].kind.name, "partition"):
        for kept in cuts:
            yield from _answers(host, kept.regions, target)
    for kept in cuts if shapes == DEEP else cuts[:1]:
        for unit in compile_regions(host, kept.regions[:1], target):
            yield from _digests(unit)
    for compiled in (module,) if subject.is_accelerator else (module, heavy_graph(used)):
        for unit in compile_module(subject, compiled, options=options).units:
            yield from _digests(unit)
    if not subject.is_accelerator and not shapes:
        yield from _open_units(subject, options)


def _open_units(subject: Subject, options: str) -> Iterator[str]:
    """What is built of a model of open sizes; nothing where the target needs numbers."""
    module = IRModule.from_function(tokens()[0])
    with suppress(UnsupportedError):
        for unit in compile_module(subject, module, options=options).units:
            yield from _digests(unit)


def _answers(host: Host, regions: Sequence[Region], target: CompositeTarget) -> Iterator[str]:
    """What the hook ``partition`` says of regions; greedy cuts overrule some of it."""
    own = target.accelerators[0]
    answer = host.call(
        "partition", own.kind.name, regions=regions, target=own, fallback=target.fallback
    )
    for region in cast("Sequence[Region]", answer):
        yield f"{region.name} {len(region.origins)} {region.code} {region.why}"


def _digests(unit: CompiledUnit) -> Iterator[str]:
    return (hashlib.sha256(content).hexdigest() for content in unit.files.values())


__all__ = ["CaseVerdict", "accepted", "all_verdicts", "observe_options"]
