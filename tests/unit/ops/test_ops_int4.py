# SPDX-License-Identifier: Apache-2.0
"""Products with weights of 4 bits as operators, against the weight in floats."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError


@pytest.mark.parametrize(
    ("rows", "depth", "blocks", "groups"), [(1, 32, 1, 2), (6, 96, 3, 1), (13, 32, 2, 1)]
)
def test_a_product_with_blocks_of_4_bits(
    check_operator, rows: int, depth: int, blocks: int, groups: int
) -> None:
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, depth)).astype(np.float32)
    levels = rng.integers(0, 16, (64 * groups, depth)).astype(np.uint8)
    scales = rng.standard_normal((64 * groups, blocks)).astype(np.float32)
    zeros = rng.integers(0, 16, (64 * groups, blocks)).astype(np.float32)
    block = depth // blocks
    weight = (levels - np.repeat(zeros, block, 1)) * np.repeat(scales, block, 1)
    codes = levels[:, ::2] | levels[:, 1::2] << 4
    by_group = [
        np.ascontiguousarray(table.reshape(groups, 64, -1).transpose(0, 2, 1))
        for table in (codes, scales, zeros * scales)
    ]
    check_operator([x @ weight.T], "nn.int4_matmul", x, *by_group)


@pytest.mark.parametrize(
    ("x", "codes", "scales"),
    [
        ((2, 32), (1, 8, 64), (1, 2, 64)),
        ((2, 32), (1, 16, 32), (1, 2, 64)),
        ((2, 32), (1, 16, 64), (1, 3, 64)),
        ((2, 2, 32), (1, 16, 64), (1, 2, 64)),
        ((2, 32), (1, 16, 64), (1, 0, 64)),
    ],
)
def test_sizes_that_are_no_blocks_are_refused(
    x: tuple[int, ...], codes: tuple[int, ...], scales: tuple[int, ...]
) -> None:
    operator = OPERATORS["nn.int4_matmul"]
    kinds = [TensorType(x, DType.FLOAT32), TensorType(codes, DType.UINT8)]
    kinds += [TensorType(scales, DType.FLOAT32)] * 2
    with pytest.raises(TypeRuleError, match="are no rows and blocks of 4 bits"):
        operator.type_rule(operator.Attrs(), *kinds)
