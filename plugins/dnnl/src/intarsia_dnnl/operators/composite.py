# SPDX-License-Identifier: Apache-2.0
"""Functions that exporters spell out in several operators and the library has as one."""

from __future__ import annotations

import math
from typing import Any

from msgspec import Struct

from intarsia.plugin.accelerator import (
    Call,
    Code,
    Match,
    Pattern,
    Support,
    Wildcard,
    extents,
    label_of,
    op,
    scalar,
)

from ..draft import DnnlDraft
from .elementwise import GELU
from .row import DnnlRow

_X = Wildcard("x")
_SPELLED = "spelled out in several operators"


def _number(name: str) -> Wildcard:
    return Wildcard(name, constant=True)


class _Spelled(Struct, frozen=True):
    """A function ``algorithm`` of ``x``, and what its constants must be.

    Attributes:
        algorithm: The library's function.
        alpha: Its first parameter.
        beta: Its second parameter.
        numbers: Name of a constant in the pattern to its value; another value is another function.
    """

    algorithm: str
    numbers: tuple[tuple[str, float], ...] = ()
    alpha: float = 0.0
    beta: float = 0.0

    def supports(self, match: Match) -> Support:
        """Check the constants, and that they do not broadcast ``x``."""
        if extents(match.bound["x"]) != extents(match.root):
            return Support.no(Code.UNSUPPORTED_SHAPE, "a constant broadcasts the operand")
        for name, wanted in self.numbers:
            found = scalar(match.bound[name])
            if found is None or not math.isclose(found, wanted, rel_tol=1e-4):
                return Support.no(
                    Code.UNSUPPORTED_ATTRIBUTE,
                    f"the constant {found} is not the {wanted:.6g} that {self.algorithm} has there",
                )
        return Support.yes()

    def lower(self, draft: DnnlDraft, match: Match) -> int:
        """Append the function."""
        value = draft.value(match.bound["x"])
        return draft.eltwise(
            self.algorithm, value, self.alpha, self.beta, label=label_of(match.root)
        )


def _products(inner: Pattern) -> tuple[Pattern, ...]:
    """Return the ways to multiply ``x``, ``half`` and ``inner``."""
    half = _number("half")
    return (
        op("multiply", op("multiply", _X, half), inner),
        op("multiply", op("multiply", _X, inner), half),
        op("multiply", _X, op("multiply", inner, half)),
        op("divide", op("multiply", _X, inner), _number("two")),
    )


def _gelu_rows() -> list[DnnlRow]:
    rows: list[DnnlRow] = []
    for kind, scale in (("divide", math.sqrt(2)), ("multiply", math.sqrt(0.5))):
        inner = op("add", op("erf", op(kind, _X, _number("scale"))), _number("one"))
        for index, pattern in enumerate(_products(inner)):
            last = ("two", 2.0) if index == 3 else ("half", 0.5)
            spelled = _Spelled("gelu_erf", (("scale", scale), ("one", 1.0), last))
            name = f"gelu_erf_{kind}_{index}"
            rows.append(
                DnnlRow(name, pattern, spelled.lower, spelled.supports, doc=_SPELLED, special=GELU)
            )
    return rows


def _cubes() -> tuple[tuple[Pattern, tuple[tuple[str, float], ...]], ...]:
    square = op("multiply", _X, _X)
    return (
        (op("power", _X, _number("three")), (("three", 3.0),)),
        (op("multiply", square, _X), ()),
    )


def _tanh_gelu_rows() -> list[DnnlRow]:
    rows: list[DnnlRow] = []
    for form, (cube, numbers) in enumerate(_cubes()):
        polynomial = op("add", _X, op("multiply", cube, _number("cubic")))
        inner = op("add", op("tanh", op("multiply", polynomial, _number("scale"))), _number("one"))
        for index, pattern in enumerate(_products(inner)):
            last = ("two", 2.0) if index == 3 else ("half", 0.5)
            wanted = (("cubic", 0.044715), ("scale", math.sqrt(2 / math.pi)), ("one", 1.0), last)
            spelled = _Spelled("gelu_tanh", (*numbers, *wanted))
            name = f"gelu_tanh_{form}_{index}"
            rows.append(
                DnnlRow(name, pattern, spelled.lower, spelled.supports, doc=_SPELLED, special=GELU)
            )
    return rows


def _clips_to_six(call: Call) -> bool:
    attrs: Any = call.attrs
    return (attrs.min, attrs.max) == (0.0, 6.0)


def _hard_swish_rows() -> list[DnnlRow]:
    clipped = op("clip", op("add", _X, _number("three")), where=_clips_to_six)
    six = ("six", 6.0)
    sixth = ("sixth", 1 / 6)
    forms: tuple[tuple[Pattern, tuple[str, float]], ...] = (
        (op("divide", op("multiply", _X, clipped), _number("six")), six),
        (op("multiply", _X, op("divide", clipped, _number("six"))), six),
        (op("multiply", op("multiply", _X, clipped), _number("sixth")), sixth),
        (op("multiply", _X, op("multiply", clipped, _number("sixth"))), sixth),
    )
    rows: list[DnnlRow] = []
    for index, (pattern, last) in enumerate(forms):
        spelled = _Spelled("hardswish", (("three", 3.0), last), 1 / 6, 0.5)
        rows.append(DnnlRow(f"hard_swish_{index}", pattern, spelled.lower, spelled.supports))
    by_sigmoid = _Spelled("hardswish", (), 1 / 6, 0.5)
    pattern = op("multiply", _X, op("nn.hard_sigmoid", _X, where=_is_sixth))
    rows.append(DnnlRow("hard_swish_4", pattern, by_sigmoid.lower, by_sigmoid.supports))
    return rows


def _is_sixth(call: Call) -> bool:
    attrs: Any = call.attrs
    return math.isclose(attrs.alpha, 1 / 6, rel_tol=1e-4) and attrs.beta == 0.5


def _simple_rows() -> list[DnnlRow]:
    silu = _Spelled("swish", (), 1.0)
    mish = _Spelled("mish")
    return [
        DnnlRow("silu", op("multiply", _X, op("sigmoid", _X)), silu.lower, silu.supports),
        DnnlRow(
            "mish", op("multiply", _X, op("tanh", op("nn.softplus", _X))), mish.lower, mish.supports
        ),
    ]


ROWS = (*_gelu_rows(), *_tanh_gelu_rows(), *_hard_swish_rows(), *_simple_rows())
