# SPDX-License-Identifier: Apache-2.0
"""``intarsia.Target``: a target by its string, with the plugins that are installed."""

from __future__ import annotations

from ..host.host import Host
from ..target import target as parts
from ..target.read import OneSpec, TargetSpec


class _AnyTarget(type):
    """Makes ``isinstance(x, intarsia.Target)`` true of single targets and of composites."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, parts.Target | parts.CompositeTarget)


class Target(parts.Target, metaclass=_AnyTarget):
    """What to compile for: ``intarsia.Target("accelerator, backend -option=value")``.

    The call parses a target and returns a :class:`CompositeTarget`, whose ``accelerators``,
    ``fallback`` and ``host`` are single targets. ``with Target(...):`` makes it the default of
    :func:`build`. ``Target.current()`` returns the target of the enclosing ``with`` statement.

    Args:
        spec: A string, an object, a list, or a target.
        target_host: The backend that drives it. Must equal the one that ``spec`` names, if any.
        host: The plugins. Default: the installed ones.

    Raises:
        TargetError: The target is wrong; the message points at the position.
        PluginError: The plugin of one of its kinds cannot be used.
    """

    __slots__ = ()

    def __new__(
        cls, spec: TargetSpec, target_host: OneSpec | None = None, *, host: Host | None = None
    ) -> parts.CompositeTarget:
        """Read a target."""
        return (host or Host()).target(spec, target_host)
