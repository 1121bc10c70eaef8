# SPDX-License-Identifier: Apache-2.0
"""Layout pass: convolution networks run channels last (NHWC), constant weights are packed.

Every value of rank 4 may exist in both layouts. A node is built in the layout of its operands; the
other one is a transpose, made on demand, so only borders between the layouts transpose. Lines of an
open length, as of sound, are images of height 1 there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from intarsia_ir.capabilities import WINOGRAD
from intarsia_ir.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    TupleGetItem,
    call,
    constant,
    get_item,
    make_tuple,
    tensor_type,
)
from intarsia_ir.graph.op import OpKind
from intarsia_ir.graph.types import TensorType, TupleType
from intarsia_ir.graph.typical import BATCH, fitting_values
from intarsia_ir.graph.walk import children, post_order, with_children
from intarsia_ir.ops import qnn_linear
from intarsia_ir.ops.binary import Add
from intarsia_ir.ops.nn import Conv, Matmul
from intarsia_ir.ops.pooling import AvgPool, MaxPool
from intarsia_ir.ops.qnn import Lookup
from intarsia_ir.ops.qnn_elements import Mean
from intarsia_ir.ops.recurrent import Gru, Lstm
from intarsia_ir.ops.reduce import ReduceOp
from intarsia_ir.ops.sampling import GridSample
from intarsia_ir.ops.shape import Concatenate, Reshape, Transpose
from intarsia_ir.reduced import is_reduced
from intarsia_ir.regions.work import count_flops
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import product

from ..typical import has_open_size, typical
from .bf16_products import bf16x2_conv, bf16x2_dense
from .bf16_storage import bf16_source, is_depthwise, runs_in_bf16x2
from .column_dense import column_dense, suits_column_dense
from .dense import product_width
from .half_precision import tile_of
from .integer_sums import conv_sums_of, dense_sums_of, is_quantized_linear
from .layout_rules import (
    Users,
    column_product,
    follows_lines,
    is_line_as_image,
    is_nhwc_pool_profitable,
    is_open_take,
    is_rank4,
    is_used_in_planes,
    may_convert,
    plane_conv,
    suits_nchw_conv,
    transposed_first,
    users_of,
)
from .nchw_depthwise import depthwise_planes, suits_line, suits_nchw_depthwise
from .operators import (
    Dense,
    Depthwise,
    NchwAvgPool,
    NchwMaxPool,
    NhwcAvgPool,
    NhwcGridSample,
    NhwcMaxPool,
    PackedConv,
    Winograd,
    packed_attrs,
)
from .packed_layers import packed_layer
from .pools import suits_nchw_pool
from .quantize import conv_of, dense_of
from .relayout import (
    LINES_LAST,
    TO_FIRST,
    TO_LAST,
    as_image,
    moved,
    nhwc_axis,
    of_height_one,
    packed_conv,
    packed_deferred,
    packed_depthwise,
    permuted,
    reshaped,
)
from .repeated_pixels import repeated_pixels
from .shuffled_pixels import shuffled_pixels
from .tiling import CpuTiling, block_width, window_width

_FLOATS = (DType.FLOAT32,)
_POOLS = (MaxPool, AvgPool)

_SMALL = 16
"""Share of a function's arithmetic of which a product may take half as long again, unnoticed."""


def use_channels_last(function: Function, tiling: CpuTiling, *, winograd: bool = False) -> Function:
    """Return an equivalent function over this backend's operators.

    Args:
        function: What the backend compiles; channels are numbers, other sizes may be open.
        tiling: Register tile of the machine.
        winograd: Whether 3x3 convolutions that gain by Winograd's method are computed so.
    """
    sizes, nodes = fitting_values(function), list(post_order(function.body))
    calls = [node for node in nodes if isinstance(node, Call)] if sizes else []
    flops = sum(count_flops(node, sizes) for node in calls)
    layout = _Layout(tiling, winograd, sizes, flops, users_of(function))
    for node in nodes:
        layout.visit(node)
    body = layout.plain(function.body)
    return function if body is function.body else dataclasses.replace(function, body=body)


