# SPDX-License-Identifier: Apache-2.0
"""Callables of plugins, wrapped when they are received: what they raise names who raised it.

A plugin may raise anything, at any time: a schedule divides by zero, a loader ends the process. No
call site guards itself. A callable that comes with a value is wrapped where the value is received
(:mod:`intarsia.host.received`), operators of other packages where they are defined, loaders where
they are found.
"""

from __future__ import annotations

import dis
import functools
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import CodeType, TracebackType
from typing import TypeAlias

from msgspec import Struct

from .errors import EXHAUSTED, IntarsiaError, PluginError, ResourceError

Foreign: TypeAlias = "Callable[..., object]"
"""A function of a plugin: its answer is anything until it is checked."""

_RAISES = frozenset({"RAISE_VARARGS", "RERAISE"})


class OutOfTime(BaseException):
    """The time is over; not an ``Exception``, so that nobody catches it by accident."""


class UserInterrupt(KeyboardInterrupt):
    """A signal that the command line heeded, raised wherever the main thread was."""


class Owner(Struct, frozen=True):
    """Whose a callable is.

    Attributes:
        label: Name, distribution and version, for messages.
        hint: What the user can do about a failure.
        upgrade: What the user can do about an answer of another type.
        say: Called with a line for every call; ``None`` if nobody listens.
        limit: Raises :class:`OutOfTime` in a block that takes too long for what is done in it;
            ``None`` for no limit.
    """

    label: str
    hint: str = ""
    upgrade: str = ""
    say: Callable[[str], object] | None = None
    limit: Callable[[str], AbstractContextManager[None]] | None = None


class Guarded:
    """A callable of a plugin; equal to another one of the same function.

    Args:
        function: What the plugin gave.
        owner: Whose it is.
        doing: What it is, for messages: ``schedule of 'nn.conv2d'``.
        answers: Types that it may answer with; empty for any.
    """

    __slots__ = ("__wrapped__", "answers", "doing", "owner")

    def __init__(
        self, function: Foreign, owner: Owner, *, doing: str, answers: tuple[type, ...] = ()
    ) -> None:
        self.__wrapped__ = function
        self.owner = owner
        self.doing = doing
        self.answers = answers

    def __call__(self, *arguments: object, **named: object) -> object:
        """Call the function.

        Raises:
            PluginError: It raised what is no error of Intarsia, took too long, or answered with
                another type.
        """
        if self.owner.say is not None:
            return self._traced(self.owner.say, arguments, named)
        return self._call(arguments, named)

    def _call(self, arguments: tuple[object, ...], named: Mapping[str, object]) -> object:
        try:
            with nullcontext() if self.owner.limit is None else self.owner.limit(self.doing):
                answer = self.__wrapped__(*arguments, **named)
        except BaseException as cause:
            if not isinstance(cause, OutOfTime) and not is_plugins_own(cause):
                raise
            raise explain(cause, self.owner, self.doing) from cause
        if self.answers and not isinstance(answer, self.answers):
            wanted = " or ".join(kind.__name__ for kind in self.answers)
            raise PluginError(
                f"{self.owner.label} answered {self.doing} with {type(answer).__name__}, "
                f"not {wanted}",
                hint=self.owner.upgrade,
            )
        return answer

    def _traced(
        self,
        say: Callable[[str], object],
        arguments: tuple[object, ...],
        named: Mapping[str, object],
    ) -> object:
        began, end = time.perf_counter(), "done"
        try:
            return self._call(arguments, named)
        except BaseException as error:
            end = f"raised {type(error).__name__}"
            raise
        finally:
            taken = 1000 * (time.perf_counter() - began)
            say(f"{self.owner.label}: {self.doing} {end} after {taken:.1f} ms")

    def __eq__(self, other: object) -> bool:
        """Whether the other one is the same function, guarded or not."""
        function = other.__wrapped__ if isinstance(other, Guarded) else other
        return self.__wrapped__ == function

    def __hash__(self) -> int:
        """As the function's."""
        return hash(self.__wrapped__)

    def __repr__(self) -> str:
        """Whose it is."""
        return f"<{self.doing} of {self.owner.label}>"


def is_plugins_own(cause: BaseException) -> bool:
    """Whether something that came out of plugin code is that code's failure.

    Errors of Intarsia are raised on purpose, and the user's interruption and a time limit that is
    over come from outside, wherever they surface.
    """
    if isinstance(cause, IntarsiaError):
        return type(cause) is IntarsiaError
    if isinstance(cause, UserInterrupt):
        return False
    if isinstance(cause, KeyboardInterrupt):
        return _is_raised_by_code(cause.__traceback__)
    return isinstance(cause, Exception | SystemExit)


def _is_raised_by_code(traceback: TracebackType | None) -> bool:
    """Whether a ``raise`` stands where an exception began; an interruption comes in between."""
    if traceback is None:
        return False
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return _operation(traceback.tb_frame.f_code, traceback.tb_lasti) in _RAISES


def _operation(code: CodeType, offset: int) -> str:
    names = (one.opname for one in dis.get_instructions(code) if one.offset == offset)
    return next(names, "")


def explain(cause: BaseException, owner: Owner, doing: str) -> IntarsiaError:
    """Return the error to raise for what a plugin raised: it names plugin, distribution and place.

    An error that a plugin raised on purpose keeps its class, and so its exit code.
    """
    if isinstance(cause, IntarsiaError) and type(cause) is not IntarsiaError:
        place = f"{owner.label}, {doing}"
        where = f"{cause.where}, {place}" if cause.where else place
        return cause.at(where)
    text = str(cause) or "no message"
    if isinstance(cause, MemoryError) or (isinstance(cause, OSError) and cause.errno in EXHAUSTED):
        return ResourceError(f"{owner.label} ran out of memory or disk in {doing}: {text}")
    return PluginError(
        f"{owner.label} failed in {doing}: {type(cause).__name__}: {text[:2000]}", hint=owner.hint
    )


@functools.cache
def owner_of_module(module: str) -> Owner:
    """Return the owner of what a module defines, as far as installed metadata tell."""
    from importlib.metadata import packages_distributions, version  # slow, and only for failures

    package = module.partition(".")[0]
    names = sorted(set(packages_distributions().get(package, ())))
    if not names:
        return Owner(f"package '{package}'")
    known = ", ".join(f"{name} {version(name)}" for name in names)
    return Owner(f"package '{package}' ({known})", f"report it to {names[0]}")


class LateOwner(Guarded):
    """A callable whose owner is looked up when it fails: that of the module that defines it."""

    __slots__ = ("module",)

    def __init__(self, function: Foreign, module: str, *, doing: str) -> None:
        super().__init__(function, Owner(""), doing=doing)
        self.module = module

    def __call__(self, *arguments: object, **named: object) -> object:
        """Call the function; errors as :class:`Guarded`."""
        try:
            return self.__wrapped__(*arguments, **named)
        except BaseException as cause:
            if not is_plugins_own(cause):
                raise
            raise explain(cause, owner_of_module(self.module), self.doing) from cause
