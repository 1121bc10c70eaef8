# SPDX-License-Identifier: Apache-2.0
"""Which of the device's curves a table of ``qnn.lookup`` is.

A table says nothing of what its operand stands for, so that is fitted to it: the curve with the
fitted numbers gives every entry of the table, or the next one. Numbers that others know of the
operand are taken instead where they give the table as well.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from .network import NetworkQuantization

STEPS = 256
_LEAST = 16
"""Entries between the ends of a curve that a fit needs."""


class Curve(Struct, frozen=True):
    """A function of the device that gives a table.

    Attributes:
        kind: ``sigmoid``, ``tanh`` or ``leaky-relu``.
        operand: What the operand's elements stand for.
        result: What the result's elements stand for.
        alpha: Slope below 0 of ``leaky-relu``, else 0.
    """

    kind: str
    operand: NetworkQuantization
    result: NetworkQuantization
    alpha: float = 0.0


def find_curve(table: np.ndarray, lowest: int, known: NetworkQuantization | None) -> Curve | None:
    """Return the curve of a table, or ``None`` if the device has none like it.

    Args:
        table: 256 8-bit elements, the first for ``lowest``.
        lowest: Smallest number of the operand's type.
        known: What the operand's elements stand for, if anybody says so.
    """
    inputs = np.arange(lowest, lowest + STEPS)
    signed = table.dtype == np.int8
    bounded = (
        ("sigmoid", NetworkQuantization(-128 if signed else 0, (1 / 256,))),
        ("tanh", NetworkQuantization(0 if signed else 128, (1 / 128,))),
    )
    for kind, result in bounded:
        for operand in (known, _bounded_operand(kind, table, inputs, result)):
            if operand is None:
                continue
            curve = Curve(kind, operand, result)
            if _gives(curve, table, inputs):
                return curve
    return (known and _leaky(table, inputs, known)) or _leaky(table, inputs, None)


def values_of(curve: Curve, inputs: np.ndarray) -> np.ndarray:
    """Return the real numbers that a curve gives for elements of its operand."""
    real = (inputs.astype(np.float64) - curve.operand.zero) * curve.operand.scale
    return function(curve.kind, real, curve.alpha)


def function(kind: str, real: np.ndarray, alpha: float) -> np.ndarray:
    """Return a curve of real numbers."""
    if kind == "sigmoid":
        return 1 / (1 + np.exp(-np.clip(real, -700, 700)))
    if kind == "tanh":
        return np.tanh(real)
    return np.where(real < 0, alpha * real, real)


def _gives(curve: Curve, table: np.ndarray, inputs: np.ndarray) -> bool:
    limits = np.iinfo(table.dtype)
    whole = np.rint(values_of(curve, inputs) / curve.result.scale) + curve.result.zero
    apart = np.abs(np.clip(whole, limits.min, limits.max) - table)
    return bool(apart.max() <= 1)


def _bounded_operand(
    kind: str, table: np.ndarray, inputs: np.ndarray, result: NetworkQuantization
) -> NetworkQuantization | None:
    """Fit ``(q - zero) * scale`` to where the curve came from, away from its ends."""
    real = (table.astype(np.float64) - result.zero) * result.scale
    low, high = (0.02, 0.98) if kind == "sigmoid" else (-0.96, 0.96)
    inside = (real > low) & (real < high)
    if np.count_nonzero(inside) < _LEAST:
        return None
    there = real[inside]
    before = np.log(there / (1 - there)) if kind == "sigmoid" else np.arctanh(there)
    slope, start = np.polyfit(inputs[inside], before, 1)
    if slope <= 0:
        return None
    return NetworkQuantization(int(np.rint(-start / slope)), (float(np.float32(slope)),))


def _leaky(
    table: np.ndarray, inputs: np.ndarray, known: NetworkQuantization | None
) -> Curve | None:
    """Two straight lines that meet at the zero point; scales count only by their ratio."""
    limits = np.iinfo(table.dtype)
    free = (table > limits.min) & (table < limits.max)
    real = table.astype(np.float64)
    zeros = [known.zero] if known is not None else inputs[8:-8].tolist()
    for zero in zeros:
        above, below = free & (inputs > zero), free & (inputs < zero)
        if min(np.count_nonzero(above), np.count_nonzero(below)) < 8:
            continue
        at = float(table[zero - int(inputs[0])])
        slopes = [
            float(np.dot(inputs[side] - zero, real[side] - at))
            / float(np.dot(inputs[side] - zero, inputs[side] - zero))
            for side in (above, below)
        ]
        if not 0 < slopes[1] < slopes[0]:
            continue
        operand = known or NetworkQuantization(zero, (1.0,))
        result = NetworkQuantization(int(at), (float(np.float32(operand.scale / slopes[0])),))
        curve = Curve("leaky-relu", operand, result, float(np.float32(slopes[1] / slopes[0])))
        if _gives(curve, table, inputs):
            return curve
    return None
