# SPDX-License-Identifier: Apache-2.0
"""Outline expressions: make a function of the module of what control flow carries out."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct

from .expr import Constant, Expr, Function, Var, make_tuple
from .size_scopes import used_sizes
from .walk import children, with_children


class Outlined(Struct, frozen=True, eq=False):
    """A function, and the values that the call must hand over behind its first parameters."""

    function: Function
    captured: tuple[Expr, ...]


def outline(
    params: Sequence[Var],
    results: Sequence[Expr],
    *,
    outside: Container[Expr],
    hoist: bool,
    sizes: AbstractSet[str] = frozenset(),
) -> Outlined:
    """Return a function that computes values; constants are inside.

    Args:
        params: Its first parameters; variables of the values.
        results: The values.
        outside: Expressions of the function around that are computed there anyway.
        hoist: Leave outside also what does not depend on ``params``: loops compute it once.
        sizes: Size variables that only the function knows, or checks: what has them is inside.
    """
    order = _order(results, params, outside)
    own = set[Expr](params)
    varying: set[Expr] = set(params)
    constant: set[Expr] = set()
    for node in order:
        operands = children(node)
        is_sized = bool(sizes) and not sizes.isdisjoint(used_sizes(node))
        is_sized = is_sized and not _is_outer(node, own, outside)
        if is_sized or any(child in varying for child in operands):
            varying.add(node)
        elif isinstance(node, Constant) or (
            operands and all(child in constant for child in operands)
        ):
            constant.add(node)
    inside = varying | constant if hoist else {n for n in order if not _is_outer(n, own, outside)}
    captured: dict[Expr, Var] = {}
    for node in (*(c for n in order if n in inside for c in children(n)), *results):
        if node not in inside and node not in own and node not in captured:
            name = node.name if isinstance(node, Var) else f"c{len(captured)}"
            captured[node] = Var(_unique(name, params, captured), node.type, node.span)
    renamed: dict[Expr, Expr] = dict(captured)
    for node in order:
        if node in inside:
            operands = tuple(renamed.get(child, child) for child in children(node))
            renamed[node] = with_children(node, operands)
    body = make_tuple([renamed.get(node, node) for node in results])
    return Outlined(Function((*params, *captured.values()), body), tuple(captured))


def _unique(name: str, params: Sequence[Var], captured: Mapping[Expr, Var]) -> str:
    taken = {var.name for var in (*params, *captured.values())}
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found


def _order(results: Sequence[Expr], params: Sequence[Var], outside: Container[Expr]) -> list[Expr]:
    """Return what is below the results, operands first, and not below what is outside."""
    own = set[Expr](params)
    seen: set[Expr] = set()
    found: list[Expr] = []
    stack: list[tuple[Expr, bool]] = [(node, False) for node in reversed(results)]
    while stack:
        node, ready = stack.pop()
        if ready:
            found.append(node)
            continue
        if node in seen:
            continue
        seen.add(node)
        stack.append((node, True))
        if not _is_outer(node, own, outside):
            stack.extend((child, False) for child in reversed(children(node)))
    return found


def _is_outer(node: Expr, own: Container[Expr], outside: Container[Expr]) -> bool:
    if node in own or isinstance(node, Constant):
        return False
    return isinstance(node, Var) or node in outside
