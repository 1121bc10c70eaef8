# SPDX-License-Identifier: Apache-2.0
"""Places in a model and messages about them."""

from __future__ import annotations

from msgspec import Struct


class Span(Struct, frozen=True):
    """Where an expression came from.

    Attributes:
        name: Name of the model node (ONNX node name, or its first output's name).
        op: Operator of the source format, e.g. ``Conv``.
    """

    name: str
    op: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.op})" if self.op else self.name


NO_SPAN = Span("")


class ModelWarning(UserWarning):
    """Something in a model that was put right; a build that comes from a cache repeats it."""


class Diagnostic(Struct, frozen=True):
    """One message about one place.

    Attributes:
        severity: ``error``, ``warning`` or ``note``.
        message: One sentence.
        span: The place.
        hint: What to do next.
    """

    severity: str
    message: str
    span: Span = NO_SPAN
    hint: str = ""


class Remark(Struct, frozen=True):
    """A decision that a stage took and a user may want to see (LLVM's optimization remarks).

    Attributes:
        stage: The pass or stage that decided.
        message: What it decided.
        span: The place.
    """

    stage: str
    message: str
    span: Span = NO_SPAN
