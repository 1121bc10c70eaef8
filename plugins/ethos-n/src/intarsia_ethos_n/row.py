# SPDX-License-Identifier: Apache-2.0
"""A row of the plugin's table: an operator, and how its calls become operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from intarsia.ir.expr import Call
from intarsia.partition.support import Code, Support

from .describe import Sketch

Describe: TypeAlias = "Callable[[Sketch, Call], str | Support]"


class Row(Struct, frozen=True):
    """One operator.

    Attributes:
        op: Its name.
        data: Arguments that are activations.
        constant: Arguments that must be known at compile time.
        describe: Appends operations and returns the result's tensor, the first one if there are
            several, or says what has no operation.
        limits: In words, for the table of what is supported.
    """

    op: str
    data: tuple[int, ...]
    constant: tuple[int, ...]
    describe: Describe
    limits: str


def no(detail: str, code: Code = Code.UNSUPPORTED_ATTRIBUTE) -> Support:
    """Refuse a call, in words."""
    return Support.no(code, detail)
