# SPDX-License-Identifier: Apache-2.0
"""One kernel for groups that differ in the expressions of their open sizes alone.

The layers of a stage behind a stride work on images of ``(H + 1) // 2`` rows, those of the next one
on ``((H + 1) // 2 + 1) // 2``. With a variable of its own for each size that a group is given, both
are the same group. So there is one kernel, which takes these sizes, and for each of the groups a
*forward*: a function of the group's own name and size variables that computes the sizes and calls
the kernel. Plan, profiles and loaders know forwards only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec import Struct

from intarsia_ir.graph.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var, tensor_type
from intarsia_ir.graph.guards import guards_apart
from intarsia_ir.graph.size_scopes import defined_sizes, sizes_in
from intarsia_ir.graph.types import TensorType, TupleType, Type
from intarsia_ir.graph.walk import post_order, rewrite_expr
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import TirVar, index, size_variable
from intarsia_ir.tir.forward import forward_to
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_runtime.errors import IntarsiaError
from intarsia_runtime.size import Dim, Size, variable

from .merged_kernels import MergedKernel


class GeneralGroup(Struct, frozen=True, eq=False):
    """A group whose size variables are the sizes that it is given.

    Attributes:
        group: The group.
        sizes: What each size variable is in the model.
    """

    group: FusedGroup
    sizes: Mapping[str, Size]


def general_group(group: FusedGroup) -> GeneralGroup | None:
    """Return a group with variables for its sizes; ``None`` if they are numbers, or are needed.

    Sizes are needed where an operator states one, and where sizes that were related must be again:
    the group does not have the same types with variables.
    """
    names: dict[Dim, str] = {}
    params: dict[Expr, Expr] = {}
    for param in group.function.params:
        shape = tensor_type(param).shape
        for size in shape:
            if isinstance(size, Dim):
                names.setdefault(size, f"size{len(names)}")
        general = tuple(variable(names[s]) if isinstance(s, Dim) else s for s in shape)
        params[param] = replace(param, type=tensor_type(param).with_shape(general))
    nodes = post_order(group.function.body)
    if not names or not all(_is_plain(node) for node in nodes):
        return None
    changed = dict(params)
    try:
        with guards_apart():  # of the group as it is they are known
            body = rewrite_expr(group.function.body, lambda _: None, changed)
    except IntarsiaError:
        return None
    sizes: dict[str, Size] = {name: size for size, name in names.items()}
    if any(_substituted(changed[node].type, sizes) != node.type for node in nodes):
        return None
    anchor = None if group.anchor is None else changed[group.anchor]
    assert anchor is None or isinstance(anchor, Call)
    made = tuple(params[param] for param in group.function.params)
    variables = tuple(param for param in made if isinstance(param, Var))
    function = replace(group.function, params=variables, body=body)
    return GeneralGroup(replace(group, function=function, anchor=anchor), sizes)


def forward(
    name: str, own: PrimFunc, callee: MergedKernel, general: GeneralGroup | None
) -> PrimFunc:
    """Return a function that calls a kernel in the place of another one.

    Args:
        name: A C identifier.
        own: What it would be itself; of a general group, with the variables of that.
        callee: Stands for it.
        general: The group, which says what its variables are; others keep their names.
    """
    sizes: Mapping[str, Size] = {} if general is None else general.sizes
    values = callee.values[own]
    params = tuple(_sized(buffer, sizes) for buffer in own.params)
    given = [_in_model(values.get(s.name, variable(s.name)), sizes) for s in callee.kernel.sizes]
    used = {name for size in given if isinstance(size, Dim) for name in size.variables()}
    variables: list[TirVar] = [size_variable(name) for name in sorted(used)]
    body = forward_to(callee.kernel.name, params, [index(size) for size in given])
    return replace(own, name=name, params=params, body=body, sizes=tuple(variables))


def _is_plain(node: Expr) -> bool:
    """Whether a node neither defines nor states a size."""
    if isinstance(node, Call):
        return not defined_sizes(node) and not any(sizes_in(node.attrs))
    return isinstance(node, Constant | Tuple | TupleGetItem | Var)


def _substituted(kind: Type, sizes: Mapping[str, Size]) -> Type:
    if isinstance(kind, TupleType):
        return TupleType(tuple(_substituted(field, sizes) for field in kind.fields))
    assert isinstance(kind, TensorType)
    return kind.with_shape(_in_model(size, sizes) for size in kind.shape)


def _sized(buffer: Buffer, sizes: Mapping[str, Size]) -> Buffer:
    """Return a parameter of sizes of the model, flat where they are open."""
    if not any(isinstance(size, Dim) for size in buffer.shape):
        return buffer
    shape = (_in_model(buffer.elements, sizes),)  # a number where another size is 0
    return replace(buffer, shape=shape)  # pyright: ignore[reportArgumentType] - sizes as numbers


def _in_model(size: Size, sizes: Mapping[str, Size]) -> Size:
    return size.substitute(sizes) if isinstance(size, Dim) else size
