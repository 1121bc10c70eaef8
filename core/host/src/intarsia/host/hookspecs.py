# SPDX-License-Identifier: Apache-2.0
"""The hooks: functions of plugins that the host calls, with their contracts.

The host calls a hook about a target only in the plugin that owns its kind. It checks every answer;
an exception becomes a ``PluginError`` that names the plugin and the hook. An optional hook may
answer ``None``: the plugin has no answer for this target.
"""

# A specification has no body; pluggy reads its name and arguments.
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    import click

    from intarsia_ir.graph.expr import Function
    from intarsia_ir.performance import Performance, RelativePerformance
    from intarsia_ir.regions.region import Region
    from intarsia_ir.regions.support import SupportTable
    from intarsia_ir.tir.func import PrimFunc
    from intarsia_ir.tir.intrinsic import Intrinsic, IntrinsicRule
    from intarsia_ir.tir.module import Lowered, TensorModule
    from intarsia_ir.tir.space import ScheduleSpaces, Tuned
    from intarsia_ir.tir.target_call import CodegenSignature
    from intarsia_runtime.artifact.machine import Machine
    from intarsia_runtime.artifact.unit import CompiledUnit

    from ..target.config_kind import ExecutorKind, RuntimeKind
    from ..target.kind import KnownValues, TargetKind
    from ..target.kind_attribute import KindAttributeValue
    from ..target.target import Target
    from .frontend import Frontend
    from .probe import Probe

