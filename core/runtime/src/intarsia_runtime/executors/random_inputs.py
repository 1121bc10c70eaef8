# SPDX-License-Identifier: Apache-2.0
"""The state that a run draws random numbers of, where its caller gives none."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence

import numpy as np

from ..artifact.plan import CallPlan, TensorSpec
from ..artifact.random_state import RANDOM_STATE, is_random_state
from .signature import Inputs


class RandomStates:
    """States of the runs of one executor: a key that nobody knows, and the number of the run."""

    def __init__(self) -> None:
        self._key = int.from_bytes(os.urandom(8), "little", signed=True)
        self._runs = itertools.count()

    def completed(self, values: Inputs, count: int) -> Inputs:
        """Return the inputs of a run, of which there are ``count``, with the next state."""
        if isinstance(values, Mapping):
            if RANDOM_STATE in values:
                return values
            return {**values, RANDOM_STATE: self._next()}
        if len(values) != count - 1:
            return values
        return [*values, self._next()]

    def _next(self) -> np.ndarray:
        return np.array([self._key, next(self._runs)], np.int64)


def seeded_state(plan: CallPlan, seed: int) -> dict[str, np.ndarray]:
    """Return the input that makes the draws of a run those of a seed; nothing if there are none."""
    if not any(map(is_random_state, plan.inputs)):
        return {}
    return {RANDOM_STATE: np.array([seed, 0], np.int64)}


def random_states(specs: Sequence[TensorSpec]) -> RandomStates | None:
    """Return what gives the last input a value, if that is the state; else ``None``."""
    return RandomStates() if specs and is_random_state(specs[-1]) else None
