# SPDX-License-Identifier: Apache-2.0
"""Lowering: from a graph function to kernels and the plan that calls them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, cast

from msgspec import Struct, field

from intarsia_ir.budget import budget
from intarsia_ir.graph.expr import Call, Constant, Expr, Function, Var, tensor_type
from intarsia_ir.graph.guards import guards_apart
from intarsia_ir.graph.size_scopes import defined_sizes
from intarsia_ir.graph.types import TensorType, TupleType
from intarsia_ir.graph.walk import calls, post_order
from intarsia_ir.tir.forward import is_scalar_name
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup, Lowered, TensorModule
from intarsia_ir.tir.passes.flatten_open import flatten_open
from intarsia_ir.tir.passes.stack_to_scratch import (
    DEVICE_FRAME_BYTES,
    FRAME_BYTES,
    STACK_BYTES,
    frame_bytes,
    stack_to_scratch,
    verify_frame,
)
from intarsia_ir.tir.space import ChosenKernel, Tuned, signature_of
from intarsia_runtime.artifact.plan import ALIGNMENT
from intarsia_runtime.errors import PluginError, UnsupportedError

from .call_plan import check_kernel, plan_calls
from .dispatch import dispatch
from .fuse import Fusion, KernelCall, fuse
from .loops import default_loops
from .merged_kernels import MergedKernel, merge_kernels
from .reserve_rows import reserve_rows
from .scalar_parameters import with_scalar_parameters
from .shared_kernels import GeneralGroup, forward, general_group
from .step_planner import Callees, FusedFunction
from .tensors import Stages, stages_of
from .typical import is_open, typical

if TYPE_CHECKING:
    from .targets import LoopTarget, OutlinedRegion

GroupSchedule: TypeAlias = "Callable[[FusedGroup, LoopTarget], PrimFunc | None]"
"""``schedule(group, target)``: the kernel of a group, or ``None`` for the default loops."""

DefaultLoops: TypeAlias = "Callable[[str, Stages, LoopTarget], PrimFunc]"
"""``loops(name, stages, target)``: the kernel of a group that no schedule takes."""

BoundStack: TypeAlias = "Callable[[PrimFunc, LoopTarget], PrimFunc]"
"""``bound_stack(kernel, target)``: the kernel with temporaries that every stack holds."""

ScheduleTable: TypeAlias = "Mapping[str, GroupSchedule | Mapping[str, GroupSchedule]]"
"""Name of an anchor operator to its schedule, or to schedules by key of the target."""

OPEN_SCHEDULES = frozenset(
    {
        "cpu.avg_pool",
        "cpu.conv",
        "cpu.plane_avg_pool",
        "cpu.plane_conv",
        "cpu.plane_max_pool",
        "cpu.dense",
        "cpu.depthwise",
        "cpu.max_pool",
        "cpu.qconv",
        "cpu.pair_conv",
        "cpu.pair_dense",
        "cpu.qdense",
        "cpu.qdepthwise",
        "cpu.winograd",
        "matmul",
        "nn.conv",
        "nn.log_softmax",
        "nn.softmax",
        "transpose",
    }
)
"""Operators whose schedules are for open sizes, too."""

_TEMPORARY_BYTES = 64 << 20
_TEMPORARY_SHARE = 16


class _Backend(Struct, frozen=True):
    """What a backend gives to :func:`lower`."""

    target: LoopTarget
    schedules: ScheduleTable
    loops: DefaultLoops | None
    bound_stack: BoundStack | None
    on_device: bool
    is_sized: bool


def lower(
    main: Function,
    regions: Sequence[OutlinedRegion] = (),
    *,
    target: LoopTarget,
    schedules: ScheduleTable = MappingProxyType({}),
    loops: DefaultLoops | None = None,
    bound_stack: BoundStack | None = None,
    on_device: bool = False,
    forwards: bool = False,
    merges_sized: bool = True,
    name: str = "main",
    alignment: int = ALIGNMENT,
    tuned: Tuned | None = None,
    functions: Mapping[str, Function] = MappingProxyType({}),
) -> Lowered:
    """Fuse, schedule and plan a function.

    A backend calls this in its hook ``lower`` with its own schedules.

    Args:
        main: Entry function; calls of outlined regions are
            :class:`~intarsia_ir.graph.expr.CallFunction`.
        regions: The outlined regions.
        target: Handed to schedules as it is; its keys choose among schedules by key.
        schedules: Anchor operator to ``schedule(group, target)``, which replaces the default loops
            of a fused group; or a table of such functions by the target's key, most special first.
        loops: Replaces the default loops of groups that no schedule takes.
        bound_stack: ``bound_stack(kernel, target)`` moves temporaries that no stack is sure to hold
            into scratch parameters, before the workspace is planned; see
            :mod:`intarsia_ir.tir.passes.stack_to_scratch`. Without one, one thread runs the loops
            of a kernel that has large temporaries.
        on_device: Whether kernels run on a device, whose threads have larger frames.
        forwards: Whether kernels may call others of their module; see :mod:`.shared_kernels`.
        merges_sized: Whether those of fixed sizes do; what they differ in is a parameter.
        name: Name of the unit.
        alignment: Of offsets in the workspace, in bytes.
        tuned: Measured choices; rules decide if ``None``.
        functions: What control flow carries out, by name.

    Raises:
        UnsupportedError: A symbolic shape, or an operator without a compute rule.
        PluginError: A schedule returned a kernel whose parameters do not fit its group.
        VerifyError: ``bound_stack`` leaves more on the stack than it may.
    """
    is_sized = _is_sized(main, *functions.values())
    backend = _Backend(target, schedules, loops, bound_stack, on_device, is_sized)
    if functions and not on_device:
        main, functions = _with_reserved_rows(main, functions)
    fused = {key: _fused(one, schedules) for key, one in functions.items()}
    entry = _fused(main, schedules)
    work = _Kernels(backend, tuned)
    if forwards and tuned is None and (merges_sized or not is_sized):
        entry, fused = work.share(entry, fused)
    for one in (entry, *fused.values()):
        work.add(one.fusion)
    by_call, kernels = work.kernels()
    callees = Callees(by_call, {region.name: region for region in regions}, fused)
    plan, constants = plan_calls(entry, callees, alignment=alignment)
    return Lowered(TensorModule(kernels, plan, name), constants, MappingProxyType(work.chosen))


def _with_reserved_rows(
    main: Function, functions: Mapping[str, Function]
) -> tuple[Function, dict[str, Function]]:
    """Return both with room for what their loops append."""
    whole = reserve_rows({"main": main, **functions})
    return whole.pop("main"), whole


def _fused(function: Function, schedules: ScheduleTable) -> FusedFunction:
    """Group the calls of a function; matrices are transposed apart if a schedule does it."""
    return FusedFunction(function, fuse(function, matrices_apart="transpose" in schedules))


class _Kernels(Struct):
    """The kernels of a module, one for all groups that compute the same.

    Attributes:
        backend: What schedules them.
        tuned: Measured choices.
        by_structure: The kernels, whose strides are those of their parameters.
        by_call: Structure of the group of each call.
        names_of: The name of the kernel of each structure.
        chosen: What records said of kernels, by their names.
        general: Groups that may have a kernel together with others, by their structure.
    """

    backend: _Backend
    tuned: Tuned | None
    by_structure: dict[object, PrimFunc] = field(default_factory=dict[object, PrimFunc])
    by_call: dict[KernelCall, object] = field(default_factory=dict[KernelCall, object])
    names_of: dict[object, str] = field(default_factory=dict[object, str])
    chosen: dict[str, ChosenKernel] = field(default_factory=dict[str, ChosenKernel])
    names: dict[str, int] = field(default_factory=dict[str, int])
    general: dict[object, GeneralGroup | None] = field(
        default_factory=dict[object, GeneralGroup | None]
    )

    def share(
        self, entry: FusedFunction, others: Mapping[str, FusedFunction]
    ) -> tuple[FusedFunction, dict[str, FusedFunction]]:
        """Find the groups that may be one: equal operators, with variables for their sizes.

        Returns the functions with scalars as parameters where groups differ in these alone.
        """
        functions = (entry, *others.values())
        fusions = with_scalar_parameters([one.fusion for one in functions])
        kinds: dict[str, dict[object, FusedGroup]] = {}
        for item in (item for fusion in fusions for item in fusion.items):
            if isinstance(item, KernelCall):
                alike = kinds.setdefault(item.group.name, {})
                alike[_structure(item.group)] = item.group
        for alike in kinds.values():
            for key, group in alike.items() if len(alike) > 1 else ():
                self.general[key] = general_group(group)
        pairs = zip(functions, fusions, strict=True)
        first, *behind = (FusedFunction(one.function, fusion) for one, fusion in pairs)
        return first, dict(zip(others, behind, strict=True))

    def add(self, fusion: Fusion) -> None:
        """Schedule the kernels of a function."""
        for item in fusion.items:
            if not isinstance(item, KernelCall):
                continue
            budget().check()
            # Before minutes of work.
            check_kernel(item.group.label, len(item.args) + len(item.outputs))
            key = _structure(item.group)
            self.by_call[item] = key
            if key not in self.names_of:
                group = _renamed(item.group, self.names)
                self.names_of[key] = group.name
                with _placed(group):
                    self._make(group, key)

    def _make(self, group: FusedGroup, key: object) -> None:
        """Schedule the kernel of a group, or of the one with variables for its sizes."""
        general = self.general.get(key)
        if general is None:
            kernel = _chosen_kernel(group, self.backend.target, self.tuned, self.chosen)
            kernel = kernel or _kernel(group, self.backend)
            self.by_structure[key] = _bounded(kernel, self.backend)
            return
        shared = _structure(general.group)
        if shared not in self.by_structure:
            one = replace(general.group, name=f"{group.name}_any")
            with guards_apart():  # those of the group as it is are known
                self.by_structure[shared] = _bounded(_kernel(one, self.backend), self.backend)

    def kernels(self) -> tuple[dict[KernelCall, PrimFunc], tuple[PrimFunc, ...]]:
        """Return the kernel of each call, and all kernels of the module."""
        made, kernels = self.by_structure, tuple(self.by_structure.values())
        if not self.backend.is_sized:
            made, kernels = self._merged()
        return {call: made[key] for call, key in self.by_call.items()}, kernels

    def _merged(self) -> tuple[dict[object, PrimFunc], tuple[PrimFunc, ...]]:
        """Return the kernel of each group, and all kernels; those that may be one are."""
        alike = {_structure(g.group) if g else key for key, g in self.general.items()}
        callees: dict[PrimFunc, MergedKernel] = {}
        for one in merge_kernels([k for key, k in self.by_structure.items() if key in alike]):
            callees |= dict.fromkeys(one.values, one)
        for kernel in self.by_structure.values():
            if kernel not in callees:
                callees[kernel] = MergedKernel(flatten_open(kernel), {kernel: {}})
        made: dict[object, PrimFunc] = {}
        for key, name in self.names_of.items():
            general = self.general.get(key)
            own = self.by_structure[key if general is None else _structure(general.group)]
            callee = callees[own]
            made[key] = callee.kernel
            if general is not None or len(callee.values) > 1:
                made[key] = forward(name, own, callee, general)
        kernels = dict.fromkeys((*made.values(), *(one.kernel for one in callees.values())))
        return made, tuple(kernels)


@contextmanager
def _placed(group: FusedGroup) -> Generator[None]:
    """Put the name of the model's node before what cannot be compiled of a group."""
    try:
        yield
    except UnsupportedError as error:
        spans = [call.span for call in calls(group.function) if call.span.name]
        if not error.where and spans:
            error.where = str(spans[0])
        raise


