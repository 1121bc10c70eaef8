# SPDX-License-Identifier: Apache-2.0
"""Says which hook of which plugin is called, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import pluggy


def trace_calls(
    hooks: pluggy.PluginManager, labels: Mapping[str, str], say: Callable[[str], None]
) -> None:
    """Report every call from now on, when it starts and when it ends.

    Args:
        hooks: The hooks.
        labels: Name of a plugin to its name, distribution and version.
        say: Called with one line; the second one has the time in milliseconds.
    """
    began: list[float] = []

    def line(hook: str, impls: Sequence[pluggy.HookImpl]) -> str:
        owners = ", ".join(labels.get(impl.plugin_name, impl.plugin_name) for impl in impls)
        return f"{owners or 'nobody'}: {hook}()"

    def before(
        hook: str, impls: Sequence[pluggy.HookImpl], arguments: Mapping[str, object]
    ) -> None:
        say(line(hook, impls))
        began.append(time.perf_counter())

    def after(
        outcome: pluggy.Result[object],
        hook: str,
        impls: Sequence[pluggy.HookImpl],
        arguments: Mapping[str, object],
    ) -> None:
        taken = 1000 * (time.perf_counter() - began.pop())
        failed = outcome.exception
        end = f"raised {type(failed).__name__}" if failed is not None else "done"
        say(f"{line(hook, impls)} {end} after {taken:.1f} ms")

    hooks.add_hookcall_monitoring(before, after)
