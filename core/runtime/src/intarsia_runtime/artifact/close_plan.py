# SPDX-License-Identifier: Apache-2.0
"""Steps of open sizes for one choice of sizes: what walks plans step by step needs numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from msgspec.structs import replace

from ..size import value_of
from .plan import Argument, Step, TensorSpec
from .plan_walk import map_step

Sized = TypeVar("Sized", Argument, TensorSpec)


def close_step(step: Step, values: Mapping[str, int]) -> Step:
    """Return a step for values of the size variables; arguments keep their slots."""
    return map_step(step, lambda one: closed(one, values), lambda size: value_of(size, values))


def closed(tensor: Sized, values: Mapping[str, int]) -> Sized:
    """Return a tensor for values of the size variables."""
    return replace(tensor, shape=tuple([value_of(size, values) for size in tensor.shape]))
