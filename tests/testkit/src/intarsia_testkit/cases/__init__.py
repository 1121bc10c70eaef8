# SPDX-License-Identifier: Apache-2.0
"""Calls of every operator with operands of every element type and rank it takes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from . import (
    counted_cases,
    elementwise_cases,
    ordered_cases,
    quantized_cases,
    structure_cases,
    sum_cases,
)
from .case import Case

PER_SIGNATURE = 3
"""Cases kept of those that agree in operator, element types and ranks."""

_TABLES = (
    elementwise_cases.unary_cases,
    elementwise_cases.binary_cases,
    elementwise_cases.other_cases,
    structure_cases.view_cases,
    structure_cases.slice_cases,
    structure_cases.index_cases,
    structure_cases.made_cases,
    structure_cases.spatial_cases,
    structure_cases.sampling_cases,
    structure_cases.tree_cases,
    structure_cases.coupling_cases,
    structure_cases.int4_byte_cases,
    structure_cases.block_cases,
    structure_cases.random_cases,
    structure_cases.ngram_cases,
    structure_cases.matrix_cases,
    counted_cases.found_cases,
    counted_cases.box_cases,
    counted_cases.distinct_cases,
    counted_cases.size_cases,
    ordered_cases.choice_cases,
    ordered_cases.suppression_cases,
    ordered_cases.scatter_cases,
    ordered_cases.sequence_cases,
    ordered_cases.recurrent_cases,
    sum_cases.window_cases,
    sum_cases.product_cases,
    sum_cases.pool_cases,
    sum_cases.reduction_cases,
    sum_cases.place_cases,
    sum_cases.statistics_cases,
    quantized_cases.scale_cases,
    quantized_cases.narrow_cases,
    quantized_cases.linear_cases,
    quantized_cases.transposed_cases,
    quantized_cases.normalization_cases,
    quantized_cases.element_cases,
)


@cache
def every_case() -> tuple[Case, ...]:
    """All cases of all tables."""
    return tuple(case for table in _TABLES for case in table())


@cache
def cases_by_operator() -> Mapping[str, tuple[Case, ...]]:
    """For each operator, up to three cases of every combination of element types and ranks."""
    kept: dict[str, list[Case]] = {}
    seen: dict[tuple[object, ...], int] = {}
    for case in every_case():
        key = signature(case)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= PER_SIGNATURE:
            kept.setdefault(case.name, []).append(case)
    return MappingProxyType({name: tuple(cases) for name, cases in kept.items()})


@cache
def some_cases(count: int) -> Mapping[str, tuple[Case, ...]]:
    """For each operator at most ``count`` cases, evenly from all; all of them if it is 0."""
    every = cases_by_operator()
    return every if count == 0 else {name: _evenly(cases, count) for name, cases in every.items()}


def _evenly(cases: tuple[Case, ...], count: int) -> tuple[Case, ...]:
    if len(cases) <= count:
        return cases
    return tuple(cases[number * len(cases) // count] for number in range(count))


def signature(case: Case) -> tuple[object, ...]:
    """Operator, element types and ranks."""
    return case.name, *((operand.dtype.name, operand.ndim) for operand in case.operands)
