# SPDX-License-Identifier: Apache-2.0
"""Run convolution networks channels last, and pack constant weights.

Every value of rank 4 may exist in two forms: as the model has it, and channels last. A node is
built in the form that its operands have already; the other form is one transpose, made when
somebody asks for it. So only the borders between the two worlds transpose.
"""

from __future__ import annotations

import dataclasses
from math import prod

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from ...artifact.deferred import DeferredArray
from ...dtype import DType
from ...ir.expr import (
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
from ...ir.op import OpAttrs, OpKind
from ...ir.types import TensorType, TupleType
from ...ir.walk import children, post_order, with_children
from ...ops import qnn_linear
from ...ops.binary import Add
from ...ops.nn import Conv, Matmul
from ...ops.pooling import AvgPool, PoolAttrs
from ...ops.qnn import Lookup
from ...ops.qnn_elements import Mean
from ...ops.reduce import ReduceOp
from ...ops.resize import Resize
from ...ops.sampling import GridSample
from ...ops.shape import Concatenate, Reshape, Split, Transpose
from ...ops.slicing import Pad, StridedSlice
from .dense import product_width
from .depthwise import suits_depthwise_planes
from .matmul import turns_panels
from .moves import moved, packed_conv, packed_depthwise, reshaped
from .narrow import before_widening, is_depthwise, multiplies_pairs
from .operators import (
    Dense,
    Depthwise,
    LastAvgPool,
    LastGridSample,
    LastMaxPool,
    PackedConv,
    PlaneAvgPool,
    PlaneDepthwise,
    PlaneMaxPool,
    Winograd,
    packed_attrs,
)
from .packing import conv_deferred, dense_deferred, depthwise_deferred, winograd_deferred
from .pairs import PairConv, PairDense, pair_conv_deferred, pair_dense_deferred, whole_pairs
from .pools import suits_planes
from .quantise import (
    conv_of,
    conv_sums_of,
    dense_of,
    dense_sums_of,
    is_quantised_linear,
    padded,
)
from .tile import Shape, block_width
from .winograd import suits_winograd

TO_LAST = (0, 2, 3, 1)
TO_FIRST = (0, 3, 1, 2)
_FLOATS = (DType.FLOAT32,)
_POOLS = ("nn.max_pool", "nn.avg_pool")
_LEAST_WINDOW = 4
"""Elements of a window from which on a pool is worth a picture turned round."""


def use_channels_last(function: Function, shape: Shape, *, winograd: bool = False) -> Function:
    """Return an equivalent function over this backend's operators.

    Args:
        function: What the backend compiles; shapes are static.
        shape: Register tile of the machine.
        winograd: Whether 3x3 convolutions that gain by Winograd's method are computed so.
    """
    layout = _Layout(shape, winograd)
    for node in post_order(function.body):
        layout.visit(node)
    body = layout.plain(function.body)
    return function if body is function.body else dataclasses.replace(function, body=body)


class _Layout(Struct):
    """Both forms of the nodes visited so far.

    Attributes:
        shape: Register tile, which decides how weights are packed.
        winograd: Whether Winograd's method may be used.
        first: Node to its equivalent in the model's layout.
        last: Node to its equivalent channels last.
        packed: Packed weights, by the constant and how.
    """

    shape: Shape
    winograd: bool
    first: dict[Expr, Expr] = field(default_factory=dict)
    last: dict[Expr, Expr] = field(default_factory=dict)
    packed: dict[tuple[object, ...], Constant] = field(default_factory=dict)

    def visit(self, node: Expr) -> None:
        """Build the equivalent of a node whose operands have been visited."""
        if isinstance(node, Call) and self._convert(node):
            return
        if isinstance(node, TupleGetItem) and node.tuple in self.last:
            self.last[node] = get_item(self.last[node.tuple], node.index, span=node.span)
            return
        self.first[node] = with_children(node, tuple(self.plain(arg) for arg in children(node)))

    def plain(self, node: Expr) -> Expr:
        """Return a node's equivalent in the model's layout."""
        if node not in self.first:
            found = self.last[node]
            if isinstance(found.type, TupleType):
                parts = [moved(get_item(found, i), TO_FIRST) for i in range(len(found.type.fields))]
                self.first[node] = make_tuple(parts, span=node.span)
            else:
                self.first[node] = moved(found, TO_FIRST)
        return self.first[node]

    def channels_last(self, node: Expr) -> Expr:
        """Return a node's equivalent channels last; the node has rank 4."""
        if node not in self.last:
            self.last[node] = moved(self.plain(node), TO_LAST)
        return self.last[node]

    def _convert(self, node: Call) -> bool:
        """Build ``node`` in another way than its own; whether that was done."""
        if node.op is Conv:
            return self._conv(node)
        if node.op is Matmul:
            return self._matmul(node)
        if is_quantised_linear(node) and self.shape.quads is not None:
            return self._quantised(node)
        if node.op is Transpose:
            return self._transpose(node)
        if node.name in _POOLS and self._is_worth_turning(node):
            return self._pool(node)
        if node.op is GridSample:
            return self._grid_sample(node)
        ready = [arg for arg in node.args if arg in self.last and arg not in self.first]
        if not ready or not _is_picture(node.args[0].type):
            return node.name in _POOLS and self._pool_planes(node)
        if node.op.kind is OpKind.ELEMWISE:
            return self._elementwise(node)
        if node.op is Concatenate:
            args = [self.channels_last(arg) for arg in node.args]
            return self._set(node, call(node.op, *args, attrs=_at(node.attrs), span=node.span))
        if node.name in _POOLS:
            return self._pool(node)
        if issubclass(node.op, ReduceOp) or node.op is Mean:
            return self._reduce(node)
        attrs = _permuted(node)
        if attrs is None:
            return False
        source = self.channels_last(node.args[0])
        return self._set(node, call(node.op, source, attrs=attrs, span=node.span))

    def _set(self, node: Expr, value: Expr) -> bool:
        self.last[node] = value
        return True

    def _conv(self, node: Call) -> bool:
        data, weight, *bias = node.args
        kind = tensor_type(data)
        if kind.dtype not in _FLOATS or kind.rank not in (3, 4) or not tensor_type(weight).elements:
            return False
        if kind.rank == 3:
            return self._conv_of_line(node)
        if data not in self.last and suits_depthwise_planes(node, self.shape):
            return self._depthwise_planes(node)
        if self.shape.pairs is not None and multiplies_pairs(node, self.shape.pairs.unit):
            result = self._pair_conv(node)
        else:
            source = self.channels_last(before_widening(data) if is_depthwise(node) else data)
            result = self._packed_conv(node, source, self.plain(weight))
        for term in bias:
            result = call(Add, result, self.plain(term), span=node.span)
        return self._set(node, result)

    def _depthwise_planes(self, node: Call) -> bool:
        """A picture in the model's layout is not turned round for windows within channels."""
        data, weight, *bias = (self.plain(arg) for arg in node.args)
        result = call(PlaneDepthwise, data, weight, attrs=node.attrs, span=node.span)
        for term in bias:
            column = reshaped(term, (*tensor_type(term).static_shape, 1, 1))
            result = call(Add, result, column, span=node.span)
        self.first[node] = result
        return True

    def _quantised(self, node: Call) -> bool:
        """A quantised convolution of a picture, or a product with a constant matrix."""
        source = node.args[0]
        if node.op in (qnn_linear.Matmul, qnn_linear.MatmulInteger):
            *rows, _ = tensor_type(source).static_shape
            if self.shape.quads is not None and prod(rows) < self.shape.quads.least_rows:
                return False
            if node.op is qnn_linear.Matmul:
                product = dense_of(node, self.plain(source), self.shape)
            else:
                zero = self.plain(node.args[1])
                product = dense_sums_of(node, self.plain(source), zero, self.shape)
            if product is not None:
                self.first[node] = product
            return product is not None
        if not _is_picture(source.type):
            return False
        convolution = conv_of if node.op is qnn_linear.Conv else conv_sums_of
        made = convolution(node, self.channels_last(source), self.shape)
        return made is not None and self._set(node, made)

    def _packed_conv(self, node: Call, source: Expr, weight: Expr) -> Expr:
        attrs = packed_attrs(node, weight)
        outputs, inner, kh, kw = tensor_type(weight).static_shape
        groups = attrs.groups
        if is_depthwise(node):
            packed = self._pack(weight, ("depthwise",))
            return call(Depthwise, source, packed, attrs=attrs, span=node.span)
        width = block_width(outputs // groups, self.shape)
        if self.winograd and isinstance(weight, Constant) and suits_winograd(node):
            packed = self._pack(weight, ("winograd", width))
            return call(Winograd, source, packed, attrs=attrs, span=node.span)
        if kh * kw * groups * attrs.strides[0] * attrs.strides[1] == 1:
            *places, _ = tensor_type(source).static_shape
            width = product_width(prod(places), inner, outputs, self.shape)
        packed = self._pack(weight, ("conv", groups, width))
        return call(PackedConv, source, packed, attrs=attrs, span=node.span)

    def _pair_conv(self, node: Call) -> Expr:
        """A convolution by a matrix unit for bfloat16."""
        source, weight = self.channels_last(before_widening(node.args[0])), node.args[1]
        attrs = packed_attrs(node, weight)
        inner, groups = tensor_type(weight).static_shape[1], attrs.groups
        source = padded(source, whole_pairs(inner) * groups, 0)
        width = block_width(attrs.outputs // groups, self.shape)
        packed = self._pack(weight, ("pair_conv", groups, width))
        return call(PairConv, source, packed, attrs=attrs, span=node.span)

    def _pair_dense(self, node: Call, flipped: bool) -> Expr:
        """A product by a matrix unit for bfloat16."""
        source = self.plain(before_widening(node.args[0]))
        outputs = tensor_type(node).static_shape[-1]
        packed = self._pack(node.args[1], ("pair_dense", flipped, block_width(outputs, self.shape)))
        return call(PairDense, source, packed, attrs=Dense.Attrs(outputs=outputs), span=node.span)

    def _pack(self, weight: Expr, how: tuple[object, ...]) -> Expr:
        key = (weight, *how)
        if not isinstance(weight, Constant):
            match how:
                case ("conv", int(groups), int(width)):
                    return packed_conv(weight, groups, width)
                case _:
                    return packed_depthwise(weight)
        if key not in self.packed:
            deferred = _packed(weight.data, how)
            self.packed[key] = constant(deferred, name=weight.name, span=weight.span)
        return self.packed[key]

    def _conv_of_line(self, node: Call) -> bool:
        """A one-dimensional convolution is one over pictures of height 1."""
        data, weight, *bias = node.args
        plain = node.attrs
        if not isinstance(plain, Conv.Attrs):
            return False
        n, c, width = tensor_type(data).static_shape
        line = reshaped(self.plain(data), (n, c, 1, width))
        outputs, inner, taps = tensor_type(weight).static_shape
        flat = reshaped(self.plain(weight), (outputs, inner, 1, taps))
        attrs = Conv.Attrs(
            strides=(1, *plain.strides),
            padding=((0, 0), *plain.padding),
            dilation=(1, *plain.dilation),
            groups=plain.groups,
        )
        wide = call(Conv, line, flat, attrs=attrs, span=node.span)
        result = self._packed_conv(wide, moved(line, TO_LAST), flat)
        for term in bias:
            result = call(Add, result, self.plain(term), span=node.span)
        shape = tensor_type(node).static_shape
        turned = moved(result, TO_FIRST)
        self.first[node] = call(Reshape, turned, attrs=Reshape.Attrs(shape=shape), span=node.span)
        return True

    def _matmul(self, node: Call) -> bool:
        a, b = node.args
        attrs = node.attrs
        if not isinstance(attrs, Matmul.Attrs):
            return False
        if self._vector(node, attrs):
            return True
        if not isinstance(b, Constant):
            return self._unflipped(node, attrs)
        if b.type.rank != 2 or attrs.transpose_a or b.type.dtype not in _FLOATS:
            return False
        if self.shape.pairs is not None and multiplies_pairs(node, self.shape.pairs.unit):
            self.first[node] = self._pair_dense(node, attrs.transpose_b)
            return True
        *rows, depth = tensor_type(a).static_shape
        outputs = b.data.shape[0 if attrs.transpose_b else 1]
        width = product_width(prod(rows), depth, outputs, self.shape)
        packed = self._pack(b, ("dense", attrs.transpose_b, width))
        self.first[node] = call(
            Dense, self.plain(a), packed, attrs=Dense.Attrs(outputs=outputs), span=node.span
        )
        return True

    def _vector(self, node: Call, attrs: Matmul.Attrs) -> bool:
        """A product with one column: the column is a row, which meets the rows of the matrix."""
        a, b = node.args
        *batch, rows, columns = tensor_type(node).static_shape
        *own, _, _ = tensor_type(b).static_shape
        depth = tensor_type(a).static_shape[-1]
        if columns != 1 or rows == 1 or attrs.transpose_a or tensor_type(a).dtype not in _FLOATS:
            return False
        if depth < self.shape.lanes:
            return False
        row = reshaped(self.plain(b), (*own, 1, depth))
        flipped = Matmul.Attrs(transpose_b=True)
        made = call(Matmul, row, self.plain(a), attrs=flipped, span=node.span)
        self.first[node] = reshaped(made, (*batch, rows, 1))
        return True

    def _unflipped(self, node: Call, attrs: Matmul.Attrs) -> bool:
        """A product with a transposed matrix of run time, transposed by fast loops first."""
        a, b = node.args
        kind = tensor_type(b)
        if not attrs.transpose_b or kind.dtype not in _FLOATS:
            return False
        if min(kind.static_shape[-2:]) < self.shape.lanes:
            return False
        *batch, rows, _ = tensor_type(node).static_shape
        if rows == 1 and not attrs.transpose_a:
            return False
        if turns_panels(self.shape, kind, batch):
            return False
        axes = (*range(kind.rank - 2), kind.rank - 1, kind.rank - 2)
        plain = replace(attrs, transpose_b=False)
        turned = moved(self.plain(b), axes)
        self.first[node] = call(node.op, self.plain(a), turned, attrs=plain, span=node.span)
        return True

    def _grid_sample(self, node: Call) -> bool:
        kind = tensor_type(node.args[0])
        if kind.rank != 4 or kind.dtype not in _FLOATS or kind.elements == 0:
            return False
        if kind.static_shape[1] < self.shape.lanes:
            return False
        operands = (self.channels_last(node.args[0]), self.plain(node.args[1]))
        made = call(LastGridSample, *operands, attrs=node.attrs, span=node.span)
        return self._set(node, made)

    def _transpose(self, node: Call) -> bool:
        """A transpose between the layouts costs nothing; any other starts from what there is."""
        (source,) = node.args
        assert isinstance(node.attrs, Transpose.Attrs)  # as of every transpose
        axes = node.attrs.axes
        if source in self.last and source not in self.first and len(axes) == 4:
            composed = tuple(TO_FIRST[axis] for axis in axes)
            self.first[node] = moved(self.last[source], composed)
            return True
        if axes == TO_FIRST:
            return self._set(node, self.plain(source))
        return False

    def _elementwise(self, node: Call) -> bool:
        if node.name == "nn.batch_norm" or not _is_picture(node.type):
            return False  # an operand of higher rank makes a result that has no channels last
        if not all(isinstance(arg.type, TensorType) for arg in node.args):
            return False
        broadcast = node.args[:1] if node.op is Lookup else node.args
        args = [self._operand(arg) for arg in broadcast]
        args += [self.plain(arg) for arg in node.args[len(broadcast) :]]
        return self._set(node, call(node.op, *args, attrs=node.attrs, span=node.span))

    def _operand(self, arg: Expr) -> Expr:
        """Return an element-wise operand, of whatever rank, so that it broadcasts channels last."""
        kind = tensor_type(arg)
        if kind.rank == 4:
            return self.channels_last(arg)
        plain = self.plain(arg)
        if kind.rank == 0 or kind.elements == 1:
            return plain
        shape = (1,) * (4 - kind.rank) + kind.static_shape
        if isinstance(plain, Constant):
            turned = plain.data.reshape(shape).transpose(TO_LAST)
            return constant(np.ascontiguousarray(turned), name=plain.name, span=plain.span)
        return moved(reshaped(plain, shape), TO_LAST)

    def _is_worth_turning(self, node: Call) -> bool:
        """Whether a pool gains more channels last than turning its picture round costs: only if
        a row of results does not fill half a vector.
        """
        kind, attrs = tensor_type(node.args[0]), node.attrs
        if kind.rank != 4 or kind.dtype not in _FLOATS or not isinstance(attrs, PoolAttrs):
            return False
        if kind.static_shape[1] < self.shape.lanes or prod(attrs.kernel) < _LEAST_WINDOW:
            return False
        return 2 * tensor_type(node).static_shape[-1] < self.shape.lanes

    def _pool(self, node: Call) -> bool:
        op = LastAvgPool if node.op is AvgPool else LastMaxPool
        source = self.channels_last(node.args[0])
        return self._set(node, call(op, source, attrs=node.attrs, span=node.span))

    def _pool_planes(self, node: Call) -> bool:
        if not suits_planes(node):
            return False
        op = PlaneAvgPool if node.op is AvgPool else PlaneMaxPool
        self.first[node] = call(op, self.plain(node.args[0]), attrs=node.attrs, span=node.span)
        return True

    def _reduce(self, node: Call) -> bool:
        attrs = node.attrs
        if not isinstance(attrs, ReduceOp.Attrs):
            return False
        axes = tuple(sorted(TO_LAST.index(axis) for axis in attrs.axes))
        kept = [TO_LAST[axis] for axis in range(4) if axis not in axes]
        if not attrs.keepdims and kept != sorted(kept):
            return False
        args = [self.channels_last(node.args[0]), *(self.plain(arg) for arg in node.args[1:])]
        result = call(node.op, *args, attrs=replace(attrs, axes=axes), span=node.span)
        if attrs.keepdims:
            return self._set(node, result)
        self.first[node] = result
        return True


def _packed(weight: np.ndarray, how: tuple[object, ...]) -> DeferredArray:
    """Return a weight as the loops want it; it is packed when it is wanted."""
    match how:
        case ("winograd", int(width)):
            return winograd_deferred(weight, width)
        case ("conv", int(groups), int(width)):
            return conv_deferred(weight, groups, width)
        case ("pair_conv", int(groups), int(width)):
            return pair_conv_deferred(weight, groups, width)
        case ("pair_dense", bool(flipped), int(width)):
            return pair_dense_deferred(weight.T if flipped else weight, width)
        case ("dense", bool(flipped), int(width)):
            return dense_deferred(weight.T if flipped else weight, width)
        case _:
            return depthwise_deferred(weight)


def _is_picture(kind: object) -> bool:
    return isinstance(kind, TensorType) and kind.rank == 4


def _at(attrs: OpAttrs) -> OpAttrs:
    """Attributes with one axis, channels last."""
    assert isinstance(attrs, Concatenate.Attrs | Split.Attrs)  # what it is called for
    return replace(attrs, axis=TO_LAST.index(attrs.axis))


def _permuted(node: Call) -> OpAttrs | None:
    """Return the attributes of an operator of one picture, channels last; ``None`` if unknown."""
    attrs = node.attrs
    match attrs:
        case Pad.Attrs():
            widths = tuple(attrs.widths[axis] for axis in TO_LAST)
            return replace(attrs, widths=widths)
        case StridedSlice.Attrs():
            begin, end, strides = (
                tuple(values[axis] for axis in TO_LAST)
                for values in (attrs.begin, attrs.end, attrs.strides)
            )
            return replace(attrs, begin=begin, end=end, strides=strides)
        case Split.Attrs():
            return _at(attrs)
        case Resize.Attrs():
            scales = attrs.scales and tuple(attrs.scales[axis] for axis in TO_LAST)
            return replace(attrs, sizes=tuple(attrs.sizes[a] for a in TO_LAST), scales=scales)
        case _:
            return None
