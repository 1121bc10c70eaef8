# SPDX-License-Identifier: Apache-2.0
"""Rules that bring clipping to one form: ``nn.relu``, or one ``clip`` (relu6 is ``clip(0, 6)``)."""

from __future__ import annotations

import math

from ...ir.expr import Call, Expr, call
from ...ir.walk import RewriteRule
from ...ops import OPERATORS
from ...ops.unary import Clip
from .constants import is_float, is_scalar, scalar_value


def clip_to_relu(expr: Expr) -> Expr | None:
    """clip(x, 0, inf) --> nn.relu(x);  clip(x, -inf, inf) --> x"""
    match expr:
        case Call("clip", (x,), Clip.Attrs(min=low, max=high)) if math.isinf(high) and high > 0:
            if low == -math.inf:
                return x
            return _relu(x, expr) if low == 0 and is_float(x) else None
        case _:
            return None


def merge_clips(expr: Expr) -> Expr | None:
    """clip(clip(x, a, b), c, d) --> clip(x, max(a, c), min(b, d)) where the intervals meet"""
    match expr:
        case Call(
            "clip",
            (Call("clip", (x,), Clip.Attrs(min=a, max=b)),),
            Clip.Attrs(min=c, max=d),
        ) if max(a, c) <= min(b, d):
            return _clip(x, max(a, c), min(b, d), expr)
        case _:
            return None


def clip_of_relu(expr: Expr) -> Expr | None:
    """clip(nn.relu(x), a, b) --> clip(x, max(a, 0), b) if b is not negative"""
    match expr:
        case Call("clip", (Call("nn.relu", (x,)),), Clip.Attrs(min=a, max=b)) if b >= max(a, 0):
            return _clip(x, max(a, 0.0), b, expr)
        case _:
            return None


def relu_of_clip(expr: Expr) -> Expr | None:
    """nn.relu(clip(x, a, b)) --> clip(x, max(a, 0), b) if b is not negative"""
    match expr:
        case Call("nn.relu", (Call("clip", (x,), Clip.Attrs(min=a, max=b)),)) if b >= 0:
            return _clip(x, max(a, 0.0), b, expr)
        case _:
            return None


def maximum_to_relu(expr: Expr) -> Expr | None:
    """maximum(x, 0) --> nn.relu(x)"""
    match expr:
        case Call("maximum", (x, zero)) if is_scalar(zero, 0):
            return _relu(x, expr) if x.type == expr.type and is_float(x) else None
        case Call("maximum", (zero, x)) if is_scalar(zero, 0):
            return _relu(x, expr) if x.type == expr.type and is_float(x) else None
        case _:
            return None


def minimum_to_clip(expr: Expr) -> Expr | None:
    """minimum(nn.relu(x), c) --> clip(x, 0, c) if c is not negative"""
    match expr:
        case Call("minimum", (Call("nn.relu", (x,)) as inner, bound)) | Call(
            "minimum", (bound, Call("nn.relu", (x,)) as inner)
        ) if inner.type == expr.type:
            value = scalar_value(bound)
            return _clip(x, 0.0, value, expr) if value is not None and value >= 0 else None
        case _:
            return None


def _relu(x: Expr, at: Expr) -> Expr:
    return call(OPERATORS["nn.relu"], x, span=at.span)


def _clip(x: Expr, low: float, high: float, at: Expr) -> Expr:
    return call(Clip, x, attrs=Clip.Attrs(min=low, max=high), span=at.span)


CLIPPING: tuple[tuple[str, RewriteRule], ...] = (
    ("clip", clip_to_relu),
    ("clip", merge_clips),
    ("clip", clip_of_relu),
    ("nn.relu", relu_of_clip),
    ("maximum", maximum_to_relu),
    ("minimum", minimum_to_clip),
)
