# SPDX-License-Identifier: Apache-2.0
"""Random numbers of a model: which streams its nodes have, and the input that all are drawn of."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from intarsia_ir.graph.expr import Expr, Var
from intarsia_ir.graph.types import TensorType
from intarsia_runtime.artifact.random_state import RANDOM_STATE
from intarsia_runtime.dtype import DType

DRAWING = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
"""Operators that give something else at each run, so that none is carried out beforehand."""


class Draws:
    """The streams of one model.

    Attributes:
        state: The input that draws are made of; ``None`` while there is no draw.
        iterations: The numbers of the iterations of loops that what is imported now is in; ``None``
            for one that its body cannot tell.
    """

    def __init__(self) -> None:
        self.state: Var | None = None
        self.iterations: tuple[Expr | None, ...] = ()
        self._streams = 0

    def stream(self) -> tuple[Var, int]:
        """Return the state and the number of a stream that nothing else draws of."""
        if self.state is None:
            self.state = Var(RANDOM_STATE, TensorType((2,), DType.INT64))
        self._streams += 1
        return self.state, self._streams - 1

    @contextmanager
    def repeated(self, iteration: Expr | None) -> Generator[None]:
        """Import the body of a loop, given the number of its iteration."""
        before = self.iterations
        self.iterations = (*before, iteration)
        try:
            yield
        finally:
            self.iterations = before
