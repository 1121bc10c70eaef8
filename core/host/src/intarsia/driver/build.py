# SPDX-License-Identifier: Apache-2.0
"""Build: a model and a target in, an artifact out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from intarsia_ir.budget import limited
from intarsia_ir.graph.module import IRModule
from intarsia_ir.partition.cost import Plan
from intarsia_ir.size_values import Combination
from intarsia_runtime.errors import TypeRuleError, UnsupportedError, UsageError, did_you_mean

from ..host.host import Host
from ..target.read import OneSpec, TargetSpec
from ..target.target import CompositeTarget
from .artifact import Artifact
from .config import ConfigSpec, Executor, Runtime, check_combination, check_served, choose
from .dynamic import VM
from .importing import Model
from .open_build import compile_open
from .open_program import compile_instead, compile_program_or_model
from .open_sizes import check_sizes_given
from .optional import require_tools
from .place import rules_of
from .request import BUILD_OPTIONS, BuildRequest, dump_to
from .shapes import build_shapes, check_one_program, find_choices
from .source import source_of
from .stages import read_target
from .story import STAGES

if TYPE_CHECKING:
    import numpy as np

    from intarsia_ir.partition.measured import MeasuredSeconds

__all__ = [
    "STAGES",
    "BuildRequest",
    "build",
    "build_request",
    "measured_costs",
    "request_build",
    "request_partition",
]

A = TypeVar("A")
Options: TypeAlias = Any
"""The value of an option of a build, of the type that the field of the request has."""


def build(
    ir_mod: Model,
    target: TargetSpec | None = None,
    target_host: OneSpec | None = None,
    executor: Executor | ConfigSpec | None = None,
    runtime: Runtime | ConfigSpec | None = None,
    params: Mapping[str, np.ndarray] | None = None,
    mod_name: str = "default",
    *,
    host: Host | None = None,
    **options: Options,
) -> Artifact:
    """Compile a model.

    Args:
        ir_mod: A module, an ONNX file or its bytes, or a PyTorch program (``.pt2``). Settings of a
            module replace arguments that are ``None``.
        target: What to compile for, e.g. ``"accelerator, backend -option=value"``. Default: the
            target of the enclosing ``with`` statement.
        target_host: The backend that drives the target. Must equal the composite's host, if any.
        executor: How the model is executed: a string, an object or an ``Executor``. Default: aot.
        runtime: Where it runs: a string, an object or a ``Runtime``. Default: in a process.
        params: Values of inputs that are weights.
        mod_name: Name of the model.
        host: The plugins. Default: the installed ones.
        options: Options of :class:`~intarsia.driver.request.BuildRequest`, and three more.
            ``place`` maps names or patterns of nodes to a kind of the target, at any cost, or to
            ``"!kind"``, which forbids it. ``values`` makes inputs constants: numbers, lists or
            arrays by name. ``dump_ir`` is a folder for the result of each stage, as text.

    Raises:
        UsageError: The target, an option or a combination is wrong.
        ModelError: The model is broken; UnsupportedError: it cannot be compiled.
        PluginError: A plugin failed; ToolchainError: a linker or compiler failed.
        ResourceError: The model does not fit into the memory of this machine or of the device, or
            the build exceeds a limit of time or memory.
        GateFailed: ``require_offload`` or ``max_regions`` is not met.
    """
    request = request_build(
        ir_mod, target, target_host, executor, runtime, params, mod_name, host=host, **options
    )
    return build_request(request)


def request_build(
    ir_mod: Model,
    target: TargetSpec | None = None,
    target_host: OneSpec | None = None,
    executor: Executor | ConfigSpec | None = None,
    runtime: Runtime | ConfigSpec | None = None,
    params: Mapping[str, np.ndarray] | None = None,
    mod_name: str = "default",
    *,
    host: Host | None = None,
    **options: Options,
) -> BuildRequest:
    """Return the request that the arguments of :func:`build` make; nothing is imported yet.

    Raises:
        UsageError: The target, an option or a combination is wrong.
        UnsupportedError: The target makes no code for the runtime.
        PluginError: The plugin of the target, the executor or the runtime is broken.
    """
    host = Host() if host is None else host
    values = options.pop("values", None)
    chosen = _checked(options)
    parts = read_target(host, target or _carried(ir_mod, CompositeTarget), target_host)
    given = choose(Executor, executor, host)
    wanted = given or _carried(ir_mod, Executor) or Executor()
    place = choose(Runtime, runtime, host) or _carried(ir_mod, Runtime) or Runtime()
    check_combination(wanted, place)
    check_served(wanted, place, parts)
    return BuildRequest(
        source=source_of(
            host,
            ir_mod,
            params=params,
            values=values,
            mapped=bool(chosen.get("mapped")),
            control_flow=parts.fallback.kind.control_flow,
        ),
        target=parts,
        executor=wanted,
        runtime=place,
        host=host,
        given_executor=given,
        name=mod_name,
        **chosen,
    )


def request_partition(
    model: Model,
    target: CompositeTarget,
    *,
    executor: Executor | ConfigSpec | None = None,
    host: Host,
    **options: Options,
) -> BuildRequest:
    """Return a request to partition a model that is not compiled: nobody says where it would run.

    Args:
        model: As ``ir_mod`` of :func:`build`.
        target: What it is partitioned among.
        executor: The one that the user chose, if any.
        host: The plugins.
        options: As of :func:`build`.

    Raises:
        UsageError: An option is wrong.
    """
    given = choose(Executor, executor, host)
    values = options.pop("values", None)
    return BuildRequest(
        source=source_of(
            host, model, values=values, control_flow=target.fallback.kind.control_flow
        ),
        target=target,
        executor=given or Executor(),
        runtime=Runtime(),
        host=host,
        given_executor=given,
        **_checked(options),
    )


def build_request(request: BuildRequest) -> Artifact:
    """Compile a model, for every choice of its sizes.

    Raises:
        As :func:`build`.
    """
    with limited(request.time_limit, request.memory_limit):
        choices = find_choices(request.source, request.shapes)
        if choices is None:
            return _build_program(request)
        request = replace(request, range_guards=choices.guards())
        if not choices.choices:
            return _build_program(replace(request, shapes=choices.at({})))
        check_one_program(request.runtime)
        request.source.is_shared = True

        def build_one(row: Combination) -> Artifact:
            return _build_program(request.of_size(row.shapes, "x".join(map(str, row.sizes))))

        return build_shapes(choices, build_one)


def _build_program(request: BuildRequest) -> Artifact:
    """Compile a model whose sizes have one value, or stay open."""
    try:
        opened = compile_open(request)
    except (UnsupportedError, TypeRuleError) as refused:
        if request.executor.kind == VM and not request.range_guards:
            return compile_program_or_model(request)
        return compile_instead(request, refused)
    if opened is not None:
        return opened
    check_sizes_given(request)
    return compile_program_or_model(request)


def measured_costs(host: Host, module: IRModule, target: CompositeTarget) -> MeasuredSeconds:
    """Return what the claims of a prepared module cost on this machine; measures what is not known.

    Raises:
        PluginError: A plugin failed when it was asked.
    """

    def make(alone: IRModule, parts: CompositeTarget) -> Artifact:
        return build(alone, parts, host=host, plan=Plan.GREEDY)

    with require_tools("measuring claims"):
        from intarsia_tools.claims import measure_claims
    return measure_claims(host, module, target, make)


def _checked(options: Mapping[str, Options]) -> dict[str, Options]:
    """Return options of a build as fields of a request; those that are ``None`` are left out.

    Raises:
        UsageError: There is no such option, or ``place`` is no mapping of nodes to kinds.
    """
    for name in options:
        if name not in BUILD_OPTIONS:
            hint = did_you_mean(name, BUILD_OPTIONS)
            raise UsageError(f"build() has no option '{name}'", hint=hint)
    chosen = {name: value for name, value in options.items() if value is not None}
    chosen["dump"] = dump_to(chosen.pop("dump_ir", None))
    place = chosen.pop("place", None)
    if place:
        chosen["rules"] = (*chosen.get("rules", ()), *rules_of(place))
    by_cost = chosen.get("plan", Plan.COST) is Plan.COST
    chosen["measure"] = measured_costs if chosen.get("measure") and by_cost else None
    return chosen


def _carried(model: Model, key: type[A]) -> A | None:
    """The setting that a module carries; ``None`` for a file."""
    return model.attr(key) if isinstance(model, IRModule) else None
