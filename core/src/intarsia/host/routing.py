# SPDX-License-Identifier: Apache-2.0
"""Asks the owner of a kind, and only the owner; checks what it answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar, cast

import pluggy

from ..artifact.unit import CompiledUnit
from ..errors import IntarsiaError, PluginError
from ..guarded import OutOfTime, Owner, explain, is_plugins_own
from ..ir.expr import Function
from ..lower.space import ScheduleSpaces
from ..partition.region import Region
from ..partition.support import SupportTable
from ..target.config_kind import ExecutorKind, RuntimeKind
from ..target.kind import TargetKind
from ..target.kind_attribute import KindAttributeValue
from ..tir.func import PrimFunc
from ..tir.intrinsic import Intrinsic
from .discovery import Found
from .guard import quiet_stdout
from .probe import Probe
from .received import receive
from .requirements import missing_requirements
from .time_limit import time_limit
from .trial import time_limit_of

T = TypeVar("T")

_ONE = {
    "annotate": SupportTable,
    "relay_codegen": CompiledUnit,
    "rewrite_relay": Function,
    "rewrite_tir": PrimFunc,
    "schedule_spaces": ScheduleSpaces,
    "probe": Probe,
}
_SEVERAL = {
    "register_target_kind": TargetKind,
    "partition": Region,
    "register_executor_kind": ExecutorKind,
    "register_runtime_kind": RuntimeKind,
    "register_kind_attribute": KindAttributeValue,
}
_WANTED: Mapping[str, object] = {
    **_ONE,
    **{hook: tuple[kind, ...] for hook, kind in _SEVERAL.items()},
    "lower_intrinsic": Mapping[Intrinsic, Callable[..., object]],
}
_COMPILING = frozenset({"relay_codegen", "rewrite_relay", "rewrite_tir"})
_SLOW = frozenset(
    {"tir_codegen", "loops", "bound_stack", "schedule", "schedules", "lower_intrinsic()"}
)
"""Callables that compile; all others only answer a question."""
_COMPILING_FACTOR = 60  # generating code for a large region may take long


def ask(
    pm: pluggy.PluginManager, hook: str, owner: Found, arguments: Mapping[str, object]
) -> object:
    """Call a hook of one plugin and return its answer, checked; lists come back as tuples.

    Raises:
        PluginError: The plugin does not implement the hook, failed, or answered what it may not.
        IntarsiaError: Whatever error of the tree the plugin raised on purpose, with the plugin
            named.
    """
    if not implements(pm, hook, owner.name):
        raise PluginError(f"{owner.label} does not implement {hook}()", hint=_upgrade(owner))
    others = [plugin for name, plugin in pm.list_name_plugin() if name != owner.name and plugin]
    caller = pm.subset_hook_caller(hook, others)
    seconds = _seconds(hook)
    try:
        with quiet_stdout(), time_limit(seconds):
            answers: list[object] = caller(**arguments)
    except BaseException as cause:
        own = is_plugins_own(cause) or isinstance(cause, IntarsiaError | OutOfTime)
        if not own:
            raise  # the user's interruption
        raise wrapped(cause, owner, f"{hook}()") from cause
    if len(answers) != 1:
        raise PluginError(f"{owner.label} gave no answer to {hook}()", hint=_upgrade(owner))
    answer = _listed(hook, answers[0], owner)
    received = receive(answer, _WANTED[hook], owner_of(owner), doing=f"{hook}()")
    problem = _problem(received, arguments)
    if problem:
        raise PluginError(f"{owner.label} answered {hook}() with {problem}", hint=_upgrade(owner))
    return received


def _seconds(hook: str) -> float:
    return time_limit_of(os.environ) * (_COMPILING_FACTOR if hook in _COMPILING else 1)


def implements(pm: pluggy.PluginManager, hook: str, plugin: str) -> bool:
    """Whether a registered plugin implements a hook.

    Raises:
        PluginError: The host has no such hook.
    """
    caller: pluggy.HookCaller | None = getattr(pm.hook, hook, None)
    if caller is None or caller.spec is None:
        raise PluginError(f"there is no hook {hook}()")
    return any(impl.plugin_name == plugin for impl in caller.get_hookimpls())


def wrapped(cause: BaseException, owner: Found, doing: str) -> IntarsiaError:
    """Return the error to raise for what a plugin raised: it names plugin, distribution and place.

    An error that a plugin raised on purpose keeps its class, and so its exit code.
    """
    missing = missing_requirements(owner.distribution) if isinstance(cause, ImportError) else []
    if missing:
        names = ", ".join(missing)
        return PluginError(
            f"{owner.label} needs {names}, which is not installed; {doing}: {str(cause)[:2000]}",
            hint=f"pip install {' '.join(map(_quoted, missing))}",
        )
    return explain(cause, owner_of(owner), doing)


def owner_of(plugin: Found) -> Owner:
    """Return a plugin as the owner of what it hands over."""
    hint = f"report it to {plugin.distribution}, or go on without: --no-plugin {plugin.name}"
    return Owner(plugin.label, hint, _upgrade(plugin), plugin.say, _limit)


def _limit(doing: str) -> AbstractContextManager[None]:
    """Return what ends a callable that takes too long; ``doing`` begins with its name."""
    factor = _COMPILING_FACTOR if doing.partition(" ")[0] in _SLOW else 1
    return time_limit(time_limit_of(os.environ) * factor)


def _quoted(requirement: str) -> str:
    """As a shell takes it: a bound has < or >."""
    return f"'{requirement}'" if set(requirement) & set("<>!~*;") else requirement


def _upgrade(owner: Found) -> str:
    return f"upgrade {owner.distribution}, or go on without: --no-plugin {owner.name}"


def _listed(hook: str, answer: object, owner: Found) -> object:
    """Return an answer, of a hook that gives several values as a tuple of them."""
    if hook not in _SEVERAL:
        return answer
    wanted, problem = _SEVERAL[hook], ""
    if not isinstance(answer, list | tuple):
        problem = f"{_a(answer)}, not a list of {wanted.__name__}"
    else:
        items = cast("Sequence[object]", answer)
        wrong = [item for item in items if not isinstance(item, wanted)]
        if not wrong:
            return tuple(items)
        problem = f"a list that holds {_a(wrong[0])}, not only {wanted.__name__}"
    raise PluginError(f"{owner.label} answered {hook}() with {problem}", hint=_upgrade(owner))


def _problem(answer: object, arguments: Mapping[str, object]) -> str:
    """What is wrong with an answer of the right type; empty if nothing is."""
    if isinstance(answer, SupportTable):
        names = [row.name for row in answer.rows]
        twice = [name for name in names if names.count(name) > 1]
        return f"a table with two rows called '{twice[0]}'" if twice else ""
    if isinstance(answer, CompiledUnit):
        region = arguments.get("region")
        if isinstance(region, Region) and answer.name != region.name:
            return f"a unit called {answer.name!r} for region '{region.name}'"
        return unit_problem(answer)
    return ""


def receive_unit(answer: object, wanted: type[T], owner: Found, *, named: str, doing: str) -> T:
    """Check an answer that came from a callable, not a hook; see :meth:`Host.received`."""
    made = cast("T", receive(answer, wanted, owner_of(owner), doing=doing))
    problem = unit_problem(made) if isinstance(made, CompiledUnit) else ""
    if not problem and named and getattr(made, "name", named) != named:
        problem = f"a unit called {getattr(made, 'name', '')!r} for '{named}'"
    if problem:
        raise PluginError(f"{owner.label} answered {doing} with {problem}", hint=_upgrade(owner))
    return made


def unit_problem(unit: CompiledUnit) -> str:
    """Say what of a unit cannot be stored, where types do not say it."""
    if unit.loader == "":
        return "a unit without a loader"
    for name in unit.files:
        if not name or name.startswith("/") or "\\" in name or ".." in name.split("/"):
            return f"a unit with a file called {name!r}"
    return ""


def _a(value: object) -> str:
    return type(value).__name__
