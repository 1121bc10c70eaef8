# SPDX-License-Identifier: Apache-2.0
"""Matrix products: fully connected layers for constant weights, GEMM for two tensors."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from intarsia.plugin.accelerator import (
    ANY,
    CONST,
    Call,
    Code,
    Constant,
    Expr,
    Match,
    Support,
    label_of,
    op,
    sizes,
)

from ..draft import AclDraft, AclTensor
from .row import AclRow
from .shape import permutation

_DENSE_INFO = "with_activation({activation})"


def _product(match: Match) -> Call:
    """Return the matmul of a match that may add a bias."""
    return match.calls[0]


def _supports_dense(match: Match) -> Support:
    product = _product(match)
    attrs: Any = product.attrs
    weight = product.args[1]
    if not isinstance(weight, Constant) or len(sizes(weight)) != 2:
        return Support.no(Code.UNSUPPORTED_SHAPE, "no constant matrix of weights")
    if attrs.transpose_a:
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, "the data are transposed")
    if match.root is not product:
        (bias,) = (arg for arg in match.root.args if arg is not product)
        outputs = sizes(product)[-1]
        if prod(sizes(bias)) != outputs or sizes(bias)[-1:] != (outputs,):
            return Support.no(
                Code.UNSUPPORTED_SHAPE, f"{list(sizes(bias))} is no bias of {outputs} outputs"
            )
    return Support.yes()


def _lower_dense(draft: AclDraft, match: Match) -> AclTensor:
    product, label = _product(match), label_of(_product(match))
    attrs: Any = product.attrs
    data = draft.value(product.args[0])
    data = draft.view(data, (prod(data.shape[:-1]), data.shape[-1]), label)
    given = product.args[1]
    assert isinstance(given, Constant)  # the row asks for it
    # The library wants one row for each output.
    matrix = given.data if attrs.transpose_b else np.swapaxes(given.data, 0, 1)
    weight = draft.constant(matrix)
    bias = None
    if match.root is not product:
        (bias_expr,) = (arg for arg in match.root.args if arg is not product)
        bias = draft.view(draft.value(bias_expr), (matrix.shape[0],), label)
    result = draft.new_tensor((data.shape[0], matrix.shape[0]), data.dtype)
    result = draft.add(
        "NEFullyConnectedLayer",
        *(data, weight, bias, result, _DENSE_INFO),
        result=result,
        label=label,
        activation="",
    )
    return draft.view(result, sizes(match.root), label)


def _supports_product(match: Match) -> Support:
    left, right = (sizes(arg) for arg in match.root.args)
    attrs: Any = match.attrs
    if prod(right[:-2]) != 1 and _without_ones(left[:-2]) != _without_ones(right[:-2]):
        return Support.no(
            Code.UNSUPPORTED_SHAPE, f"batches {list(left[:-2])} and {list(right[:-2])} differ"
        )
    if prod(right[:-2]) == 1 and attrs.transpose_a and prod(left[:-2]) != 1:
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, "a batch of transposed matrices")
    return Support.yes()


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _matrix(draft: AclDraft, expr: Expr, label: str, *, transpose: bool) -> AclTensor:
    """Return an operand as a matrix, or as a batch of matrices of rank 3."""
    value = draft.value(expr)
    batch = prod(value.shape[:-2])
    matrix = (batch, *value.shape[-2:]) if batch != 1 else value.shape[-2:]
    value = draft.view(value, matrix, label)
    if not transpose:
        return value
    if value in draft.constants:
        return draft.constant(np.swapaxes(draft.constants[value][1], -1, -2))
    turned = draft.new_tensor((*matrix[:-2], matrix[-1], matrix[-2]), value.dtype)
    return draft.add("NEPermute", value, turned, permutation((1, 0)), result=turned, label=label)


def _lower_product(draft: AclDraft, match: Match) -> AclTensor:
    attrs: Any = match.attrs
    label = label_of(match.root)
    left, right = match.root.args
    a = _matrix(draft, left, label, transpose=attrs.transpose_a)
    b = _matrix(draft, right, label, transpose=attrs.transpose_b)
    if len(b.shape) == 2:  # one matrix for the whole batch: its rows follow each other
        a = draft.view(a, (prod(a.shape[:-1]), a.shape[-1]), label)
    result = draft.new_tensor((*a.shape[:-1], b.shape[-1]), a.dtype)
    draft.add("ChangingProduct", a, b, result, result=result, label=label)
    return draft.view(result, sizes(match.root), label)


_LIMITS = "constant weights of rank 2; the data of any rank"

ROWS = (
    AclRow(
        "dense with bias",
        op("add", op("matmul", ANY, CONST), CONST),
        _lower_dense,
        _supports_dense,
        doc=_LIMITS,
    ),
    AclRow("dense", op("matmul", ANY, CONST), _lower_dense, _supports_dense, doc=_LIMITS),
    AclRow(
        "matmul",
        op("matmul"),
        _lower_product,
        _supports_product,
        doc="the second operand is one matrix, or both are batches of equal size",
    ),
)
