# SPDX-License-Identifier: Apache-2.0
"""Converters of the standard operator set by operator name, one module a family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..context import Converter
from . import (
    affine,
    attention,
    classical,
    contributed,
    contributed_attention,
    contributed_blocks,
    contributed_dynamic,
    contributed_fused,
    contributed_grouped,
    contributed_norm,
    control,
    convolution,
    counted,
    creation,
    deformable,
    elementwise,
    features,
    folding,
    indexing,
    learning,
    linear,
    mapping,
    narrow,
    ngrams,
    normalization,
    optionals,
    pooling,
    quantization,
    random,
    recurrent,
    reduction,
    selection,
    sequences,
    shapes,
    signal,
    spatial,
    splitting,
    training,
    trees,
    vectors,
)

TENSOR_CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        **affine.CONVERTERS,
        **attention.CONVERTERS,
        **classical.CONVERTERS,
        **contributed.CONVERTERS,
        **contributed_attention.CONVERTERS,
        **contributed_blocks.CONVERTERS,
        **contributed_dynamic.CONVERTERS,
        **contributed_fused.CONVERTERS,
        **contributed_grouped.CONVERTERS,
        **contributed_norm.CONVERTERS,
        **control.CONVERTERS,
        **convolution.CONVERTERS,
        **counted.CONVERTERS,
        **creation.CONVERTERS,
        **deformable.CONVERTERS,
        **elementwise.CONVERTERS,
        **features.CONVERTERS,
        **folding.CONVERTERS,
        **indexing.CONVERTERS,
        **learning.CONVERTERS,
        **linear.CONVERTERS,
        **narrow.CONVERTERS,
        **ngrams.CONVERTERS,
        **normalization.CONVERTERS,
        **pooling.CONVERTERS,
        **quantization.CONVERTERS,
        **random.CONVERTERS,
        **recurrent.CONVERTERS,
        **reduction.CONVERTERS,
        **selection.CONVERTERS,
        **shapes.CONVERTERS,
        **signal.CONVERTERS,
        **spatial.CONVERTERS,
        **training.CONVERTERS,
        **trees.CONVERTERS,
        **vectors.CONVERTERS,
    }
)

"""Converters of operators whose operands and results are tensors."""

CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        **TENSOR_CONVERTERS,
        **mapping.CONVERTERS,
        **optionals.CONVERTERS,
        **sequences.CONVERTERS,
        **splitting.CONVERTERS,
    }
)

__all__ = ["CONVERTERS", "TENSOR_CONVERTERS"]
