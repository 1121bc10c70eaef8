# SPDX-License-Identifier: Apache-2.0
"""A fused group as tensor expressions: operators expanded, light ones inlined into readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from msgspec import Struct

from intarsia_ir.graph.expr import Call, Constant, Expr, Function, tensor_type
from intarsia_ir.graph.types import TensorType, TupleType
from intarsia_ir.graph.walk import post_order as graph_order
from intarsia_ir.tir.expr import PrimExpr, Read, const
from intarsia_ir.tir.tensor import ArgReduction, Reduction, Tensor, compute, placeholder
from intarsia_ir.tir.walk import body_exprs, post_order, rewrite, rewrite_body, substitute, tensors
from intarsia_runtime.errors import UnsupportedError

from .cost import is_cheap_expr, points
from .interning import Interner
from .typical import extents

MAX_PLACES = 8
"""Different places at which a tensor that is not cheap may be computed again."""


class Stages(Struct, frozen=True, eq=False):
    """What a kernel computes.

    Attributes:
        inputs: Given tensors, one for each parameter.
        stages: Tensors that get loops and memory, producers first; each reads inputs and stages
            only.
        outputs: Those of ``stages`` that are results, in order.
    """

    inputs: tuple[Tensor, ...]
    stages: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def expand(function: Function, given: Mapping[Expr, Tensor]) -> dict[Expr, tuple[Tensor, ...]]:
    """Apply the compute rules of all calls of a group.

    Args:
        function: Body of the group.
        given: Tensors of the parameters, and of calls whose element is computed elsewhere.

    Raises:
        UnsupportedError: An operator has no compute rule.
    """
    made: dict[Expr, tuple[Tensor, ...]] = {node: (tensor,) for node, tensor in given.items()}
    for node in graph_order(function.body):
        if node in made:
            continue
        if isinstance(node, Constant):
            made[node] = (_immediate(node),)
        elif isinstance(node, Call):
            if node.op.compute is None:
                raise UnsupportedError(
                    f"'{node.name}' has no rule that says how its elements are computed",
                    where=str(node.span),
                )
            result = node.op.compute(node.attrs, *(made[arg][0] for arg in node.args))
            made[node] = (result,) if isinstance(result, Tensor) else tuple(result)
            _check_sizes(node, made[node])
    return made


def _check_sizes(node: Call, made: tuple[Tensor, ...]) -> None:
    """Refuse an operator whose rule makes other sizes than its type says.

    Raises:
        UnsupportedError: A rule that is for numbers met an open size.
    """
    kinds = node.type.fields if isinstance(node.type, TupleType) else (node.type,)
    shapes = [kind.shape for kind in kinds if isinstance(kind, TensorType)]
    if [tensor.shape for tensor in made] != shapes:
        raise UnsupportedError(
            f"'{node.name}' is not compiled for open sizes",
            where=str(node.span),
            hint="give every input a shape, e.g. --shape input:1,3,224,224",
        )


def _immediate(node: Constant) -> Tensor:
    """Return a constant of one element as a tensor that inlines to a number."""
    kind = node.type
    number = const(node.data.reshape(-1)[0].item(), kind.dtype)

    def element(*_: PrimExpr) -> PrimExpr:
        return number

    return compute(kind.static_shape, element, name="constant", dtype=kind.dtype)


def parameter_tensors(function: Function) -> dict[Expr, Tensor]:
    """Return one given tensor for each parameter of a group."""
    parameters_of: dict[Expr, Tensor] = {}
    for param in function.params:
        kind = tensor_type(param)
        parameters_of[param] = placeholder(param.name, extents(kind), kind.dtype)
    return parameters_of


def stages_of(function: Function) -> Stages:
    """Expand a group and inline what is light or read once.

    Raises:
        UnsupportedError: An operator has no compute rule.
    """
    given = parameter_tensors(function)
    made = expand(function, given)
    outputs = made[function.body]
    own = tuple(_own(tensor) for tensor in outputs)
    kept = set(own) | _materialized(own)
    stages, replaced = inline_all(own, kept)
    inputs = tuple(given[param] for param in function.params)
    return Stages(inputs, stages, tuple(replaced[tensor] for tensor in own))


def _own(tensor: Tensor) -> Tensor:
    """Return a tensor that has a body; a given tensor is copied."""
    if tensor.body is not None:
        return tensor

    def element(*indices: PrimExpr) -> PrimExpr:
        return tensor[indices]

    return compute(tensor.shape, element, name=f"{tensor.name}_copy")


def is_light(tensor: Tensor, *, expensive: bool) -> bool:
    """Whether a tensor needs no memory: it is no reduction, and cheap if it is computed often."""
    if isinstance(tensor.body, Reduction | ArgReduction):
        return False
    return not expensive or tensor.body is None or is_cheap_expr(tensor.body)


def _materialized(outputs: tuple[Tensor, ...]) -> set[Tensor]:
    """Decide which tensors get memory instead of being computed where they are read.

    A tensor is computed once for each kept reader and each different place that reader, or a
    tensor inlined into it, reads it at; it is kept if that is more often than it has elements,
    unless it is cheap. One that says where neighbours are read is not: there are no vectors then.
    """
    interner = Interner()
    uses: dict[Tensor, dict[tuple[Tensor, tuple[int, ...]], tuple[PrimExpr, ...]]] = {}
    kept: set[Tensor] = set()
    tables: set[Tensor] = set()
    for tensor in reversed(tuple(tensors(*outputs))):
        if tensor.body is None:
            continue
        own = uses.get(tensor, {})
        expensive = len(own) > MAX_PLACES or sum(points(root) for root, _ in own) > points(tensor)
        is_table = expensive and tensor in tables
        tables |= _tables(tensor)
        if tensor in outputs or is_table or not is_light(tensor, expensive=expensive):
            kept.add(tensor)
            axes = tuple(axis.var for axis in tensor.axes)
            own = {(tensor, ()): axes}
        for node in post_order(*body_exprs(tensor.body)):
            if not isinstance(node, Read):
                continue
            parameters_of = uses.setdefault(node.tensor, {})
            for (root, _), place in tuple(own.items())[: MAX_PLACES + 1]:
                mapping = dict(zip((axis.var for axis in tensor.axes), place, strict=True))
                at = tuple(substitute(index, mapping) for index in node.indices)
                parameters_of[root, tuple(interner.number(index) for index in at)] = at
    return kept


def _tables(tensor: Tensor) -> set[Tensor]:
    """Return the tensors that say where a tensor reads another, along its last dimension."""
    if not tensor.axes:
        return set()
    last, found = tensor.axes[-1].var, set[Tensor]()
    for outer in post_order(*body_exprs(tensor.body)):
        if isinstance(outer, Read):
            found |= {
                node.tensor
                for node in post_order(*outer.indices)
                if isinstance(node, Read) and last in post_order(*node.indices)
            }
    return found


def inline_all(
    outputs: tuple[Tensor, ...], kept: set[Tensor]
) -> tuple[tuple[Tensor, ...], dict[Tensor, Tensor]]:
    """Rebuild the kept tensors over one another and the given ones.

    Returns:
        The rebuilt tensors, producers first, and what became of each kept tensor.
    """
    bodies: dict[Tensor, PrimExpr] = {}
    replaced: dict[Tensor, Tensor] = {}
    stages: list[Tensor] = []
    for tensor in tensors(*outputs):
        if tensor.body is None:
            continue
        body = rewrite_body(tensor.body, _inliner(bodies, replaced))
        if tensor in kept:
            replaced[tensor] = replace(tensor, body=body)
            stages.append(replaced[tensor])
        elif not isinstance(body, Reduction | ArgReduction):
            bodies[tensor] = body
    return tuple(stages), replaced


def _inliner(
    bodies: Mapping[Tensor, PrimExpr], replaced: Mapping[Tensor, Tensor]
) -> Callable[[PrimExpr], PrimExpr]:
    """Return what replaces reads of inlined tensors; equal reads become one shared expression."""
    interner = Interner()
    known: dict[tuple[Tensor, tuple[int, ...]], PrimExpr] = {}

    def inline(node: PrimExpr) -> PrimExpr | None:
        if not isinstance(node, Read):
            return None
        if node.tensor in replaced:
            return replace(node, tensor=replaced[node.tensor])
        if node.tensor not in bodies:
            return None
        key = (node.tensor, tuple(interner.number(index) for index in node.indices))
        if key not in known:
            place = dict(zip((axis.var for axis in node.tensor.axes), node.indices, strict=True))
            known[key] = substitute(bodies[node.tensor], place)
        return known[key]

    def inline_body(expr: PrimExpr) -> PrimExpr:
        return rewrite(expr, inline)

    return inline_body
