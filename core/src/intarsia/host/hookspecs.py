# SPDX-License-Identifier: Apache-2.0
"""The hooks: what the host asks plugins, and what it may rely on.

A hook about a target goes to the plugin that owns its kind and to no other. Every answer is
checked; an exception becomes a ``PluginError`` that names the plugin and the hook.
"""

# A specification has no body; pluggy reads its name and arguments.
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .markers import hookspec

if TYPE_CHECKING:
    from ..artifact.unit import CompiledUnit
    from ..ir.expr import Function
    from ..lower.space import ScheduleSpaces
    from ..partition.region import Region
    from ..partition.support import SupportTable
    from ..target.config_kind import ExecutorKind, RuntimeKind
    from ..target.kind import TargetKind
    from ..target.kind_attribute import KindAttributeValue
    from ..target.target import Target
    from ..tir.func import PrimFunc
    from ..tir.intrinsic import Intrinsic, IntrinsicRule
    from .probe import Probe


@hookspec
def register_target_kind() -> Sequence[TargetKind]:
    """Return the kinds that the manifest declares, with the same names and roles.

    Asked once, when one of them is first used. May not import a vendor's SDK.
    """


@hookspec
def annotate(target: Target) -> SupportTable:
    """Return what the accelerator takes: patterns with predicates, larger before their parts.

    Asked once a build. May not look at the module: the host matches.
    """


@hookspec
def partition(regions: Sequence[Region], target: Target) -> Sequence[Region]:
    """Return the regions that are built; what is left of the others goes elsewhere.

    Asked once of each region. May drop calls, and say why with ``keep_calls(region, calls,
    "reason")``, and cut a region with ``split_region(region, parts)``; may not add calls to one.
    """


@hookspec
def relay_codegen(region: Region, target: Target) -> CompiledUnit:
    """Compile a region.

    Asked once a region, unless the kind has a ``tir_codegen``, which then gets it as loops. May not
    keep state between calls; equal regions give equal bytes.
    """


@hookspec
def lower_intrinsic(target: Target) -> Mapping[Intrinsic, IntrinsicRule]:
    """Return a rule for each intrinsic that the backend expresses in others.

    Asked once a build, never once a node.
    """


@hookspec
def register_executor_kind() -> Sequence[ExecutorKind]:
    """Return the kinds of executor that the manifest declares, with the same names.

    Asked once, when the plugin is first used; only if the manifest declares one.
    """


@hookspec
def register_runtime_kind() -> Sequence[RuntimeKind]:
    """Return the kinds of runtime that the manifest declares, with the same names.

    Asked once, when the plugin is first used; only if the manifest declares one.
    """


@hookspec
def register_kind_attribute() -> Sequence[KindAttributeValue]:
    """Return what the manifest declares of kinds of target: values of typed columns.

    Asked once, when the plugin is first used; only if the manifest declares one. The kinds may be
    other plugins', which need not be installed.
    """


@hookspec
def rewrite_relay(function: Function, target: Target) -> Function:
    """Return an equivalent function that suits the backend better.

    A fallback is asked for the part that it compiles, an accelerator for the whole prepared graph
    before ``annotate``. May not change what the function computes, nor its parameters and result
    type.
    """


@hookspec
def rewrite_tir(function: PrimFunc, target: Target) -> PrimFunc:
    """Return an equivalent kernel that suits the backend better.

    May not change what it computes, nor its parameters.
    """


@hookspec
def schedule_spaces(target: Target) -> ScheduleSpaces:
    """Return what can be tuned in the backend's kernels for a target, and the machine's name.

    Asked by ``tune``, and once a build where records of measurements are. The spaces depend on the
    target alone; every choice in them computes the same.
    """


@hookspec
def probe(target: Target) -> Probe:
    """Return the vendor component and the device found on this machine, or why there is none.

    Asked by ``doctor`` and ``run`` only, in a child process with a time limit.
    """
