# SPDX-License-Identifier: Apache-2.0
"""Rules about operators that move data: those that move nothing go, chains become one."""

from __future__ import annotations

from ...ir.expr import Call, Expr, call, make_tuple
from ...ir.types import TensorType
from ...ir.walk import RewriteRule
from ...ops.nn import Conv
from ...ops.shape import Reshape, Split, Transpose
from ...ops.slicing import Pad, StridedSlice


def drop_unchanged(expr: Expr) -> Expr | None:
    """reshape(x), broadcast_to(x) --> x if the shape stays"""
    match expr:
        case Call(args=(x,)) if x.type == expr.type and _is_static(x):
            return x
        case _:
            return None


def merge_reshapes(expr: Expr) -> Expr | None:
    """reshape(reshape(x)) --> reshape(x)"""
    match expr:
        case Call("reshape", (Call("reshape", (x,)),), Reshape.Attrs() as attrs) if _is_static(x):
            return call(Reshape, x, attrs=attrs, span=expr.span)
        case _:
            return None


def drop_copy(expr: Expr) -> Expr | None:
    """copy(x) --> x"""
    match expr:
        case Call("copy", (x,)):
            return x
        case _:
            return None


def drop_identity_transpose(expr: Expr) -> Expr | None:
    """transpose(x, axes=(0, 1, 2)) --> x"""
    match expr:
        case Call("transpose", (x,), Transpose.Attrs(axes=axes)) if list(axes) == sorted(axes):
            return x
        case _:
            return None


def merge_transposes(expr: Expr) -> Expr | None:
    """transpose(transpose(x, a), b) --> transpose(x, a after b)"""
    match expr:
        case Call(
            "transpose",
            (Call("transpose", (x,), Transpose.Attrs(axes=first)),),
            Transpose.Attrs(axes=second),
        ):
            axes = tuple(first[axis] for axis in second)
            return call(Transpose, x, attrs=Transpose.Attrs(axes=axes), span=expr.span)
        case _:
            return None


def transpose_to_reshape(expr: Expr) -> Expr | None:
    """transpose(x) --> reshape(x) if only axes of size 1 move"""
    match expr:
        case Call("transpose", (x,), Transpose.Attrs(axes=axes)) if (
            isinstance(x.type, TensorType) and x.type.is_static and list(axes) != sorted(axes)
        ):
            shape = x.type.static_shape
            moved = [axis for axis in axes if shape[axis] != 1]
            if moved != sorted(moved):
                return None
            attrs = Reshape.Attrs(shape=tuple(shape[axis] for axis in axes))
            return call(Reshape, x, attrs=attrs, span=expr.span)
        case _:
            return None


def drop_single_concatenate(expr: Expr) -> Expr | None:
    """concatenate(x) --> x"""
    match expr:
        case Call("concatenate", (x,)):
            return x
        case _:
            return None


def drop_single_split(expr: Expr) -> Expr | None:
    """split(x, one section) --> (x,)"""
    match expr:
        case Call("split", (x,), Split.Attrs(sections=(_,))):
            return make_tuple((x,), span=expr.span)
        case _:
            return None


def drop_whole_slice(expr: Expr) -> Expr | None:
    """strided_slice(x, all of it) --> x"""
    match expr:
        case Call("strided_slice", (x,), StridedSlice.Attrs(strides=strides)) if (
            all(stride == 1 for stride in strides) and x.type == expr.type and _is_static(x)
        ):
            return x
        case _:
            return None


def drop_empty_pad(expr: Expr) -> Expr | None:
    """nn.pad(x, nothing) --> x"""
    match expr:
        case Call("nn.pad", (x,), Pad.Attrs(widths=widths)) if not any(map(any, widths)):
            return x
        case _:
            return None


def pad_into_conv(expr: Expr) -> Expr | None:
    """nn.conv(nn.pad(x, zeros around the image), w) --> nn.conv(x, w, padding=more)"""
    match expr:
        case Call(
            "nn.conv",
            (
                Call("nn.pad", (x,), Pad.Attrs(widths=widths, mode="constant", value=0.0)),
                *rest,
            ),
            Conv.Attrs() as old,
        ) if not any(map(any, widths[:2])) and min(map(min, widths)) >= 0:
            padding = tuple(
                (lo + more_lo, hi + more_hi)
                for (lo, hi), (more_lo, more_hi) in zip(old.padding, widths[2:], strict=True)
            )
            attrs = Conv.Attrs(
                strides=old.strides, padding=padding, dilation=old.dilation, groups=old.groups
            )
            return call(Conv, x, *rest, attrs=attrs, span=expr.span)
        case _:
            return None


def _is_static(expr: Expr) -> bool:
    return isinstance(expr.type, TensorType) and expr.type.is_static


SHAPES: tuple[tuple[str, RewriteRule], ...] = (
    ("reshape", drop_unchanged),
    ("broadcast_to", drop_unchanged),
    ("reshape", merge_reshapes),
    ("copy", drop_copy),
    ("transpose", drop_identity_transpose),
    ("transpose", merge_transposes),
    ("transpose", transpose_to_reshape),
    ("concatenate", drop_single_concatenate),
    ("split", drop_single_split),
    ("strided_slice", drop_whole_slice),
    ("nn.pad", drop_empty_pad),
    ("nn.conv", pad_into_conv),
)
