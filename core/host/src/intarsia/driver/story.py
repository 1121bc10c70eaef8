# SPDX-License-Identifier: Apache-2.0
"""The story of a build, one line a stage: :func:`compile_model`.

Every stage gets the request and the results of the stages before it, and returns one named result.
Whoever builds for several sizes, measures or verifies calls stages; no stage knows of that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import structs

from intarsia_ir.budget import KERNEL_SECONDS, budget
from intarsia_ir.graph.footprint import check_budget, release_files
from intarsia_ir.graph.guards import (
    COMPUTED,
    Guard,
    RequiredSizes,
    collected_guards,
    collecting_guards,
    require_equal,
)
from intarsia_ir.graph.inputs import check_static
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.verify import verify
from intarsia_ir.partition.functions import rules_of_parts
from intarsia_ir.partition.partition import PartitionResult
from intarsia_ir.partition.report import check_gates
from intarsia_ir.passes.base import Remarks
from intarsia_ir.tir.module import CodegenContext, Lowered
from intarsia_runtime.artifact.plan import CallPlan, SizeGuard
from intarsia_runtime.artifact.plan_walk import add_guards, guards_of_steps
from intarsia_runtime.artifact.size_bounds import bounds_of, size_bounds, workspace_bound
from intarsia_runtime.artifact.unit import CompiledUnit
from intarsia_runtime.errors import UnsupportedError
from intarsia_runtime.open_memory import holds
from intarsia_runtime.size import Dim

from . import stages
from .artifact import Artifact, collect_constants
from .compute_weights import compute_all
from .config import Runtime
from .dynamic import import_any, is_open, needs_program, pack_program
from .memory_bounds import check_memory_bounds
from .pack import pack
from .place import check_host_rules, check_place_rules
from .request import BuildRequest
from .results import ImportResult, LowerResult, PrepareResult
from .shapes import static_shapes
from .tuned import tuned_for, tuned_json

if TYPE_CHECKING:
    from intarsia_onnx.dynamic import DynamicModel

STAGES = ("import", "prepare", "partition", "regions", "lower", "compile", "pack")
"""Names of the stages, in the order in which ``progress`` of a request hears of them."""


def compile_model(request: BuildRequest) -> Artifact:
    """Compile a model for one set of shapes: the story.

    Raises:
        As :func:`intarsia.driver.build.build`.
    """
    imported = import_model(request)
    if imported.program is not None:
        return compile_program(request, imported.program)
    prepared = prepare(request, imported.pieces["main"])
    partitioned = partition(request, prepared)
    regions = compile_regions(request, partitioned)
    lowered = lower(request, partitioned, regions)
    main = compile_kernels(request, lowered)
    return pack_units(request, partitioned, lowered, (main, *regions))


def compile_program(request: BuildRequest, program: DynamicModel) -> Artifact:
    """Compile each piece of a program, and put them into one artifact.

    Raises:
        As :func:`compile_model`, for each piece.
    """
    check_host_rules(program, request.rules)
    rules = rules_of_parts(request.rules)

    def compile_piece(piece: IRModule, name: str) -> Artifact:
        alone = request.of_piece(piece, name, rules)
        if not is_open(piece):
            return compile_model(alone)
        required = piece.attr(RequiredSizes)
        with collecting_guards(() if required is None else required.guards):
            return compile_model(dataclasses.replace(alone, is_open=True))

    made = pack_program(request, program, compile_piece)
    check_place_rules(program, made.placement, request.rules)
    check_gates(
        made.placement, require_offload=request.require_offload, max_regions=request.max_regions
    )
    return made


def import_model(request: BuildRequest) -> ImportResult:
    """Import the model; what was read of it is not needed any more.

    Raises:
        ModelError: The model is broken; UnsupportedError: it uses what cannot be imported.
        UsageError: The shapes do not fit it.
    """
    request.progress("import")
    source, shapes = request.source, static_shapes(request.shapes)
    if request.is_open:
        module = source.module(shapes)
        source.forget()
        required = module.attr(RequiredSizes)
        for guard in () if required is None else required.guards:
            require_equal(guard.left, guard.right, guard.why)
        if len(module.functions) > 1:  # passes over branches collect the guards of these, too
            module = module.with_attr(RequiredSizes, RequiredSizes(collected_guards()))
        return ImportResult({"main": module})
    imported = import_any(source, request.given_executor, request.runtime, shapes)
    source.forget()
    program = needs_program(imported, request.executor)
    if program is not None:
        return ImportResult(program.pieces, program)
    assert isinstance(imported, IRModule)  # everything else needs a program
    return ImportResult({"main": imported})


def prepare(request: BuildRequest, module: IRModule) -> PrepareResult:
    """Check a module, normalize it, and let the accelerators rewrite it.

    Raises:
        VerifyError: It is ill-formed; UnsupportedError: a size of an input is not known.
        ResourceError: Its tensors need more memory than there is.
        PluginError: A plugin failed.
    """
    request.dump.module("imported", request.annotated(module))
    request.progress("prepare")
    verify(module)
    if not request.is_open:
        check_static(module)
        check_budget(module, request.memory_limit)
    remarks = Remarks()
    normalized = stages.normalize(module, request.target, remarks)
    request.dump.module("prepared", request.annotated(normalized))
    found = stages.rewrite_for(request.host, normalized, request.target)
    return PrepareResult(found, tuple(remarks.found))


def partition(request: BuildRequest, prepared: PrepareResult) -> PartitionResult:
    """Partition a module among the accelerators, and hold the result against the user's gates.

    Raises:
        GateFailed: A gate is not met.
        UsageError: A rule names no node; UnsupportedError: a node cannot go where a rule sends it.
        PluginError: A plugin failed or broke its contract.
    """
    request.progress("partition")
    module, host, target = prepared.module, request.host, request.target
    measured = None if request.measure is None else request.measure(host, module, target)
    found = stages.partition_module(host, module, target, request.plan, request.rules, measured)
    check_gates(
        found.placement, require_offload=request.require_offload, max_regions=request.max_regions
    )
    request.dump.module("partitioned", request.annotated(found.module))
    return found


def compile_regions(
    request: BuildRequest, partitioned: PartitionResult
) -> tuple[CompiledUnit, ...]:
    """Have every region compiled by the owner of its kind, in the order of the regions.

    Raises:
        PluginError: A plugin failed, or took what it cannot compile.
    """
    request.progress("regions")
    with budget().apart():
        units = stages.compile_regions(request.host, partitioned.regions, request.target)
    release_files(partitioned.module)
    return units


def lower(
    request: BuildRequest, partitioned: PartitionResult, regions: Sequence[CompiledUnit]
) -> LowerResult:
    """Lower what the fallback computes to kernels and a call plan; its weights are known then.

    Raises:
        UnsupportedError: An operator cannot be lowered.
        ResourceError: The model does not fit into the memory of the device.
        PluginError: The fallback's plugin failed, or two units use one name for two weights.
    """
    request.progress("lower")
    host, target = request.host, request.target
    rest = stages.rewrite_rest(host, partitioned.module, target.fallback)
    tuned = tuned_for(host, target, request.records)
    context = codegen_context(request, regions)
    lowered = stages.lower_rest(host, rest, partitioned.regions, target.fallback, context, tuned)
    lowered = with_guards(lowered, partitioned.module.attr(RequiredSizes))
    constants = collect_constants(lowered.constants, regions)
    sizes = [content.nbytes for content in constants.contents.values()]
    plan, overflow = lowered.module.plan, request.allow_overflow
    check_bounded(plan, request.runtime)
    check_ranges(plan, request.range_guards)
    check_memory_bounds(host, target, plan, sizes, regions=regions, allow_overflow=overflow)
    if not request.mapped:  # the model's weights are the caller's, who may change them later
        compute_all(lowered.constants)
    release_files(partitioned.module)
    if request.weights_known is not None and not context.freestanding:
        request.weights_known(constants)
    request.dump.functions("lowered", lowered.module.functions)
    request.dump.plan("plan", plan)
    return LowerResult(lowered, tuned_json(lowered, tuned))


def with_guards(lowered: Lowered, required: RequiredSizes | None = None) -> Lowered:
    """Return a lowered module whose plan checks the guards that were collected of open sizes.

    Args:
        lowered: The module.
        required: What the model itself requires, branches left out; ``None`` if it has none.

    Raises:
        UnsupportedError: A guard has a size that is that of no input.
    """
    plan = lowered.module.plan
    if plan.open is None:
        return lowered
    known = set(plan.open.names)
    of_branches = {(guard.left, guard.right) for guard in guards_of_steps(plan)}
    of_branches -= {(g.left, g.right) for g in (() if required is None else required.guards)}
    guards: list[SizeGuard] = []
    for guard in collected_guards():
        if (guard.left, guard.right) in of_branches:
            continue  # collected again by a pass over a branch, which checks it
        unknown = guard.variables() - known
        if any(COMPUTED in name for name in unknown):
            continue  # nothing depends on what the model computes there
        if unknown:
            text = f"nothing says what the size {min(unknown)} is"
            raise UnsupportedError(f"{guard.why}: {text}")
        guards.append(SizeGuard(guard.left, guard.right, guard.why))
    plan = add_guards(plan, guards)
    plan = structs.replace(plan, workspace_bytes=workspace_bound(plan) or 0)
    return structs.replace(lowered, module=dataclasses.replace(lowered.module, plan=plan))


def check_bounded(plan: CallPlan, runtime: Runtime) -> None:
    """Refuse open sizes without a largest value where memory is laid out before the run.

    Raises:
        UnsupportedError: The runtime has no heap, and a size has no bound.
    """
    if plan.open is None or not runtime.is_freestanding or workspace_bound(plan) is not None:
        return
    bounds = bounds_of(plan)
    unbound = [name for name in plan.open.names if name not in bounds or bounds[name].high is None]
    raise UnsupportedError(
        f"runtime '{runtime.kind}' has no heap, and the size '{min(unbound, default='?')}' has no "
        "largest value",
        hint="a range such as --shape input:1..32,3,224,224, or numbers",
    )


def check_ranges(plan: CallPlan, ranges: Sequence[Guard]) -> None:
    """Refuse a range of which the model does not take the least or the largest size.

    Guards over several sizes are left to the run.

    Raises:
        UnsupportedError: A guard over one size does not hold there.
    """
    given = size_bounds(SizeGuard(guard.left, guard.right, guard.why) for guard in ranges)
    for guard in () if plan.open is None else plan.open.guards:
        sides = [size for size in (guard.left, guard.right) if isinstance(size, Dim)]
        names = frozenset[str]().union(*(size.variables() for size in sides))
        name = next(iter(names), "")
        if len(names) != 1 or name not in given:
            continue
        for size in (given[name].low, given[name].high):
            if size is not None and not holds(guard, {name: size}):
                raise UnsupportedError(
                    f"the model does not take {name} {given[name]}: not {name} = {size}, since "
                    f"{guard.why}",
                    hint="a smaller range for --shape",
                )


def codegen_context(request: BuildRequest, regions: Sequence[CompiledUnit]) -> CodegenContext:
    """Return what a code generator must know of a request besides the kernels.

    Raises:
        PluginError: A region names a source that it does not have.
    """
    sources = {unit.name: stages.sources_of(unit) for unit in regions if unit.sources}
    return CodegenContext(
        request.name,
        MappingProxyType(request.executor.to_json()),
        MappingProxyType(request.runtime.to_json()),
        freestanding=request.runtime.is_freestanding,
        sources=MappingProxyType(sources),
    )


def compile_kernels(request: BuildRequest, lowered: LowerResult) -> CompiledUnit:
    """Have the kernels and the plan compiled by the fallback.

    Raises:
        UnsupportedError: A kernel calls a function that the code generator does not have.
        ToolchainError: A linker or compiler failed; PluginError: the code generator failed.
        ResourceError: It ran out of memory or disk.
    """
    request.progress("compile")
    with budget().apart("code generation", KERNEL_SECONDS):
        module, fallback = lowered.lowered.module, request.target.fallback
        return stages.compile_kernels(request.host, module, fallback)


def pack_units(
    request: BuildRequest,
    partitioned: PartitionResult,
    lowered: LowerResult,
    units: Sequence[CompiledUnit],
) -> Artifact:
    """Return the artifact; ``units`` are that of ``main``, then those of the regions.

    Raises:
        PluginError: Two units use one name for two weights.
        TargetError: A region's code is for another machine than that of ``main``.
    """
    request.progress("pack")
    return pack(request, partitioned, units, lowered.lowered, tuned=lowered.tuned)