def _is_sized(main: Function, *inner: Function) -> bool:
    """Whether all sizes are numbers: those of the inputs, and there are no others."""
    if any(is_open(tensor_type(param)) for param in main.params):
        return False
    return not any(defined_sizes(call) for one in (main, *inner) for call in calls(one))


def _renamed(group: FusedGroup, names: dict[str, int]) -> FusedGroup:
    count = names.get(group.name, 0)
    names[group.name] = count + 1
    return replace(group, name=f"{group.name}_{count}")


def _kernel(group: FusedGroup, backend: _Backend) -> PrimFunc:
    """Return the kernel of a group: its schedule's, or default loops."""
    anchor = group.anchor
    # Schedules share out work among threads and registers; they need not think of none.
    takes_open = anchor is not None and anchor.name in OPEN_SCHEDULES
    if anchor is not None and not _is_empty(group) and (takes_open or not _is_open(group)):
        schedule = _schedule(anchor.name, backend)
    else:
        schedule = None
    kernel = None if schedule is None else schedule(group, backend.target)
    if kernel is None:
        return _default_kernel(group, backend)
    kernel = _checked(kernel, group)
    return _default_kernel(group, backend) if _wastes_memory(kernel) else kernel


def _bounded(kernel: PrimFunc, backend: _Backend) -> PrimFunc:
    """Return a kernel whose temporaries fit every stack.

    Raises:
        VerifyError: The backend leaves more on the stack than it may.
    """
    if backend.bound_stack is not None:
        kernel = backend.bound_stack(kernel, backend.target)
    elif not backend.on_device:
        kernel = stack_to_scratch(kernel, STACK_BYTES)
    verify_frame(kernel, DEVICE_FRAME_BYTES if backend.on_device else FRAME_BYTES)
    return kernel


