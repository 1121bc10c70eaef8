# SPDX-License-Identifier: Apache-2.0
"""Random bits: the published answers of the generator, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

OP = OPERATORS["random_bits"]


def test_the_answers_that_its_authors_publish() -> None:
    """Philox4x32-10 of a counter and a key of zeros: kat_vectors of Random123."""
    wanted = (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    for lane, number in enumerate(wanted):
        attrs = OP.Attrs(shape=(1,), stream=0, lane=lane)
        assert OP.reference(attrs, np.zeros(2, np.int64)).tolist() == [number]


def test_streams_runs_and_keys_differ() -> None:
    def bits(stream: int, key: int, run: int) -> np.ndarray:
        return OP.reference(OP.Attrs(shape=(1000,), stream=stream), np.array([key, run], np.int64))

    first = bits(0, 1, 0)
    for other in (bits(1, 1, 0), bits(0, 2, 0), bits(0, 1, 1)):
        assert (first == other).mean() < 0.01
    assert abs((first >> 31).mean() - 0.5) < 0.05


@pytest.mark.parametrize(
    ("state", "lane"),
    [(TensorType((4,), DType.INT64), 0), (TensorType((2,), DType.INT32), 0)],
)
def test_what_is_no_state(state: TensorType, lane: int) -> None:
    with pytest.raises(TypeRuleError, match="a state is int64"):
        OP.type_rule(OP.Attrs(shape=(2,), stream=0, lane=lane), state)


def test_what_is_no_lane() -> None:
    with pytest.raises(TypeRuleError, match="there is no lane 4"):
        OP.type_rule(OP.Attrs(shape=(2,), stream=0, lane=4), TensorType((2,), DType.INT64))


def test_the_words_of_the_mersenne_twister() -> None:
    """10000 words of the seed 5489 end with the one that the C++ standard names."""
    op = OPERATORS["mersenne_words"]
    words = op.reference(op.Attrs(count=10000, seed=5000), np.array([0, 489]))
    assert int(words[-1]) == 4123659995
    for state in (TensorType((4,), DType.INT64), TensorType((2,), DType.INT32)):
        with pytest.raises(TypeRuleError, match="a state is int64"):
            op.type_rule(op.Attrs(count=2, seed=0), state)
    with pytest.raises(TypeRuleError, match="the seed -1 is no uint32"):
        op.type_rule(op.Attrs(count=2, seed=-1), TensorType((2,), DType.INT64))
