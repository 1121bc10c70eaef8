# SPDX-License-Identifier: Apache-2.0
"""The target of the ``with`` statement around: one for each thread and each asynchronous task."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias

from intarsia_runtime.errors import TargetError

if TYPE_CHECKING:
    from .target import CompositeTarget, Target

AnyTarget: TypeAlias = "Target | CompositeTarget"

_STACK: ContextVar[tuple[AnyTarget, ...]] = ContextVar("intarsia.target", default=())


def enter_target(target: AnyTarget) -> None:
    """Make a target the current one, until :func:`leave_target`."""
    _STACK.set((*_STACK.get(), target))


def leave_target() -> None:
    """Make the target before the current one current again."""
    _STACK.set(_STACK.get()[:-1])


def current_target() -> AnyTarget | None:
    """Return the target of the innermost ``with`` statement around, or ``None``."""
    return _STACK.get()[-1] if _STACK.get() else None


def require_target() -> AnyTarget:
    """Return the target of the innermost ``with`` statement around.

    Raises:
        TargetError: There is none.
    """
    target = current_target()
    if target is None:
        raise TargetError("no target is current", hint="with host.target(...): ...")
    return target
