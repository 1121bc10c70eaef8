# SPDX-License-Identifier: Apache-2.0
"""Matching of patterns against calls: iterative, backtracking over orders and optional parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct

from .expr import Call, Constant, Expr
from .pattern import Match, OpPattern, Optional, Pattern, Wildcard

_Link: TypeAlias = "tuple[Pattern, Expr, _Link] | None"


class _State(Struct, frozen=True):
    """A partial match: what is left to match, and what has been decided so far."""

    todo: _Link
    calls: tuple[tuple[OpPattern, Call], ...] = ()
    inputs: tuple[Expr, ...] = ()
    bound: tuple[tuple[str, Expr], ...] = ()


def match_pattern(pattern: Pattern, root: Call, uses: Mapping[Expr, int]) -> Match | None:
    """Return the first match of ``pattern`` that ends in ``root``, or ``None``.

    A call inside the match other than ``root`` must be used inside the match only. One operator
    pattern object that stands at two places must match one and the same call there.

    Args:
        pattern: What to look for; optional parts are preferred to their absence.
        root: The call that gives the result.
        uses: For each expression of the function, how many operand slots refer to it
            (:func:`~intarsia_ir.graph.walk.count_uses`).
    """
    states = [_State((pattern, root, None))]
    while states:
        state = states.pop()
        if state.todo is None:
            if _is_closed(state, root, uses):
                return _completed(state, root)
            continue
        states.extend(_steps(state, state.todo))
    return None


def root_operators(pattern: Pattern) -> frozenset[str] | None:
    """Return the names of the operators a match of ``pattern`` can end in; ``None`` means any."""
    names: set[str] = set()
    todo = [pattern]
    while todo:
        match todo.pop():
            case OpPattern(op=name):
                names.add(name)
            case Optional(inner=inner, outer=outer):
                todo += [inner, outer(inner)]
            case Wildcard():
                return None
    return frozenset(names)


def inner_operators(pattern: Pattern) -> frozenset[str]:
    """Return the names of all operators that ``pattern`` speaks of."""
    names: set[str] = set()
    todo = [pattern]
    while todo:
        match todo.pop():
            case OpPattern(op=name, args=args):
                names.add(name)
                todo += args or ()
            case Optional(inner=inner, outer=outer):
                todo.append(outer(inner))
            case Wildcard():
                pass
    return frozenset(names)


def _steps(state: _State, todo: tuple[Pattern, Expr, _Link]) -> Iterator[_State]:
    """Yield the states that follow, the preferred one last."""
    pattern, expr, rest = todo
    match pattern:
        case Wildcard():
            yield from _wildcard(state, pattern, expr, rest)
        case Optional(inner=inner, outer=outer):
            yield _State((inner, expr, rest), state.calls, state.inputs, state.bound)
            yield _State((outer(inner), expr, rest), state.calls, state.inputs, state.bound)
        case OpPattern():
            if isinstance(expr, Call):
                yield from _operator(state, pattern, expr, rest)


def _wildcard(state: _State, pattern: Wildcard, expr: Expr, rest: _Link) -> Iterator[_State]:
    if pattern.constant and not isinstance(expr, Constant):
        return
    bound = state.bound
    if pattern.name:
        known = dict(bound)
        if known.setdefault(pattern.name, expr) is not expr:
            return
        bound = tuple(known.items())
    yield _State(rest, state.calls, (*state.inputs, expr), bound)


def _operator(state: _State, pattern: OpPattern, expr: Call, rest: _Link) -> Iterator[_State]:
    for earlier, known in state.calls:
        if earlier is pattern:
            if known is expr:
                yield _State(rest, state.calls, state.inputs, state.bound)
            return
    if expr.name != pattern.op or (pattern.where is not None and not pattern.where(expr)):
        return
    calls = (*state.calls, (pattern, expr))
    args = pattern.args
    if args is None:
        yield _State(rest, calls, (*state.inputs, *expr.args), state.bound)
        return
    if len(args) != len(expr.args):
        return
    if (pattern.commutative or expr.op.commutative) and len(args) == 2:
        swapped = _push(args, expr.args[::-1], rest)
        yield _State(swapped, calls, state.inputs, state.bound)
    yield _State(_push(args, expr.args, rest), calls, state.inputs, state.bound)


def _push(patterns: tuple[Pattern, ...], exprs: tuple[Expr, ...], rest: _Link) -> _Link:
    for pattern, expr in zip(reversed(patterns), reversed(exprs), strict=True):
        rest = (pattern, expr, rest)
    return rest


def _is_closed(state: _State, root: Call, uses: Mapping[Expr, int]) -> bool:
    """Whether nothing outside uses a call inside, and no call is both inside and an input."""
    inside = {call for _, call in state.calls}
    if any(value in inside for value in state.inputs):
        return False
    seen = dict.fromkeys(inside, 0)
    for call in inside:
        for arg in call.args:
            if isinstance(arg, Call) and arg in seen:
                seen[arg] += 1
    return all(count == uses.get(call, 0) for call, count in seen.items() if call is not root)


def _completed(state: _State, root: Call) -> Match:
    inside = {call for _, call in state.calls}
    calls = _operands_first(root, inside)
    inputs = dict.fromkeys(arg for call in calls for arg in call.args if arg not in inside)
    return Match(root, calls, tuple(inputs), dict(state.bound))


def _operands_first(root: Call, inside: set[Call]) -> tuple[Call, ...]:
    order: dict[Call, None] = {}
    stack: list[tuple[Call, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order[node] = None
            continue
        if node in order:
            continue
        stack.append((node, True))
        for arg in reversed(node.args):
            if isinstance(arg, Call) and arg in inside and arg not in order:
                stack.append((arg, False))
    return tuple(order)
