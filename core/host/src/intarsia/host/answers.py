# SPDX-License-Identifier: Apache-2.0
"""What each hook answers: the class is imported when the hook is asked, not before."""

from __future__ import annotations

from collections.abc import Callable, Mapping

SEVERAL = frozenset(
    {
        "register_target_kind", "register_executor_kind", "register_runtime_kind",
        "register_kind_attribute", "register_frontend", "register_commands", "partition",
    }
)  # fmt: skip
"""Hooks that answer with a list."""

OPTIONAL = frozenset(
    {
        "canonicalize_target", "environment_version", "known_values", "performance", "simulated",
        "machine", "target_function", "relay_codegen", "lower", "tir_codegen",
    }
)  # fmt: skip
"""Hooks that may answer ``None``: of this target the plugin has nothing to say."""

COMPILING = frozenset({"relay_codegen", "rewrite_relay", "rewrite_tir", "lower", "tir_codegen"})
"""Hooks that compile, and may take long; all others only answer a question."""


def item_of(hook: str) -> type:
    """Return the class of what a hook answers with a list of.

    Raises:
        KeyError: It answers with no list.
    """
    match hook:
        case "register_target_kind":
            from ..target.kind import TargetKind as Item
        case "register_executor_kind":
            from ..target.config_kind import ExecutorKind as Item
        case "register_runtime_kind":
            from ..target.config_kind import RuntimeKind as Item
        case "register_kind_attribute":
            from ..target.kind_attribute import KindAttributeValue as Item
        case "register_frontend":
            from .frontend import Frontend as Item
        case "register_commands":
            from click import Command as Item
        case "partition":
            from intarsia_ir.regions.region import Region as Item
        case _:
            raise KeyError(hook)
    return Item


def hint_of(hook: str) -> object:
    """Return the type hint of a hook's answer.

    Raises:
        KeyError: There is no such hook.
    """
    if hook in SEVERAL:
        return tuple[item_of(hook), ...]
    match hook:
        case "annotate":
            from intarsia_ir.regions.support import SupportTable as Answer
        case "relay_codegen" | "tir_codegen":
            from intarsia_runtime.artifact.unit import CompiledUnit as Answer
        case "lower":
            from intarsia_ir.tir.module import Lowered as Answer
        case "rewrite_relay":
            from intarsia_ir.graph.expr import Function as Answer
        case "rewrite_tir":
            from intarsia_ir.tir.func import PrimFunc as Answer
        case "lower_intrinsic":
            from intarsia_ir.tir.intrinsic import Intrinsic

            return Mapping[Intrinsic, Callable[..., object]]
        case "target_function":
            from intarsia_ir.tir.target_call import CodegenSignature as Answer
        case "schedule_spaces":
            from intarsia_ir.tir.space import ScheduleSpaces as Answer
        case "canonicalize_target":
            from ..target.target import Target as Answer
        case "known_values":
            from ..target.kind import KnownValues as Answer
        case "performance":
            from intarsia_ir.performance import Performance, RelativePerformance

            return Performance | RelativePerformance
        case "machine":
            from intarsia_runtime.artifact.machine import Machine as Answer
        case "probe":
            from .probe import Probe as Answer
        case "environment_version" | "simulated":
            return str
        case _:
            raise KeyError(hook)
    return Answer
