# SPDX-License-Identifier: Apache-2.0
"""Sizes that are known when a model runs: integer expressions over named size variables.

A :class:`Dim` is a polynomial with integer coefficients. Its atoms are size variables and the
operations ``//``, ``%``, ``min`` and ``max`` on sizes. The polynomial is a normal form: sizes that
arithmetic shows to be equal compare equal, e.g. ``(4*N + 2) // 4`` and ``N``. Division rounds
towards minus infinity, as in Python; a size that divides is taken not to be 0. Arithmetic gives an
``int`` wherever the result is a number.

The text, which :func:`~.size_text.parse_size` reads, is that of Python: ``(N + 2) // 2``,
``min(N, 512)``; a name that is no identifier stands in quotes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from math import gcd
from typing import TypeAlias

from msgspec import Struct

from .errors import UnsupportedError

MOST_TERMS = 4096
"""Most terms of a product that is multiplied out."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SizeOp(Struct, frozen=True):
    """``a // b``, ``a % b``, ``min(a, b)`` or ``max(a, b)``; ``op`` is the name."""

    op: str
    a: Size
    b: Size

    def __str__(self) -> str:
        if self.op in ("min", "max"):
            return f"{self.op}({self.a}, {self.b})"
        return f"{_operand(self.a)} {self.op} {_operand(self.b)}"


class OpenSizeError(UnsupportedError):
    """Somebody needs the number that a symbolic size, ``size``, stands for."""

    def __init__(self, size: Dim) -> None:
        self.size = size
        super().__init__(
            f"the size {size} is only known at run time",
            hint="give every input a shape, e.g. --shape input:1,3,224,224",
        )


Atom: TypeAlias = "str | SizeOp"
"""A size variable, by its name, or an operation."""

Monomial: TypeAlias = "tuple[Atom, ...]"
"""A product of atoms, in the order of their texts; the empty one is 1."""


class Dim(Struct, frozen=True):
    """A size that is no number: ``sum of coefficient * product of atoms``.

    Attributes:
        terms: Products with their coefficients, none of which is 0, in the order of their texts;
            the constant, if any, last.
    """

    terms: tuple[tuple[Monomial, int], ...]

    @property
    def is_variable(self) -> bool:
        """Whether it is a size variable alone."""
        (atoms, factor), *rest = self.terms
        return not rest and factor == 1 and len(atoms) == 1 and isinstance(atoms[0], str)

    @property
    def name(self) -> str:
        """The text; of a variable alone its name, as it was given."""
        return str(self.terms[0][0][0]) if self.is_variable else str(self)

    def variables(self) -> frozenset[str]:
        """Return the names of all variables in it."""
        return frozenset(_variables(self))

    def evaluate(self, values: Mapping[str, int]) -> int:
        """Return the number for values of its variables.

        Raises:
            KeyError: A variable has no value.
        """
        total = 0
        for atoms, factor in self.terms:
            for atom in atoms:
                factor *= values[atom] if isinstance(atom, str) else _evaluate(atom, values)
            total += factor
        return total

    def substitute(self, values: Mapping[str, Size]) -> Size:
        """Return the size with sizes in the place of variables; others stay."""
        total: dict[Monomial, int] = {}
        for atoms, factor in self.terms:
            term = product([_substituted(atom, values) for atom in atoms])
            for joined, amount in _terms(term):
                total[joined] = total.get(joined, 0) + factor * amount
        return _made(total)

    # A foreign operand, an expression of the loop IR, has its own arithmetic.
    def __add__(self, other: Size) -> Size:
        return _sum((self, 1), (other, 1)) if _is_size(other) else NotImplemented

    def __radd__(self, other: int) -> Size:
        return _sum((self, 1), (other, 1)) if _is_size(other) else NotImplemented

    def __sub__(self, other: Size) -> Size:
        return _sum((self, 1), (other, -1)) if _is_size(other) else NotImplemented

    def __rsub__(self, other: int) -> Size:
        return _sum((other, 1), (self, -1)) if _is_size(other) else NotImplemented

    def __neg__(self) -> Size:
        return _sum((self, -1))

    def __mul__(self, other: Size) -> Size:
        if isinstance(other, float):
            raise OpenSizeError(self)
        return _product(self, other) if _is_size(other) else NotImplemented

    def __rmul__(self, other: int) -> Size:
        return self * other

    def __floordiv__(self, other: Size) -> Size:
        return floor_divide(self, other) if _is_size(other) else NotImplemented

    def __rfloordiv__(self, other: int) -> Size:
        return floor_divide(other, self) if _is_size(other) else NotImplemented

    def __mod__(self, other: Size) -> Size:
        return remainder(self, other) if _is_size(other) else NotImplemented

    def __rmod__(self, other: int) -> Size:
        return remainder(other, self) if _is_size(other) else NotImplemented

    # Nothing decides by a size that only the run knows: code that would is not for open sizes.
    def __lt__(self, other: Size) -> bool:
        raise OpenSizeError(self)

    __le__ = __gt__ = __ge__ = __lt__

    def __index__(self) -> int:
        raise OpenSizeError(self)

    __float__ = __index__

    def __truediv__(self, other: float) -> float:
        raise OpenSizeError(self)

    __rtruediv__ = __truediv__

    def __str__(self) -> str:
        text = ""
        for atoms, factor in self.terms:
            sign = "-" if factor < 0 else "+"
            term = _term(atoms, abs(factor), alone=len(self.terms) == 1 and factor == 1)
            text = f"{text} {sign} {term}" if text else f"{'-' if factor < 0 else ''}{term}"
        return text


