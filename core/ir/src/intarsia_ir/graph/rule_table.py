# SPDX-License-Identifier: Apache-2.0
"""What is known of operators beside their definition: one table a subject, one answer an operator.

A derivative, the axis of a batch, a form on integers: each subject has a :class:`RuleTable`, and
the file of an operator's family, or ``<family>_rules.py`` beside it, gives or refuses the rule by
the operator's class. An answer for a base class without a name of its own, such as that of all
comparisons, holds for every operator of that family; operators of other packages answer alike.
"""

from __future__ import annotations

from typing import Generic, TypeVar, cast

from msgspec import Struct

from intarsia_runtime.errors import DuplicateName
from intarsia_runtime.guarded import Foreign, LateOwner

from .op import Op, is_own

RuleT = TypeVar("RuleT")
FunctionT = TypeVar("FunctionT", bound=Foreign)


class Refusal(Struct, frozen=True):
    """That an operator has no rule, and why.

    Attributes:
        reason: In words that follow a colon: ``an index has no slope``.
    """

    reason: str


class RuleTable(Generic[RuleT]):
    """Rules of one subject by operator class.

    Args:
        subject: What a rule says, for messages: ``derivative``.
    """

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self._answers: dict[type[Op], RuleT | Refusal] = {}

    def give(self, rule: RuleT, *ops: type[Op]) -> None:
        """Give operators, or all operators of a family by its base class, their rule.

        Raises:
            DuplicateName: One of them has an answer already.
        """
        self._answer(rule, ops)

    def refuse(self, reason: str, *ops: type[Op]) -> None:
        """Say why operators have no rule.

        Raises:
            DuplicateName: One of them has an answer already.
        """
        self._answer(Refusal(reason), ops)

    def answer(self, op: type[Op]) -> RuleT | Refusal | None:
        """Return the rule of an operator or its refusal; ``None`` if nothing is said of it."""
        for cls in lineage(op):
            if cls in self._answers:
                return self._answers[cls]
        return None

    def get(self, op: type[Op]) -> RuleT | None:
        """Return the rule of an operator, or ``None``."""
        answer = self.answer(op)
        return None if isinstance(answer, Refusal) else answer

    def reason(self, op: type[Op]) -> str:
        """Return why an operator has no rule; empty if it has one, or nobody said why."""
        answer = self.answer(op)
        return answer.reason if isinstance(answer, Refusal) else ""

    def _answer(self, answer: RuleT | Refusal, ops: tuple[type[Op], ...]) -> None:
        for op in ops:
            if op in self._answers:
                label = op.name or op.__name__
                raise DuplicateName(f"the {self.subject} of '{label}' is given twice")
            self._answers[op] = answer


class RuleLists(Generic[RuleT]):
    """Rules of one subject by operator class, several for one operator, in the order given.

    Args:
        subject: What a rule says, for messages: ``simplification``.
    """

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self._rules: dict[type[Op], list[tuple[int, RuleT]]] = {}
        self._count = 0

    def give(self, rule: RuleT, *ops: type[Op]) -> None:
        """Give operators, or all operators of a family by its base class, one more rule.

        Raises:
            DuplicateName: One of them has this rule already.
        """
        self._count += 1
        for op in ops:
            rules = self._rules.setdefault(op, [])
            if any(known == rule for _, known in rules):
                label = op.name or op.__name__
                raise DuplicateName(f"a {self.subject} of '{label}' is given twice: {rule}")
            rules.append((self._count, rule))

    def of(self, op: type[Op]) -> tuple[RuleT, ...]:
        """Return the rules of an operator, those of its family included."""
        numbered = [entry for cls in lineage(op) for entry in self._rules.get(cls, ())]
        return tuple(rule for _, rule in sorted(numbered, key=lambda entry: entry[0]))

    def all(self) -> tuple[tuple[type[Op], RuleT], ...]:
        """Return every operator or family with each of its rules, in the order they were given."""
        every = [(*entry, op) for op, entries in self._rules.items() for entry in entries]
        return tuple((op, rule) for _, rule, op in sorted(every, key=lambda entry: entry[0]))


def lineage(op: type[Op]) -> tuple[type[Op], ...]:
    """Return an operator and those of its base classes that stand for families: without a name."""
    bases = (base for base in op.__mro__[1:] if issubclass(base, Op) and not base.name)
    return op, *bases


def guarded_rule(function: FunctionT, doing: str) -> FunctionT:
    """Guard a rule that another package defines (:mod:`intarsia_runtime.guarded`); others stay."""
    if is_own(function.__module__):
        return function
    return cast("FunctionT", LateOwner(function, function.__module__, doing=doing))
