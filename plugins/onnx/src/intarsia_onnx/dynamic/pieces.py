# SPDX-License-Identifier: Apache-2.0
"""Cut compiled expressions by when they can run: each piece after the steps it needs values of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import cast

from msgspec import Struct, field

from intarsia_ir.graph.expr import Call, Constant, Expr, Function, Var, call, make_tuple
from intarsia_ir.graph.size_scopes import defined_sizes
from intarsia_ir.graph.types import Dim, TensorType, Type, variable
from intarsia_ir.graph.walk import children, post_order, substitute
from intarsia_ir.ops.generate import Full
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType


class Levels(Struct):
    """When values are known: 0 for inputs, one more with each step that goes before.

    Attributes:
        of: Level of every expression that was asked for, and of all below it. A variable is there
            from the beginning.
        sizes: Level of each size variable that is not there from the beginning.
        fixed: Those of them that are made of sizes and constants alone.
    """

    of: dict[Expr, int] = field(default_factory=dict[Expr, int])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    fixed: set[Expr] = field(default_factory=set[Expr])

    def level(self, expr: Expr) -> int:
        """Return the level of an expression: the highest of the variables and sizes in it."""
        stack = [expr]
        while stack:
            node = stack[-1]
            if node in self.of:
                stack.pop()
                continue
            operands = children(node)
            missing = [child for child in operands if child not in self.of]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            sizes = size_variables((node,)) if self.sizes else ()
            known = [self.sizes.get(name, 0) for name in sizes]
            self.of[node] = max([*known, *(self.of[child] for child in operands)], default=0)
            if not isinstance(node, Var) and self.fixed.issuperset(operands):
                self.fixed.add(node)
        return self.of[expr]


def cut_pieces(
    computed: Mapping[str, Expr],
    levels: Levels,
    shown_by: Mapping[str, Var] = MappingProxyType({}),
    definitions: Mapping[str, Expr] = MappingProxyType({}),
) -> dict[int, Function]:
    """Return the function of each level that has one.

    Args:
        computed: Expressions by the name their value has in the program; none is a variable.
        levels: Their levels.
        shown_by: For each size variable a value of which it is a dimension. A piece that needs the
            size takes such a value, although it may read nothing of it.
        definitions: For each size variable that compiled code computes the call that does. A later
            piece that needs the size takes a tensor without elements that has it.

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
            pieces[level] = _piece(level, roots, names, levels, shown_by, definitions)
    return dict(sorted(pieces.items()))


def size_variables(nodes: Iterable[Expr]) -> frozenset[str]:
    """Return the names of the size variables in types and attributes of expressions."""
    found: set[str] = set()
    for node in nodes:
        found.update(*(size.variables() for size in _sizes_of(node.type)))
        if isinstance(node, Call):
            fields = node.attrs.__struct_fields__
            found.update(*(s.variables() for f in fields for s in _dims(getattr(node.attrs, f))))
    return frozenset(found)


def plain_variables(type_: Type) -> Iterator[tuple[int, str]]:
    """Yield the axes of a tensor whose size is a size variable alone, with its name."""
    for axis, size in enumerate(type_.shape if isinstance(type_, TensorType) else ()):
        if isinstance(size, Dim) and size.is_variable:
            yield axis, size.name


def _sizes_of(type_: Type) -> Iterator[Dim]:
    pending = [type_]
    while pending:
        found = pending.pop()
        if isinstance(found, TensorType):
            yield from (size for size in found.shape if isinstance(size, Dim))
        else:
            pending.extend(found.fields)


def _dims(value: object) -> Iterator[Dim]:
    if isinstance(value, Dim):
        yield value
    elif isinstance(value, tuple):
        for item in cast("tuple[object, ...]", value):
            yield from _dims(item)


def _piece(
    level: int,
    roots: dict[int, dict[str, Expr]],
    names: dict[Expr, str],
    levels: Levels,
    shown_by: Mapping[str, Var],
    definitions: Mapping[str, Expr],
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
            if child in levels.fixed:
                continue  # each piece computes it
            if child not in names:
                names[child] = f"#{len(names)}"
            roots.setdefault(levels.level(child), {})[names[child]] = child
            outside.setdefault(child, Var(names[child], child.type))
    body = substitute(body, outside)
    inside = list(post_order(body))
    params = {node: None for node in inside if isinstance(node, Var)}
    shown = {name for param in params for _, name in plain_variables(param.type)}
    needed = (size_variables(inside) - shown).difference(*(defined_sizes(node) for node in inside))
    by_variables = sorted((needed - definitions.keys()) & shown_by.keys())
    params.update((shown_by[name], None) for name in by_variables)
    for name in sorted(needed & definitions.keys()):
        definer = definitions[name]
        attrs = Full.Attrs(shape=extents((variable(name), 0)), value=0, dtype=DType.INT8)
        marker = call(Full, definer, attrs=attrs, span=definer.span)
        names[marker] = f"#{len(names)}"
        roots.setdefault(levels.level(marker), {})[names[marker]] = marker
        params[Var(names[marker], marker.type)] = None
    return Function(tuple(params), body, tuple(roots[level]))
