# SPDX-License-Identifier: Apache-2.0
"""The stages of a build that ask plugins; each takes values and returns a value."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from intarsia_ir.graph.control import bodies_of
from intarsia_ir.graph.expr import Function
from intarsia_ir.graph.module import IRModule, OnlyFor, StoredAs
from intarsia_ir.graph.typical import fitting_values
from intarsia_ir.graph.verify import verify
from intarsia_ir.partition.cost import Plan, PricedDevice, Prices
from intarsia_ir.partition.functions import partition_functions
from intarsia_ir.partition.partition import PartitionResult, codegen_refused, partition
from intarsia_ir.partition.recorded import everything
from intarsia_ir.partition.report import with_simulated, with_turned
from intarsia_ir.partition.rules import check_kinds, resolve_kinds
from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.prepare import PREPARE, PREPARE_PACKED
from intarsia_ir.performance import Performance, RelativePerformance
from intarsia_ir.regions.region import Region
from intarsia_ir.regions.support import SupportTable
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import CodegenContext, Lowered, TensorModule
from intarsia_ir.tir.space import ScheduleSpaces, Tuned
from intarsia_ir.tir.target_call import verify_target_calls
from intarsia_runtime.artifact.plan import ALIGNMENT, CallPlan
from intarsia_runtime.artifact.unit import PLAN_FILE, CompiledUnit
from intarsia_runtime.artifact.unit_plan import print_unit_plan
from intarsia_runtime.errors import PluginError, TargetError, UnsupportedError, VerifyError

from ..host.host import Host
from ..target.kind import Role
from ..target.options import option_rows, set_options
from ..target.target import CompositeTarget, Target
from .compute_weights import compute_all

if TYPE_CHECKING:
    from intarsia_ir.partition.measured import MeasuredSeconds
    from intarsia_ir.partition.rules import PlaceRule
    from intarsia_ir.tir.intrinsic import Intrinsic, IntrinsicRule
    from intarsia_ir.tir.target_call import CodegenSignature

    from ..target.kind_table import Origin
    from ..target.read import OneSpec, TargetSpec

_CPU = 1  # DLPack's kDLCPU


def read_target(
    host: Host,
    target: TargetSpec | None,
    target_host: OneSpec | None,
    origin: Origin | None = None,
) -> CompositeTarget:
    """Return the canonical target.

    Raises:
        TargetError: It is missing or wrong.
        UnsupportedError: Its fallback is a device that this version cannot drive.
    """
    target = Target.current() if target is None else target
    if target is None:
        known = ", ".join(host.backends()) or "none; e.g. pip install 'intarsia[all]'"
        raise TargetError("no target is set", hint=f"installed backends: {known}")
    parts = host.target(target, target_host, origin=origin)
    for backend in (parts.fallback, parts.host):
        if backend.kind.device_type != _CPU and not backend.kind.main_loader:
            raise UnsupportedError(
                f"'{backend.kind.name}' compiles for a device that this version cannot drive",
                where=str(parts),
            )
    _check_one_processor(parts)
    return with_memory(host, parts)


def with_memory(host: Host, parts: CompositeTarget) -> CompositeTarget:
    """Return the target whose fallback knows the memory of the device: schedules ask for caches."""
    fallback = dataclasses.replace(parts.fallback, memory=host.memory_of(parts))
    driver = fallback if parts.host == parts.fallback else parts.host
    return dataclasses.replace(parts, fallback=fallback, host=driver)


def _check_one_processor(parts: CompositeTarget) -> None:
    """Refuse accelerators whose code is for another processor than the backend's."""
    values = set_options(option_rows(parts.fallback.kind.options), parts.fallback.options)
    name = str(values.get("mtriple", "")).partition("-")[0]
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)
    for accelerator in parts.accelerators:
        wanted = accelerator.kind.arches
        if arch in ("x86_64", "aarch64") and wanted and arch not in wanted:
            raise TargetError(
                f"'{accelerator.kind.name}' makes code for {' or '.join(wanted)}, "
                f"'{parts.fallback.kind.name}' for {arch}: one process runs both",
                where=str(parts),
                hint=f"give the backend the same processor, e.g. -mtriple={wanted[0]}-linux-gnu, "
                f"or leave '{accelerator.kind.name}' away",
            )