def _wastes_memory(kernel: PrimFunc) -> bool:
    """Whether the temporaries of a schedule are far larger than what it works on.

    A padded copy of an image is, where the dilation of the window is millions.
    """
    given = kernel.params[: len(kernel.params) - kernel.scratch]
    used = typical(sum(buffer.bytes for buffer in given))
    own = typical(sum(buffer.bytes for buffer in kernel.scratch_params) + frame_bytes(kernel))
    return own > max(_TEMPORARY_BYTES, _TEMPORARY_SHARE * used)


def _schedule(operator: str, backend: _Backend) -> GroupSchedule | None:
    """Return the schedule of an operator; of a table by key, the row of the most special key."""
    entry = backend.schedules.get(operator)
    if not isinstance(entry, Mapping):
        return entry
    rows: dict[str, GroupSchedule | None] = {"default": None, **entry}
    return dispatch(rows, backend.target, f"a schedule of {operator}")


def _chosen_kernel(
    group: FusedGroup, target: LoopTarget, tuned: Tuned | None, chosen: dict[str, ChosenKernel]
) -> PrimFunc | None:
    """Return the kernel that records ask for, and note it; ``None`` if they do not."""
    entry = None if tuned is None or _is_empty(group) else tuned.choice(group)
    if entry is None:
        return None
    space, choice = entry
    kernel = space.schedule(group, target, choice)
    if kernel is None:
        return None
    chosen[group.name] = ChosenKernel(space.operator, signature_of(group), choice)
    return _checked(kernel, group)


