# SPDX-License-Identifier: Apache-2.0
"""Targets: a kind with options, and a composite of several."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from .kind import TargetKind
from .options import json_value, option_rows, print_value, set_options
from .scope import current_target, enter_target, leave_target


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A kind with the values of its options; canonical, hashable, equal by value.

    Two targets are equal if the names of their kinds and the values of all options are: targets of
    two hosts compare.

    Attributes:
        kind: The kind.
        options: An instance of ``kind.options``.
        origins: For each option set by anything but its default, who set it: ``given``, an alias,
            a tag, detection. Not part of equality.
    """

    kind: TargetKind
    options: Any
    origins: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def keys(self) -> tuple[str, ...]:
        """Names to dispatch on, special to general, first the kind, then its ``default_keys``."""
        return tuple(dict.fromkeys((self.kind.name, *reversed(self.kind.default_keys))))

    @staticmethod
    def current() -> Target | CompositeTarget | None:
        """The target of the innermost ``with`` statement around, or ``None``."""
        return current_target()

    def __enter__(self) -> Target:
        enter_target(self)
        return self

    def __exit__(self, *raised: object) -> None:
        leave_target()

    def __str__(self) -> str:
        """The canonical string; options at their default are left out."""
        values = set_options(option_rows(self.kind.options), self.options)
        return " ".join([self.kind.name, *(f"-{k}={print_value(v)}" for k, v in values.items())])

    def to_json(self) -> dict[str, object]:
        """The canonical JSON form: ``kind`` and the options that differ from their default."""
        values = set_options(option_rows(self.kind.options), self.options)
        return {"kind": self.kind.name, **{flag: json_value(v) for flag, v in values.items()}}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


@dataclass(frozen=True, slots=True)
class CompositeTarget:
    """Accelerators in the user's order, the backend for the rest, and the host that drives them.

    Attributes:
        accelerators: Tried in this order; may be empty, then the fallback compiles everything.
        fallback: Backend that compiles what no accelerator takes.
        host: Backend that compiles the driving code; the fallback itself on a CPU.
    """

    accelerators: tuple[Target, ...]
    fallback: Target
    host: Target

    @property
    def targets(self) -> tuple[Target, ...]:
        """Every target once, in the order of the string form."""
        last = () if self.host == self.fallback else (self.host,)
        return (*self.accelerators, self.fallback, *last)

    def __enter__(self) -> CompositeTarget:
        enter_target(self)
        return self

    def __exit__(self, *raised: object) -> None:
        leave_target()

    def __str__(self) -> str:
        """The canonical string: accelerators, fallback and, if it is another, the host."""
        return ", ".join(str(target) for target in self.targets)

    def to_json(self) -> dict[str, object]:
        """The canonical JSON form, a ``composite``."""
        return {
            "kind": "composite",
            "accelerators": [target.to_json() for target in self.accelerators],
            "fallback": self.fallback.to_json(),
            "target_host": self.host.to_json(),
        }

    def json_text(self) -> str:
        """The canonical JSON form as text; equal targets give equal text."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