PROJECT = "intarsia"
"""Name that ties specifications and implementations together."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def register_target_kind() -> Sequence[TargetKind]:
    """Return the kinds that the manifest declares, with the same names and roles.

    Called once, when one of them is first used. A kind is data: this may import the module of its
    options class and nothing else.
    """


@hookspec
def canonicalize_target(target: Target) -> Target | None:
    """Check the options of the target against each other, fill in missing ones, and return it.

    Called for every target that is read; only the options of the answer are used. If the message
    of a ``TargetError`` begins with an option, the error points at it: ``-mcpu: no processor 'x'``.
    May import only what the options of this target need.
    """


@hookspec
def environment_version(target: Target) -> str | None:
    """Return the version of the vendor component that a build depends on; part of cache keys."""


@hookspec
def known_values(flag: str, target: Target) -> KnownValues | None:
    """Return the values that the code generator knows for an option; may take seconds.

    Called by ``targets show --values``, for flags among the kind's ``known_flags``.
    """


@hookspec
def performance(target: Target) -> Performance | RelativePerformance | None:
    """Return the speeds of a device, for the choice between accelerators by cost.

    An accelerator without an answer is presumed to be fast: it gets every match that it supports
    and states no cost for.
    """


@hookspec
def simulated(target: Target) -> str | None:
    """Return how results are computed if the options ask for a simulation.

    In words, e.g. ``by NumPy on this machine``; empty if code runs on the device. Simulated nodes
    are reported as such, and never counted as offloaded.
    """


@hookspec
def machine(target: Target) -> Machine | None:
    """Return the smallest machine that code for the target may run on (for ``check --on``).

    An artifact that needs no more may run there. Without an answer, the host compiles a kernel and
    reads the requirements of its unit. Backends only.
    """


@hookspec
def target_function(name: str, target: Target) -> CodegenSignature | None:
    """Return the signature of a function that kernels may call by the code generator's own name.

    They call it with ``call_target_intrinsic``. ``None`` if there is no such function. Called once
    for each name in a build.
    """


@hookspec
def annotate(target: Target) -> SupportTable:
    """Return the support table: patterns with predicates, larger patterns before their parts.

    Called once a build. It does not get the module: the host matches the patterns.
    """


@hookspec
def partition(
    regions: Sequence[Region], target: Target, fallback: Target, machine: Machine | None
) -> Sequence[Region]:
    """Return the regions to build; the other calls go to another accelerator or the fallback.

    Called once for each region. May drop calls, with a reason, by ``keep_calls(region, calls,
    "reason")``, and cut a region by ``split_region(region, parts)``; may not add calls. The
    ``fallback``, whose code is for ``machine``, gets the dropped calls; its kind has its strengths.
    """


@hookspec
def relay_codegen(region: Region, target: Target) -> CompiledUnit | None:
    """Compile a region.

    Called once for each region. Without an answer the region is compiled from loops, by ``lower``
    and ``tir_codegen``. May not keep state between calls; equal regions give equal bytes.
    """


@hookspec
def lower(
    main: Function,
    regions: Sequence[Region],
    target: Target,
    alignment: int,
    tuned: Tuned | None,
    name: str,
    functions: Mapping[str, Function],
) -> Lowered | None:
    """Lower a graph function to kernels and the plan that calls them.

    A backend gets the functions for which it is the fallback. An accelerator gets each region that
    ``relay_codegen`` does not compile, with no ``regions``. The shared loop compiler does the work:
    ``intarsia_loops.lower.lower(main, regions, target=target, schedules=..., ...)``.

    Args:
        main: Entry function; calls of outlined regions are ``CallFunction``.
        regions: The outlined regions.
        target: What is compiled for; it knows the memory of the device.
        alignment: Alignment of offsets in the workspace, in bytes.
        tuned: The best choices in the plugin's ``schedule_spaces`` by measurement; ``None`` if
            there are none.
        name: Name of the unit.
        functions: Bodies of branches and loops, by name; empty unless the kind declares
            ``control_flow``.
    """


@hookspec
def tir_codegen(module: TensorModule, target: Target) -> CompiledUnit | None:
    """Compile the result of ``lower``, after ``rewrite_tir``.

    May not keep state between calls; equal modules give equal bytes.
    """


@hookspec
def lower_intrinsic(target: Target) -> Mapping[Intrinsic, IntrinsicRule]:
    """Return a rule for each intrinsic that the backend expresses by others.

    Called once a build, not once a node.
    """


@hookspec
def register_executor_kind() -> Sequence[ExecutorKind]:
    """Return the kinds of executor that the manifest declares, with the same names.

    Called once, when the plugin is first used; only if the manifest declares one.
    """


@hookspec
def register_runtime_kind() -> Sequence[RuntimeKind]:
    """Return the kinds of runtime that the manifest declares, with the same names.

    Called once, when the plugin is first used; only if the manifest declares one.
    """


@hookspec
def register_kind_attribute() -> Sequence[KindAttributeValue]:
    """Return the attributes of target kinds that the manifest declares: values of typed columns.

    Called once, when the plugin is first used; only if the manifest declares one. The kinds may
    belong to other plugins, which need not be installed.
    """


@hookspec
def register_frontend() -> Sequence[Frontend]:
    """Return the model formats that the manifest declares, with the same names and suffixes.

    Called once, when a model of one of them is imported; only if the manifest declares one.
    """


@hookspec
def register_commands() -> Sequence[click.Command]:
    """Return the commands of ``intarsia`` that the manifest declares, with the same names.

    Called once, when one of them is used; ``intarsia --help`` reads their summaries from the
    manifest.
    """


@hookspec
def rewrite_relay(function: Function, target: Target) -> Function:
    """Return an equivalent function that suits the backend better.

    A fallback gets the part that it compiles, an accelerator the whole prepared graph before
    ``annotate``. May not change the results of the function, its parameters and its result type.
    """


@hookspec
def rewrite_tir(function: PrimFunc, target: Target) -> PrimFunc:
    """Return an equivalent kernel that suits the backend better.

    May not change its results and its parameters.
    """


@hookspec
def schedule_spaces(target: Target) -> ScheduleSpaces:
    """Return the schedule spaces of the backend's kernels for a target, and the machine's name.

    Called by ``tune``, and once a build if there are tuning records. The spaces depend only on the
    target; every choice in them gives the same result.
    """


@hookspec
def probe(target: Target) -> Probe:
    """Return the vendor component and the device on this machine, or the reason for none.

    Called by ``doctor`` and ``run`` only, in a child process with a time limit.
    """
