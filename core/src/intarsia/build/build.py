# SPDX-License-Identifier: Apache-2.0
"""Build: a model and a target in, an artifact out. The story, one line a stage."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import Struct

from ..artifact.deferred import Weights
from ..artifact.unit import CompiledUnit
from ..budget import KERNEL_SECONDS, budget, limited
from ..errors import UnsupportedError, UsageError
from ..host.host import Host
from ..ir.module import IRModule
from ..ir.verify import verify
from ..lower.kernels import Delivery
from ..partition.cost import Plan
from ..partition.report import check_gates
from ..passes.base import Remarks
from ..passes.prepare import PREPARE
from ..runtime.compute_weights import compute_all
from ..target.options import did_you_mean
from ..target.read import OneSpec, TargetSpec
from ..target.target import CompositeTarget
from .artifact import Artifact, collect_constants
from .claims import measure_claims
from .config import ConfigSpec, Executor, Runtime, check_combination, check_served, choose
from .dump import Dump
from .dynamic import VM, import_any, is_open, needs_program, pack_program
from .importing import Model, check_budget, check_static, release_files
from .memory_bounds import check_memory_bounds
from .open_sizes import open_choices, prove_ranges
from .pack import pack
from .place import check_host_rules, check_place_rules, rules_of, rules_of_parts
from .shapes import build_shapes, check_one_program, find_choices, static_shapes
from .sizes import Combination, ShapeChoices, Size
from .source import Source
from .stages import (
    compile_kernels,
    compile_regions,
    cut,
    lower_rest,
    read_target,
    rewrite_for,
    rewrite_rest,
    sources_of,
)
from .tuned import tuned_for, tuned_json

if TYPE_CHECKING:
    import numpy as np

    from ..frontend.onnx.dynamic import DynamicModel
    from ..partition.measured import Measured
    from ..partition.rules import PlaceRule

A = TypeVar("A")
STAGES = ("import", "prepare", "partition", "regions", "lower", "compile", "pack")
"""Names of the stages, in the order :data:`Progress` hears of them."""

Progress: TypeAlias = Callable[[str], object]
"""Called with the name of each stage when it begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """What a build may be told besides model and target.

    Attributes:
        shapes: Shapes of inputs, for a model that is imported; with a size of several values
            (:class:`~intarsia.build.sizes.Sizes`), a program is made for each. Sizes that neither
            this nor the model says may be any, if that can be proved to be right.
        plan: How regions are chosen; the cost model if ``None``.
        rules: What the user says of single nodes.
        place: The same in plain words: names or patterns of nodes, and the accelerator or backend
            of the target that they go to whatever it costs, or ``"!kind"`` to forbid it.
        require_offload: At least this many percent of the nodes must be offloaded.
        max_regions: At most this many regions.
        dump_ir: Folder for each stage's result as numbered text files.
        time_limit: Seconds that the build may take; if ``None``, the host's own part of it has
            limits that no usual model reaches (:mod:`intarsia.budget`).
        memory_limit: Bytes that the build, a tensor, or all weights may have; the machine's memory
            if ``None``, and less for what is computed of constants.
        allow_overflow: Warn instead of failing if the model does not fit into the memory of the
            device that the target's hardware tag describes.
        measure: Measure what each claim of an accelerator costs, once; the plan by cost uses it.
        records: File with measured schedules, or ``none``; the user's own if ``None``.
        mapped: Leave large weights in the model's file instead of reading them into memory; it must
            then stay as it is as long as the artifact, or what is loaded from it, is used.
        progress: Called with the name of each stage.
        weights_known: Called with all weights of the artifact before code is generated, e.g. to
            write them meanwhile; not if there are several programs, whose weights are joined, nor
            for sources.
    """

    shapes: Mapping[str, Sequence[Size]] | None = None
    plan: Plan | None = None
    rules: Sequence[PlaceRule] = ()
    place: Mapping[str, str] | None = None
    require_offload: float | None = None
    max_regions: int | None = None
    dump_ir: str | os.PathLike[str] | None = None
    time_limit: float | None = None
    memory_limit: int | None = None
    allow_overflow: bool = False
    measure: bool = False
    records: str | os.PathLike[str] | None = None
    mapped: bool = False
    progress: Progress | None = None
    weights_known: Callable[[Weights], object] | None = None


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
    **options: Any,
) -> Artifact:
    """Compile a model.

    Args:
        ir_mod: A module, whose settings hold where ``None`` is given, or an ONNX file or its bytes,
            or a file with a program of PyTorch, ``.pt2``.
        target: What to compile for, e.g. ``"accelerator, backend -option=value"``; the one of the
            ``with`` statement around if ``None``.
        target_host: The backend that drives the target; equal to the composite's host, if any.
        executor: How the model is driven, also as a string or an object; ``aot`` if ``None``.
        runtime: Where it runs, also as a string or an object; in a process if ``None``.
        params: Values of inputs that are weights.
        mod_name: Name of the model.
        host: The plugins; those installed if ``None``.
        options: Fields of :class:`BuildOptions`.

    Raises:
        UsageError: The target, an option or a combination is wrong.
        ModelError: The model is broken; UnsupportedError: it cannot be compiled.
        PluginError: A plugin failed; ToolchainError: a linker or compiler failed.
        ResourceError: The model does not fit in memory, this machine's or the device's, or the
            build passes a limit of time or memory.
        GateFailed: ``require_offload`` or ``max_regions`` is not met.
    """
    host = Host() if host is None else host
    chosen = _chosen(options)
    parts = read_target(host, target or _carried(ir_mod, CompositeTarget), target_host)
    executor = choose(Executor, executor, host)
    driver = _driver(ir_mod, parts, executor, choose(Runtime, runtime, host))
    source = Source(ir_mod, params, mapped=chosen.mapped)
    with limited(chosen.time_limit, chosen.memory_limit):
        return _programs(_Order(source, parts, driver, executor, mod_name, host), chosen)


