# SPDX-License-Identifier: Apache-2.0
"""Which float32 values are stored in bfloat16 for instructions that multiply bfloat16.

Converting an operand for each product costs memory traffic, so a value that a product reads is
stored in bfloat16 once, and every other reader widens it. Accumulators, and the epilogue before the
store, stay float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msgspec import Struct, field

from intarsia_ir.graph.expr import Call, Constant, Expr, Function, call, tensor_type
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import children, post_order, with_children
from intarsia_ir.ops.nn import Conv, Matmul
from intarsia_ir.ops.pooling import MaxPool
from intarsia_ir.ops.shape import BroadcastTo, Concatenate, Reshape
from intarsia_ir.ops.unary import Cast
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim

from .bf16x2 import BF16_PER_WORD
from .matrix_unit import fills_registers
from .packed_operands import Bf16x2
from .row_pairs import suits_pairs
from .tiling import CpuTiling, block_width, paired_width

_SAME = (Reshape, BroadcastTo, Concatenate, MaxPool)
"""Operators whose results are bfloat16 if their operands are: rounding before and after is one."""


def runs_in_bf16x2(node: Expr, how: Bf16x2) -> bool:
    """Whether a call is a product of float32 with constant weights that bfloat16 is faster for."""
    if not isinstance(node, Call) or node.op not in (Conv, Matmul):
        return False
    data, weight, unit = tensor_type(node.args[0]), node.args[1], how.unit
    if data.dtype is not DType.FLOAT32 or not isinstance(weight, Constant):
        return False
    if data.is_static and not data.elements:
        return False
    match node.attrs:
        case Conv.Attrs(groups=groups, dilation=dilation):
            inner = weight.data.shape[1]
            if weight.data.size == 0 or (groups > 1 and inner % BF16_PER_WORD):
                return False
            if isinstance(data.shape[1], Dim):
                return False
            if unit is None:
                return inner > 1
            bf16x2 = -(-inner // BF16_PER_WORD)
            row = weight.data.shape[-1] if dilation[-1] == 1 else 1
            return fills_registers(bf16x2, unit) or fills_registers(row * bf16x2, unit)
        case Matmul.Attrs(transpose_a=False, transpose_b=flipped) if weight.data.ndim == 2:
            depth = weight.data.shape[1 if flipped else 0]
            if weight.data.size == 0 or depth % BF16_PER_WORD:
                return False
            return unit is None or fills_registers(depth // BF16_PER_WORD, unit)
        case _:
            return False


def bf16_blocks(outputs: int, channels: int, tiling: CpuTiling) -> tuple[int, bool]:
    """Return the width of a block of weights, and whether two columns are multiplied at a time.

    Args:
        outputs: Columns of the result.
        channels: Neighbours along K, an even number.
        tiling: Of a machine that multiplies bfloat16.
    """
    how = tiling.bf16x2
    assert how is not None  # as of the callers
    if how.unit is not None:
        return how.unit.lanes, False
    has_pairs = how.row_pairs is not None and suits_pairs(channels // BF16_PER_WORD)
    return (paired_width if has_pairs else block_width)(outputs, tiling), has_pairs


def is_depthwise(node: Expr) -> bool:
    """Whether a call is a convolution of images in which each channel has weights of its own."""
    if not isinstance(node, Call) or not isinstance(node.attrs, Conv.Attrs):
        return False
    weight = tensor_type(node.args[1])
    groups = node.attrs.groups
    return weight.rank == 4 and weight.shape[:2] == (groups, 1) and groups > 1


def bf16_source(data: Expr) -> Expr:
    """Return the bfloat16 that a value was converted from; itself if there is none."""
    if isinstance(data, Call) and data.op is Cast and _is(data.args[0], DType.BFLOAT16):
        return data.args[0]
    return data


def store_in_bf16(function: Function, how: Bf16x2) -> Function:
    """Return a function whose products read bfloat16 where that is multiplied.

    Each of them, and each depthwise convolution between them, has a conversion from bfloat16 to
    float32 as its operand, which the layout leaves out.
    """
    nodes = tuple(post_order(function.body))
    products = {node for node in nodes if runs_in_bf16x2(node, how)}
    if not products:
        return function
    work = _Narrow(function.outputs, products | {node for node in nodes if is_depthwise(node)})
    work.choose(nodes, products)
    for node in nodes:
        work.visit(node)
    return replace(function, body=work.wide[function.body])


class _Narrow(Struct):
    """A function in the making.

    Attributes:
        outputs: Its results, which stay what they are.
        readers: Calls that can read bfloat16.
        chosen: Values that are stored so.
        wide: Node to its equivalent.
        narrow: Chosen value to its equivalent in bfloat16.
    """

    outputs: Sequence[Expr]
    readers: set[Expr]
    chosen: set[Expr] = field(default_factory=set[Expr])
    wide: dict[Expr, Expr] = field(default_factory=dict[Expr, Expr])
    narrow: dict[Expr, Expr] = field(default_factory=dict[Expr, Expr])

    def choose(self, nodes: Sequence[Expr], products: set[Expr]) -> None:
        """Choose what readers read, and what that is made of by operators that round nothing."""
        for node in reversed(nodes):
            data = children(node)[0] if node in self.readers else None
            if data is not None and (node in products or isinstance(data, Call)):
                self._choose(data)
            elif node in self.chosen and _keeps(node):
                for arg in children(node):
                    self._choose(arg)

    def _choose(self, value: Expr) -> None:
        if _is(value, DType.FLOAT32):
            self.chosen.add(value)

    def visit(self, node: Expr) -> None:
        """Build the equivalent of a node whose operands have been visited."""
        args = children(node)
        if node in self.chosen and _keeps(node) and isinstance(node, Call):
            narrow = tuple(self.narrow[arg] for arg in args)
            made = call(node.op, *narrow, attrs=node.attrs, span=node.span)
            self.wide[node], self.narrow[node] = _converted(made, DType.FLOAT32), made
            return
        made = with_children(node, tuple(self._operand(node, arg) for arg in args))
        self.wide[node] = made
        if node in self.chosen:
            self.narrow[node] = _converted(made, DType.BFLOAT16)

    def _operand(self, node: Expr, arg: Expr) -> Expr:
        """Return what a node reads in place of an operand: a conversion that only it reads.

        One that several read would be computed, and stored, once for all of them.
        """
        if arg not in self.narrow or (arg in self.outputs and node not in self.readers):
            return self.wide[arg]
        return _converted(self.narrow[arg], DType.FLOAT32)


def _keeps(node: Expr) -> bool:
    return isinstance(node, Call) and node.op in _SAME


def _is(value: Expr, dtype: DType) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype is dtype


def _converted(value: Expr, dtype: DType) -> Expr:
    return call(Cast, value, attrs=Cast.Attrs(dtype=dtype), span=value.span)
