# SPDX-License-Identifier: Apache-2.0
"""Differentiate: expressions for the derivative of one value by others (reverse mode)."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from intarsia_runtime.errors import UnsupportedError

from ..diagnostics import NO_SPAN, Span
from ..graph.expr import Call, Expr, Tuple, TupleGetItem, tensor_type
from ..graph.types import TensorType
from ..graph.walk import children, post_order, rewrite_expr
from ..ops import OPERATORS
from ..ops.derivative import DERIVATIVES, Derivative, Expansion
from ..ops.terms import DerivativeStep, Term

STATIC_HINT = "give every input a shape, e.g. --shape input:1,3,224,224"


def differentiate(y: Expr, xs: Sequence[Expr], span: Span = NO_SPAN) -> tuple[Expr, ...]:
    """Return the derivative of the sum of ``y``'s elements by each of ``xs``.

    Each of ``xs`` counts as an independent variable, even one that is computed from another. The
    expressions share the nodes below ``y``, so what is computed on the way to ``y`` is not computed
    twice. One walk from ``y`` down; every node adds its share to its operands.

    Args:
        y: A tensor of floating-point numbers.
        xs: Expressions that ``y`` may depend on; where it does not, the derivative is zero.
        span: Where the new calls come from.

    Raises:
        UnsupportedError: An operator between has no rule, or a size is not known.
    """
    variables = frozenset(xs)
    y = _expanded(y, variables)
    order = list(post_order(y))
    dependent = _dependent(order, variables)
    adjoints = _Adjoints(span)
    if y in dependent:
        adjoints.add(y, _static(y, span).full(1.0))
    for node in reversed(order):
        if node not in dependent or node in variables:
            continue
        fields = adjoints.of(node)
        if any(field is not None for field in fields):
            _carry_back(node, fields, dependent, adjoints)
    return tuple(_found(x, adjoints, span) for x in xs)


class _Adjoints:
    """What has been added up so far for each node; a tuple has one sum for each field."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._sums: dict[tuple[Expr, int], Term] = {}

    def add(self, node: Expr, share: Term, field: int = 0) -> None:
        """Add a share of a node's derivative, or of that of one field of it."""
        known = self._sums.get((node, field))
        self._sums[node, field] = share if known is None else known + share

    def of(self, node: Expr) -> tuple[Term | None, ...]:
        """Return the derivatives by all fields of a node."""
        count = 1 if isinstance(node.type, TensorType) else len(node.type.fields)
        return tuple(self._sums.get((node, field)) for field in range(count))


def _expanded(y: Expr, variables: AbstractSet[Expr]) -> Expr:
    """Replace calls that are differentiated as what they are made of."""

    def expand(node: Expr) -> Expr | None:
        rule = DERIVATIVES.get(node.op) if isinstance(node, Call) else None
        if not isinstance(node, Call) or not isinstance(rule, Expansion):
            return None
        if not all(tensor_type(arg).is_static for arg in node.args):
            return None
        terms = [Term(arg, node.span) for arg in node.args]
        found = rule.expand(terms, node.attrs)
        return None if found is None else found.expr

    order = list(post_order(y))
    within = _dependent(order, variables)
    # What depends on no variable stays as it is, and so do variables.
    kept = {node: node for node in order if node in variables or node not in within}
    return rewrite_expr(y, expand, dict[Expr, Expr](kept))


def _dependent(order: Sequence[Expr], variables: AbstractSet[Expr]) -> AbstractSet[Expr]:
    """Return the nodes of floating-point values that depend on a variable."""
    found: set[Expr] = set()
    for node in order:
        reached = node in variables or any(child in found for child in children(node))
        if reached and _is_float(node):
            found.add(node)
    return found


def _is_float(node: Expr) -> bool:
    fields = (node.type,) if isinstance(node.type, TensorType) else node.type.fields
    return any(isinstance(field, TensorType) and field.dtype.is_float for field in fields)


def _static(node: Expr, span: Span) -> Term:
    """Return a node as a term.

    Raises:
        UnsupportedError: A size of it is not known.
    """
    if not tensor_type(node).is_static:
        raise UnsupportedError(
            f"the derivative by {node.type} is not supported: a size is not known",
            where=str(node.span or span),
            hint=STATIC_HINT,
        )
    return Term(node, span)


def _carry_back(
    node: Expr,
    fields: tuple[Term | None, ...],
    dependent: AbstractSet[Expr],
    adjoints: _Adjoints,
) -> None:
    """Add what a node's derivative gives for its operands."""
    match node:
        case Tuple():
            for value, share in zip(node.fields, fields, strict=True):
                if share is not None and value in dependent:
                    adjoints.add(value, share)
        case TupleGetItem():
            share = fields[0]
            if share is not None:
                adjoints.add(node.tuple, share, node.index)
        case Call():
            _through_call(node, fields, dependent, adjoints)
        case _:
            raise UnsupportedError(
                f"the derivative of a value chosen at run time ({type(node).__name__}) is not"
                " supported",
                where=str(node.span),
            )


def _through_call(
    node: Call,
    fields: tuple[Term | None, ...],
    dependent: AbstractSet[Expr],
    adjoints: _Adjoints,
) -> None:
    rule = DERIVATIVES.get(node.op)
    needed = tuple(arg in dependent for arg in node.args)
    shares = None
    if isinstance(rule, Derivative):
        args = tuple(_static(arg, node.span) for arg in node.args)
        step = DerivativeStep(node, args, Term(node, node.span), fields, needed)
        shares = rule.adjoint(step, node.attrs)
    if shares is None:
        reason = DERIVATIVES.reason(node.op)
        known = [name for name, op in OPERATORS.items() if DERIVATIVES.get(op) is not None]
        raise UnsupportedError(
            f"the derivative of operator '{node.name}' ({node.attrs}) is not supported"
            + (f": {reason}" if reason else ""),
            where=str(node.span),
            hint=f"these can be differentiated: {', '.join(known)}",
        )
    for arg, wanted, share in zip(node.args, needed, shares, strict=True):
        if wanted and share is not None:
            adjoints.add(arg, share)


def _found(x: Expr, adjoints: _Adjoints, span: Span) -> Expr:
    (share,) = adjoints.of(x)
    return _static(x, span).full(0.0).expr if share is None else share.expr