def partition_module(
    host: Host,
    module: IRModule,
    target: CompositeTarget,
    plan: Plan | None = None,
    rules: Sequence[PlaceRule] = (),
    measured: MeasuredSeconds | None = None,
) -> PartitionResult:
    """Ask every accelerator, and partition ``main`` among them and the fallback.

    Args:
        host: Knows the accelerators.
        module: A prepared module.
        target: What it is partitioned among.
        plan: How regions are chosen; the cost model if ``None``.
        rules: What the user says of single nodes.
        measured: What was measured of the costs.

    Raises:
        PluginError: A plugin failed or broke its contract.
        UsageError: A rule names no node.
    """
    kinds = list(dict.fromkeys(part.kind.name for part in target.targets))
    rules = resolve_kinds(rules, kinds, host.alias_table())
    check_kinds(rules, kinds)
    owners = {accelerator.kind.name: accelerator for accelerator in target.accelerators}
    tables = [(kind, support_of(host, owner)) for kind, owner in owners.items()]
    driver = target.host.kind.name
    if target.host != target.fallback and any(driver == r.kind and not r.forbid for r in rules):
        owners[driver] = target.host
        tables.append((driver, everything(module)))
    asked = {kind for kind in owners if host.has_hook(kind, "partition")}
    behind = target.fallback
    least = host.ask("machine", behind.kind.name, target=behind) if asked else None

    def keep(kind: str, regions: Sequence[Region]) -> Sequence[Region]:
        if kind not in asked:
            return regions
        given = {"target": owners[kind], "fallback": behind, "machine": least}
        return cast("Sequence[Region]", host.call("partition", kind, regions=regions, **given))

    prices = prices_of(host, behind, [*owners.values()], measured)

    def partition_main(one: IRModule, given: Sequence[PlaceRule]) -> PartitionResult:
        return partition(
            one,
            tables,
            plan=plan or Plan.COST,
            prices=replace(prices, typical=fitting_values(one.main)),
            rules=given,
            ask=keep if asked else None,
            fallback=behind.kind.name,
        )

    found = partition_functions(module, rules, partition_main)
    last = frozenset(kind for kind, owner in owners.items() if owner.kind.channels_last)
    placement = with_turned(found.placement, found.regions, last)
    return replace(found, placement=with_simulated(placement, simulations(host, target)))


def simulations(host: Host, target: CompositeTarget) -> dict[str, str]:
    """Return how each part of a target is simulated, of those that are.

    Raises:
        PluginError: A plugin failed, or its answer is no text.
    """
    parts = (*target.accelerators, target.fallback)
    answers = {part.kind.name: host.ask("simulated", part.kind.name, target=part) for part in parts}
    return {kind: str(how) for kind, how in answers.items() if how}


def prices_of(
    host: Host, fallback: Target, accelerators: Sequence[Target], measured: MeasuredSeconds | None
) -> Prices:
    """Return the prices of a target's parts, by what their plugins state and what was measured.

    Raises:
        PluginError: A plugin failed.
    """
    device, *devices = (
        PricedDevice(part.kind.name, part.kind.device_type) for part in (fallback, *accelerators)
    )
    return Prices.of(device, devices, measured, performances(host, (fallback, *accelerators)))


def performances(
    host: Host, parts: Iterable[Target]
) -> dict[str, Performance | RelativePerformance]:
    """Return what the parts of a target say that they do in a second, by kind.

    Raises:
        PluginError: A plugin failed.
    """
    performances = {
        part.kind.name: host.ask("performance", part.kind.name, target=part) for part in parts
    }
    return {
        kind: cast("Performance | RelativePerformance", answer)
        for kind, answer in performances.items()
        if answer is not None
    }


def compile_regions(
    host: Host, regions: Sequence[Region], target: CompositeTarget
) -> tuple[CompiledUnit, ...]:
    """Have every region compiled by the owner of its kind.

    Raises:
        PluginError: A plugin failed, or took what it cannot compile.
    """
    owners = {part.kind.name: part for part in target.targets}
    units: list[CompiledUnit] = []
    for region in regions:
        owner = owners[region.kind]
        try:
            unit = host.ask("relay_codegen", region.kind, region=region, target=owner)
            if unit is None:
                unit = compile_loops(host, region, owner)
        except UnsupportedError as error:
            if owner in target.accelerators:
                raise codegen_refused(region, error) from error
            raise
        units.append(cast("CompiledUnit", unit))
    return tuple(units)


def compile_loops(host: Host, region: Region, owner: Target) -> CompiledUnit:
    """Have a region lowered to loops and compiled by the hooks ``lower`` and ``tir_codegen``.

    Raises:
        UnsupportedError: An operator cannot be lowered, or a kernel not compiled.
        PluginError: The plugin failed or broke its contract.
    """
    lowered = _rewritten(host, _lowered(host, region.function, (), owner, name=region.name), owner)
    compute_all(lowered.constants)
    stored = {f"{region.name}.{name}": array for name, array in lowered.constants.items()}
    plan = replace(lowered.module.plan, constants=tuple(stored))
    module = dataclasses.replace(
        lowered.module, plan=plan, context=CodegenContext(constants=stored)
    )
    unit = compile_kernels(host, module, owner)
    return dataclasses.replace(
        unit,
        files={**unit.files, PLAN_FILE: print_unit_plan(plan)},
        constants={**unit.constants, **stored},
    )


