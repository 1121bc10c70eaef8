# SPDX-License-Identifier: Apache-2.0
"""Expressions of the graph IR: a closed union of frozen nodes that form a DAG.

Nodes are compared and hashed by identity; two nodes with equal fields are two values. Every node
carries its type from the moment it is built, so there is no untyped IR.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from intarsia_runtime.dtype import parse_dtype
from intarsia_runtime.errors import IntarsiaError, VerifyError

from ..diagnostics import NO_SPAN, Span
from ..writing.deferred import Content, DeferredArray, array_of
from .op import NO_ATTRS, Op, OpAttrs
from .types import TensorType, TupleType, Type

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Var:
    """A parameter of a function, or a value bound by :class:`Let`."""

    name: str
    type: Type
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A tensor known at compile time.

    Attributes:
        content: C-contiguous array, at any address, never written to; or what computes it.
        name: Name of the weight in the model; empty for a constant made by a pass.
    """

    content: Content
    type: TensorType
    name: str = ""
    span: Span = NO_SPAN

    @property
    def data(self) -> np.ndarray:
        """The array, computed when it is first asked for."""
        return array_of(self.content)


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """An operator applied to arguments. Build with :func:`call`, which runs the type rule."""

    __match_args__ = ("name", "args", "attrs")

    op: type[Op]
    args: tuple[Expr, ...]
    attrs: OpAttrs
    type: Type
    span: Span = NO_SPAN

    @property
    def name(self) -> str:
        """Name of the operator, e.g. ``nn.conv2d``."""
        return self.op.name


@dataclass(frozen=True, slots=True, eq=False)
class CallFunction:
    """A function of the module applied to arguments; how ``main`` calls an outlined region."""

    function: GlobalVar
    args: tuple[Expr, ...]
    type: Type
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False)
class Tuple:
    """Several values as one."""

    fields: tuple[Expr, ...]
    type: TupleType
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False)
class TupleGetItem:
    """Field ``index`` of a tuple."""

    tuple: Expr
    index: int
    type: Type
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False)
class Let:
    """``body`` with ``var`` standing for ``value``."""

    var: Var
    value: Expr
    body: Expr
    type: Type
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False)
class If:
    """One of two expressions, chosen by a scalar bool at run time; only that one is evaluated."""

    condition: Expr
    then_branch: Expr
    else_branch: Expr
    type: Type
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True)
class GlobalVar:
    """Name of a function of the module."""

    name: str


Expr: TypeAlias = Var | Constant | Call | CallFunction | Tuple | TupleGetItem | Let | If


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """Parameters and the expression they are used in.

    Attributes:
        params: Inputs, in order.
        body: The result; a :class:`Tuple` when there are several outputs.
        output_names: Names of the outputs in the model's order; one for each field of a tuple body.
    """

    params: tuple[Var, ...]
    body: Expr
    output_names: tuple[str, ...] = field(default=())

    @property
    def outputs(self) -> tuple[Expr, ...]:
        """The results as a flat tuple."""
        return self.body.fields if isinstance(self.body, Tuple) else (self.body,)


def call(op: type[Op], *args: Expr, attrs: OpAttrs = NO_ATTRS, span: Span = NO_SPAN) -> Call:
    """Apply ``op`` and infer the type of the result.

    Raises:
        TypeRuleError: The operator does not accept these operands; ``where`` names the place.
    """
    try:
        result = op.type_rule(attrs, *(arg.type for arg in args))
    except IntarsiaError as error:
        if not error.where:
            error.where = str(span) or op.name
        raise
    return Call(op, args, attrs, result, span)


def constant(content: Content, *, name: str = "", span: Span = NO_SPAN) -> Constant:
    """Wrap an array, or what computes one; an array is made C-contiguous if it is not."""
    if not isinstance(content, DeferredArray) and not content.flags.c_contiguous:
        content = content.copy(order="C")
    dtype = parse_dtype(content.dtype.name)
    return Constant(content, TensorType(content.shape, dtype), name, span)


def make_tuple(fields: Sequence[Expr], *, span: Span = NO_SPAN) -> Tuple:
    """Build a tuple with its type."""
    return Tuple(tuple(fields), TupleType(tuple(f.type for f in fields)), span)


def get_item(value: Expr, index: int, *, span: Span = NO_SPAN) -> Expr:
    """Return field ``index`` of ``value``; looks through a :class:`Tuple`.

    Raises:
        VerifyError: ``value`` is no tuple or has no such field.
    """
    if isinstance(value, Tuple) and 0 <= index < len(value.fields):
        return value.fields[index]
    if not isinstance(value.type, TupleType) or not 0 <= index < len(value.type.fields):
        raise VerifyError(f"no field {index} in a value of type {value.type}", where=str(span))
    return TupleGetItem(value, index, value.type.fields[index], span)


def tensor_type(value: Expr) -> TensorType:
    """Return the type of a value that must be a tensor.

    Raises:
        VerifyError: The value is a tuple.
    """
    if isinstance(value.type, TensorType):
        return value.type
    raise VerifyError(f"expected a tensor, got {value.type}", where=str(value.span))
