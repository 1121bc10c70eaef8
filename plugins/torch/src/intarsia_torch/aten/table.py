# SPDX-License-Identifier: Apache-2.0
"""Converters of ATen operators by name, or by ``name.overload``; one module a family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from . import (
    activations,
    creation,
    elementwise,
    indexing,
    linear,
    normalization,
    recurrent,
    reduction,
    shapes,
    slices,
)
from .context import Converter

CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        **activations.CONVERTERS,
        **creation.CONVERTERS,
        **elementwise.CONVERTERS,
        **indexing.CONVERTERS,
        **linear.CONVERTERS,
        **normalization.CONVERTERS,
        **recurrent.CONVERTERS,
        **reduction.CONVERTERS,
        **shapes.CONVERTERS,
        **slices.CONVERTERS,
    }
)


def converter_of(name: str, overload: str) -> Converter | None:
    """Return what converts an operator; ``None`` if nobody does."""
    return CONVERTERS.get(f"{name}.{overload}") or CONVERTERS.get(name)
