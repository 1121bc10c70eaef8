# SPDX-License-Identifier: Apache-2.0
"""The input of a model that draws random numbers: executors give it a value of their own."""

from __future__ import annotations

from collections.abc import Iterable

from ..dtype import DType
from .plan import TensorSpec

RANDOM_STATE = "intarsia.random_state"
"""Name of the input: int64 ``[key, number of the run]``. All draws of a run follow from it."""


def is_random_state(spec: TensorSpec) -> bool:
    """Whether an input is the one that executors give a value."""
    return spec.name == RANDOM_STATE and spec.shape == (2,) and spec.dtype is DType.INT64


def visible(specs: Iterable[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Return the inputs that a caller gives."""
    return tuple(spec for spec in specs if not is_random_state(spec))
