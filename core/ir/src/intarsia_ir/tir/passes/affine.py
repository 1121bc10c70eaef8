# SPDX-License-Identifier: Apache-2.0
"""Sums of index expressions, each with a factor."""

from __future__ import annotations

from msgspec import Struct

from ..expr import PrimExpr


class AffineSum(Struct):
    """``constant + sum of coefficient * atom``; an atom is whatever is not a sum itself."""

    constant: int
    terms: dict[PrimExpr, int]

    def times(self, factor: int) -> AffineSum:
        """Return ``factor * self``."""
        if factor == 0:
            return AffineSum(0, {})
        terms = {atom: factor * count for atom, count in self.terms.items()}
        return AffineSum(factor * self.constant, terms)

    def plus(self, other: AffineSum, factor: int = 1) -> AffineSum:
        """Return ``self + factor * other``."""
        terms = dict(self.terms)
        for atom, count in other.terms.items():
            total = terms.get(atom, 0) + factor * count
            if total == 0:
                terms.pop(atom, None)
            else:
                terms[atom] = total
        return AffineSum(self.constant + factor * other.constant, terms)

    def split(self, divisor: int) -> tuple[AffineSum, AffineSum]:
        """Return ``q, r`` with ``self = divisor * q + r``; every term goes one way."""
        quotient = {t: c // divisor for t, c in self.terms.items() if c % divisor == 0}
        rest = {t: c for t, c in self.terms.items() if c % divisor != 0}
        return AffineSum(self.constant // divisor, quotient), AffineSum(
            self.constant % divisor, rest
        )
