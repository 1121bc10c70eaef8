# SPDX-License-Identifier: Apache-2.0
"""Partitions a model without compiling anything: what ``explain`` and checks need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct

from intarsia_ir.budget import limited
from intarsia_ir.diagnostics import Remark
from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.graph.module import IRModule
from intarsia_ir.partition.functions import rules_of_parts
from intarsia_ir.partition.partition import PartitionResult
from intarsia_ir.partition.report import Placement
from intarsia_ir.partition.rules import PlaceRule
from intarsia_ir.passes.base import Remarks
from intarsia_runtime.errors import TypeRuleError, UnsupportedError
from intarsia_runtime.load import VM

from ..host.host import Host
from ..target.target import CompositeTarget
from .open_build import open_request
from .open_program import import_open_program, needs_open_program
from .open_sizes import check_sizes_given
from .place import check_host_rules, check_place_rules, merge_placements
from .request import BuildRequest
from .results import ImportResult, PrepareResult
from .shapes import find_choices
from .stages import normalize, partition_module, rewrite_for
from .story import import_model

if TYPE_CHECKING:
    from intarsia_onnx.dynamic import DynamicModel


class ModelPartition(Struct, frozen=True, eq=False):
    """A model that is partitioned, or every piece of a program.

    Attributes:
        pieces: Every prepared module by its name; one called ``main`` if the model is compiled
            whole.
        partitions: How each is partitioned.
        placement: The report of the whole model.
        remarks: What passes had to say.
    """

    pieces: Mapping[str, IRModule]
    partitions: Mapping[str, PartitionResult]
    placement: Placement
    remarks: tuple[Remark, ...]


def partition_model(request: BuildRequest) -> ModelPartition:
    """Import and prepare what a build would compile, and partition it; of sizes, the largest.

    Nothing is compiled, so gates, memory and the runtime of the request do not count.

    Args:
        request: The model, what it is partitioned among, and how.

    Raises:
        ModelError: The model is broken.
        PluginError: A plugin failed or broke its contract.
        UnsupportedError: The model cannot be imported, or a rule sends a node to a kind that cannot
            take it.
        UsageError: A rule names no node.
    """
    with limited(request.time_limit, request.memory_limit):
        choices = find_choices(request.source, request.shapes)
        if choices is not None:
            shapes = choices.combinations()[-1].shapes
            request = replace(request, shapes=shapes, range_guards=choices.guards())
        try:
            opened = _partition_open(request)
        except (UnsupportedError, TypeRuleError) as refused:
            program = import_open_program(request, refused=refused)
            if program is not None:
                return _partition_program(request, program)
            if request.executor.kind != VM or request.range_guards:
                raise
            return partition_imported(request, import_model(request))
        if opened is not None:
            return opened
        check_sizes_given(request)
        if needs_open_program(request):
            with suppress(UnsupportedError, TypeRuleError):
                opened = _partition_open(request, computed=True)
                if opened is not None:
                    return opened
            program = import_open_program(request)
            if program is not None:
                return _partition_program(request, program)
        return partition_imported(request, import_model(request))


def _partition_open(request: BuildRequest, *, computed: bool = False) -> ModelPartition | None:
    """Partition a model with open sizes; ``None`` if it has none.

    Args:
        request: As of :func:`partition_model`.
        computed: As of :func:`~intarsia.driver.open_build.open_request`.

    Raises:
        UnsupportedError: An operator needs numbers.
    """
    opened = open_request(request, computed=computed)
    if opened is None:
        return None
    with collecting_guards(request.range_guards):
        return partition_imported(opened, import_model(opened))


def _partition_program(request: BuildRequest, program: DynamicModel) -> ModelPartition:
    with collecting_guards():
        return partition_imported(request, ImportResult(program.pieces, program))


def partition_imported(request: BuildRequest, imported: ImportResult) -> ModelPartition:
    """Prepare and partition every piece of a model that is imported.

    Raises:
        As :func:`partition_model`.
    """
    program, target = imported.program, request.target
    rules = request.rules
    if program is not None:
        check_host_rules(program, rules)
        rules = rules_of_parts(rules)
    prepared = {
        name: prepare_module(request.host, piece, target) for name, piece in imported.pieces.items()
    }
    partitions = {name: _partition(request, one, rules) for name, one in prepared.items()}
    if program is None:
        placement = partitions["main"].placement
    else:
        found = {name: one.placement for name, one in partitions.items()}
        placement = merge_placements(program, found, [a.kind.name for a in target.accelerators])
        check_place_rules(program, placement, request.rules)
    pieces = {name: one.module for name, one in prepared.items()}
    remarks = tuple(remark for one in prepared.values() for remark in one.remarks)
    return ModelPartition(pieces, partitions, placement, remarks)


def prepare_module(host: Host, module: IRModule, target: CompositeTarget) -> PrepareResult:
    """Prepare a module that is not compiled here, so that it may be too large for this machine.

    Raises:
        PluginError: A plugin failed.
    """
    remarks = Remarks()
    prepared = rewrite_for(host, normalize(module, target, remarks), target)
    return PrepareResult(prepared, tuple(remarks.found))


def _partition(
    request: BuildRequest, prepared: PrepareResult, rules: Sequence[PlaceRule]
) -> PartitionResult:
    host, target, module = request.host, request.target, prepared.module
    measured = None if request.measure is None else request.measure(host, module, target)
    return partition_module(host, module, target, request.plan, rules, measured)