def _programs(order: _Order, chosen: BuildOptions) -> Artifact:
    """Compile the model, for every choice of its sizes."""
    dump = Dump(None if chosen.dump_ir is None else Path(chosen.dump_ir))
    source = order.source
    several = find_choices(source, chosen.shapes)
    if several is None:
        several = _open_choices(order, chosen)
    else:
        check_one_program(order.driver[1])
        prove_ranges(source, several)
    if several is None:
        imported = _import(order, chosen, static_shapes(chosen.shapes))
        source.forget()
        return _build(order, chosen, imported)

    def build_one(row: Combination) -> Artifact:
        folder = dump.folder_of("x".join(map(str, row.sizes)))
        inner = replace(chosen, dump_ir=folder, weights_known=None)
        return _build(order, inner, _import(order, chosen, row.shapes))

    return build_shapes(several, build_one)


class _Order(Struct, frozen=True, eq=False):
    """What is built and for what, the same for every shape."""

    source: Source
    target: CompositeTarget
    driver: tuple[Executor, Runtime]
    wanted: Executor | None
    name: str
    host: Host


def _open_choices(order: _Order, chosen: BuildOptions) -> ShapeChoices | None:
    """Return the choices of sizes that nobody gives; ``None`` if there are none.

    Raises:
        UnsupportedError: There are, and they cannot be any.
        IntarsiaError: The model cannot be imported, whatever its sizes are.
    """
    shapes, (executor, runtime) = static_shapes(chosen.shapes), order.driver
    has_one_shape = executor.kind == VM or "freestanding" in runtime.row.traits
    if has_one_shape or not order.source.may_be_open(shapes):
        return None
    try:
        return open_choices(order.source, shapes)
    except UnsupportedError:
        if is_open(_import(order, chosen, shapes)):
            raise
        return None


def _import(
    order: _Order, chosen: BuildOptions, shapes: Mapping[str, Sequence[int]] | None
) -> IRModule | DynamicModel:
    """Import for one set of shapes."""
    stage = chosen.progress or _silent
    stage("import")
    return import_any(order.source, order.wanted, order.driver[1], shapes)


def _build(order: _Order, chosen: BuildOptions, imported: IRModule | DynamicModel) -> Artifact:
    """Compile a module, or the program that the model needs."""
    dump = Dump(None if chosen.dump_ir is None else Path(chosen.dump_ir))
    parts, driver, host = order.target, order.driver, order.host
    program = needs_program(imported, driver[0])
    if program is not None:
        check_host_rules(program, chosen.rules)

        def compile_piece(piece: IRModule, name: str) -> Artifact:
            module = _annotated(piece, parts, (Executor(), driver[1]))
            inner = replace(
                chosen,
                shapes=None,
                rules=rules_of_parts(chosen.rules),
                require_offload=None,
                max_regions=None,
                dump_ir=dump.folder_of(name),
                weights_known=None,
            )
            return _compile(module, parts, name, host, inner)

        made = pack_program(program, order.name, parts, driver[1], compile_piece)
        check_place_rules(program, made.placement, chosen.rules)
        check_gates(
            made.placement, require_offload=chosen.require_offload, max_regions=chosen.max_regions
        )
        return made
    assert isinstance(imported, IRModule)  # everything else needs a program
    return _compile(_annotated(imported, parts, driver), parts, order.name, host, chosen)


