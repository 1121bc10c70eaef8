# SPDX-License-Identifier: Apache-2.0
"""Asks the owner of a kind, and only the owner; checks what it answers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, cast

import pluggy

from intarsia_runtime.errors import IntarsiaError, PluginError
from intarsia_runtime.guarded import OutOfTime, Owner, explain, is_plugins_own

from .answers import COMPILING, OPTIONAL, SEVERAL, hint_of, item_of
from .discovery import Found
from .guard import quiet_stdout
from .received import receive
from .time_limit import time_limit, time_limit_of

if TYPE_CHECKING:
    from intarsia_ir.tir.module import Lowered
    from intarsia_runtime.artifact.unit import CompiledUnit

    from ..target.target import Target

_SLOW = frozenset({"schedule", "lower_intrinsic()", "importer"})
"""Callables that compile or import; all others only answer a question."""
_COMPILING_FACTOR = 60  # generating code for a large region may take long


def ask(
    pm: pluggy.PluginManager, hook: str, owner: Found, arguments: Mapping[str, object]
) -> object:
    """Call a hook of one plugin and return its answer, checked; lists come back as tuples.

    The answer is ``None`` where the hook allows that.

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
    if not answers and hook in OPTIONAL:
        return None
    if len(answers) != 1:
        raise PluginError(f"{owner.label} gave no answer to {hook}()", hint=_upgrade(owner))
    answer = _listed(hook, answers[0], owner)
    received = receive(answer, hint_of(hook), owner_of(owner), doing=f"{hook}()")
    problem = _problem(hook, received, arguments)
    if problem:
        raise PluginError(f"{owner.label} answered {hook}() with {problem}", hint=_upgrade(owner))
    return received


def _seconds(hook: str) -> float:
    return time_limit_of(os.environ) * (_COMPILING_FACTOR if hook in COMPILING else 1)


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
    missing: list[str] = []
    if isinstance(cause, ImportError):
        from .requirements import missing_requirements

        missing = missing_requirements(owner.distribution)
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
    if hook not in SEVERAL:
        return answer
    wanted, problem = item_of(hook), ""
    if not isinstance(answer, list | tuple):
        problem = f"{_a(answer)}, not a list of {wanted.__name__}"
    else:
        items = cast("Sequence[object]", answer)
        wrong = [item for item in items if not isinstance(item, wanted)]
        if not wrong:
            return tuple(items)
        problem = f"a list that holds {_a(wrong[0])}, not only {wanted.__name__}"
    raise PluginError(f"{owner.label} answered {hook}() with {problem}", hint=_upgrade(owner))


def _problem(hook: str, answer: object, arguments: Mapping[str, object]) -> str:
    """What is wrong with an answer of the right type; empty if nothing is."""
    if hook == "annotate":
        names = [str(row.name) for row in getattr(answer, "rows", ())]
        twice = [name for name in names if names.count(name) > 1]
        return f"a table with two rows called '{twice[0]}'" if twice else ""
    if hook == "canonicalize_target":
        return _other_kind(answer, arguments["target"])
    if hook in ("relay_codegen", "tir_codegen"):
        asked = arguments.get("region" if hook == "relay_codegen" else "module")
        name, wanted = getattr(answer, "name", ""), getattr(asked, "name", None)
        if wanted is not None and name != wanted:
            what = "region " if hook == "relay_codegen" else ""
            return f"a unit called {name!r} for {what}'{wanted}'"
        return unit_problem(cast("CompiledUnit", answer))
    if hook == "lower":
        made = cast("Lowered", answer).module.name
        return f"a module called {made!r}" if made != arguments["name"] else ""
    return ""


def _other_kind(answer: object, asked: object) -> str:
    """Say how a target is not of the kind that was asked about; empty if it is."""
    made, given = cast("Target", answer), cast("Target", asked)
    if made.kind.name != given.kind.name:
        return f"a target of kind '{made.kind.name}'"
    if not isinstance(made.options, given.kind.options):
        return f"options of class {_a(made.options)}, not {given.kind.options.__name__}"
    return ""


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
