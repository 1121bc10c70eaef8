# SPDX-License-Identifier: Apache-2.0
"""Which choice to try next: Optuna's sampler over a schedule space. The only file that needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from intarsia_ir.tir.records import Record
from intarsia_ir.tir.space import Choice, ScheduleSpace
from intarsia_runtime.errors import UsageError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_PATIENCE = 64  # choices in a row that are known already, before the space counts as exhausted
_FIRST = 8  # tried at random before the sampler learns from them


class Search:
    """Asks Optuna for choices of one space, each only once.

    Args:
        space: The space.
        tried: What is known already, also from an earlier process.
        seed: The same seed and results give the same choices.

    Raises:
        UsageError: Optuna is not installed.
    """

    def __init__(self, space: ScheduleSpace, tried: Sequence[Record], seed: int) -> None:
        try:
            import optuna
        except ImportError:
            raise UsageError(
                "the search needs Optuna, which is not installed",
                hint="pip install 'intarsia[tune]'",
            ) from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna = optuna
        self._space = space
        self._known: dict[tuple[tuple[str, int], ...], float | None] = {(): 1.0}
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=_FIRST)
        self._study = optuna.create_study(sampler=sampler)
        self._add({}, 1.0)
        for row in tried:
            self.tell(row.choice, row.ratio if row.state == "ok" else None)

    def ask(self) -> Choice | None:
        """A choice that was not tried; ``None`` if hardly any is left."""
        for _ in range(_PATIENCE):
            trial = self._study.ask()
            choice: dict[str, int] = {}
            for knob in self._space.knobs:
                value = int(trial.suggest_categorical(knob.name, knob.values))
                if value != knob.values[0]:
                    choice[knob.name] = value
            known = self._known.get(_key(choice), -1.0)
            if known is not None and known < 0:
                return choice
            failed = self._optuna.trial.TrialState.FAIL if known is None else None
            self._study.tell(trial, known, state=failed)
        return None

    def tell(self, choice: Choice, ratio: float | None) -> None:
        """Take the result of a choice; ``None`` if it came to nothing."""
        if self._space.allows(choice) and _key(choice) not in self._known:
            self._known[_key(choice)] = ratio
            self._add(choice, ratio)

    def _add(self, choice: Choice, ratio: float | None) -> None:
        trial = self._optuna.trial
        state = trial.TrialState.FAIL if ratio is None else trial.TrialState.COMPLETE
        distributions: dict[str, BaseDistribution] = {
            knob.name: self._optuna.distributions.CategoricalDistribution(knob.values)
            for knob in self._space.knobs
        }
        params = {knob.name: choice.get(knob.name, knob.values[0]) for knob in self._space.knobs}
        self._study.add_trial(
            trial.create_trial(state=state, value=ratio, params=params, distributions=distributions)
        )


def _key(choice: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(choice.items()))
