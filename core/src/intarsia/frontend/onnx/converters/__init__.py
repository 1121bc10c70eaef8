# SPDX-License-Identifier: Apache-2.0
"""Converters of the standard operator set by operator name, one module a family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..context import Converter
from . import (
    contributed,
    control,
    convolution,
    creation,
    elementwise,
    indexing,
    linear,
    narrow,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    selection,
    shapes,
    spatial,
)

CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        **contributed.CONVERTERS,
        **control.CONVERTERS,
        **convolution.CONVERTERS,
        **creation.CONVERTERS,
        **elementwise.CONVERTERS,
        **indexing.CONVERTERS,
        **linear.CONVERTERS,
        **narrow.CONVERTERS,
        **normalization.CONVERTERS,
        **pooling.CONVERTERS,
        **quantization.CONVERTERS,
        **recurrent.CONVERTERS,
        **reduction.CONVERTERS,
        **selection.CONVERTERS,
        **shapes.CONVERTERS,
        **spatial.CONVERTERS,
    }
)

__all__ = ["CONVERTERS"]
