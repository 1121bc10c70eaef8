# SPDX-License-Identifier: Apache-2.0
"""NumPy definitions of ONNX operators that no compiled function computes, by domain and name.

They carry out what depends on run time: sizes that follow from data, strings, sequences,
optionals, control flow, numbers of less than a byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from . import (
    border,
    categories,
    control,
    draws,
    image_decoder,
    images,
    learning,
    maps,
    narrow,
    numbers,
    sampling,
    selection,
    sequences,
    signal,
    strings,
)
from .call import OWN_DOMAIN, Generators, Kernel, NumpyCall, Result, Tables, Value

KERNELS: Mapping[tuple[str, str], Kernel] = MappingProxyType(
    {
        **border.KERNELS,
        **categories.KERNELS,
        **control.KERNELS,
        **draws.KERNELS,
        **images.KERNELS,
        **learning.KERNELS,
        **maps.KERNELS,
        **narrow.KERNELS,
        **numbers.KERNELS,
        **image_decoder.KERNELS,
        **sampling.KERNELS,
        **selection.KERNELS,
        **sequences.KERNELS,
        **signal.KERNELS,
        **strings.KERNELS,
    }
)
"""Kernel of an operator by its domain (empty for the standard one) and name."""

__all__ = [
    "KERNELS",
    "OWN_DOMAIN",
    "Generators",
    "Kernel",
    "NumpyCall",
    "Result",
    "Tables",
    "Value",
]
