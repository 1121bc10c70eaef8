# SPDX-License-Identifier: Apache-2.0
"""A function of the loop IR."""

from __future__ import annotations

from dataclasses import dataclass

from .buffer import Buffer
from .expr import TirVar
from .stmt import Stmt


@dataclass(frozen=True, slots=True, eq=False)
class PrimFunc:
    """A kernel: reads some buffers, writes the others, returns nothing.

    Attributes:
        name: A C identifier, unique in its module.
        params: Inputs, then outputs, then scratch buffers; none overlaps another.
        outputs: How many of ``params`` are outputs.
        scratch: How many trailing ``params`` are scratch that the caller provides, undefined.
        body: The loops.
        sizes: Size variables, which the caller passes behind the buffers; never negative.
    """

    name: str
    params: tuple[Buffer, ...]
    outputs: int
    body: Stmt
    scratch: int = 0
    sizes: tuple[TirVar, ...] = ()

    @property
    def input_params(self) -> tuple[Buffer, ...]:
        """Buffers that are only read."""
        return self.params[: len(self.params) - self.outputs - self.scratch]

    @property
    def output_params(self) -> tuple[Buffer, ...]:
        """Buffers that are written."""
        end = len(self.params) - self.scratch
        return self.params[end - self.outputs : end]

    @property
    def scratch_params(self) -> tuple[Buffer, ...]:
        """Temporary memory that the caller provides."""
        return self.params[len(self.params) - self.scratch :]