def _checked(kernel: object, group: FusedGroup) -> PrimFunc:
    """Return what a schedule gave, under the group's name, if it is a kernel for the group."""
    anchor = group.anchor
    if not isinstance(kernel, PrimFunc) or len(kernel.input_params) != len(group.function.params):
        raise PluginError(
            f"the schedule of '{'' if anchor is None else anchor.name}' "
            f"returned no kernel for '{group.name}'",
            hint="a schedule returns None or a PrimFunc with one input for each group parameter",
        )
    return replace(kernel, name=group.name)


def _default_kernel(group: FusedGroup, backend: _Backend) -> PrimFunc:
    """Return the loops of a group without a schedule: the backend's own, or those for CPUs."""
    call = group.function.body
    if isinstance(call, Call) and call.op.loops is not None:
        schedule = _schedule(call.op.name, backend)
        kernel = None if schedule is None else schedule(group, backend.target)
        if kernel is not None:
            return _checked(kernel, group)
        written: PrimFunc = call.op.loops(call.attrs, *(arg.type for arg in call.args))
        return replace(written, name=group.name)
    stages = stages_of(group.function)
    if backend.loops is None:
        return default_loops(group.name, stages)
    kernel = cast("object", backend.loops(group.name, stages, backend.target))
    if not isinstance(kernel, PrimFunc) or len(kernel.input_params) != len(stages.inputs):
        raise PluginError(
            f"the backend's default loops are no kernel for '{group.name}'",
            hint="loops() returns a PrimFunc with one input for each input of the stages",
        )
    return replace(kernel, name=group.name)


def _is_open(group: FusedGroup) -> bool:
    """Whether a size of a group is only known at run time."""
    function = group.function
    types = [*(tensor_type(param) for param in function.params), *_result_types(function.body)]
    return any(is_open(kind) for kind in types)


def _result_types(body: Expr) -> tuple[TensorType, ...]:
    fields = body.type.fields if isinstance(body.type, TupleType) else (body.type,)
    return tuple(kind for kind in fields if isinstance(kind, TensorType))


def _is_empty(group: FusedGroup) -> bool:
    """Whether a parameter has no elements."""
    types = [tensor_type(param) for param in group.function.params]
    return any(0 in kind.shape for kind in types)


def _structure(group: FusedGroup) -> object:
    """Return a key that is equal for groups that compute the same on the same types."""
    numbers: dict[Expr, int] = {param: n for n, param in enumerate(group.function.params)}
    params = group.function.params
    rows: list[object] = [tuple((param.type, is_scalar_name(param.name)) for param in params)]
    for node in post_order(group.function.body):
        if isinstance(node, Var):
            continue
        numbers[node] = len(numbers)
        if isinstance(node, Constant):
            rows.append((node.type, node.data.tobytes()))
        elif isinstance(node, Call):
            rows.append((node.op, node.attrs, tuple(numbers[arg] for arg in node.args)))
    return tuple(rows)
