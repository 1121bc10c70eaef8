# SPDX-License-Identifier: Apache-2.0
"""What operators refuse, with the sentence they say; and how they treat symbolic sizes."""

from __future__ import annotations

from typing import Any

import pytest

from intarsia_ir.graph.op import OpKind
from intarsia_ir.graph.types import Shape, TensorType, TupleType, Type, variable
from intarsia_ir.ops import OPERATORS
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

F32, I32, BOOL = DType.FLOAT32, DType.INT32, DType.BOOL
N, M = variable("N"), variable("M")
CONV: dict[str, Any] = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
SUPPRESSION: dict[str, Any] = {"count": 3, "overlap": 0.5}
POOL: dict[str, Any] = {**CONV, "kernel": (2, 2)}


def f32(*shape: Any) -> TensorType:
    return TensorType(shape, F32)


def i32(*shape: Any) -> TensorType:
    return TensorType(shape, I32)


def b8(*shape: Any) -> TensorType:
    return TensorType(shape, BOOL)


def infer(name: str, *types: Type, **attrs: Any) -> Type:
    op = OPERATORS[name]
    return op.type_rule(op.Attrs(**attrs), *types)


REFUSED = [
    ("exp", (i32(2),), {}, "exp: needs floating-point elements, got Tensor[(2,), int32]"),
    ("exp", (f32(2), f32(2)), {}, "exp: takes 1 operands, got 2"),
    ("exp", (TupleType((f32(2),)),), {}, "exp: every operand must be a tensor"),
    ("abs", (b8(2),), {}, "abs: needs integer or floating-point elements"),
    ("logical_not", (f32(2),), {}, "logical_not: needs bool elements"),
    ("isnan", (i32(2),), {}, "isnan: needs floating-point elements"),
    ("clip", (f32(2),), {"min": float("nan")}, "clip: limits nan and inf must be numbers"),
    ("clip", (b8(2),), {}, "clip: needs integer or floating-point"),
    ("add", (f32(2, 3), f32(2, 4)), {}, "add: shapes (2, 3) and (2, 4) do not broadcast"),
    ("add", (f32(N), f32(M)), {}, "add: shapes (N,) and (M,) do not broadcast"),
    (
        "add",
        (f32(2), i32(2)),
        {},
        "add: element types of Tensor[(2,), float32], Tensor[(2,), int32]",
    ),
    ("add", (b8(2), b8(2)), {}, "add: needs integer or floating-point elements"),
    ("logical_and", (i32(2), i32(2)), {}, "logical_and: needs bool elements"),
    ("bitwise_or", (f32(2), f32(2)), {}, "bitwise_or: needs integer elements"),
    ("less", (b8(2), b8(2)), {}, "less: needs integer or floating-point elements"),
    ("where", (f32(2), f32(2), f32(2)), {}, "where: the condition must be bool"),
    ("where", (b8(2), f32(2), i32(2)), {}, "where: element types of"),
    ("where", (b8(3), f32(2), f32(2)), {}, "where: shapes (3,) and (2,) and (2,) do not"),
    ("nn.elu", (i32(2),), {}, "nn.elu: needs floating-point"),
    ("nn.celu", (f32(2),), {"alpha": 0.0}, "nn.celu: alpha must not be 0"),
    ("nn.prelu", (f32(2, 3), f32(2)), {}, "nn.prelu: slope (2,) does not broadcast to (2, 3)"),
    ("nn.prelu", (f32(3), f32(2, 3)), {}, "nn.prelu: slope (2, 3) does not broadcast to (3,)"),
    ("sum", (f32(2, 3),), {"axes": (2,)}, "sum: axis 2 is out of range for a tensor of rank 2"),
    ("sum", (f32(2, 3),), {"axes": (-1,)}, "sum: axis -1 is out of range"),
    ("sum", (f32(2, 3),), {"axes": (1, 0)}, "sum: axes (1, 0) must be ascending and distinct"),
    ("sum", (b8(2),), {"axes": (0,)}, "sum: needs integer or floating-point"),
    ("all", (f32(2),), {"axes": (0,)}, "all: needs bool"),
    ("argmax", (f32(2, 0),), {"axis": 1}, "argmax: axis 1 of (2, 0) has no elements"),
    ("argmax", (f32(2),), {"axis": 1}, "argmax: axis 1 is out of range"),
    ("nn.conv", (f32(1, 2), f32(1, 2)), CONV, "must have the same rank, at least 3"),
    ("nn.conv", (f32(1, 2, 4, 4), f32(1, 2, 3)), CONV, "must have the same rank, at least 3"),
    ("nn.conv", (f32(1, 2, 4, 4), f32(3, N, 1, 1)), CONV, "weight (3, N, 1, 1) must be static"),
    (
        "nn.conv",
        (f32(1, 2, 4, 4), f32(3, 4, 1, 1)),
        CONV,
        "data (1, 2, 4, 4) has 2 channels, but weight (3, 4, 1, 1) with groups=1 takes 4",
    ),
    (
        "nn.conv",
        (f32(1, 2, 4, 4), f32(3, 1, 1, 1)),
        {**CONV, "groups": 2},
        "groups=2 does not divide the 3 output channels",
    ),
    ("nn.conv", (f32(1, 2, 4, 4), f32(3, 2, 1, 1)), {**CONV, "groups": 0}, "groups=0 does not"),
    (
        "nn.conv",
        (f32(1, 2, 4, 4), f32(3, 2, 1, 1)),
        {**CONV, "strides": (0, 1)},
        "nn.conv: strides (0, 1) must be at least 1 everywhere",
    ),
    (
        "nn.conv",
        (f32(1, 2, 4, 4), f32(3, 2, 1, 1)),
        {**CONV, "dilation": (1,)},
        "nn.conv: dilation (1,) must have one entry for each of the 2 spatial dimensions",
    ),
    ("nn.conv", (f32(1, 2, 4, 4), f32(3, 2, 0, 1)), CONV, "kernel (0, 1) must be at least 1"),
    (
        "nn.conv",
        (f32(1, 2, 4, 4), f32(3, 2, 1, 1)),
        {**CONV, "padding": ((-1, 0), (0, 0))},
        "nn.conv: padding ((-1, 0), (0, 0)) must not be negative",
    ),
    (
        "nn.conv",
        (f32(1, 2, 4, 4), f32(3, 2, 5, 1)),
        CONV,
        "nn.conv: a window of 5 does not fit into dimension 0 of the spatial shape (4, 4)",
    ),
    (
        "nn.conv",
        (f32(1, 2, 4, 4), f32(3, 2, 1, 1), f32(2)),
        CONV,
        "nn.conv: bias must have shape (3,), got (2,)",
    ),
    ("nn.conv", (f32(1, 2, 4, 4), i32(3, 2, 1, 1)), CONV, "nn.conv: element types of"),
    ("nn.conv", (b8(1, 2, 4, 4), b8(3, 2, 1, 1)), CONV, "nn.conv: needs integer or floating"),
    (
        "nn.conv_transpose",
        (f32(1, 2, 4, 4), f32(3, 2, 1, 1)),
        CONV,
        "data (1, 2, 4, 4) has 2 channels, weight (3, 2, 1, 1) takes 3",
    ),
    (
        "nn.conv_transpose",
        (f32(1, 3, 4, 4), f32(3, 2, 1, 1)),
        {**CONV, "groups": 2},
        "groups=2 does not divide the 3 input channels",
    ),
    (
        "nn.conv_transpose",
        (f32(1, 3, 4, 4), f32(3, 2, 1, 1)),
        {**CONV, "output_padding": (0, -1)},
        "output_padding (0, -1) must have one entry, not negative",
    ),
    (
        "nn.conv_transpose",
        (f32(1, 3, 4, 4), f32(3, 2, 1, 1)),
        {**CONV, "padding": ((2, 2), (0, 0))},
        "padding ((2, 2), (0, 0)) leaves nothing of the result",
    ),
    ("matmul", (f32(2), f32(2, 3)), {}, "both operands must have rank 2 or more, got (2,)"),
    ("matmul", (f32(2, 3), f32(2, 3)), {}, "matmul: inner sizes 3 and 2 of (2, 3) and (2, 3)"),
    ("matmul", (f32(2, 2, 3), f32(3, 3, 2)), {}, "matmul: shapes (2,) and (3,) do not broadcast"),
    ("matmul", (f32(2, 3), i32(3, 2)), {}, "matmul: element types of"),
    ("pairwise_coupling", (f32(2, 3, 4),), {}, "pairwise_coupling: takes [N, K, K] in float32"),
    ("pairwise_coupling", (f32(2, N, N),), {}, "pairwise_coupling: takes [N, K, K] in float32"),
    ("nn.max_pool", (f32(2, 3),), POOL, "nn.max_pool: needs a tensor (N, C, spatial...)"),
    (
        "nn.max_pool",
        (f32(1, 1, 1, 4),),
        {**POOL, "strides": (2, 2)},
        "nn.max_pool: a window of 2 does not fit",
    ),
    ("nn.max_pool", (b8(1, 1, 4, 4),), POOL, "nn.max_pool: needs integer or floating-point"),
    ("nn.avg_pool", (i32(1, 1, 4, 4),), POOL, "nn.avg_pool: needs floating-point"),
    ("nn.avg_pool", (f32(1, 1, 4),), POOL, "nn.avg_pool: kernel (2, 2) must have one entry"),
    ("nn.lrn", (f32(2),), {"size": 1}, "nn.lrn: needs a channel dimension, got (2,)"),
    ("nn.lrn", (f32(2, 2),), {"size": 0}, "nn.lrn: size 0 must be at least 1"),
    ("nn.softmax", (f32(2),), {"axis": 1}, "nn.softmax: axis 1 is out of range"),
    ("nn.softmax", (i32(2),), {"axis": 0}, "nn.softmax: needs floating-point"),
    ("nn.layer_norm", (f32(2, 3), f32(2)), {"axis": 1}, "scale (2,) does not broadcast to (2, 3)"),
    ("nn.layer_norm", (f32(2, 3), f32(3), f32(2)), {"axis": 1}, "nn.layer_norm: bias (2,) does"),
    (
        "nn.layer_norm",
        (f32(2, 3), f32(3)),
        {"axis": 1, "epsilon": -1.0},
        "nn.layer_norm: epsilon -1.0 must not be negative",
    ),
    ("nn.rms_norm", (f32(2, 3), f32(3)), {"axis": 2}, "nn.rms_norm: axis 2 is out of range"),
    ("nn.batch_norm", (f32(3), *[f32(3)] * 4), {}, "nn.batch_norm: needs a channel dimension"),
    ("nn.batch_norm", (f32(2, 3), *[f32(2)] * 4), {}, "scale must have shape (3,), got (2,)"),
    ("nn.instance_norm", (f32(2, 3), f32(3), f32(3)), {}, "needs a tensor (N, C, spatial...)"),
    (
        "nn.group_norm",
        (f32(2, 3, 2), f32(3), f32(3)),
        {"groups": 2},
        "nn.group_norm: groups=2 does not divide the 3 channels of (2, 3, 2)",
    ),
    ("nn.l2_normalize", (f32(2),), {"axis": 0, "p": 3}, "nn.l2_normalize: p=3 must be 1 or 2"),
    ("reshape", (f32(2, 3),), {"shape": (7,)}, "reshape: (2, 3) has 6 elements, shape (7,) has 7"),
    ("reshape", (f32(2, 3),), {"shape": (-1, 4)}, "no size for -1 in (-1, 4)"),
    ("reshape", (f32(2, 3),), {"shape": (-1, 0)}, "no size for -1 in (-1, 0)"),
    ("reshape", (f32(2, 3),), {"shape": (-1, -1)}, "shape (-1, -1) has more than one -1"),
    ("reshape", (f32(2, 3),), {"shape": (-2, -3)}, "shape (-2, -3) has a negative size"),
    ("transpose", (f32(2, 3),), {"axes": (0, 0)}, "axes (0, 0) are no permutation"),
    ("concatenate", (), {"axis": 0}, "concatenate: takes 1 operands, got 0"),
    ("concatenate", (f32(2, 3), f32(2, 4)), {"axis": 0}, "(2, 4) does not fit to (2, 3) along"),
    ("concatenate", (f32(2, 3), f32(2)), {"axis": 0}, "(2,) does not fit to (2, 3)"),
    ("concatenate", (f32(2), i32(2)), {"axis": 0}, "concatenate: element types of"),
    ("concatenate", (f32(2),), {"axis": 1}, "concatenate: axis 1 is out of range"),
    (
        "split",
        (f32(4),),
        {"sections": (1, 2), "axis": 0},
        "sections (1, 2) do not add to the size 4",
    ),
    ("split", (f32(4),), {"sections": (), "axis": 0}, "sections () do not add"),
    ("split", (f32(4),), {"sections": (5, -1), "axis": 0}, "has a negative size"),
    (
        "strided_slice",
        (f32(4),),
        {"begin": (0,), "end": (5,), "strides": (1,)},
        "strided_slice: 0:5:1 is no slice of a dimension of 4",
    ),
    (
        "strided_slice",
        (f32(4),),
        {"begin": (0,), "end": (4,), "strides": (0,)},
        "strided_slice: 0:4:0 is no slice",
    ),
    (
        "strided_slice",
        (f32(4, 4),),
        {"begin": (0,), "end": (4,), "strides": (1,)},
        "must have one entry for each dimension of (4, 4)",
    ),
    (
        "strided_slice",
        (f32(N),),
        {"begin": (0,), "end": (4,), "strides": (1,)},
        "of the symbolic size N only a part up to its end can be taken, not 0:4:1",
    ),
    ("broadcast_to", (f32(2, 3),), {"shape": (3,)}, "(2, 3) does not broadcast to (3,)"),
    ("broadcast_to", (f32(2),), {"shape": (2, 3)}, "(2,) does not broadcast to (2, 3)"),
    ("broadcast_to", (f32(1),), {"shape": (-1,)}, "shape (-1,) has a negative size"),
    ("nn.pad", (f32(2),), {"widths": ()}, "nn.pad: 0 width pairs for the dimensions of (2,)"),
    (
        "nn.pad",
        (f32(2),),
        {"widths": ((-2, -1),)},
        "widths (-2, -1) cut more than a dimension of 2",
    ),
    ("nn.pad", (f32(2),), {"widths": ((2, 0),), "mode": "reflect"}, "(2, 0) reflect more than"),
    ("nn.pad", (f32(0),), {"widths": ((2, 0),), "mode": "edge"}, "mode 'edge' has nothing to fill"),
    ("nn.pad", (f32(2),), {"widths": ((0, 0),), "mode": "fill"}, "mode 'fill' is none of constant"),
    ("nn.pad", (f32(N),), {"widths": ((-1, 0),)}, "may not cut the symbolic size N"),
    ("flip", (f32(2),), {"axes": (1,)}, "flip: axis 1 is out of range"),
    ("take", (f32(2), f32(2)), {"axis": 0}, "take: needs int32 or int64 elements"),
    ("take", (f32(2), i32(2)), {"axis": 1}, "take: axis 1 is out of range"),
    ("take", (f32(0), i32(2)), {"axis": 0}, "take: axis 0 of (0,) has no elements"),
    ("take", (f32(2), i32(2)), {"axis": 0, "mode": "fast"}, "mode 'fast' is not wrap-negative"),
    ("gather_elements", (f32(2, 2), i32(3, 3)), {"axis": 0}, "indices (3, 3) reach beyond data"),
    ("gather_elements", (f32(2, 2), i32(2)), {"axis": 0}, "indices (2,) reach beyond data"),
    ("gather_elements", (f32(0), i32(2)), {"axis": 0}, "axis 0 of (0,) has no elements"),
    ("gather_nd", (f32(2, 2), i32(2, 3)), {}, "must be a number from 1 to 2"),
    ("gather_nd", (f32(2, 2), i32(2, N)), {}, "must be a number from 1 to 2"),
    ("gather_nd", (f32(2, 2), i32(3, 1)), {"batch_dims": 1}, "do not share 1 leading dimensions"),
    ("gather_nd", (f32(2, 2), i32(2, 1)), {"batch_dims": 2}, "do not share 2 leading dimensions"),
    ("gather_nd", (f32(0), i32(2, 1)), {}, "gather_nd: axis 0 of (0,) has no elements"),
    ("one_hot", (f32(2),), {"depth": 3, "axis": 1}, "one_hot: needs integer elements"),
    ("one_hot", (i32(2),), {"depth": 3, "axis": 2}, "one_hot: axis 2 is out of range"),
    ("one_hot", (i32(2),), {"depth": -1, "axis": 1}, "depth -1 must not be negative"),
    (
        "full",
        (),
        {"shape": (-1,), "value": 0, "dtype": F32},
        "full: shape (-1,) has a negative size",
    ),
    (
        "full",
        (f32(1),),
        {"shape": (1,), "value": 0, "dtype": F32},
        "full: Tensor[(1,), float32] is no size",
    ),
    (
        "arange",
        (),
        {"start": 0, "stop": 1, "step": 0, "dtype": I32},
        "0:1:0 is no range of numbers",
    ),
    (
        "arange",
        (),
        {"start": 0, "stop": 1, "step": 1, "dtype": BOOL},
        "needs a number type, not bool",
    ),
    ("triangular", (f32(2),), {"upper": True}, "triangular: needs rank 2 or more, got (2,)"),
    ("cumsum", (f32(2),), {"axis": 1}, "cumsum: axis 1 is out of range"),
    ("cumsum", (b8(2),), {"axis": 0}, "cumsum: needs integer or floating-point"),
    ("cumprod", (b8(2),), {"axis": 0}, "cumprod: needs integer or floating-point"),
    (
        "nn.non_max_suppression",
        (f32(1, 4, 9), i32(1, 2, 9)),
        SUPPRESSION,
        "takes float32, got Tensor[(1, 4, 9), float32] and Tensor[(1, 2, 9), int32]",
    ),
    (
        "nn.non_max_suppression",
        (f32(1, 9, 4), f32(1, 2, 9)),
        SUPPRESSION,
        "corners (1, 9, 4) do not fit scores (1, 2, 9)",
    ),
    (
        "nn.non_max_suppression",
        (f32(1, 4, 9), f32(1, 2, 9)),
        {"count": 0, "overlap": 0.5},
        "nn.non_max_suppression: cannot choose 0 boxes",
    ),
    ("top_k", (f32(3),), {"count": 4, "axis": 0}, "cannot take 4 elements along axis 0 of (3,)"),
    ("scatter_elements", (f32(3), i32(2), f32(1)), {"axis": 0}, "and updates (1,) do not fit"),
    (
        "scatter_elements",
        (f32(3), i32(2), f32(2)),
        {"axis": 0, "reduction": "mean"},
        "reduction 'mean' is none of none, add",
    ),
    ("scatter_nd", (f32(3), i32(2, 2), f32(2)), {}, "must be a number from 1 to 1"),
    ("scatter_nd", (f32(3, 4), i32(2, 1), f32(2, 3)), {}, "updates are (2, 3), not (2, 4)"),
    ("scatter_nd", (b8(3), i32(2, 1), b8(2)), {"reduction": "add"}, "needs integer or floating"),
    (
        "tensor_scatter",
        (f32(2, 3), f32(2, 4), i32(2)),
        {"axis": 1},
        "update (2, 4) and starts (2,) do not fit a cache (2, 3) written along axis 1",
    ),
    (
        "reverse_sequence",
        (f32(2, 3), i32(2)),
        {"time": 0, "batch": 1},
        "lengths (2,) do not fit data (2, 3) with time 0 and batch 1",
    ),
    ("nn.resize", (f32(2),), {"sizes": (4,), "mode": "area"}, "mode 'area' is none of nearest"),
    (
        "nn.resize",
        (f32(2),),
        {"sizes": (4,), "coordinate_mode": "tf_crop_and_resize"},
        "coordinate_mode 'tf_crop_and_resize' is none of half_pixel",
    ),
    ("nn.resize", (f32(2),), {"sizes": (4,), "nearest_mode": "up"}, "nearest_mode 'up' is none"),
    ("nn.resize", (i32(2),), {"sizes": (4,), "mode": "linear"}, "nn.resize: needs floating-point"),
    ("nn.resize", (f32(2),), {"sizes": (4, 4)}, "sizes (4, 4) and scales () must have one entry"),
    ("nn.resize", (f32(2),), {"sizes": (0,)}, "sizes (0,) and scales () must be positive"),
    ("nn.resize", (f32(2),), {"sizes": (2,), "scales": (0.0,)}, "must be positive"),
    ("nn.resize", (f32(0),), {"sizes": (2,)}, "nn.resize: (0,) has no elements to sample"),
    (
        "nn.roi_align",
        (f32(1, 2, 4, 4), f32(3, 5), i32(3)),
        {"size": (2, 2), "samples": 1},
        "regions (3, 5) and (3,) do not fit images (1, 2, 4, 4)",
    ),
    (
        "nn.roi_align",
        (f32(1, 2, 4, 4), f32(3, 4), i32(3)),
        {"size": (2, 2), "samples": 0},
        "size (2, 2) and samples 0 must be positive",
    ),
    (
        "nn.resample",
        (f32(2, 4), i32(3), f32(3, 5)),
        {"axis": 1},
        "starts (3,) and weights (3, 5) do not fit axis 1 of (2, 4)",
    ),
    ("determinant", (f32(3, 2, 4),), {}, "the matrices of (3, 2, 4) are not square"),
    ("determinant", (i32(2, 2),), {}, "determinant: needs floating-point"),
    ("inverse", (f32(2),), {}, "the matrices of (2,) are not square"),
    (
        "count_ngrams",
        (i32(2, 3), TensorType((4, 2), DType.INT64), TensorType((3,), DType.INT64)),
        {"width": 4, "skips": 0},
        "places (3,) do not fit n-grams (4, 2) for rows (2, 3)",
    ),
    (
        "count_ngrams",
        (i32(2, 3), i32(4, 2), TensorType((4,), DType.INT64)),
        {"width": 4, "skips": 0},
        "are no table of n-grams",
    ),
    (
        "count_ngrams",
        (i32(2, 3), TensorType((4, 2), DType.INT64), TensorType((4,), DType.INT64)),
        {"width": 4, "skips": -1},
        "skips -1 and width 4",
    ),
    ("bitcast", (f32(2),), {"dtype": DType.INT64}, "float32 and int64 differ in width"),
    (
        "bitcast",
        (TensorType((2,), DType.UINT8),),
        {"dtype": BOOL},
        "not every uint8 has the bits of a bool",
    ),
    ("nn.depth_to_space", (f32(2, 4),), {"block": 2}, "needs a tensor (N, C, H, W) and a block"),
    ("nn.depth_to_space", (f32(1, 3, 2, 2),), {"block": 2}, "3 channels are no multiple of 2"),
    (
        "nn.depth_to_space",
        (f32(1, 4, 2, 2),),
        {"block": 2, "mode": "RCD"},
        "mode 'RCD' is neither DCR nor CRD",
    ),
    ("nn.space_to_depth", (f32(1, 1, 3, 2),), {"block": 2}, "must be multiples of 2"),
    ("nn.space_to_depth", (f32(1, 1, 2, 2),), {"block": 0}, "a block of at least 1"),
]


