# SPDX-License-Identifier: Apache-2.0
"""Random bits: a function of a key, the number of the run and the position of the element.

The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, *Parallel random numbers: as easy as
1, 2, 3*, SC 2011), which cuRAND, PyTorch and TensorFlow use as well. It has no state: elements are
independent of each other, so loops over them run in any order and in vectors.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.expr import PrimExpr, cast, const, index
from ..tir.tensor import Tensor, compute
from .arrays import Array
from .derivative import DERIVATIVES
from .integer_forms import INTEGER_FORMS
from .run_sizes import check_sizes
from .type_rules import operands

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
LANES = 4
"""32-bit numbers that one key and counter give."""

_LOW = 0xFFFFFFFF


@operator("random_bits", OpKind.INJECTIVE)
class RandomBits(Op):
    """32 random bits an element, of the state ``[key, number of the run]``.

    In a loop the state has a third number: that of the iteration.
    """

    fixed_sizes = "a state is two numbers or three"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """What to draw.

        Attributes:
            shape: Of the result.
            stream: Sets draws of one model apart.
            lane: Which of the four numbers of an element.
            key: Instead of that of the state; -1 for that.
        """

        shape: tuple[int, ...]
        stream: int
        lane: int = 0
        key: int = -1

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """uint32 of the shape."""
        state, *sizes = operands(cls.name, types, 1, len(types))
        check_sizes(cls.name, *sizes)
        check_state(cls.name, state)
        if not 0 <= attrs.lane < LANES:
            raise TypeRuleError(f"{cls.name}: there is no lane {attrs.lane}")
        return TensorType(attrs.shape, DType.UINT32)

    @staticmethod
    def reference(attrs: Attrs, state: Array, *_sizes: Array) -> Array:
        """The rounds on arrays of uint64."""
        place = np.arange(int(np.prod(attrs.shape, dtype=np.int64)), dtype=np.uint64)
        low, high = np.uint64(_LOW), np.uint64(32)
        key, run, *iterations = (np.uint64(number) for number in state.astype(np.uint64))
        key = key if attrs.key == -1 else np.uint64(attrs.key)
        counter = [
            place & low,
            (place >> high) ^ (iterations[0] & low if iterations else np.uint64(0)),
            np.full_like(place, attrs.stream & _LOW),
            np.full_like(place, run & low),
        ]
        keys = [key & low, key >> high]
        for _ in range(ROUNDS):
            first = counter[0] * np.uint64(MULTIPLIERS[0])
            second = counter[2] * np.uint64(MULTIPLIERS[1])
            counter = [
                (second >> high) ^ counter[1] ^ keys[0],
                second & low,
                (first >> high) ^ counter[3] ^ keys[1],
                first & low,
            ]
            keys = [(k + np.uint64(s)) & low for k, s in zip(keys, KEY_STEPS, strict=True)]
        return counter[attrs.lane].astype(np.uint32).reshape(attrs.shape)

    @staticmethod
    def compute(attrs: Attrs, state: Tensor, *_sizes: Tensor) -> Tensor:
        """The rounds on the position of an element, in uint64."""

        def wide(value: int) -> PrimExpr:
            return const(value, DType.UINT64)

        def element(*indices: PrimExpr) -> PrimExpr:
            pairs = zip(indices, attrs.shape, strict=True)
            flat = reduce(lambda sum_, pair: sum_ * pair[1] + pair[0], pairs, index(0))
            place, low, high = cast(flat, DType.UINT64), wide(_LOW), wide(32)
            run = cast(state[1], DType.UINT64)
            key = cast(state[0], DType.UINT64) if attrs.key == -1 else wide(attrs.key)
            keys = [key & low, key >> high]
            second = place >> high
            if state.shape[0] == 3:
                second = second ^ (cast(state[2], DType.UINT64) & low)
            counter = [place & low, second, wide(attrs.stream & _LOW), run & low]
            for _ in range(ROUNDS):
                first, second = counter[0] * MULTIPLIERS[0], counter[2] * MULTIPLIERS[1]
                counter = [
                    (second >> high) ^ counter[1] ^ keys[0],
                    second & low,
                    (first >> high) ^ counter[3] ^ keys[1],
                    first & low,
                ]
                keys = [(k + step) & low for k, step in zip(keys, KEY_STEPS, strict=True)]
            return cast(counter[attrs.lane], DType.UINT32)

        return compute(attrs.shape, element, name="random_bits")


def check_state(name: str, state: TensorType) -> None:
    """Check the operand that draws are made of.

    Raises:
        TypeRuleError: It is no state.
    """
    if state.shape not in ((2,), (3,)) or state.dtype is not DType.INT64:
        raise TypeRuleError(f"{name}: a state is int64 (2,) or (3,), not {state}")


DERIVATIVES.refuse("bits have no slope", RandomBits)
INTEGER_FORMS.refuse("it has no operand that could be quantized", RandomBits)