Size: TypeAlias = int | Dim
"""A size: a number, or an expression."""


def variable(name: str) -> Dim:
    """Return the size that has this name; equal names are equal sizes."""
    return Dim((((name,), 1),))


def value_of(size: Size, values: Mapping[str, int]) -> int:
    """Return the number that a size is for values of the variables."""
    return size if isinstance(size, int) else size.evaluate(values)


def floor_divide(a: Size, b: Size) -> Size:
    """Return ``a / b`` rounded down; 0 where ``b`` is 0."""
    if isinstance(b, int):
        if isinstance(a, int):
            return a // b if b else 0
        if b == 1:
            return a
        if b > 1:
            return _divided(a, b)
    quotient = exact_quotient(a, b)
    return _atom(SizeOp("//", a, b)) if quotient is None else quotient


def remainder(a: Size, b: Size) -> Size:
    """Return the remainder of ``a`` divided by ``b``; 0 where ``b`` is 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b if b else 0
    if isinstance(b, int) and b > 0 and isinstance(a, Dim):
        rest = _made({atoms: factor % b for atoms, factor in a.terms})
        if isinstance(rest, int):
            return rest % b
        return _atom(SizeOp("%", rest, b))
    if exact_quotient(a, b) is not None:
        return 0
    return _atom(SizeOp("%", a, b))


def minimum(a: Size, b: Size) -> Size:
    """Return the smaller size."""
    return _extreme("min", a, b)


def maximum(a: Size, b: Size) -> Size:
    """Return the larger size."""
    return _extreme("max", a, b)


def numbers(sizes: Iterable[Size]) -> tuple[int, ...]:
    """Return the sizes that are numbers."""
    return tuple(size for size in sizes if isinstance(size, int))


def product(sizes: Iterable[Size]) -> Size:
    """Return the product of sizes; 1 of none."""
    result: Size = 1
    for size in sizes:
        result = result * size
    return result


def exact_quotient(a: Size, b: Size) -> Size | None:
    """Return ``a / b`` if the division leaves nothing whatever the variables are; else ``None``.

    Found by division of polynomials: ``6*M*N / (2*M)``, ``(8*M*N - 16*M) / (M*N - 2*M)``. A divisor
    that is 0 is taken to divide nothing.
    """
    if a == b:
        return 1
    divisor = _terms(b)
    if not divisor:
        return None
    below, factor = max(divisor, key=_rank)
    rest, found = dict(_terms(a)), dict[Monomial, int]()
    while rest:
        atoms, coefficient = max(rest.items(), key=_rank)
        own, taken = Counter(atoms), Counter(below)
        if not taken <= own or coefficient % factor or len(found) * len(divisor) > MOST_TERMS:
            return None
        left = _ordered((own - taken).elements())
        found[left] = coefficient // factor
        for other, amount in divisor:
            product = _ordered((*left, *other))
            rest[product] = rest.get(product, 0) - amount * found[left]
            if not rest[product]:
                del rest[product]
    return _made(found)


def _is_size(value: object) -> bool:
    return isinstance(value, int | Dim)


def _terms(size: Size) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(size, Dim):
        return size.terms
    return (((), size),) if size else ()


_text = lru_cache(1 << 12)(str)  # sizes behind 20 layers are compared by texts of 1,000 letters


def _rank(term: tuple[Monomial, int]) -> tuple[int, list[str]]:
    """Return the place of a product in an order that multiplication keeps."""
    return len(term[0]), [_text(atom) for atom in term[0]]


def _ordered(atoms: Iterable[Atom]) -> Monomial:
    return tuple(sorted(atoms, key=_text))


def _made(terms: Mapping[Monomial, int]) -> Size:
    """Return the normal form of a sum."""
    kept = [(atoms, factor) for atoms, factor in terms.items() if factor]
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    if len(kept) > 1:
        kept.sort(key=lambda term: (not term[0], [_text(atom) for atom in term[0]]))
    return Dim(tuple(kept))


def _sum(*parts: tuple[Size, int]) -> Size:
    total: dict[Monomial, int] = {}
    for size, sign in parts:
        for atoms, factor in _terms(size):
            total[atoms] = total.get(atoms, 0) + sign * factor
    return _made(total)


def _product(a: Size, b: Size) -> Size:
    if len(_terms(a)) * len(_terms(b)) > MOST_TERMS:
        raise UnsupportedError(f"a product of sizes has more than {MOST_TERMS} terms")
    total: dict[Monomial, int] = {}
    for left, x in _terms(a):
        for right, y in _terms(b):
            atoms = _ordered((*left, *right)) if left and right else (*left, *right)
            total[atoms] = total.get(atoms, 0) + x * y
    return _made(total)


def _atom(op: SizeOp) -> Size:
    return Dim((((op,), 1),))


def _divided(a: Dim, b: int) -> Size:
    """Return ``a // b``: terms that ``b`` divides leave the division, common factors cancel."""
    whole = _made({atoms: factor // b for atoms, factor in a.terms if factor % b == 0})
    rest = {atoms: factor for atoms, factor in a.terms if factor % b}
    constant = rest.pop((), 0)
    if not rest:
        return whole + constant // b
    # (g*x + c) // b is (x + c // g) // (b // g) where g divides b and all terms but the constant.
    common = gcd(b, *rest.values())
    divisor, low = b // common, constant // common
    inner = {atoms: factor // common for atoms, factor in rest.items()}
    inner[()] = low % divisor
    number = whole + low // divisor
    match _made(inner):
        case Dim(terms=((((SizeOp(op="//", a=part, b=int(below)),), 1)),)) if below > 0:
            return number + floor_divide(part, below * divisor)  # (x // a) // b
        case left:
            return number + (left if divisor == 1 else _atom(SizeOp("//", left, divisor)))


@lru_cache(1 << 12)
def _extreme(op: str, a: Size, b: Size) -> Size:
    sign = _sign(a - b)
    if sign is not None:
        return a if (sign <= 0) == (op == "min") else b
    parts = _parts(op, a), _parts(op, b)
    for whole, own, other in ((a, *parts), (b, *reversed(parts))):
        if all(any(_wins(op, one, part) for one in own) for part in other):
            return whole
    first, second = sorted((a, b), key=_text)
    return _atom(SizeOp(op, first, second))


def _parts(op: str, size: Size) -> list[Size]:
    """Return the sizes of which one is the smallest or the largest; the size alone if none is."""
    match size:
        case Dim(terms=((((SizeOp(op=own, a=a, b=b),), 1)),)) if own == op:
            return [*_parts(op, a), *_parts(op, b)]
        case _:
            return [size]


def _wins(op: str, a: Size, b: Size) -> bool:
    """Whether ``a`` is known to be the smaller or the larger one, or equal."""
    sign = _sign(a - b)
    return (sign is not None and (sign <= 0) == (op == "min")) or a == b


def _sign(size: Size, *, is_last: bool = False) -> int | None:
    """Return 1 or -1 for a size that is never on the other side of 0, ``None`` if neither is known.

    Variables are sizes, and so not negative. ``n - min(n, 2)`` is at least ``n - n``; of what takes
    the place of a minimum, no other is replaced (``is_last``).
    """
    factors = [factor for _, factor in _terms(size)]
    if all(_is_natural(atom) for atoms, _ in _terms(size) for atom in atoms):
        if all(factor >= 0 for factor in factors):
            return 1
        if all(factor <= 0 for factor in factors):
            return -1
    for atoms, factor in () if is_last else _terms(size):
        side, least = 1 if factor < 0 else -1, _made({atoms: 1})
        ends = [size - factor * (least - part) for part in _parts("min", least) if part != least]
        if any(end == 0 or _sign(end, is_last=True) == side for end in ends):
            return side
    return None


@lru_cache(1 << 12)
def _is_natural(atom: Atom) -> bool:
    """Whether an atom is never negative: a variable, and what is made of such."""
    if isinstance(atom, str):
        return True
    if atom.op == "%":
        return isinstance(atom.b, int) and atom.b > 0
    if atom.op == "max":
        return _sign(atom.a) == 1 or _sign(atom.b) == 1
    return _sign(atom.a) == 1 and _sign(atom.b) == 1


_APPLY: Mapping[str, Callable[[Size, Size], Size]] = {
    "//": floor_divide,
    "%": remainder,
    "min": minimum,
    "max": maximum,
}


def _evaluate(op: SizeOp, values: Mapping[str, int]) -> int:
    result = _APPLY[op.op](value_of(op.a, values), value_of(op.b, values))
    assert isinstance(result, int)  # of two numbers
    return result


def _substituted(atom: Atom, values: Mapping[str, Size]) -> Size:
    if isinstance(atom, str):
        return values.get(atom, variable(atom))
    a, b = (size if isinstance(size, int) else size.substitute(values) for size in (atom.a, atom.b))
    return _APPLY[atom.op](a, b)


def _variables(size: Size) -> Iterator[str]:
    for atoms, _ in _terms(size):
        for atom in atoms:
            if isinstance(atom, str):
                yield atom
            else:
                yield from _variables(atom.a)
                yield from _variables(atom.b)


def _name_text(name: str) -> str:
    plain = _NAME.fullmatch(name) and name not in ("min", "max")
    if plain and not _is_keyword(name):
        return name
    return json.dumps(name).replace("`", "\\u0060")  # the text of the IR has sizes in backquotes


def _is_keyword(name: str) -> bool:
    from keyword import iskeyword  # a name in a hundred models

    return iskeyword(name)


def _term(atoms: Monomial, factor: int, *, alone: bool) -> str:
    if not atoms:
        return str(factor)
    if alone and len(atoms) == 1 and not isinstance(atoms[0], str):
        return str(atoms[0])
    parts = [_name_text(atom) if isinstance(atom, str) else _wrapped(atom) for atom in atoms]
    return "*".join(parts if factor == 1 else [str(factor), *parts])


def _wrapped(op: SizeOp) -> str:
    return _text(op) if op.op in ("min", "max") else f"({_text(op)})"


def _operand(size: Size) -> str:
    match size:
        case int() if size >= 0:
            return str(size)
        case Dim(terms=((((str(name),), 1)),)):
            return _name_text(name)
        case _:
            return f"({_text(size)})"
