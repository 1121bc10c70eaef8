# SPDX-License-Identifier: Apache-2.0
"""Go down a level: from a graph function to kernels and the plan that calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from msgspec import Struct, field

from ..artifact.deferred import Weights
from ..artifact.plan import ALIGNMENT
from ..budget import budget
from ..errors import PluginError
from ..ir.expr import Call, Constant, Expr, Function, Var, tensor_type
from ..ir.walk import post_order
from ..target.dispatch import dispatch
from ..tir.func import PrimFunc
from ..tir.passes.stack_to_scratch import (
    DEVICE_FRAME_BYTES,
    FRAME_BYTES,
    STACK_BYTES,
    frame_bytes,
    stack_to_scratch,
    verify_frame,
)
from .call_plan import check_kernel, plan_calls
from .fuse import KernelCall, fuse
from .kernels import FusedGroup, TensorModule
from .loops import default_loops
from .space import ChosenKernel, Tuned, signature_of
from .tensors import stages_of

if TYPE_CHECKING:
    from ..partition.region import Region
    from ..target.target import Target

_TEMPORARY_BYTES = 64 << 20
_TEMPORARY_SHARE = 16


class Lowered(Struct, frozen=True, eq=False):
    """What a backend compiles, and the constants its plan reads.

    Attributes:
        module: Kernels and the plan.
        constants: Arrays by the names in ``module.plan.constants``, in that order.
        chosen: Name of a kernel to what records said of it; only those that records know.
    """

    module: TensorModule
    constants: Weights
    chosen: Mapping[str, ChosenKernel] = field(
        default_factory=lambda: MappingProxyType[str, ChosenKernel]({})
    )


def lower(
    main: Function,
    regions: Sequence[Region],
    *,
    target: Target,
    name: str = "main",
    alignment: int = ALIGNMENT,
    tuned: Tuned | None = None,
) -> Lowered:
    """Fuse, schedule and plan a function.

    Args:
        main: Entry function; calls of outlined regions are :class:`~intarsia.ir.expr.CallFunction`.
        regions: The outlined regions.
        target: Its kind's schedules replace default loops; nothing else of it is used.
        name: Name of the unit.
        alignment: Of offsets in the workspace, in bytes.
        tuned: What was measured to be best; rules decide if ``None``.

    Raises:
        UnsupportedError: Control flow, a symbolic shape, or an operator without a compute rule.
        PluginError: A schedule returned a kernel whose parameters do not fit its group.
    """
    fusion = fuse(main)
    known: dict[object, PrimFunc] = {}
    names: dict[str, int] = {}
    kernels: dict[KernelCall, PrimFunc] = {}
    chosen: dict[str, ChosenKernel] = {}
    for item in fusion.items:
        if not isinstance(item, KernelCall):
            continue
        budget().check()
        check_kernel(item.group.label, len(item.args) + len(item.outputs))  # before minutes of work
        key = _structure(item.group)
        if key not in known:
            group = _renamed(item.group, names)
            kernel = _chosen_kernel(group, target, tuned, chosen)
            known[key] = _bounded(_kernel(group, target) if kernel is None else kernel, target)
        kernels[item] = known[key]
    plan, constants = plan_calls(main, fusion, kernels, regions, alignment=alignment)
    module = TensorModule(tuple(known.values()), plan, name)
    return Lowered(module, constants, MappingProxyType(chosen))


def _renamed(group: FusedGroup, names: dict[str, int]) -> FusedGroup:
    count = names.get(group.name, 0)
    names[group.name] = count + 1
    return replace(group, name=f"{group.name}_{count}")


def _kernel(group: FusedGroup, target: Target) -> PrimFunc:
    """Return the kernel of a group: its schedule's, or default loops."""
    anchor = group.anchor
    # Schedules share out work among threads and registers; they need not think of none.
    if anchor is not None and not _is_empty(group):
        schedule = _schedule(anchor.name, target)
    else:
        schedule = None
    kernel = None if schedule is None else schedule(group, target)
    if kernel is None:
        return _default_kernel(group, target)
    kernel = _checked(kernel, group, target)
    return _default_kernel(group, target) if _wastes_memory(kernel) else kernel


