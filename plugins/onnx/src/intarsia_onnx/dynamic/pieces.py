# SPDX-License-Identifier: Apache-2.0
"""Cut compiled expressions by when they can run: each piece after the steps it needs values of."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from intarsia_ir.graph.expr import Constant, Expr, Function, Var, make_tuple
from intarsia_ir.graph.walk import children, post_order, substitute


class Levels(Struct):
    """When values are known: 0 for inputs, one more with each step that goes before.

    Attributes:
        of: Level of every expression that was asked for, and of all below it. A variable is there
            from the beginning.
    """

    of: dict[Expr, int] = field(default_factory=dict[Expr, int])

    def level(self, expr: Expr) -> int:
        """Return the level of an expression: the highest of the variables in it."""
        stack = [expr]
        while stack:
            node = stack[-1]
            if node in self.of:
                stack.pop()
                continue
            missing = [child for child in children(node) if child not in self.of]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            self.of[node] = max((self.of[child] for child in children(node)), default=0)
        return self.of[expr]


def cut_pieces(computed: Mapping[str, Expr], levels: Levels) -> dict[int, Function]:
    """Return the function of each level that has one.

    Args:
        computed: Expressions by the name their value has in the program; none is a variable.
        levels: Their levels.

    Returns:
        Functions of the variables they need, which are named like values of the program. Their
        outputs are named like ``computed``; a value that only another piece needs has a ``#`` in
        its name.
    """
    roots: dict[int, dict[str, Expr]] = {}
    names: dict[Expr, str] = {}
    for name, expr in computed.items():
        roots.setdefault(levels.level(expr), {})[name] = expr
        names.setdefault(expr, name)
    pieces: dict[int, Function] = {}
    for level in range(max(roots, default=-1), -1, -1):
        if level in roots:
            pieces[level] = _piece(level, roots, names, levels)
    return dict(sorted(pieces.items()))


def _piece(
    level: int,
    roots: dict[int, dict[str, Expr]],
    names: dict[Expr, str],
    levels: Levels,
) -> Function:
    """Make the function of one level; what it needs of lower ones becomes one of their roots."""
    values = tuple(roots[level].values())
    body = values[0] if len(values) == 1 else make_tuple(values)
    outside: dict[Expr, Expr] = {}
    for node in post_order(body):
        if node is not body and levels.of.get(node, level) < level:
            continue
        for child in children(node):
            if isinstance(child, Var | Constant) or levels.level(child) >= level:
                continue
            if child not in names:
                names[child] = f"#{len(names)}"
            roots.setdefault(levels.level(child), {})[names[child]] = child
            outside.setdefault(child, Var(names[child], child.type))
    body = substitute(body, outside)
    params = tuple(node for node in post_order(body) if isinstance(node, Var))
    return Function(params, body, tuple(roots[level]))
