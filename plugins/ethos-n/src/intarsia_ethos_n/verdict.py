# SPDX-License-Identifier: Apache-2.0
"""Answers to whether the device takes an operation, and rules about tensors that all share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from .network import NetworkOperation, NetworkTensor
from .variants import Variant

BYTES = ("u8", "s8")


class Level(Enum):
    """How far the device goes."""

    SUPPORTED = "supported"
    ESTIMATE_ONLY = "estimate-only"
    UNSUPPORTED = "unsupported"


class LibraryVerdict(Struct, frozen=True):
    """An answer; the reason is empty for what is supported."""

    level: Level
    reason: str = ""


Tensors: TypeAlias = Mapping[str, NetworkTensor]
Check: TypeAlias = Callable[[NetworkOperation, Tensors, Variant], "LibraryVerdict | None"]

YES = LibraryVerdict(Level.SUPPORTED)


def no(reason: str) -> LibraryVerdict:
    """The device does not know it."""
    return LibraryVerdict(Level.UNSUPPORTED, reason)


def estimated(reason: str) -> LibraryVerdict:
    """Its performance can be estimated, it cannot be compiled."""
    return LibraryVerdict(Level.ESTIMATE_ONLY, reason)


def check_shape(tensor: NetworkTensor, variant: Variant) -> LibraryVerdict | None:
    """Refuse batches, wide types, scales along an axis and depths that no memory holds."""
    if tensor.shape[0] != 1:
        return no(f"batch {tensor.shape[0]}: only 1 is taken")
    return check_elements(tensor, variant)


def check_elements(tensor: NetworkTensor, variant: Variant) -> LibraryVerdict | None:
    """Do what :func:`check_shape` does, but for batches."""
    verdict = check_depth(tensor, variant)
    if verdict is not None:
        return verdict
    if tensor.dtype not in BYTES:
        return no(f"elements are {tensor.dtype}: only 8 bits are taken")
    if len(tensor.quantization.scales) != 1 or tensor.quantization.axis >= 0:
        return no("activations have one scale, not one a channel")
    return None


def check_depth(tensor: NetworkTensor, variant: Variant) -> LibraryVerdict | None:
    """Refuse depths of which 8x8 elements do not fit in memory, unless the width is 1."""
    depth = 64 * tensor.shape[3]
    if tensor.shape[2] != 1 and depth > variant.sram:
        return no(
            f"8 x 8 x {tensor.shape[3]} channels are {depth} bytes, the memory has {variant.sram}"
        )
    return None


def check_zero(tensor: NetworkTensor) -> LibraryVerdict | None:
    """Refuse zero points that the type does not have."""
    low, high = (0, 255) if tensor.dtype == "u8" else (-128, 127)
    if not low <= tensor.quantization.zero <= high:
        return no(f"zero point {tensor.quantization.zero}: {low} to {high} are taken")
    return None
