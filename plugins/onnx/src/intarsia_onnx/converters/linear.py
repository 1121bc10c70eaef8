# SPDX-License-Identifier: Apache-2.0
"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TypeAlias

from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.guards import is_collecting, require_equal
from intarsia_ir.ops import binary, linalg, nn, reduce, slicing
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import numbers
from intarsia_runtime.size import product as sizes_product

from ..builder import STATIC_HINT, Builder, dtype_of, rank_of, sizes_of
from ..context import NodeContext

_Term: TypeAlias = "tuple[str, Expr]"
"""An operand of Einsum with a letter for each dimension."""

_DOTS = "01234567"
"""Letters for the dimensions of an ellipsis."""


def matmul(node: NodeContext) -> Expr:
    """Convert MatMul."""
    return product(node, node.input(0), node.input(1))


def product(node: NodeContext, a: Expr, b: Expr) -> Expr:
    """Multiply as NumPy does: a vector is a row on the left and a column on the right."""
    if rank_of(a) == 0 or rank_of(b) == 0:
        raise node.model_error("the operands of a matrix product must not be scalars")
    row, column = rank_of(a) == 1, rank_of(b) == 1
    if row:
        a = node.reshape(a, (1, *_static(node, a)))
    if column:
        b = node.reshape(b, (*_static(node, b), 1))
    result = node.matmul(a, b)
    if not row and not column:
        return result
    sizes = _static(node, result)
    if column:
        sizes = sizes[:-1]
    if row:
        sizes = (*sizes[:-2], *sizes[-1:]) if not column else sizes[:-1]
    return node.reshape(result, sizes)


def _static(node: NodeContext, x: Expr) -> tuple[int, ...]:
    if is_collecting():
        return extents(sizes_of(x))
    sizes = tuple(size for size in sizes_of(x) if isinstance(size, int))
    if len(sizes) != rank_of(x):
        raise node.unsupported(f"the shape {x.type} is not known at compile time")
    return sizes


def gemm(node: NodeContext) -> Expr:
    """Convert Gemm: ``alpha * A' * B' + beta * C``."""
    a, b, c = node.input(0), node.input(1), node.optional(2)
    if rank_of(a) != 2 or rank_of(b) != 2:
        raise node.model_error(f"the operands must be matrices, got {a.type} and {b.type}")
    turned = [bool(node.integer(name, 0)) for name in ("transA", "transB")]
    made = node.matmul(a, b, transpose_a=turned[0], transpose_b=turned[1])
    result = scaled(node, made, node.number("alpha", 1.0))
    beta = node.number("beta", 1.0)
    if c is None or beta == 0:
        return result
    return node.call(binary.Add, result, scaled(node, c, beta))


def scaled(node: Builder, x: Expr, factor: float) -> Expr:
    """Multiply by a number; ``x`` itself if it is 1."""
    if factor == 1.0:
        return x
    if not dtype_of(x).is_float and factor != int(factor):
        wide = node.call(
            binary.Multiply, node.cast(x, DType.FLOAT64), node.scalar(factor, DType.FLOAT64)
        )
        return node.cast(wide, dtype_of(x))
    return node.call(binary.Multiply, x, node.scalar(factor, dtype_of(x)))


def einsum(node: NodeContext) -> Expr:
    """Convert Einsum: operands are contracted from the left; sizes of 1 broadcast, as in NumPy."""
    text = node.string("equation").replace(" ", "")
    values = node.variadic()
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(values):
        raise node.model_error(f"Einsum equation '{text}' does not have {len(values)} operands")
    dots = [_dots(node, term, rank_of(x)) for term, x in zip(terms, values, strict=True)]
    terms = [term.replace("...", letters) for term, letters in zip(terms, dots, strict=True)]
    all_dots = max(dots, key=len)
    if not arrow:
        letters = "".join(terms)
        single = sorted(x for x in set(letters) if letters.count(x) == 1 and x not in all_dots)
        right = all_dots + "".join(single)
    if all_dots and "..." not in right and arrow:
        raise node.model_error(f"Einsum equation '{text}' has no ellipsis in its result")
    right = right.replace("...", all_dots)
    if len(set(right)) != len(right):
        raise node.unsupported(f"Einsum equation '{text}' repeats an index of the result")
    for term, value in zip(terms, values, strict=True):
        if rank_of(value) != len(term) or "." in term or not set(right) <= set("".join(terms)):
            raise node.model_error(f"Einsum equation '{text}' does not fit operand {value.type}")
    parts = [_diagonals(node, x, term) for x, term in zip(values, terms, strict=True)]
    term, value = parts[0]
    for number, part in enumerate(parts[1:], start=2):
        later = right + "".join(other for other, _ in parts[number:])
        term, value = _contract(node, *_broadcast(node, (term, value), part), later)
    kept, value = _summed(node, value, term, right)
    return node.transpose(value, [kept.index(x) for x in right])


