# SPDX-License-Identifier: Apache-2.0
"""Asks the owner of a kind, and only the owner; checks what it answers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import cast

import pluggy

from ..artifact.unit import CompiledUnit
from ..errors import EXHAUSTED, IntarsiaError, PluginError, ResourceError
from ..ir.expr import Function
from ..lower.space import ScheduleSpaces
from ..partition.region import Region
from ..partition.support import SupportRow, SupportTable
from ..target.config_kind import ExecutorKind, RuntimeKind
from ..target.kind import TargetKind
from ..target.kind_attribute import KindAttributeValue
from ..tir.func import PrimFunc
from ..tir.intrinsic import Intrinsic
from .discovery import Found
from .guard import quiet_stdout
from .probe import Probe
from .requirements import missing_requirements
from .time_limit import OutOfTime, time_limit
from .trial import time_limit_of

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
_COMPILING = frozenset({"relay_codegen", "rewrite_relay", "rewrite_tir"})
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
    except (Exception, SystemExit, OutOfTime) as cause:
        raise wrapped(cause, owner, f"{hook}()") from cause
    if len(answers) != 1:
        raise PluginError(f"{owner.label} gave no answer to {hook}()", hint=_upgrade(owner))
    problem, answer = _checked(hook, answers[0], arguments)
    if problem:
        raise PluginError(f"{owner.label} answered {hook}() with {problem}", hint=_upgrade(owner))
    return answer


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
    if isinstance(cause, IntarsiaError) and type(cause) is not IntarsiaError:
        place = f"{owner.label}, {doing}"
        where = f"{cause.where}, {place}" if cause.where else place
        return type(cause)(cause.message, hint=cause.hint, where=where)
    text = str(cause) or "no message"
    if isinstance(cause, MemoryError) or (isinstance(cause, OSError) and cause.errno in EXHAUSTED):
        return ResourceError(f"{owner.label} ran out of memory or disk in {doing}: {text}")
    missing = missing_requirements(owner.distribution) if isinstance(cause, ImportError) else []
    if missing:
        names = ", ".join(missing)
        return PluginError(
            f"{owner.label} needs {names}, which is not installed; {doing}: {text[:2000]}",
            hint=f"pip install {' '.join(map(_quoted, missing))}",
        )
    return PluginError(
        f"{owner.label} failed in {doing}: {type(cause).__name__}: {text[:2000]}",
        hint=f"report it to {owner.distribution}, or go on without: --no-plugin {owner.name}",
    )


def _quoted(requirement: str) -> str:
    """As a shell takes it: a bound has < or >."""
    return f"'{requirement}'" if set(requirement) & set("<>!~*;") else requirement


def _upgrade(owner: Found) -> str:
    return f"upgrade {owner.distribution}, or go on without: --no-plugin {owner.name}"


def _checked(hook: str, answer: object, arguments: Mapping[str, object]) -> tuple[str, object]:
    """What is wrong with an answer (nothing, if it is right), and the answer to pass on."""
    if hook == "lower_intrinsic":
        return _rules_problem(answer), answer
    if hook in _SEVERAL:
        wanted = _SEVERAL[hook]
        if not isinstance(answer, list | tuple):
            return f"{_a(answer)}, not a list of {wanted.__name__}", answer
        wrong = [item for item in answer if not isinstance(item, wanted)]
        if wrong:
            return f"a list that holds {_a(wrong[0])}, not only {wanted.__name__}", answer
        return "", tuple(answer)
    wanted = _ONE[hook]
    if not isinstance(answer, wanted):
        return f"{_a(answer)}, not {wanted.__name__}", answer
    if isinstance(answer, SupportTable):
        return _rows_problem(answer.rows), answer
    if isinstance(answer, CompiledUnit):
        region = arguments.get("region")
        if isinstance(region, Region) and answer.name != region.name:
            return f"a unit called {answer.name!r} for region '{region.name}'", answer
        return _unit_problem(answer.loader, answer.files, answer.constants), answer
    return "", answer


def _rules_problem(answer: object) -> str:
    if not isinstance(answer, Mapping):
        return f"{_a(answer)}, not a mapping of Intrinsic to a rule"
    for key, rule in cast("Mapping[object, object]", answer).items():
        if not isinstance(key, Intrinsic) or not callable(rule):
            return f"a mapping that holds {_a(key)}: {_a(rule)}"
    return ""


def _rows_problem(rows: object) -> str:
    if not isinstance(rows, list | tuple):
        return f"a table whose rows are {_a(rows)}, not a list"
    names: set[str] = set()
    for row in cast("Sequence[object]", rows):
        if not isinstance(row, SupportRow) or not callable(row.predicate):
            return f"a table that holds {_a(row)}, or a predicate that cannot be called"
        if row.name in names:
            return f"a table with two rows called '{row.name}'"
        names.add(row.name)
    return ""


def _unit_problem(loader: object, files: object, constants: object) -> str:
    if not isinstance(loader, str) or not loader:
        return "a unit without a loader"
    if not isinstance(files, Mapping) or not isinstance(constants, Mapping):
        return "a unit whose files or constants are not mappings"
    for name, content in cast("Mapping[object, object]", files).items():
        if not isinstance(name, str) or not isinstance(content, bytes):
            return f"a unit whose file {name!r} is {_a(content)}, not bytes"
        if not name or name.startswith("/") or "\\" in name or ".." in name.split("/"):
            return f"a unit with a file called {name!r}"
    return ""


def _a(value: object) -> str:
    return type(value).__name__
