# SPDX-License-Identifier: Apache-2.0
"""Buffers and epilogue of a fused group, for a backend's own schedule of the anchor.

A schedule computes each element of the anchor, and stores ``apply`` of it::

    def schedule(group: FusedGroup, target: Target) -> PrimFunc | None:
        fused = epilogue(group)
        a, b = fused.anchor_args              # Buffers of matmul's operands
        if a is None or b is None:
            return None                       # computed inside the group: leave it to default loops
        i, j = TirVar("i"), TirVar("j")
        ...                                   # accumulate into the register buffer acc
        at = (i, Ramp(j * 16, 1, 16))
        store = Store(fused.output, at, fused.apply(Load(acc, (zero,), a.dtype, 16), at))
        return PrimFunc(group.name, fused.buffers, fused.outputs, body)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from intarsia_ir.graph.expr import Call, Constant, Expr, tensor_type
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import IntImm, Load, PrimExpr, Read, TirVar
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.tensor import ArgReduction, Reduction, Tensor, placeholder
from intarsia_ir.tir.walk import post_order, rewrite, substitute
from intarsia_runtime.errors import VerifyError

from .tensors import expand, inline_all, parameter_tensors
from .typical import extents


class Epilogue(Struct, frozen=True, eq=False):
    """The element-wise calls behind an anchor, as a function of the anchor's element.

    Attributes:
        buffers: Parameters of the kernel: one for each parameter of the group, then the output.
            Operands that only the epilogue reads have no dimensions of size 1, so that a vector
            along the channels of a bias ``(1, C, 1, 1)`` is a vector load of ``(C,)``.
        anchor_args: For each argument of the anchor its buffer; ``None`` if the group computes it.
        output: Last of ``buffers``; has the shape of the anchor's result.
    """

    buffers: tuple[Buffer, ...]
    anchor_args: tuple[Buffer | None, ...]
    output: Buffer
    _anchor: Tensor
    _axes: tuple[TirVar, ...]
    _body: PrimExpr | None
    _operands: Mapping[Tensor, Buffer]

    def apply(self, value: PrimExpr, indices: Sequence[PrimExpr]) -> PrimExpr:
        """Return the element of the output at ``indices``, given the anchor's element there.

        Args:
            value: Element of the anchor, of its element type; or a vector of them.
            indices: One for each dimension of the output. For a vector value one of them is a
                :class:`~intarsia_ir.tir.expr.Ramp`.
        """
        if self._body is None:
            return value
        places = dict(zip(self._axes, indices, strict=True))

        def load(node: PrimExpr) -> PrimExpr | None:
            if not isinstance(node, Read):
                return None
            if node.tensor is self._anchor:
                return value
            return _load(self._operands[node.tensor], node)

        return rewrite(substitute(self._body, places), load)

    @property
    def outputs(self) -> int:
        """How many trailing ``buffers`` are results: always 1."""
        return 1


def _load(buffer: Buffer, node: Read) -> PrimExpr:
    """Read the operand that a buffer holds, which may lack the dimensions of size 1."""
    pairs = zip(node.indices, node.tensor.shape, strict=True)
    squeezed = len(buffer.shape) != node.tensor.rank
    kept = tuple(at for at, size in pairs if not squeezed or size != 1)
    return Load(buffer, kept, node.dtype, max((at.lanes for at in kept), default=1))


def epilogue(group: FusedGroup) -> Epilogue:
    """Split a group into its anchor and what follows it.

    Raises:
        VerifyError: The group has no anchor, or what follows is not element-wise.
    """
    anchor = group.anchor
    if anchor is None:
        raise VerifyError(f"the group '{group.name}' has no anchor", where=group.name)
    kind = tensor_type(anchor)
    source = placeholder("anchor", extents(kind), kind.dtype)
    given = parameter_tensors(group.function)
    result = expand(group.function, {**given, anchor: source})[group.function.body][0]
    axes, body = _element(result, source, group)
    heavy = set(anchor.args)
    operands = {tensor: _buffer(tensor, keep=param in heavy) for param, tensor in given.items()}
    output = Buffer("out", result.shape, result.dtype)
    args = tuple(_anchor_buffer(arg, given, operands) for arg in anchor.args)
    buffers = (*operands.values(), output)
    return Epilogue(buffers, args, output, source, axes, body, operands)


def _anchor_buffer(
    arg: Expr, given: Mapping[Expr, Tensor], operands: Mapping[Tensor, Buffer]
) -> Buffer | None:
    return None if isinstance(arg, Call | Constant) else operands[given[arg]]


def _buffer(tensor: Tensor, *, keep: bool) -> Buffer:
    shape = tensor.shape if keep else tuple(size for size in tensor.shape if size != 1)
    return Buffer(tensor.name, shape, tensor.dtype)


def _element(
    result: Tensor, source: Tensor, group: FusedGroup
) -> tuple[tuple[TirVar, ...], PrimExpr | None]:
    """Return the result's element as an expression of the anchor's element at the same place."""
    if result is source:
        return (), None
    stages, _ = inline_all((result,), {result})
    if len(stages) != 1 or isinstance(stages[0].body, Reduction | ArgReduction | None):
        raise VerifyError("what follows the anchor is not element-wise", where=group.name)
    body = stages[0].body
    axes = tuple(axis.var for axis in result.axes)
    place = tuple((axis.var,) if axis.extent != 1 else (axis.var, 0) for axis in result.axes)
    for node in post_order(body):
        if isinstance(node, Read) and node.tensor is source and not _same(node, place):
            raise VerifyError("what follows the anchor reads it elsewhere", where=group.name)
    return axes, body


def _same(node: Read, place: tuple[tuple[TirVar | int, ...], ...]) -> bool:
    if len(node.indices) != len(place):
        return False
    values = (at.value if isinstance(at, IntImm) else at for at in node.indices)
    return all(value in allowed for value, allowed in zip(values, place, strict=True))
