# SPDX-License-Identifier: Apache-2.0
"""What is assumed of a size that only the run knows, where a number decides for speed alone.

Results never depend on it: schedules, costs and placements ask here, and are right for every size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from intarsia_runtime.artifact.plan import THREADS
from intarsia_runtime.size import Dim, Size

from .types import TensorType, TupleType, Type
from .walk import post_order

if TYPE_CHECKING:
    from .expr import Expr, Function

TYPICAL = 64
"""Tokens, pixels along a side, or steps: what a size variable is taken for."""

BATCH = 1
"""Samples: the first size of an input that has other axes behind it."""

PIXELS = 224
"""Pixels along a side of an input of four axes or more."""


_SCALES = (1, 4, 16, 64, 256)
"""Of :data:`TYPICAL`: what is tried until there is a sample behind every layer."""


class _Typical(dict[str, int]):
    """Values of size variables; those that are not there are some ``scale`` times typical."""

    scale = 1

    def __missing__(self, key: str) -> int:
        return 1 if key == THREADS else TYPICAL * self.scale


TYPICAL_VALUES: Mapping[str, int] = MappingProxyType(_Typical())
"""Every size variable, as :data:`TYPICAL`."""


def typical(size: Size, values: Mapping[str, int] = TYPICAL_VALUES) -> int:
    """Return a size, or what it is for typical values of its variables; never negative."""
    return size if isinstance(size, int) else max(0, size.evaluate(values))


def typical_values(params: Iterable[Expr], scale: int = 1) -> Mapping[str, int]:
    """Return what the size variables of a function are taken for, by their axes in its parameters.

    The first axis of a parameter with two open axes, or three axes and more, is a batch; of four
    axes, those behind the second are pixels. All others are ``scale`` times typical.
    """
    found = _Typical()
    found.scale = scale
    for param in params:
        kind = param.type
        if not isinstance(kind, TensorType):
            continue
        opened = [axis for axis, size in enumerate(kind.shape) if isinstance(size, Dim)]
        for axis in opened:
            size = kind.shape[axis]
            if not isinstance(size, Dim) or not size.is_variable:
                continue
            if axis == 0 and (len(opened) > 1 or kind.rank > 2):
                found.setdefault(size.name, BATCH)
            elif axis > 1 and kind.rank > 3:
                found.setdefault(size.name, PIXELS)
    return MappingProxyType(found)


def fitting_values(function: Function) -> Mapping[str, int]:
    """As :func:`typical_values`, with more samples where those would leave a value none.

    Layers without padding leave nothing of 64 samples of sound.
    """
    shapes = [n.type.shape for n in post_order(function.body) if isinstance(n.type, TensorType)]
    sizes = {size for shape in shapes for size in shape if isinstance(size, Dim)}
    for scale in _SCALES:
        values = typical_values(function.params, scale)
        if all(size.evaluate(values) > 0 for size in sizes):
            return values
    return typical_values(function.params)


def typical_type(kind: Type, values: Mapping[str, int] = TYPICAL_VALUES) -> Type:
    """Return a type with numbers in the place of open sizes."""
    if isinstance(kind, TupleType):
        return TupleType(tuple(typical_type(field, values) for field in kind.fields))
    if kind.is_static:
        return kind
    return kind.with_shape(typical(size, values) for size in kind.shape)
