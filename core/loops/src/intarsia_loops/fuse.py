# SPDX-License-Identifier: Apache-2.0
"""Group the operator calls of a function into kernels.

Calls are visited once, operands first. A call joins the groups of operands that nothing else reads,
as far as the kinds of the operators allow; a group is complete when its last call is reached, so
groups never form cycles and need no search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from msgspec import Struct, field

from intarsia_ir.graph.control import control_of
from intarsia_ir.graph.expr import (
    Call,
    CallFunction,
    Constant,
    Expr,
    Function,
    Tuple,
    Var,
    tensor_type,
)
from intarsia_ir.graph.op import OpKind
from intarsia_ir.graph.size_scopes import defined_size
from intarsia_ir.graph.types import Shape, TensorType
from intarsia_ir.graph.walk import post_order
from intarsia_ir.ops.shape import Concatenate, Split
from intarsia_ir.tir.module import FusedGroup

from .cost import is_cheap, reads_once, repeats_indices
from .matrices import reads_across, swaps_matrices
from .values import NodeResult, is_view, results_of, value_of

MAX_CALLS = 12
"""Most calls in one group without a heavy operator; more would make slow expressions."""

MAX_EPILOGUE = 24
"""Most calls in a group with a heavy operator."""

_LIGHT = (OpKind.ELEMWISE, OpKind.INJECTIVE)
_ALONE = (Concatenate, Split)  # many branches


class KernelCall(Struct, frozen=True, eq=False):
    """A group and the values it is called with, one for each parameter of its function."""

    group: FusedGroup
    args: tuple[NodeResult, ...]
    outputs: tuple[NodeResult, ...]


class RegionCall(Struct, frozen=True, eq=False):
    """A call of an outlined function."""

    name: str
    args: tuple[NodeResult, ...]
    outputs: tuple[NodeResult, ...]


class SizesRead(Struct, frozen=True, eq=False):
    """Size variables that are read, by name, from tensors that kernels before have written."""

    sizes: Mapping[str, NodeResult]

    @property
    def args(self) -> tuple[NodeResult, ...]:
        """What is read."""
        return tuple(self.sizes.values())

    @property
    def outputs(self) -> tuple[NodeResult, ...]:
        """No tensor is made."""
        return ()


class ControlCall(Struct, frozen=True, eq=False):
    """A call of control flow, which carries out functions of the module."""

    call: Call
    args: tuple[NodeResult, ...]
    outputs: tuple[NodeResult, ...]


Item: TypeAlias = KernelCall | RegionCall | ControlCall | SizesRead
"""What runs at one time."""


class Fusion(Struct, frozen=True, eq=False):
    """A function as kernels, region calls and control flow in the order they run.

    Attributes:
        items: What runs.
        views: Values that are the memory of another value under another shape.
        outputs: The function's results.
    """

    items: tuple[Item, ...]
    views: Mapping[NodeResult, NodeResult]
    outputs: tuple[NodeResult, ...]


class _Group(Struct, eq=False):
    calls: list[Call]
    heavy: Call | None = None


_Item: TypeAlias = "_Group | CallFunction | ControlCall | SizesRead"


def fuse(function: Function, *, matrices_apart: bool = False) -> Fusion:
    """Group the calls of a function into kernels; linear in its size.

    ``nn.conv -> add -> nn.relu`` becomes one group; so do chains of element-wise and injective
    calls, and those that feed a reduction. Nothing is computed twice.

    Args:
        function: What is grouped.
        matrices_apart: Whether large matrices are transposed by kernels of their own: two passes of
            vectors take a tenth of the time of one by elements.

    Raises:
        UnsupportedError: The function has an ``If`` or ``Let``, which passes turn into others.
    """
    outputs = tuple(value_of(output) for output in function.outputs)
    fuser = _Fuser(_count_readers(function), matrices_apart)
    for node in post_order(*function.outputs):
        if control_of(node) is not None and isinstance(node, Call):
            args = tuple(value_of(arg) for arg in node.args)
            fuser.items[node] = ControlCall(node, args, results_of(node))
        elif isinstance(node, Call):
            fuser.add_call(node)
        elif isinstance(node, CallFunction):
            fuser.items[node] = node
        elif not isinstance(node, Tuple):
            value_of(node)
    return Fusion(_joined(map(_call_of, fuser.items.values())), fuser.views, outputs)


def _joined(items: Iterable[Item]) -> tuple[Item, ...]:
    """Read sizes that follow one another at once."""
    found: list[Item] = []
    for item in items:
        if isinstance(item, SizesRead) and found and isinstance(found[-1], SizesRead):
            found[-1] = SizesRead({**found[-1].sizes, **item.sizes})
        else:
            found.append(item)
    return tuple(found)


def _call_of(item: _Item) -> Item:
    match item:
        case CallFunction():
            return _region_call(item)
        case ControlCall() | SizesRead():
            return item
        case _:
            return _kernel_call(item)


def _count_readers(function: Function) -> dict[Expr, int]:
    """Count the nodes that read each node; being a result of the function counts as one more."""
    readers: dict[Expr, int] = {}
    for node in post_order(*function.outputs):
        if isinstance(node, Call | CallFunction):
            for made in {value_of(arg).node for arg in node.args}:
                readers[made] = readers.get(made, 0) + 1
    for output in function.outputs:
        made = value_of(output).node
        readers[made] = readers.get(made, 0) + 2
    return readers


class _Fuser(Struct):
    readers: dict[Expr, int]
    matrices_apart: bool
    items: dict[Expr, _Item] = field(default_factory=dict[Expr, _Item])  # by last call, in order
    views: dict[NodeResult, NodeResult] = field(default_factory=dict[NodeResult, NodeResult])

    def add_call(self, call: Call) -> None:
        """Start a group with ``call``, taking in the groups of operands that allow it."""
        if is_view(call):
            self.views[NodeResult(call)] = value_of(call.args[0])
            name = defined_size(call)
            if name is not None:
                self.items[call] = SizesRead({name: value_of(call.args[0])})
            return
        group = _Group([], None if call.op.kind in _LIGHT else call)
        for producer in self._mergeable(call):
            other = self.items[producer]
            if isinstance(other, _Group) and self._joins(call, group, other):
                del self.items[producer]
                group.calls += other.calls
                group.heavy = other.heavy if group.heavy is None else group.heavy
        group.calls.append(call)
        self.items[call] = group

    def _mergeable(self, call: Call) -> list[Expr]:
        """Return the operands' nodes that only ``call`` reads, heavy groups first."""
        is_light_of: dict[Expr, bool] = {}
        for arg in call.args:
            item = self.items.get(arg)
            if isinstance(item, _Group) and self.readers[arg] == 1:
                is_light_of[arg] = item.heavy is None
        return sorted(is_light_of, key=is_light_of.__getitem__)

    def _joins(self, call: Call, group: _Group, other: _Group) -> bool:
        last = other.calls[-1]
        heavy = other.heavy
        calls = len(group.calls) + len(other.calls) + 1
        if _is_alone(last) or _is_alone(call) or not isinstance(call.type, TensorType):
            return False
        if self.matrices_apart and (swaps_matrices(call) or reads_across(last, call)):
            return False
        if heavy is not None:
            epilogue = call.op.kind is OpKind.ELEMWISE and _shape(last) == _shape(call)
            return epilogue and group.heavy is None and calls <= MAX_EPILOGUE
        if calls > MAX_CALLS:
            return False
        match call.op.kind:
            case OpKind.ELEMWISE:
                # A small operand that broadcasts would be computed again for every row.
                if _shape(last) == _shape(call):
                    return True
                return all(is_cheap(member) for member in other.calls)
            case OpKind.INJECTIVE:
                return len(other.calls) < 2 or not repeats_indices(call, last)
            case OpKind.REDUCTION:
                # A window may read an element many times; what is read once may be expensive.
                return all(is_cheap(member) for member in other.calls) or reads_once(call)
            case _:
                return False


