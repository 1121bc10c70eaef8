# SPDX-License-Identifier: Apache-2.0
"""Which size variables a function defines, and which calls depend on them.

A call defines a variable if the class of its attributes has a field ``size`` with one, see
:class:`intarsia_ir.ops.run_sizes.SizeOf`; the name ``defines_size`` of its operator says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from intarsia_runtime.errors import VerifyError

from .control import control_of
from .expr import Call, Expr, Function
from .op import OpAttrs
from .types import Dim, TensorType, TupleType, Type
from .walk import children, post_order


def defined_size(node: Expr) -> str | None:
    """Return the name of the size variable that a node is the value of, if it is."""
    if not isinstance(node, Call) or not node.op.defines_size:
        return None
    size: object = object.__getattribute__(node.attrs, "size")
    return size.name if isinstance(size, Dim) else None


def defined_sizes(node: Expr) -> tuple[str, ...]:
    """Return the names of the size variables that a node defines, control flow included."""
    operator = control_of(node)
    if operator is not None and isinstance(node, Call):
        return operator.defined(node.attrs)
    name = defined_size(node)
    return () if name is None else (name,)


def used_sizes(node: Expr) -> frozenset[str]:
    """Return the names of the size variables in the type and the attributes of a node."""
    found = set(_of_type(node.type))
    if control_of(node) is None and isinstance(node, Call) and not node.op.defines_size:
        found.update(sizes_in(node.attrs))
    return frozenset(found)


def sizes_in(attrs: OpAttrs) -> Iterator[str]:
    """Yield the names of the size variables in attributes."""
    for name in attrs.__struct_fields__:
        yield from _of_value(object.__getattribute__(attrs, name))


def _of_value(value: object) -> Iterator[str]:
    if isinstance(value, Dim):
        yield from value.variables()
    elif isinstance(value, tuple):
        for item in cast("tuple[object, ...]", value):
            yield from _of_value(item)


def _of_type(type_: Type) -> Iterator[str]:
    match type_:
        case TensorType(shape=shape):
            yield from _of_value(shape)
        case TupleType(fields=fields):
            for field in fields:
                yield from _of_type(field)


def definitions(function: Function) -> dict[str, Expr]:
    """Return the calls of a function that define size variables, by the variable.

    Raises:
        VerifyError: Two calls define one, or a call one that a parameter has.
    """
    found: dict[str, Expr] = {}
    for node in post_order(function.body):
        for name in defined_sizes(node):
            if name in found or any(name in used_sizes(param) for param in function.params):
                raise VerifyError(f"size '{name}' is defined twice", where=str(node.span))
            found[name] = node
    return found


def verify_size_scopes(function: Function) -> None:
    """Check that size variables which calls define are defined once, and used behind the call.

    Raises:
        VerifyError: One is not.
    """
    found = definitions(function)
    if not found:
        return
    known: dict[Expr, frozenset[str]] = {}
    for node in post_order(function.body):
        own = defined_sizes(node)
        reached = _union(known[child] for child in children(node))
        known[node] = reached.union(own) if own else reached
        missing = (used_sizes(node) & found.keys()) - known[node]
        if missing:
            raise VerifyError(
                f"size '{min(missing)}' is used by what does not depend on the call that defines"
                " it",
                where=str(node.span),
            )


def _union(parts: Iterable[frozenset[str]]) -> frozenset[str]:
    """Join sets; the same object where there is nothing to add, since most are equal."""
    total = frozenset[str]()
    for part in parts:
        if not part <= total:
            total = part if total <= part else total | part
    return total
