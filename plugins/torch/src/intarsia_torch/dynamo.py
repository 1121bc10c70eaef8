# SPDX-License-Identifier: Apache-2.0
"""The backend of ``torch.compile(model, backend="intarsia")``; torch finds it by its entry point.

torch hands over a graph without branches, with parameters as arguments. It is traced at once, while
torch takes guards of sizes, and compiled when it is called first: then weights have values that can
be compiled in. Sizes that torch leaves open stay open, so that one program runs all of them. Where
that cannot be, a graph is compiled once for each set of shapes that it is called with. What is
compiled is kept as long as torch keeps the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from intarsia import BUILD_OPTIONS, CompositeTarget, Host, configured_target
from intarsia_runtime.errors import TargetError, UsageError, did_you_mean

from .builds import build_or_fetch
from .compiled import CompiledGraph, Results

if TYPE_CHECKING:
    from intarsia import OneSpec, TargetSpec
    from intarsia_ir.graph.module import IRModule
    from intarsia_runtime.load import Executable

    from .types import GraphModule

_BUILD_OPTIONS = frozenset(BUILD_OPTIONS) - {"shapes", "progress"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """``options`` of ``torch.compile``; others are options of a build.

    Attributes:
        target: What to compile for; if ``None``, the one of the ``with`` statement around, or else
            of the environment or the nearest file with settings.
        target_host: The backend that drives the target.
        threads: Threads for parallel loops; as many as the process may use if ``None``.
        fallback: Whether a graph that cannot be compiled runs in PyTorch, with one warning.
        freeze: Whether parameters and buffers are compiled in, which makes code fast, until one of
            them is written to.
    """

    target: TargetSpec | None = None
    target_host: OneSpec | None = None
    threads: int | None = None
    fallback: bool = True
    freeze: bool = True


def backend(
    graph_module: GraphModule,
    example_inputs: Sequence[object],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Results]:
    """Return what runs a graph; torch calls it for each graph that it finds.

    Args:
        graph_module: The graph.
        example_inputs: Arguments that it is about to be called with.
        options: Fields of :class:`BackendOptions`, and options of :func:`intarsia.build`.
        mode: A name for settings of other backends; there are none here.

    Raises:
        UsageError: An option is unknown, or a mode is given.
        TargetError: The target is missing or wrong.
        UnsupportedError: The graph needs gradients, and ``fallback`` is off.
    """
    if mode is not None:
        raise UsageError(f"there is no mode '{mode}'", hint="options={'target': ..., 'threads': 2}")
    given = dict(options or {})
    build_options = {name: given.pop(name) for name in _BUILD_OPTIONS & given.keys()}
    own = [field.name for field in fields(BackendOptions)]
    for name in given.keys() - set(own):
        known = [*own, *_BUILD_OPTIONS]
        hint = did_you_mean(name, known) or f"options: {', '.join(known)}"
        raise UsageError(f"the backend 'intarsia' has no option '{name}'", hint=hint)
    chosen = BackendOptions(**given)
    host = Host()
    target = _target(host, chosen)

    def compile_module(module: IRModule) -> Executable:
        return build_or_fetch(module, target, host, threads=chosen.threads, options=build_options)

    return CompiledGraph(
        graph_module,
        example_inputs,
        compile_module,
        fallback=chosen.fallback,
        freeze=chosen.freeze,
    )


def _target(host: Host, options: BackendOptions) -> CompositeTarget:
    """The target of the options, the scope, the environment or a file, in this order."""
    if options.target is not None:
        return host.target(options.target, options.target_host)
    target = configured_target(host, options.target_host)
    if target is None:
        known = ", ".join(host.backends()) or "none; e.g. pip install 'intarsia[all]'"
        raise TargetError(
            "no target is set",
            hint=f"options={{'target': ...}} or INTARSIA_TARGET; installed backends: {known}",
        )
    return target
