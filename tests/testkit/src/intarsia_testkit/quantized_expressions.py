# SPDX-License-Identifier: Apache-2.0
"""Operands of quantized calls: 8-bit parameters and weights, scales, zero points."""

from __future__ import annotations

import numpy as np

from intarsia_ir.graph.expr import Constant, Function, Var, constant
from intarsia_ir.graph.types import TensorType
from intarsia_runtime.dtype import DType


def var(name: str, *shape: int, dtype: DType | str = DType.INT8) -> Var:
    """An 8-bit parameter."""
    return Var(name, TensorType(shape, DType(dtype)))


def scale(*values: float) -> Constant:
    """One scale, or one for each channel."""
    return constant(np.asarray(values[0] if len(values) == 1 else values, np.float32))


def zero(value: int, dtype: str = "int8") -> Constant:
    """A zero point."""
    return constant(np.asarray(value, dtype))


def numbers(*shape: int, seed: int = 0, dtype: str = "int8") -> np.ndarray:
    """Random elements over the whole range of a type."""
    limits = np.iinfo(dtype)
    generator = np.random.default_rng([seed, *shape])
    return generator.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def weights(*shape: int, seed: int = 1, dtype: str = "int8") -> Constant:
    """Random constant weights over the whole range of a type."""
    return constant(numbers(*shape, seed=seed, dtype=dtype))


def inputs_for(function: Function) -> list[np.ndarray]:
    """Random arrays for the parameters, over the whole range of their types."""
    return [
        numbers(*param.type.static_shape, seed=place, dtype=str(param.type.dtype))
        for place, param in enumerate(function.params)
        if isinstance(param.type, TensorType)
    ]
