# SPDX-License-Identifier: Apache-2.0
"""Random numbers of a model: which streams its nodes have, and the input that all are drawn of."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from intarsia_ir.graph.expr import Var
from intarsia_ir.graph.types import TensorType
from intarsia_runtime.artifact.random_state import RANDOM_STATE
from intarsia_runtime.dtype import DType


class Draws:
    """The streams of one model.

    Attributes:
        state: The input that draws are made of; ``None`` while there is no draw.
        is_repeated: Whether what is imported now is carried out several times in a run, where each
            time would draw the same.
    """

    def __init__(self) -> None:
        self.state: Var | None = None
        self.is_repeated = False
        self._streams = 0

    def stream(self) -> tuple[Var, int]:
        """Return the state and the number of a stream that nothing else draws of."""
        if self.state is None:
            self.state = Var(RANDOM_STATE, TensorType((2,), DType.INT64))
        self._streams += 1
        return self.state, self._streams - 1

    @contextmanager
    def repeated(self) -> Generator[None]:
        """Import something that a run carries out several times."""
        before, self.is_repeated = self.is_repeated, True
        try:
            yield
        finally:
            self.is_repeated = before
