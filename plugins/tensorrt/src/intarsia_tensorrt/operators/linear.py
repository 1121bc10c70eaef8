# SPDX-License-Identifier: Apache-2.0
"""Matrix products, batched and broadcast."""

from __future__ import annotations

from typing import Any

from intarsia.plugin.accelerator import Call, operator_row

from ..draft import NetworkDraft, Tensor, member


def product(draft: NetworkDraft, a: Tensor, b: Tensor, attrs: Any) -> Tensor:
    """Return the product of two tensors, the one of lower rank with leading ones."""
    kinds = tuple(
        member(draft.trt.MatrixOperation, "TRANSPOSE" if swapped else "NONE")
        for swapped in (attrs.transpose_a, attrs.transpose_b)
    )
    left, right = draft.level(a, b)
    return draft.output_of(draft.network.add_matrix_multiply(left, kinds[0], right, kinds[1]))


def _lower_matmul(draft: NetworkDraft, call: Call) -> Tensor:
    a, b = (draft.value(arg) for arg in call.args)
    return product(draft, a, b, call.attrs)


ROWS = (operator_row("matmul", _lower_matmul),)