def _compile(
    settings: IRModule, parts: CompositeTarget, mod_name: str, host: Host, chosen: BuildOptions
) -> Artifact:
    """Compile a module that is imported and carries its settings: the story after the import."""
    dump = Dump(None if chosen.dump_ir is None else Path(chosen.dump_ir))
    stage = chosen.progress or _silent
    dump.module("imported", settings)
    stage("prepare")
    prepared = _prepare(settings, chosen.memory_limit)
    dump.module("prepared", prepared)
    prepared = rewrite_for(host, prepared, parts)
    stage("partition")
    by_cost = chosen.plan in (None, Plan.COST)
    measured = measured_costs(host, prepared, parts) if chosen.measure and by_cost else None
    cutting = cut(host, prepared, parts, chosen.plan, chosen.rules, measured)
    cutting.check(chosen.require_offload, chosen.max_regions)
    dump.module("partitioned", cutting.module)
    stage("regions")
    with budget().apart():
        regions = compile_regions(host, cutting.regions, parts)
    release_files(prepared)
    stage("lower")
    rest = rewrite_rest(host, cutting.module, parts.fallback)
    tuned = tuned_for(host, parts, chosen.records)
    delivery = _delivery(mod_name, settings, regions)
    lowered = lower_rest(host, rest, cutting.regions, parts.fallback, delivery, tuned)
    constants = collect_constants(lowered.constants, regions)
    sizes = [content.nbytes for content in constants.contents.values()]
    check_memory_bounds(
        host, parts, lowered.module.plan, sizes, allow_overflow=chosen.allow_overflow
    )
    if not chosen.mapped:  # the model's weights are the caller's, who may change them later
        compute_all(lowered.constants)
    release_files(prepared)
    if chosen.weights_known is not None and not delivery.freestanding:
        chosen.weights_known(constants)
    dump.functions("lowered", lowered.module.functions)
    dump.plan("plan", lowered.module.plan)
    stage("compile")
    with budget().apart("code generation", KERNEL_SECONDS):
        main = compile_kernels(host, lowered.module, parts.fallback)
    stage("pack")
    said = tuned_json(lowered, tuned)
    return pack(host, mod_name, settings, cutting, (main, *regions), lowered, tuned=said)


def measured_costs(host: Host, module: IRModule, target: CompositeTarget) -> Measured:
    """Return what the claims of a prepared module cost on this machine; measures what is not known.

    Raises:
        PluginError: A plugin failed when it was asked.
    """

    def make(alone: IRModule, parts: CompositeTarget) -> Artifact:
        return build(alone, parts, host=host, plan=Plan.GREEDY)

    return measure_claims(host, module, target, make)


def _chosen(options: Mapping[str, Any]) -> BuildOptions:
    known = [field.name for field in fields(BuildOptions)]
    for name in options:
        if name not in known:
            raise UsageError(f"build() has no option '{name}'", hint=did_you_mean(name, known))
    chosen = BuildOptions(**options)
    if not chosen.place:
        return chosen
    return replace(chosen, rules=(*chosen.rules, *rules_of(chosen.place)), place=None)


def _carried(model: Model, key: type[A]) -> A | None:
    """The setting that a module carries; ``None`` for a file."""
    return model.attr(key) if isinstance(model, IRModule) else None


def _driver(
    model: Model, target: CompositeTarget, executor: Executor | None, runtime: Runtime | None
) -> tuple[Executor, Runtime]:
    """Executor and runtime as given, or as the module carries them, checked."""
    chosen = executor or _carried(model, Executor) or Executor()
    place = runtime or _carried(model, Runtime) or Runtime()
    check_combination(chosen, place)
    check_served(chosen, place, target)
    return chosen, place


def _delivery(name: str, settings: IRModule, regions: Sequence[CompiledUnit]) -> Delivery:
    """What a backend must know of the settings that a module carries."""
    executor, runtime = settings.attr(Executor) or Executor(), settings.attr(Runtime) or Runtime()
    return Delivery(
        name,
        MappingProxyType(executor.to_json()),
        MappingProxyType(runtime.to_json()),
        freestanding="freestanding" in runtime.row.traits,
        sources=MappingProxyType({unit.name: sources_of(unit) for unit in regions if unit.sources}),
    )


def _annotated(
    module: IRModule, target: CompositeTarget, driver: tuple[Executor, Runtime]
) -> IRModule:
    """Put the settings on the module, where every stage finds them."""
    executor, runtime = driver
    with_executor = module.with_attr(Executor, executor).with_attr(Runtime, runtime)
    return with_executor.with_attr(CompositeTarget, target)


def _prepare(module: IRModule, budget: int | None) -> IRModule:
    verify(module)
    check_static(module)
    check_budget(module, budget)
    return PREPARE.run(module, remarks=Remarks())


def _silent(stage: str) -> None:
    """Progress that nobody asked for."""