def _is_alone(call: Call) -> bool:
    return call.op in _ALONE or call.op.loops is not None


def _shape(call: Call) -> Shape:
    return tensor_type(call).shape


def _region_call(node: CallFunction) -> RegionCall:
    return RegionCall(
        node.function.name, tuple(value_of(arg) for arg in node.args), results_of(node)
    )


def _kernel_call(group: _Group) -> KernelCall:
    """Outline a group as a function of what it reads from outside."""
    if group.calls[-1].op.loops is not None:
        return _written_call(group.calls[-1])
    params: dict[NodeResult, Var] = {}
    inside: dict[Expr, Expr] = {}

    def argument(arg: Expr) -> Expr:
        if arg in inside:
            return inside[arg]
        if isinstance(arg, Constant) and arg.type.elements == 1:
            return arg
        value = value_of(arg)
        if value not in params:
            params[value] = Var(f"p{len(params)}", value.type)
        return params[value]

    for call in group.calls:
        inside[call] = replace(call, args=tuple(argument(arg) for arg in call.args))
    last = group.calls[-1]
    heavy = group.calls[0] if group.heavy is None and len(group.calls) == 1 else group.heavy
    anchor = None if heavy is None else inside[heavy]
    body = inside[last]
    fused = FusedGroup(
        name="_".join(call.name for call in group.calls).replace(".", "_")[:80],
        function=Function(tuple(params.values()), body),
        anchor=anchor if isinstance(anchor, Call) else None,
        nodes=tuple(dict.fromkeys(call.span.name for call in group.calls if call.span.name)),
    )
    return KernelCall(fused, tuple(params), results_of(last))


def _written_call(call: Call) -> KernelCall:
    """Outline an operator that writes its loops: a parameter for each operand, whatever it is."""
    values = tuple(value_of(arg) for arg in call.args)
    params = tuple(Var(f"p{number}", value.type) for number, value in enumerate(values))
    alone = replace(call, args=params)
    nodes = (call.span.name,) if call.span.name else ()
    name = call.name.replace(".", "_")
    fused = FusedGroup(name, Function(params, alone), alone, nodes)
    return KernelCall(fused, values, results_of(call))