def _bounded(kernel: PrimFunc, target: Target) -> PrimFunc:
    """Return a kernel whose temporaries fit every stack.

    Raises:
        VerifyError: The backend leaves more on the stack than it may.
    """
    kind = target.kind
    if kind.bound_stack is not None:
        kernel = kind.bound_stack(kernel, target)
    elif not kind.main_loader:
        kernel = stack_to_scratch(kernel, STACK_BYTES)
    verify_frame(kernel, DEVICE_FRAME_BYTES if kind.main_loader else FRAME_BYTES)
    return kernel


def _wastes_memory(kernel: PrimFunc) -> bool:
    """Whether the temporaries of a schedule are far larger than what it works on.

    A padded copy of a picture is, where the dilation of the window is millions.
    """
    used = sum(buffer.bytes for buffer in kernel.params[: len(kernel.params) - kernel.scratch])
    own = sum(buffer.bytes for buffer in kernel.scratch_params) + frame_bytes(kernel)
    return own > max(_TEMPORARY_BYTES, _TEMPORARY_SHARE * used)


def _schedule(operator: str, target: Target) -> Callable[..., object] | None:
    """Return the schedule of an operator; of a table by key, the row of the most special key."""
    found = target.kind.schedules.get(operator)
    if not isinstance(found, Mapping):
        return found
    rows = {"default": None, **cast("Mapping[str, Callable[..., object]]", found)}
    return dispatch(rows, target, f"a schedule of {operator}")


def _chosen_kernel(
    group: FusedGroup, target: Target, tuned: Tuned | None, chosen: dict[str, ChosenKernel]
) -> PrimFunc | None:
    """Return the kernel that records ask for, and note it; ``None`` if they do not."""
    found = None if tuned is None or _is_empty(group) else tuned.choice(group)
    if found is None:
        return None
    space, choice = found
    kernel = space.schedule(group, target, choice)
    if kernel is None:
        return None
    chosen[group.name] = ChosenKernel(space.operator, signature_of(group), choice)
    return _checked(kernel, group, target)


def _checked(kernel: object, group: FusedGroup, target: Target) -> PrimFunc:
    """Return what a schedule gave, under the group's name, if it is a kernel for the group."""
    anchor = group.anchor
    if not isinstance(kernel, PrimFunc) or len(kernel.input_params) != len(group.function.params):
        raise PluginError(
            f"the schedule of '{'' if anchor is None else anchor.name}' of target kind "
            f"'{target.kind.name}' returned no kernel for '{group.name}'",
            hint="a schedule returns None or a PrimFunc with one input for each group parameter",
        )
    return replace(kernel, name=group.name)


def _default_kernel(group: FusedGroup, target: Target) -> PrimFunc:
    """Return the loops of a group without a schedule: the kind's own, or those for CPUs."""
    call = group.function.body
    if isinstance(call, Call) and call.op.loops is not None:
        written: PrimFunc = call.op.loops(call.attrs, *(arg.type for arg in call.args))
        return replace(written, name=group.name)
    stages = stages_of(group.function)
    if target.kind.loops is None:
        return default_loops(group.name, stages)
    kernel = cast("object", target.kind.loops(group.name, stages, target))
    if not isinstance(kernel, PrimFunc) or len(kernel.input_params) != len(stages.inputs):
        raise PluginError(
            f"the loops of target kind '{target.kind.name}' are no kernel for '{group.name}'",
            hint="loops() returns a PrimFunc with one input for each input of the stages",
        )
    return replace(kernel, name=group.name)


def _is_empty(group: FusedGroup) -> bool:
    """Whether a parameter has no elements."""
    return any(tensor_type(param).elements == 0 for param in group.function.params)


def _structure(group: FusedGroup) -> object:
    """Return a key that is equal for groups that compute the same on the same types."""
    numbers: dict[Expr, int] = {param: n for n, param in enumerate(group.function.params)}
    rows: list[object] = [tuple(param.type for param in group.function.params)]
    for node in post_order(group.function.body):
        if isinstance(node, Var):
            continue
        numbers[node] = len(numbers)
        if isinstance(node, Constant):
            rows.append((node.type, node.data.tobytes()))
        elif isinstance(node, Call):
            rows.append((node.op, node.attrs, tuple(numbers[arg] for arg in node.args)))
    return tuple(rows)