def _dots(node: NodeContext, term: str, rank: int) -> str:
    """Return letters for the dimensions that an ellipsis stands for; the last are the same ones."""
    if "..." not in term:
        return ""
    count = rank - (len(term) - 3)
    if not 0 <= count <= len(_DOTS):
        raise node.model_error(f"Einsum term '{term}' does not fit {rank} dimensions")
    return _DOTS[len(_DOTS) - count :]


def _broadcast(node: NodeContext, *parts: _Term) -> tuple[_Term, _Term]:
    """Drop dimensions of size 1 next to others of their letter; open sizes become the same."""
    sides = [dict(zip(term, sizes_of(value), strict=True)) for term, value in parts]
    found: list[_Term] = []
    for (term, value), own, other in zip(parts, sides, sides[::-1], strict=True):
        wanted = [other.get(letter, own[letter]) for letter in term]
        wanted = [
            own[x] if size == 1 or isinstance(own[x], int) else size
            for x, size in zip(term, wanted, strict=True)
        ]
        kept = [x for x in term if not (own[x] == 1 and other.get(x, 1) != 1)]
        if len(kept) < len(term):
            wanted = [size for x, size in zip(term, wanted, strict=True) if x in kept]
            value = node.reshape(value, [own[x] for x in kept])
        value, _ = node.folder.broadcasts.spread(node, value, wanted)
        found.append(("".join(kept), value))
    first, second = found
    return first, second


def _diagonals(node: NodeContext, x: Expr, term: str) -> tuple[str, Expr]:
    """Take the diagonal of dimensions that have the same letter, until each has its own."""
    while len(set(term)) < len(term):
        letter = next(one for one in term if term.count(one) > 1)
        first = term.index(letter)
        second = term.index(letter, first + 1)
        others = [axis for axis in range(len(term)) if axis not in (first, second)]
        *sizes, rows, columns = _static(node, node.transpose(x, [*others, first, second]))
        if not require_equal(rows, columns, f"{node.span}: index '{letter}' must have one size"):
            raise node.model_error(f"index '{letter}' is {rows} and {columns} at once")
        flat = node.reshape(node.transpose(x, [*others, first, second]), [*sizes, rows * rows])
        attrs = slicing.StridedSlice.Attrs(
            begin=(0,) * (len(sizes) + 1),
            end=(*sizes, rows * rows),
            strides=(*(1 for _ in sizes), rows + 1),
        )
        x = node.call(slicing.StridedSlice, flat, attrs=attrs)
        term = "".join(term[axis] for axis in others) + letter
    return term, x


def _summed(node: NodeContext, x: Expr, term: str, keep: str) -> tuple[str, Expr]:
    """Sum over the letters that nobody else needs."""
    axes = tuple(axis for axis, letter in enumerate(term) if letter not in keep)
    if not axes:
        return term, x
    summed = node.call(reduce.Sum, x, attrs=reduce.Sum.Attrs(axes=axes, keepdims=False))
    return "".join(letter for letter in term if letter in keep), summed


def _contract(node: NodeContext, first: _Term, second: _Term, right: str) -> _Term:
    """Bring two operands to ``[batch, rows, sum]`` and ``[batch, sum, columns]`` and multiply."""
    a_term, a = _summed(node, first[1], first[0], right + second[0])
    b_term, b = _summed(node, second[1], second[0], right + first[0])
    sizes = dict(zip(a_term, sizes_of(a), strict=True))
    for letter, size in zip(b_term, sizes_of(b), strict=True):
        other = sizes.setdefault(letter, size)
        if not require_equal(other, size, f"{node.span}: index '{letter}' must have one size"):
            text = f"index '{letter}' is {other} and {size} at once"
            known = len(numbers((other, size))) == 2
            raise node.model_error(text) if known else node.unsupported(text, STATIC_HINT)
        sizes[letter] = next(iter(numbers((other, size))), other)
    shared = [x for x in a_term if x in b_term]
    batch = [x for x in shared if x in right]
    inner = [x for x in shared if x not in right]
    rows = [x for x in a_term if x not in b_term]
    columns = [x for x in b_term if x not in a_term]

    def arranged(
        x: Expr, term: str, order: Sequence[str], middle: Sequence[str], last: Sequence[str]
    ) -> Expr:
        moved = node.transpose(x, [term.index(letter) for letter in (*order, *middle, *last)])
        lengths = [sizes_product(sizes[letter] for letter in part) for part in (middle, last)]
        return node.reshape(moved, [*(sizes[letter] for letter in order), *lengths])

    result = node.call(
        nn.Matmul,
        arranged(a, a_term, batch, rows, inner),
        arranged(b, b_term, batch, inner, columns),
    )
    letters = [*batch, *rows, *columns]
    return "".join(letters), node.reshape(result, [sizes[letter] for letter in letters])


def determinant(node: NodeContext) -> Expr:
    """Convert Det."""
    return node.call(linalg.Determinant, node.input(0))


CONVERTERS = MappingProxyType(
    {"Det": determinant, "Einsum": einsum, "Gemm": gemm, "MatMul": matmul}
)