class _Layout(Struct):
    """Both forms of the nodes visited so far.

    Attributes:
        tiling: Register tile, which decides how weights are packed.
        winograd: Whether Winograd's method may be used.
        sizes: What size variables are taken for.
        flops: Arithmetic operations of the whole function, of such sizes; 0 of known ones.
        users: Who uses each node of the model.
        first: Node to its equivalent in the model's layout.
        last: Node to its equivalent channels last.
        packed: Packed weights, by the constant and how.
    """

    tiling: CpuTiling
    winograd: bool
    sizes: Mapping[str, int]
    flops: int
    users: Users
    first: dict[Expr, Expr] = field(default_factory=dict[Expr, Expr])
    last: dict[Expr, Expr] = field(default_factory=dict[Expr, Expr])
    packed: dict[object, Constant] = field(default_factory=dict[object, Constant])

    def visit(self, node: Expr) -> None:
        """Build the equivalent of a node whose operands have been visited."""
        if isinstance(node, Call) and node.op in (Lstm, Gru):
            made = packed_layer(node, [self.plain(arg) for arg in node.args], self.tiling)
            if made is not None:
                self.first[node] = made
                return
        if isinstance(node, Call) and may_convert(node) and self._convert(node):
            return
        if isinstance(node, TupleGetItem) and node.tuple in self.last:
            self.last[node] = get_item(self.last[node.tuple], node.index, span=node.span)
            return
        self.first[node] = with_children(node, tuple(self.plain(arg) for arg in children(node)))

    def plain(self, node: Expr) -> Expr:
        """Return a node's equivalent in the model's layout."""
        if node not in self.first:
            nhwc = self.last[node]
            if isinstance(nhwc.type, TupleType):
                parts = [moved(get_item(nhwc, i), TO_FIRST) for i in range(len(nhwc.type.fields))]
                self.first[node] = make_tuple(parts, span=node.span)
            else:
                made = moved(nhwc, TO_FIRST)
                kind = tensor_type(node)
                self.first[node] = made if kind.rank == 4 else reshaped(made, kind.shape)
        return self.first[node]

    def channels_last(self, node: Expr) -> Expr:
        """Return a node's equivalent channels last; the node has rank 4, or is a line of rank 3."""
        if node not in self.last:
            self.last[node] = moved(as_image(self.plain(node)), TO_LAST)
        return self.last[node]

    def _convert(self, node: Call) -> bool:
        """Build ``node`` in another way than its own; whether that was done."""
        if node.op is Conv:
            return self._conv(node)
        if node.op is Matmul:
            return self._matmul(node)
        if is_quantized_linear(node) and self.tiling.int8x4 is not None:
            return self._quantized(node)
        if node.op is Transpose:
            return self._transpose(node)
        if node.op in _POOLS and is_nhwc_pool_profitable(node, self.tiling):
            return self._pool(node)
        if node.op is GridSample:
            return self._grid_sample(node)
        repeated = repeated_pixels(node, self.last)
        if repeated is not None:
            return self._set(node, repeated)
        shuffled = shuffled_pixels(node, self.last, self.users)
        if shuffled is not None:
            return self._set(node, shuffled[0]) if shuffled[1] else self._keep(node, shuffled[0])
        ready = [arg for arg in node.args if arg in self.last and arg not in self.first]
        if ready and follows_lines(node, self.users, self.last):
            return self._elementwise(node)
        if ready and node.op is Reshape and is_line_as_image(node):
            return self._set(node, self.last[node.args[0]])
        if not ready or not is_rank4(node.args[0].type):
            return node.op in _POOLS and self._pool_planes(node)
        if node.op.kind is OpKind.ELEMWISE:
            return self._elementwise(node)
        if node.op is Concatenate:
            args = [self.channels_last(arg) for arg in node.args]
            made = call(node.op, *args, attrs=nhwc_axis(node.attrs), span=node.span)
            return self._set(node, made)
        if node.op in _POOLS:
            return self._pool(node)
        if issubclass(node.op, ReduceOp) or node.op is Mean:
            return self._reduce(node)
        if is_open_take(node):
            picked = self.channels_last(node.args[0]), self.plain(node.args[1])
            return self._set(node, call(node.op, *picked, attrs=nhwc_axis(node.attrs)))
        attrs = permuted(node)
        if attrs is None:
            return False
        source = self.channels_last(node.args[0])
        return self._set(node, call(node.op, source, attrs=attrs, span=node.span))

    def _set(self, node: Expr, value: Expr) -> bool:
        self.last[node] = value
        return True

    def _keep(self, node: Expr, value: Expr | None) -> bool:
        """Take a value in the model's layout, if there is one, for that of a node."""
        if value is not None:
            self.first[node] = value
        return value is not None

    def _conv(self, node: Call) -> bool:
        data, weight, *bias = node.args
        kind, tile = tensor_type(data), tile_of(node, self.tiling)
        if tile is None or kind.rank not in (3, 4) or 0 in tensor_type(weight).shape:
            return False
        if kind.rank == 3:
            return self._conv1d(node)
        planes = data not in self.last
        if planes and not has_open_size(node) and suits_nchw_depthwise(node, self.tiling):
            self.first[node] = depthwise_planes(node, [self.plain(arg) for arg in node.args])
            return True
        if self._is_narrow(node):
            source = self.channels_last(bf16_source(data))
            result = bf16x2_conv(node, source, self.tiling, self._pack)
        elif planes and tile is self.tiling and self._plane_conv(node):
            return True
        else:
            source = self.channels_last(bf16_source(data) if is_depthwise(node) else data)
            result = self._packed_conv(node, source, self.plain(weight), tile)
        for term in bias:
            result = call(Add, result, self.plain(term), span=node.span)
        return self._set(node, result)

    def _plane_conv(self, node: Call) -> bool:
        """A convolution between values in the model's layout."""
        suits = is_used_in_planes(node, self.users) and suits_nchw_conv(node, self.tiling)
        if suits:
            self.first[node] = plane_conv(node, [self.plain(arg) for arg in node.args], self.tiling)
        return suits

    def _quantized(self, node: Call) -> bool:
        """A quantized convolution of an image, or a product with a constant matrix."""
        source = node.args[0]
        if node.op in (qnn_linear.Matmul, qnn_linear.MatmulInteger):
            *rows, _ = tensor_type(source).shape
            count = typical(product(rows), self.sizes)
            if self.tiling.int8x4 is not None and count < self.tiling.int8x4.least_rows:
                return False
            if node.op is qnn_linear.Matmul:
                made = dense_of(node, self.plain(source), self.tiling)
            else:
                zero = self.plain(node.args[1])
                made = dense_sums_of(node, self.plain(source), zero, self.tiling)
            return self._keep(node, made)

        def convolution(node: Call, source: Expr, zero: Expr) -> Expr | None:
            if node.op is qnn_linear.Conv:
                return conv_of(node, source, self.tiling)
            return conv_sums_of(node, source, zero, self.tiling)

        if tensor_type(source).rank == 3:
            wide = of_height_one(node, [self.plain(arg) for arg in node.args])
            if wide is None:
                return False
            made = convolution(wide, moved(wide.args[0], TO_LAST), wide.args[1])
            if made is not None:
                self.first[node] = reshaped(moved(made, TO_FIRST), tensor_type(node).shape)
            return made is not None
        if not is_rank4(source.type):
            return False
        made = convolution(node, self.channels_last(source), self.plain(node.args[1]))
        return made is not None and self._set(node, made)

    def _packed_conv(self, node: Call, source: Expr, weight: Expr, tile: CpuTiling) -> Expr:
        attrs = packed_attrs(node, weight)
        outputs, inner, kh, kw = tensor_type(weight).static_shape
        groups = attrs.groups
        if is_depthwise(node):
            packed = self._pack(weight, ("depthwise",))
            return call(Depthwise, source, packed, attrs=attrs, span=node.span)
        width = block_width(outputs // groups, tile)
        winograd = self.winograd and tile is self.tiling
        if winograd and isinstance(weight, Constant) and is_reduced(node, WINOGRAD):
            packed = self._pack(weight, ("winograd", width))
            return call(Winograd, source, packed, attrs=attrs, span=node.span)
        if kh * kw * groups * attrs.strides[0] * attrs.strides[1] == 1:
            *pixels, _ = tensor_type(source).shape
            width = product_width(typical(product(pixels), self.sizes), inner, outputs, tile)
        else:
            width = window_width(outputs // groups, tile)
        packed = self._pack(weight, ("conv", groups, width))
        return call(PackedConv, source, packed, attrs=attrs, span=node.span)

    def _is_narrow(self, node: Call) -> bool:
        """Whether a call runs in bfloat16."""
        return self.tiling.bf16x2 is not None and runs_in_bf16x2(node, self.tiling.bf16x2)

    def _pack(self, weight: Expr, how: tuple[object, ...]) -> Expr:
        key = (weight, *how)
        if not isinstance(weight, Constant):
            match how:
                case ("conv", int(groups), int(width)):
                    return packed_conv(weight, groups, width)
                case _:
                    return packed_depthwise(weight)
        if key not in self.packed:
            deferred = packed_deferred(weight.data, how)
            self.packed[key] = constant(deferred, name=weight.name, span=weight.span)
        return self.packed[key]

    def _conv1d(self, node: Call) -> bool:
        """A one-dimensional convolution is one over images of height 1."""
        data, *others = node.args
        is_open = has_open_size(node)
        given = data if is_open and data in self.last else self.plain(data)
        wide = of_height_one(node, [given, *(self.plain(arg) for arg in others)])
        if wide is None:
            return False
        is_narrow = self._is_narrow(node)
        is_depthwise_line = not is_open and suits_line(data, wide, self.tiling)
        if not is_narrow and (is_depthwise_line or suits_nchw_conv(wide, self.tiling)):
            args = (as_image(self.plain(data)), *wide.args[1:])
            planes = (
                depthwise_planes(wide, args)
                if is_depthwise_line
                else plane_conv(wide, args, self.tiling)
            )
            self.first[node] = reshaped(planes, tensor_type(node).shape)
            return True
        source, weight, *bias = wide.args
        if is_narrow:
            data = bf16_source(data)
            source = as_image(self.plain(data))
        source = self.channels_last(data) if is_open else moved(source, TO_LAST)
        if is_narrow:
            result = bf16x2_conv(wide, source, self.tiling, self._pack)
        else:
            result = self._packed_conv(wide, source, weight, self.tiling)
        for term in bias:
            result = call(Add, result, term, span=node.span)
        if is_open:
            return self._set(node, result)
        self.first[node] = reshaped(moved(result, TO_FIRST), tensor_type(node).shape)
        return True

    def _matmul(self, node: Call) -> bool:
        a, b = node.args
        attrs = node.attrs
        if not isinstance(attrs, Matmul.Attrs):
            return False
        opened = has_open_size(node)
        column = None if opened else column_product(node, attrs, self.tiling, self.plain)
        if self._keep(node, column):
            return True
        if isinstance(a, Constant) and not opened and suits_column_dense(node, attrs, self.tiling):
            width = block_width(tensor_type(node).static_shape[-2], self.tiling)
            packed = self._pack(a, ("dense", not attrs.transpose_a, width))
            self.first[node] = column_dense(node, self.plain(b), packed)
            return True
        if not isinstance(b, Constant):
            made = None if opened else transposed_first(node, attrs, self.tiling, self.plain)
            return self._keep(node, made)
        tile = tile_of(node, self.tiling)
        if b.type.rank != 2 or attrs.transpose_a or tile is None:
            return False
        if self._is_narrow(node):
            source, flipped = self.plain(bf16_source(a)), attrs.transpose_b
            made = bf16x2_dense(node, source, self.tiling, self._pack, flipped=flipped)
            return self._keep(node, made)
        *rows, _ = tensor_type(a).shape
        depth, outputs = b.data.shape[::-1] if attrs.transpose_b else b.data.shape
        count = typical(product(rows), self.sizes)
        width = product_width(count, depth, outputs, tile)
        packed = self._pack(b, ("dense", attrs.transpose_b, width))
        few = opened and count <= BATCH and _SMALL * count_flops(node, self.sizes) <= self.flops
        made = Dense.Attrs(outputs=outputs, few=few)
        self.first[node] = call(Dense, self.plain(a), packed, attrs=made, span=node.span)
        return True

    def _grid_sample(self, node: Call) -> bool:
        kind = tensor_type(node.args[0])
        if kind.rank != 4 or kind.dtype not in _FLOATS or kind.elements == 0:
            return False
        if kind.static_shape[1] < self.tiling.lanes:
            return False
        operands = (self.channels_last(node.args[0]), self.plain(node.args[1]))
        made = call(NhwcGridSample, *operands, attrs=node.attrs, span=node.span)
        return self._set(node, made)

    def _transpose(self, node: Call) -> bool:
        """A transpose between the layouts costs nothing; any other starts from what there is."""
        (source,) = node.args
        assert isinstance(node.attrs, Transpose.Attrs)  # as of every transpose
        axes = node.attrs.axes
        is_ready = source in self.last and source not in self.first
        if is_ready and len(axes) == 4:
            composed = tuple(TO_FIRST[axis] for axis in axes)
            self.first[node] = moved(self.last[source], composed)
            return True
        if is_ready and axes == LINES_LAST:
            self.first[node] = reshaped(self.last[source], tensor_type(node).shape)
            return True
        if axes == TO_FIRST:
            return self._set(node, self.plain(source))
        return False

    def _elementwise(self, node: Call) -> bool:
        rank = tensor_type(node.args[0]).rank
        if node.name == "nn.batch_norm" or not isinstance(node.type, TensorType):
            return False
        if node.type.rank != rank:
            return False  # an operand of higher rank makes a result that has no channels last
        if not all(isinstance(arg.type, TensorType) for arg in node.args):
            return False
        broadcast = node.args[:1] if node.op is Lookup else node.args
        args = [self._operand(arg, node.type.rank) for arg in broadcast]
        args += [self.plain(arg) for arg in node.args[len(broadcast) :]]
        return self._set(node, call(node.op, *args, attrs=node.attrs, span=node.span))

    def _operand(self, arg: Expr, rank: int) -> Expr:
        """Return an element-wise operand so that it broadcasts with images or lines of a rank."""
        kind = tensor_type(arg)
        if kind.rank == rank and not (rank == 3 and isinstance(arg, Constant)):
            return self.channels_last(arg)
        plain = self.plain(arg)
        if kind.rank == 0 or product(kind.shape) == 1:
            return plain
        shape = (1,) * (rank - kind.rank) + kind.shape
        if sum(size != 1 for size in shape) == 1:
            image = tensor_type(as_image(reshaped(plain, shape))).shape
            return reshaped(plain, tuple(image[axis] for axis in TO_LAST))
        return moved(as_image(reshaped(plain, shape)), TO_LAST)

    def _pool(self, node: Call) -> bool:
        op = NhwcAvgPool if node.op is AvgPool else NhwcMaxPool
        source = self.channels_last(node.args[0])
        return self._set(node, call(op, source, attrs=node.attrs, span=node.span))

    def _pool_planes(self, node: Call) -> bool:
        if not suits_nchw_pool(node, self.tiling):
            return False
        op = NchwAvgPool if node.op is AvgPool else NchwMaxPool
        self.first[node] = call(op, self.plain(node.args[0]), attrs=node.attrs, span=node.span)
        return True

    def _reduce(self, node: Call) -> bool:
        attrs = node.attrs
        if not isinstance(attrs, ReduceOp.Attrs):
            return False
        axes = tuple(sorted(TO_LAST.index(axis) for axis in attrs.axes))
        kept_axes = [TO_LAST[axis] for axis in range(4) if axis not in axes]
        if not attrs.keepdims and kept_axes != sorted(kept_axes):
            return False
        args = [self.channels_last(node.args[0]), *(self.plain(arg) for arg in node.args[1:])]
        result = call(node.op, *args, attrs=replace(attrs, axes=axes), span=node.span)
        if attrs.keepdims:
            return self._set(node, result)
        self.first[node] = result
        return True
