# SPDX-License-Identifier: Apache-2.0
"""The words of the Mersenne Twister, which NumPy's ``RandomState`` draws of.

Where a specification defines a seed by what NumPy draws of it, as ONNX's does for Dropout, numbers
of another generator would be others than those that a model's author saw. MT19937 (Matsumoto and
Nishimura, *Mersenne Twister: a 623-dimensionally equidistributed uniform pseudo-random number
generator*, 1998) makes each word of the 624 before it, so one thread makes all.
"""

from __future__ import annotations

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.buffer import Buffer, MemoryScope
from ..tir.build import allocate, let, load, seq, serial, store
from ..tir.expr import PrimExpr, cast, const, select
from ..tir.func import PrimFunc
from ..tir.stmt import Stmt
from ..tir.tensor import extents
from .arrays import Array
from .derivative import DERIVATIVES
from .integer_forms import INTEGER_FORMS
from .random import check_state
from .run_sizes import check_sizes
from .type_rules import operands

WORDS = 624
"""Words of the state."""
MIDDLE = 397
"""How far behind a word the other one is that it is made of."""
MATRIX = 0x9908B0DF
SEEDING = 1812433253
"""Factor between the words of a state that is made of a seed (Knuth, *TAOCP*, 3.3.4)."""


@operator("mersenne_words", OpKind.OPAQUE)
class MersenneWords(Op):
    """The first 32-bit words that MT19937 gives for a seed plus the number of the run.

    The operand is the state ``[key, number of the run]``, of which the key is not used; a third
    number, that of an iteration, is added too.
    """

    fixed_sizes = "a state is two numbers or three"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``count``: how many words; ``seed``: below 2**32."""

        count: int
        seed: int

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """A vector of uint32."""
        state, *sizes = operands(cls.name, types, 1, len(types))
        check_sizes(cls.name, *sizes)
        check_state(cls.name, state)
        if not 0 <= attrs.seed < 1 << 32:
            raise TypeRuleError(f"{cls.name}: the seed {attrs.seed} is no uint32")
        return TensorType((attrs.count,), DType.UINT32)

    @staticmethod
    def reference(attrs: Attrs, state: Array, *_sizes: Array) -> Array:
        """NumPy's own generator."""
        seed = (attrs.seed + sum(state[1:].tolist())) % (1 << 32)
        generator = np.random.RandomState(seed)
        return generator.randint(0, 1 << 32, attrs.count, np.uint32)

    @staticmethod
    def loops(attrs: Attrs, state: TensorType, *sizes: TensorType) -> PrimFunc:
        """Fill the state, then renew and give one word after the other."""
        given = Buffer("state", extents(state.shape), state.dtype)
        more = [Buffer(f"size{n}", (1,), kind.dtype) for n, kind in enumerate(sizes)]
        out = Buffer("out", (attrs.count,), DType.UINT32)
        words = Buffer("words", (WORDS,), DType.UINT32, MemoryScope.STACK)
        run = load(given, 1)
        run = run if given.shape[0] == 2 else run + load(given, 2)
        seed = cast(run + attrs.seed, DType.UINT32)

        def fill(number: PrimExpr) -> Stmt:
            before = load(words, number)
            value = (before ^ (before >> 30)) * SEEDING + cast(number + 1, DType.UINT32)
            return store(words, (number + 1,), value)

        def give(number: PrimExpr) -> Stmt:
            at = number % WORDS

            def keep(word: PrimExpr) -> Stmt:
                return seq(store(words, (at,), word), store(out, (number,), _tempered(word)))

            return let(_renewed(words, at), keep, "word")

        body = seq(
            store(words, (0,), seed), serial(WORDS - 1, fill), serial(attrs.count, give, "number")
        )
        return PrimFunc("mersenne_words", (given, *more, out), 1, allocate((words,), body))


def _renewed(words: Buffer, at: PrimExpr) -> PrimExpr:
    """Return the word that takes the place of one of the state."""
    after, middle = (load(words, (at + step) % WORDS) for step in (1, MIDDLE))
    joined = (load(words, at) & 0x80000000) | (after & 0x7FFFFFFF)
    odd = select((joined & 1) > 0, const(MATRIX, DType.UINT32), const(0, DType.UINT32))
    return middle ^ (joined >> 1) ^ odd


def _tempered(word: PrimExpr) -> PrimExpr:
    """Return a word of the state as the generator gives it."""
    word = word ^ (word >> 11)
    word = word ^ ((word * (1 << 7)) & 0x9D2C5680)
    word = word ^ ((word * (1 << 15)) & 0xEFC60000)
    return word ^ (word >> 18)


DERIVATIVES.refuse("bits have no slope", MersenneWords)
INTEGER_FORMS.refuse("it has no operand that could be quantized", MersenneWords)