def rewrite_rest(host: Host, module: IRModule, fallback: Target) -> IRModule:
    """Let the fallback rewrite the part of the graph that it compiles, if it wants to.

    Raises:
        PluginError: The plugin failed, or changed parameters or result type.
    """
    return _rewrite_graph(host, module, fallback)


def normalize(module: IRModule, target: CompositeTarget, remarks: Remarks) -> IRModule:
    """Run the passes before partitioning; where all is on the CPU, few-bit weights stay packed."""
    on_cpu = all(one.kind.arches for one in target.accelerators)
    packed = on_cpu and target.fallback.kind.device_type == 1
    return (PREPARE_PACKED if packed else PREPARE).run(module, remarks=remarks)


def rewrite_for(host: Host, module: IRModule, target: CompositeTarget) -> IRModule:
    """Let the accelerators rewrite the graph, in order, before they are asked what they take.

    Raises:
        PluginError: A plugin failed, changed parameters or result type, or made a broken graph.
    """
    for accelerator in target.accelerators:
        rewritten = _rewrite_graph(host, module, accelerator)
        if rewritten is not module:
            try:
                verify(rewritten)
            except VerifyError as error:
                kind = accelerator.kind.name
                raise PluginError(
                    f"rewrite_relay() of '{kind}' made a broken graph: {error.message}",
                    where=error.where,
                    hint=f"report it to the plugin of '{kind}'",
                ) from error
        module = rewritten
    return module


def _rewrite_graph(host: Host, module: IRModule, owner: Target) -> IRModule:
    """Ask the owner of a kind for functions equal to ``main`` and the bodies of control flow."""
    kind = owner.kind.name
    if not host.has_hook(kind, "rewrite_relay"):
        return module
    functions = dict(module.functions)
    for name in ("main", *bodies_of(functions)):
        old = functions[name]
        new = cast("Function", host.call("rewrite_relay", kind, function=old, target=owner))
        same_inputs = [p.type for p in new.params] == [p.type for p in old.params]
        if not same_inputs or new.body.type != old.body.type:
            raise PluginError(f"rewrite_relay() of '{kind}' changed parameters or the result type")
        if new is not old:
            functions[name] = dataclasses.replace(new, output_names=old.output_names)
    if all(functions[name] is one for name, one in module.functions.items()):
        return module
    return module.with_functions(functions)


def spaces_of(host: Host, fallback: Target) -> ScheduleSpaces | None:
    """Ask the fallback what can be tuned; ``None`` if nothing can.

    Raises:
        PluginError: Its plugin failed.
    """
    kind = fallback.kind.name
    if not host.has_hook(kind, "schedule_spaces"):
        return None
    return cast("ScheduleSpaces", host.call("schedule_spaces", kind, target=fallback))


def lower_rest(
    host: Host,
    module: IRModule,
    regions: Sequence[Region],
    fallback: Target,
    context: CodegenContext | None = None,
    tuned: Tuned | None = None,
) -> Lowered:
    """Lower what ``main`` computes itself to kernels and a call plan.

    Args:
        host: Knows the fallback's hooks.
        module: ``main`` calls the regions.
        regions: The outlined regions.
        fallback: What compiles the kernels.
        context: Model, executor and runtime; the weights are filled in here.
        tuned: What was measured to be best in the fallback's schedule spaces.

    Raises:
        UnsupportedError: An operator cannot be lowered.
        PluginError: The fallback's plugin failed.
    """
    context = context or CodegenContext()
    alignment = context.executor.get("workspace-byte-alignment", ALIGNMENT)
    lowered = _lowered(
        host,
        module.main,
        regions,
        fallback,
        functions={name: module.functions[name] for name in bodies_of(module.functions)},
        # Who loads code into a process gives it memory at multiples of 64.
        alignment=cast("int", alignment) if context.freestanding else ALIGNMENT,
        tuned=tuned,
    )
    context = dataclasses.replace(context, constants=lowered.constants)
    plan = _with_borders(lowered.module.plan, module.attr(StoredAs), module.attr(OnlyFor))
    lowered = replace(
        lowered, module=dataclasses.replace(lowered.module, plan=plan, context=context)
    )
    return _rewritten(host, lowered, fallback)


