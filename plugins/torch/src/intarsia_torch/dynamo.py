# SPDX-License-Identifier: Apache-2.0
"""The backend of ``torch.compile(model, backend="intarsia")``; torch finds it by its entry point.

torch hands over a graph without branches, with parameters as arguments. It is traced at once, while
torch takes guards of sizes, and compiled when it is called first: then weights have values that can
be compiled in. Sizes that torch leaves open stay open, so that one program runs all of them. Where
that cannot be, a graph is compiled once for each set of shapes that it is called with. What is
compiled is kept as long as torch keeps the graph.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from intarsia.driver.configured import TargetChoice, read_settings
from intarsia.driver.request import OPTIONS
from intarsia.host.guard import working_folder
from intarsia.host.host import Host
from intarsia.target.kind_table import Origin
from intarsia.target.target import CompositeTarget, Target
from intarsia_runtime.errors import TargetError, UsageError, did_you_mean

from .builds import build_or_fetch
from .compiled import CompiledGraph, Results

if TYPE_CHECKING:
    from intarsia.target.read import OneSpec, TargetSpec
    from intarsia_ir.graph.module import IRModule
    from intarsia_runtime.load import Executable

    from .types import GraphModule

_BUILD_OPTIONS = frozenset(OPTIONS) - {"shapes", "progress"}


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
        options: Fields of :class:`BackendOptions`, and options of
            :class:`~intarsia.driver.request.BuildRequest`.
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
        artifact = build_or_fetch(module, target, host, build_options)
        return artifact.load(threads=chosen.threads)

    return CompiledGraph(
        graph_module,
        example_inputs,
        compile_module,
        fallback=chosen.fallback,
        freeze=chosen.freeze,
    )


def _target(host: Host, options: BackendOptions) -> CompositeTarget:
    """The target of the options, the scope, the environment or a file, in this order."""
    given = options.target if options.target is not None else Target.current()
    if given is not None:
        return host.target(given, options.target_host)
    configured = read_settings(os.environ, working_folder())
    found, driver = configured.choose("target", None), configured.choose("target-host", None)
    if found.value is None:
        known = ", ".join(host.backends()) or "none; e.g. pip install 'intarsia[all]'"
        raise TargetError(
            "no target is given",
            hint=f"options={{'target': ...}} or INTARSIA_TARGET; installed backends: {known}",
        )
    origin = Origin(found.origin, defaults=configured.options, default_setter=configured.origin)
    return TargetChoice(found.value, origin, driver.value, driver.origin).read(host)