@pytest.mark.parametrize(
    ("name", "types", "attrs", "message"),
    REFUSED,
    ids=[f"{c[0]}-{n}" for n, c in enumerate(REFUSED)],
)
def test_refuses(name, types, attrs, message):
    with pytest.raises(TypeRuleError) as raised:
        infer(name, *types, **attrs)
    assert message in raised.value.message
    assert raised.value.message.startswith(f"{name}: ")


S7 = N + 7
INFERRED = [
    ("add", (f32(N, 1), f32(3)), {}, (N, 3)),
    ("add", (f32(N), f32(N)), {}, (N,)),
    ("add", (f32(N), f32(4)), {}, (4,)),
    ("add", (f32(4), f32(N)), {}, (4,)),
    ("add", (f32(1), f32(N)), {}, (N,)),
    ("nn.prelu", (f32(N, 3), f32(3)), {}, (N, 3)),
    ("sum", (f32(N, 3),), {"axes": (1,), "keepdims": True}, (N, 1)),
    ("sum", (f32(N, 3),), {"axes": (0,)}, (3,)),
    ("matmul", (f32(N, 3, M), f32(M, 4)), {}, (N, 3, 4)),
    ("matmul", (f32(N, M), f32(5, 4)), {}, (N, 4)),
    ("nn.conv", (f32(N, 2, M, 4), f32(3, 2, 3, 1)), CONV, (N, 3, M - 2, 4)),
    (
        "nn.conv",
        (f32(N, 2, M, 4), f32(3, 2, 3, 1)),
        {**CONV, "strides": (2, 1), "padding": ((1, 1), (0, 0))},
        (N, 3, (M + 1) // 2, 4),
    ),
    ("nn.max_pool", (f32(N, 2, M, 4),), {**POOL, "ceil_mode": True}, (N, 2, M - 1, 3)),
    ("nn.conv_transpose", (f32(N, 2, M, 4), f32(2, 3, 2, 1)), CONV, (N, 3, M + 1, 4)),
    ("concatenate", (f32(N, 3), f32(M, 3), f32(2, 3)), {"axis": 0}, (N + M + 2, 3)),
    ("concatenate", (f32(N, 3), f32(4, 3)), {"axis": 1}, (4, 6)),
    ("concatenate", (f32(N + 5), f32(2)), {"axis": 0}, (S7,)),
    ("reshape", (f32(N, 8, 2),), {"shape": (-1, 16)}, (N, 16)),
    ("reshape", (f32(N, 8, 2),), {"shape": (4, -1)}, (4, N * 4)),
    ("reshape", (f32(N, 8, 2),), {"shape": (32, -1)}, (32, N // 2)),
    ("reshape", (f32(N, 2),), {"shape": (4,)}, (4,)),
    ("split", (f32(N),), {"sections": (1, 2), "axis": 0}, None),
    (
        "strided_slice",
        (f32(N, 4),),
        {"begin": (1, 0), "end": (2**31 - 1, 4), "strides": (2, 1)},
        (N // 2, 4),
    ),
    ("broadcast_to", (f32(N),), {"shape": (2, 4)}, (2, 4)),
    ("nn.pad", (f32(N),), {"widths": ((2, 5),)}, (S7,)),
    ("nn.depth_to_space", (f32(N, 8, M, 2),), {"block": 2}, (N, 2, M * 2, 4)),
    (
        "nn.space_to_depth",
        (f32(N, M, 4, variable("W") * 2),),
        {"block": 2},
        (N, M * 4, 2, variable("W")),
    ),
    ("nn.layer_norm", (f32(N, 4), f32(4)), {"axis": 1}, (N, 4)),
    ("take", (f32(5, 4), i32(N, M)), {"axis": 0}, (N, M, 4)),
    ("gather_nd", (f32(N, 3, 4), i32(N, 1)), {"batch_dims": 1}, (N, 4)),
]


@pytest.mark.parametrize(
    ("name", "types", "attrs", "shape"),
    INFERRED,
    ids=[f"{c[0]}-{n}" for n, c in enumerate(INFERRED)],
)
def test_symbolic_sizes(name, types, attrs, shape: Shape | None):
    result = infer(name, *types, **attrs)
    if shape is None:
        assert isinstance(result, TupleType)
        assert [str(field) for field in result.fields] == [str(f32(1)), str(f32(2))]
        return
    assert isinstance(result, TensorType)
    assert result.shape == shape


def test_every_operator_is_complete():
    for name, op in OPERATORS.items():
        assert op.name == name
        assert op.__doc__
        assert callable(op.type_rule)
        assert callable(op.reference)
        assert (op.compute is None) != (op.loops is None)
        expected = "".join(part.capitalize() for part in name.split(".")[-1].split("_"))
        assert op.__name__.lower() == expected.lower()
        assert isinstance(op.kind, OpKind)


def test_operators_cannot_be_added():
    with pytest.raises(TypeError):
        OPERATORS["mine"] = OPERATORS["add"]  # type: ignore[index]