def _lowered(
    host: Host,
    function: Function,
    regions: Sequence[Region],
    owner: Target,
    *,
    name: str = "main",
    alignment: int = ALIGNMENT,
    tuned: Tuned | None = None,
    functions: Mapping[str, Function] = MappingProxyType({}),
) -> Lowered:
    """Ask the owner of a kind for the loops of a function, and of those it carries out."""
    arguments = {"main": function, "regions": regions, "target": owner, "name": name}
    options = {"alignment": alignment, "tuned": tuned, "functions": functions}
    answer = host.ask("lower", owner.kind.name, **options, **arguments)
    if answer is None:
        raise _lacks(host, owner, "lower")
    return cast("Lowered", answer)


def _lacks(host: Host, owner: Target, hook: str) -> PluginError:
    """The error for a kind whose plugin cannot compile loops."""
    plugin, kind = host.owner(owner.kind.name).distribution, owner.kind
    is_backend = kind.role is Role.BACKEND
    what = f"the backend '{kind.name}'" if is_backend else f"the accelerator '{kind.name}'"
    missing = f"{hook}()" if is_backend else f"relay_codegen() or {hook}()"
    return PluginError(
        f"{plugin} does not implement {missing} for {what}",
        hint=f"upgrade {plugin}",
    )


def _rewritten(host: Host, lowered: Lowered, owner: Target) -> Lowered:
    """Let the owner of a kind rewrite its kernels, if it wants to."""
    if not host.has_hook(owner.kind.name, "rewrite_tir"):
        return lowered
    functions = tuple(
        _rewrite_kernel(host, owner, function) for function in lowered.module.functions
    )
    return replace(lowered, module=dataclasses.replace(lowered.module, functions=functions))


def _with_borders(plan: CallPlan, stored: StoredAs | None, only: OnlyFor | None) -> CallPlan:
    """Say of inputs and outputs what their types in compiled code do not."""
    if stored is None and only is None:
        return plan
    types: Mapping[str, str] = {} if stored is None else stored.types
    values: Mapping[str, tuple[tuple[int, ...], ...]] = {} if only is None else only.values
    inputs = tuple(
        replace(spec, stored=types.get(spec.name, ""), only=values.get(spec.name, ()))
        for spec in plan.inputs
    )
    outputs = tuple(replace(spec, stored=types.get(spec.name, "")) for spec in plan.outputs)
    return replace(plan, inputs=inputs, outputs=outputs)


def sources_of(unit: CompiledUnit) -> Mapping[str, bytes]:
    """Return the C sources of a region's unit, file by file.

    Raises:
        PluginError: The unit names a source that is none of its files.
    """
    for name in unit.sources:
        if name not in unit.files:
            raise PluginError(
                f"the unit of region '{unit.name}' names a source '{name}' that it does not have"
            )
    return {name: unit.files[name] for name in unit.sources}


def compile_kernels(host: Host, module: TensorModule, fallback: Target) -> CompiledUnit:
    """Have the kernels and the plan compiled by the fallback.

    Raises:
        PluginError: Its plugin has no code generator, or that fails or breaks its contract.
        UnsupportedError: A kernel calls a function that the code generator does not have.
        ToolchainError: A linker or compiler failed.
        ResourceError: It ran out of memory or disk.
    """
    kind = fallback.kind.name

    @cache
    def find(name: str) -> CodegenSignature | None:
        found = host.ask("target_function", kind, name=name, target=fallback)
        return cast("CodegenSignature | None", found)

    for function in module.functions:
        verify_target_calls(function, kind, find)
    if host.has_hook(kind, "lower_intrinsic"):
        answer = host.call("lower_intrinsic", kind, target=fallback)
        rules = cast("Mapping[Intrinsic, IntrinsicRule]", answer)
        module = dataclasses.replace(module, rules=MappingProxyType(dict(rules)))
    unit = host.ask("tir_codegen", kind, module=module, target=fallback)
    if unit is None:
        raise _lacks(host, fallback, "tir_codegen")
    return cast("CompiledUnit", unit)


def support_of(host: Host, accelerator: Target) -> SupportTable:
    """Ask an accelerator what it takes.

    Raises:
        PluginError: Its plugin failed.
    """
    return cast("SupportTable", host.call("annotate", accelerator.kind.name, target=accelerator))


def _rewrite_kernel(host: Host, fallback: Target, function: PrimFunc) -> PrimFunc:
    kind = fallback.kind.name
    answer = cast("PrimFunc", host.call("rewrite_tir", kind, function=function, target=fallback))
    if answer.params != function.params or answer.name != function.name:
        raise PluginError(f"rewrite_tir() of '{kind}' changed the interface of '{function.name}'")
    return answer
