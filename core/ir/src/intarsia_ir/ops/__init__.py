# SPDX-License-Identifier: Apache-2.0
"""Every canonical operator by name; one file a family, one class an operator.

Beside its class an operator owns what else is known of it. Each subject has one table, in which the
family's file, or ``<family>_rules.py`` beside it, gives or refuses the rule by the class:

================================  =====================================================
:mod:`.derivative`                how derivatives are carried back through it
:mod:`.integer_forms`             what becomes of it between dequantize and quantize
:mod:`.rewriting`                 simplifications, and formulas that models write for it
================================  =====================================================

Importing this package fills every table. ``tests/unit/ops/test_operator_rules.py`` crosses
operators and tables: each rule is given, or refused with a reason in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..graph.op import Op, collect_operators
from ..ops import (
    activation,
    activation_formulas,
    activation_rules,
    binary,
    binary_rules,
    bits,
    block_matmul,
    compare,
    compare_rules,
    counted,
    coupling,
    cumulative,
    generate,
    indexing,
    indexing_rules,
    int4_bytes,
    linalg,
    mersenne,
    narrow,
    near_zero,
    ngrams,
    nn,
    nn_rules,
    normalization,
    normalization_rules,
    pooling,
    pooling_rules,
    qnn,
    qnn_elements,
    qnn_linear,
    qnn_normalization,
    qnn_rules,
    quantize_blocks,
    random,
    recurrent,
    recurrent_plain,
    reduce,
    reduce_rules,
    resample,
    resize,
    resize_rules,
    run_sizes,
    sampling,
    scatter,
    selection,
    shape,
    shape_rules,
    slicing,
    slicing_rules,
    softmax,
    softmax_rules,
    suppression,
    trees,
    unary,
    unary_rules,
    unique,
)
from ..ops import image_regions as regions

_FAMILIES = (
    activation,
    binary,
    bits,
    compare,
    counted,
    coupling,
    cumulative,
    generate,
    indexing,
    block_matmul,
    int4_bytes,
    linalg,
    mersenne,
    narrow,
    near_zero,
    ngrams,
    nn,
    normalization,
    pooling,
    qnn,
    qnn_elements,
    qnn_linear,
    qnn_normalization,
    quantize_blocks,
    random,
    recurrent,
    recurrent_plain,
    reduce,
    regions,
    resample,
    resize,
    run_sizes,
    sampling,
    scatter,
    selection,
    shape,
    slicing,
    softmax,
    suppression,
    trees,
    unary,
    unique,
)

_RULES = (
    activation_formulas,
    activation_rules,
    binary_rules,
    compare_rules,
    indexing_rules,
    nn_rules,
    normalization_rules,
    pooling_rules,
    qnn_rules,
    reduce_rules,
    resize_rules,
    shape_rules,
    slicing_rules,
    softmax_rules,
    unary_rules,
)
"""Modules that fill the tables, beside the families' own."""

OPERATORS: Mapping[str, type[Op]] = MappingProxyType(collect_operators(_FAMILIES))
"""Operator classes by their names, in alphabetical order."""
