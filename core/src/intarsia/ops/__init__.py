# SPDX-License-Identifier: Apache-2.0
"""Every canonical operator by name; one file a family, one class an operator."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..ir.op import Op, collect_operators
from . import (
    activation,
    binary,
    compare,
    cumulative,
    generate,
    indexing,
    narrow,
    nn,
    normalization,
    pooling,
    qnn,
    qnn_elements,
    qnn_linear,
    qnn_normalization,
    reduce,
    regions,
    resample,
    resize,
    sampling,
    scatter,
    selection,
    shape,
    slicing,
    softmax,
    suppression,
    unary,
)

_FAMILIES = (
    activation,
    binary,
    compare,
    cumulative,
    generate,
    indexing,
    narrow,
    nn,
    normalization,
    pooling,
    qnn,
    qnn_elements,
    qnn_linear,
    qnn_normalization,
    reduce,
    regions,
    resample,
    resize,
    sampling,
    scatter,
    selection,
    shape,
    slicing,
    softmax,
    suppression,
    unary,
)

OPERATORS: Mapping[str, type[Op]] = MappingProxyType(collect_operators(_FAMILIES))
"""Operator classes by their names, in alphabetical order."""
