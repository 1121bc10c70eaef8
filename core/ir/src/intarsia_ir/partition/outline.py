# SPDX-License-Identifier: Apache-2.0
"""Outline: turn each group of an accelerator into a function of the module that ``main`` calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from msgspec import Struct

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import (
    Call,
    CallFunction,
    Constant,
    Expr,
    Function,
    GlobalVar,
    Var,
    get_item,
    make_tuple,
)
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.typical import fitting_values
from intarsia_ir.graph.walk import children, with_children
from intarsia_ir.regions.region import Region

from .labels import region_names
from .merge import Group


class OutlinedRegions(Struct, frozen=True, eq=False):
    """A module whose regions are functions.

    Attributes:
        module: ``main`` calls the regions; every region is a function of its name.
        regions: In the order in which ``main`` can run them.
    """

    module: IRModule
    regions: tuple[Region, ...]


def outline(module: IRModule, groups: Sequence[Group]) -> OutlinedRegions:
    """Give every accelerator's group a function of its own.

    Types do not change, so no type rule runs again. A value that leaves a region twice is one
    output; a region with several outputs returns a tuple.

    Args:
        module: The module whose ``main`` the groups were cut from.
        groups: All groups of ``main``, in an order in which they can run.
    """
    main = module.main
    escaping = _escaping(main, groups)
    wanted = [group.kind for group in groups if group.kind]
    names = iter(region_names(wanted, module.functions))
    renamed: dict[Expr, Expr] = {}
    regions: list[Region] = []
    typical = fitting_values(main)
    for group in groups:
        if not group.kind:
            for node in group.nodes:
                renamed[node] = _rebuild(node, renamed)
            continue
        region, inputs, outputs = _cut(group, next(names), escaping)
        region = replace(region, typical=typical)
        regions.append(region)
        args = tuple(renamed.get(value, value) for value in inputs)
        _call_region(region, args, outputs, renamed)
    body = renamed.get(main.body, main.body)
    functions = {**module.functions, "main": replace(main, body=body)}
    functions.update((region.name, region.function) for region in regions)
    return OutlinedRegions(module.with_functions(functions), tuple(regions))


def _escaping(main: Function, groups: Sequence[Group]) -> set[Expr]:
    """Return the nodes that something outside their group uses."""
    group_of = {node: i for i, group in enumerate(groups) for node in group.nodes}
    found: set[Expr] = {main.body}
    for i, group in enumerate(groups):
        for node in group.nodes:
            found.update(child for child in children(node) if group_of.get(child, i) != i)
    return found


def _rebuild(node: Expr, renamed: Mapping[Expr, Expr]) -> Expr:
    old = children(node)
    new = tuple(renamed.get(child, child) for child in old)
    if all(a is b for a, b in zip(old, new, strict=True)):
        return node
    return replace(node, args=new) if isinstance(node, Call) else with_children(node, new)


def _cut(
    group: Group, name: str, escaping: set[Expr]
) -> tuple[Region, tuple[Expr, ...], tuple[Expr, ...]]:
    """Return the region, and the values of the old function that it reads and returns."""
    inside = set(group.nodes)
    operands = (child for node in group.nodes for child in children(node))
    outside = (child for child in operands if child not in inside)
    inputs = tuple(dict.fromkeys(c for c in outside if not isinstance(c, Constant)))
    params = tuple(Var(f"p{i}", value.type, value.span) for i, value in enumerate(inputs))
    renamed: dict[Expr, Expr] = dict(zip(inputs, params, strict=True))
    for node in group.nodes:
        renamed[node] = _rebuild(node, renamed)
    outputs = tuple(node for node in group.nodes if node in escaping)
    results = [renamed[node] for node in outputs]
    body = results[0] if len(results) == 1 else make_tuple(results)
    return _region(group, name, Function(params, body), renamed), inputs, outputs


def _region(group: Group, name: str, function: Function, renamed: Mapping[Expr, Expr]) -> Region:
    rows: dict[Call, str] = {}
    origins: dict[Call, Call] = {}
    row_of = {claimed.match.root: claimed.row for claimed in group.claimed}
    for node in group.nodes:
        new = renamed[node]
        if isinstance(node, Call) and isinstance(new, Call):
            origins[new] = node
            if node in row_of:
                rows[new] = row_of[node]
    nodes = dict.fromkeys(node.span.name for node in group.nodes if node.span.name)
    return Region(name, group.kind, function, rows, tuple(nodes), origins)


def _call_region(
    region: Region, args: tuple[Expr, ...], outputs: tuple[Expr, ...], renamed: dict[Expr, Expr]
) -> None:
    """Enter what stands for each output of the region in the new ``main``."""
    result = region.function.body.type
    span = Span(region.name, region.kind)
    value = CallFunction(GlobalVar(region.name), args, result, span)
    if len(outputs) == 1:
        renamed[outputs[0]] = value
        return
    for index, output in enumerate(outputs):
        renamed[output] = get_item(value, index, span=output.span)
