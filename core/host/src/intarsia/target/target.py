# SPDX-License-Identifier: Apache-2.0
"""Targets: a kind with options, and a composite of several."""

from __future__ import annotations

import json
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Generic, cast

from .kind import Memory, OptionsT_co, TargetKind
from .options import Value, json_value, option_rows, print_value, set_options
from .universal import HARDWARE, KEYS

_STACK: ContextVar[tuple[Target | CompositeTarget, ...]] = ContextVar("intarsia.target", default=())
"""The targets of the ``with`` statements around, of each thread and each asynchronous task."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Target(Generic[OptionsT_co]):
    """A kind with the values of its options; canonical, hashable, equal by value.

    ``Target[Options]`` is a target whose options have that class; hooks of a plugin with one kind
    get it. ``Target`` is a target of any kind.

    Two targets are equal if the names of their kinds and the values of all options are equal, even
    if they come from two hosts.

    Attributes:
        kind: The kind.
        options: An instance of ``kind.options``.
        origins: The source of each option that is not at its default: ``given``, an alias, a tag,
            detection. Not part of equality.
        hardware: Canonical name of the device's tag; empty if the target names none.
        user_keys: Keys that the user adds, special to general.
        tag_keys: Keys of the hardware, special to general. Not part of equality: ``hardware``
            implies them.
        pinned: Options at their default although the hardware implies another value. They are
            printed, so that the printed target parses to an equal one. Not part of equality.
        memory: Levels of memory of the device, outermost first, with caches; set when a build
            begins. Not part of equality: kind and hardware imply them.
    """

    kind: TargetKind[OptionsT_co]
    options: OptionsT_co
    origins: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    hardware: str = ""
    user_keys: tuple[str, ...] = ()
    tag_keys: tuple[str, ...] = field(default=(), compare=False)
    pinned: frozenset[str] = field(default=frozenset(), compare=False)
    memory: tuple[Memory, ...] = field(default=(), compare=False)

    @property
    def keys(self) -> tuple[str, ...]:
        """Names to dispatch on, special to general.

        First those that the user gives, then those of the hardware, the name of the kind, and its
        ``default_keys``.
        """
        own = (self.kind.name, *reversed(self.kind.default_keys))
        return tuple(dict.fromkeys((*self.user_keys, *self.tag_keys, *own)))

    def _values(self) -> dict[str, Value]:
        """Flag to value of what a string has to say."""
        rows = option_rows(self.kind.options)
        values = dict(set_options(rows, self.options, self.pinned))
        if self.user_keys:
            values[KEYS] = self.user_keys
        if self.hardware:
            values[HARDWARE] = self.hardware
        return values

    @staticmethod
    def current() -> Target | CompositeTarget | None:
        """The target of the innermost ``with`` statement around, or ``None``."""
        return _STACK.get()[-1] if _STACK.get() else None

    def __enter__(self) -> Target[OptionsT_co]:
        _STACK.set((*_STACK.get(), self))
        return self

    def __exit__(self, *raised: object) -> None:
        _STACK.set(_STACK.get()[:-1])

    def __str__(self) -> str:
        """The canonical string; options at their default are left out."""
        words = [f"-{flag}={print_value(value)}" for flag, value in self._values().items()]
        return " ".join([self.kind.name, *words])

    def to_json(self) -> dict[str, object]:
        """The canonical JSON form: ``kind`` and the options that differ from their default."""
        values = {flag: json_value(value) for flag, value in self._values().items()}
        return {"kind": self.kind.name, **values}

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and str(self) == str(cast("Target", other))

    def __hash__(self) -> int:
        return hash(str(self))


@dataclass(frozen=True, slots=True, repr=False)
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
        _STACK.set((*_STACK.get(), self))
        return self

    def __exit__(self, *raised: object) -> None:
        _STACK.set(_STACK.get()[:-1])

    def __str__(self) -> str:
        """The canonical string: accelerators, fallback and, if it is another, the host."""
        return ", ".join(str(target) for target in self.targets)

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

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
