# SPDX-License-Identifier: Apache-2.0
"""The hooks: what the host asks plugins, and what it may rely on.

A hook about a target goes to the plugin that owns its kind and to no other. Every answer is
checked; an exception becomes a ``PluginError`` that names the plugin and the hook. Hooks that a
plugin need not have may answer ``None``: of this target it has nothing to say.
"""

# A specification has no body; pluggy reads its name and arguments.
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .markers import hookspec

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


@hookspec
def register_target_kind() -> Sequence[TargetKind]:
    """Return the kinds that the manifest declares, with the same names and roles.

    Asked once, when one of them is first used. A kind is data: the module of its options class is
    all that this may import.
    """


@hookspec
def canonicalize_target(target: Target) -> Target | None:
    """Return the target with its options checked against each other, and filled in.

    Asked for every target that is read; its answer's options count, nothing else of it. Raises
    ``TargetError``, which is pointed at the option that its message begins with: ``-mcpu: no
    processor 'x'``. May not load more than the options of this target need.
    """


@hookspec
def environment_version(target: Target) -> str | None:
    """Return the version of the vendor component that a build depends on; part of cache keys."""


@hookspec
def known_values(flag: str, target: Target) -> KnownValues | None:
    """Return what the code generator itself says of an option's values; may take seconds.

    Asked by ``targets show --values``, for flags among the kind's ``known_flags``.
    """


@hookspec
def performance(target: Target) -> Performance | RelativePerformance | None:
    """Return what a device does in a second, for choosing between accelerators by cost.

    An accelerator without an answer is presumed to be fast: it gets all that it takes and states no
    cost of.
    """


@hookspec
def simulated(target: Target) -> str | None:
    """Return how results are computed where the options ask for a simulation.

    In words, e.g. ``by NumPy on this machine``; empty if code runs on the device. What is simulated
    is reported as such, and never counted as offloaded.
    """


@hookspec
def machine(target: Target) -> Machine | None:
    """Return the least machine that code for the target may be for (``check --on`` asks).

    An artifact that needs no more may run there. Without an answer, a kernel is compiled and its
    unit asked. Backends only.
    """


@hookspec
def target_function(name: str, target: Target) -> CodegenSignature | None:
    """Return the signature of a function that loops may call by the code generator's own name.

    They call it with ``call_target_intrinsic``. ``None`` if there is no such function. Asked once a
    name and build.
    """


@hookspec
def annotate(target: Target) -> SupportTable:
    """Return what the accelerator takes: patterns with predicates, larger before their parts.

    Asked once a build. May not look at the module: the host matches.
    """


@hookspec
def partition(regions: Sequence[Region], target: Target, fallback: Target) -> Sequence[Region]:
    """Return the regions that are built; what is left of the others goes elsewhere.

    Asked once of each region. May drop calls, and say why with ``keep_calls(region, calls,
    "reason")``, and cut a region with ``split_region(region, parts)``; may not add calls to one.
    ``fallback`` gets what is given back: its kind says what it is good at.
    """


@hookspec
def relay_codegen(region: Region, target: Target) -> CompiledUnit | None:
    """Compile a region.

    Asked once a region. Without an answer the plugin gets the region as loops, by ``lower`` and
    ``tir_codegen``. May not keep state between calls; equal regions give equal bytes.
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

    A backend is asked for what it is the fallback of; an accelerator for each of its regions that
    ``relay_codegen`` does not compile, with no ``regions``. The loop compiler that all share does
    it: ``intarsia_loops.lower.lower(main, regions, target=target, schedules=..., ...)``.

    Args:
        main: Entry function; calls of outlined regions are ``CallFunction``.
        regions: The outlined regions.
        target: What is compiled for; it knows the memory of the device.
        alignment: Of offsets in the workspace, in bytes.
        tuned: What was measured to be best in the plugin's ``schedule_spaces``; ``None`` if nothing
            was.
        name: Name of the unit.
        functions: What control flow carries out, by name; empty unless the kind takes
            ``control_flow``.
    """


@hookspec
def tir_codegen(module: TensorModule, target: Target) -> CompiledUnit | None:
    """Compile loops: what ``lower`` gave, after ``rewrite_tir``.

    May not keep state between calls; equal modules give equal bytes.
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
def register_frontend() -> Sequence[Frontend]:
    """Return the model formats that the manifest declares, with the same names and suffixes.

    Asked once, when a model of one of them is imported; only if the manifest declares one.
    """


@hookspec
def register_commands() -> Sequence[click.Command]:
    """Return the commands of ``intarsia`` that the manifest declares, with the same names.

    Asked once, when one of them is called; ``intarsia --help`` reads their summaries in the
    manifest.
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
