# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions as convolutions (sub-pixel decomposition).

With stride ``s`` the result falls into ``s`` phases along each dimension: elements ``s * q + r``
depend on the taps ``k`` with ``k % s == r`` only, at positions ``q - (k - r) / s`` of the data. So
one convolution with ``ceil(K / s)`` taps computes all phases as channels, and a pixel shuffle gives
the result (Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 2016). A
kernel whose size the stride does not divide gets taps of weight 0.

Images of a single pixel, as generators begin with, are rows of a product with the whole kernel: as
a convolution, each result would meet one pixel and padding for all other taps.
"""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.graph.expr import Call, Constant, Expr, Function, call, constant, tensor_type
from intarsia_ir.graph.types import Dim, TensorType
from intarsia_ir.graph.walk import rewrite_function
from intarsia_ir.ops import nn, qnn_linear
from intarsia_ir.ops.binary import Add
from intarsia_ir.ops.shape import Concatenate, Transpose
from intarsia_ir.ops.slicing import StridedSlice
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import maximum

from .relayout import reshaped

_USEFUL = 0.7
"""Share of taps that are none of 0 up to which phases are computed one by one."""

_MOST_PHASES = 4
"""Phases that are computed one by one at most."""

_PARAMETERS = 8
"""Operands of a quantized convolution in front of its bias."""

_MOST_SPREAD = 8
"""Weights, those of 0 between taps included, by those of a dilated one."""

_MOST_WEIGHTS = 1 << 24
"""Weights, missing ones included, that any transposed convolution may be computed with."""


def expand_conv_transpose(function: Function) -> Function:
    """Return an equivalent function with convolutions for the transposed ones that can be.

    These have one or two spatial dimensions, those of floats up to three, and constant weights and
    parameters. Dilated ones of floats have taps of weight 0 in between; those of bytes stay. Batch
    and spatial sizes may be open: padding is a number all the same, since the result is as many
    strides longer as the data. Dilated ones of floats with stride 1 are dilated convolutions.
    """
    return rewrite_function(function, _expanded)


def _expanded(node: Expr) -> Expr | None:
    if not isinstance(node, Call):
        return None
    if node.op is nn.ConvTranspose and tensor_type(node).dtype is DType.FLOAT32:
        dilated = _of_stride_one(node)
        if dilated is not None:
            return dilated
        dense = _without_dilation(node)
        return _from_conv1d(dense, 1) if _is_conv1d(dense) else _expanded_float(dense)
    if node.op is qnn_linear.ConvTranspose:
        return _from_conv1d(node, 3) if _is_conv1d(node) else _expanded_int8(node)
    return None


def _of_stride_one(node: Call) -> Expr | None:
    """Return a dilated one of stride 1 as a convolution as dilated: its taps, last first.

    Others are ``None``, and so is one whose result is cut off by more than the window reaches.
    """
    attrs, weight = node.attrs, node.args[1]
    if not isinstance(attrs, nn.ConvTranspose.Attrs) or not isinstance(weight, Constant):
        return None
    inputs, inner, *kernel = weight.data.shape
    if set(attrs.strides) != {1} or set(attrs.dilation) == {1} or 0 in weight.data.shape:
        return None
    more = attrs.output_padding or (0,) * len(kernel)
    reach = [(size - 1) * step for size, step in zip(kernel, attrs.dilation, strict=True)]
    padding = [
        (size - low, size - high + extra)
        for size, (low, high), extra in zip(reach, attrs.padding, more, strict=True)
    ]
    if any(isinstance(width, Dim) or width < 0 for ends in padding for width in ends):
        return None
    groups = attrs.groups
    apart = np.swapaxes(weight.data.reshape(groups, inputs // groups, inner, *kernel), 1, 2)
    last_first = np.flip(apart, tuple(range(3, apart.ndim)))
    taps: np.ndarray = last_first.reshape(groups * inner, inputs // groups, *kernel)
    own = nn.Conv.Attrs(
        strides=attrs.strides, padding=tuple(padding), dilation=attrs.dilation, groups=groups
    )
    operands = (node.args[0], constant(np.ascontiguousarray(taps), name=weight.name))
    return call(nn.Conv, *operands, *node.args[2:], attrs=own, span=node.span)


def _without_dilation(node: Call) -> Call:
    """Return one whose kernel has weights of 0 between the taps of a dilated one."""
    attrs, weight = node.attrs, node.args[1]
    if not isinstance(attrs, nn.ConvTranspose.Attrs) or not isinstance(weight, Constant):
        return node
    kernel, steps = weight.data.shape[2:], attrs.dilation
    spread = [(size - 1) * step + 1 for size, step in zip(kernel, steps, strict=True)]
    shape = (*weight.data.shape[:2], *spread)
    if set(steps) == {1} or prod(shape) > _MOST_SPREAD * weight.data.size:
        return node
    taps = np.zeros(shape, weight.data.dtype)
    taps[(slice(None), slice(None), *(slice(None, None, step) for step in steps))] = weight.data
    operands = (node.args[0], constant(taps, name=weight.name), *node.args[2:])
    own = replace(attrs, dilation=(1,) * len(steps))
    return call(node.op, *operands, attrs=own, span=node.span)


def _is_conv1d(node: Call) -> bool:
    return tensor_type(node).rank == 3


def _from_conv1d(node: Call, position: int) -> Expr | None:
    """Expand a one-dimensional one as that of an image of height 1.

    Args:
        node: The call.
        position: Which operand the weight is.
    """
    data, weight, attrs_1d = node.args[0], node.args[position], node.attrs
    if not isinstance(weight, Constant) or not isinstance(attrs_1d, nn.ConvTranspose.Attrs):
        return None
    batch, channels, width = extents(tensor_type(data).shape)
    operands = list(node.args)
    operands[0] = reshaped(data, (batch, channels, 1, width))
    flat = weight.data[:, :, None, :]
    operands[position] = constant(flat, name=weight.name, span=weight.span)
    attrs = nn.ConvTranspose.Attrs(
        strides=(1, *attrs_1d.strides),
        padding=((0, 0), *attrs_1d.padding),
        dilation=(1, *attrs_1d.dilation),
        groups=attrs_1d.groups,
        output_padding=(0, *attrs_1d.output_padding) if attrs_1d.output_padding else (),
    )
    expanded = _expanded(call(node.op, *operands, attrs=attrs, span=node.span))
    return None if expanded is None else reshaped(expanded, extents(tensor_type(node).shape))


def _expanded_float(node: Call) -> Expr | None:
    weight, *bias = node.args[1:]
    phases = _phases(node, weight, ranks=(4, 5))
    if phases is None or not isinstance(weight, Constant):
        return None
    if not all(isinstance(vector, Constant) for vector in bias):
        return None
    if phases.is_pixel:
        return _of_pixel(node, phases, weight.data)
    if phases.are_uneven:
        return _one_by_one(node, phases, weight.data)
    operands = [node.args[0], constant(phases.weights(weight.data, np.float32(0)))]
    operands += [constant(phases.each(one.data)) for one in bias if isinstance(one, Constant)]
    return phases.side_by_side(call(nn.Conv, *operands, attrs=phases.conv_attrs(), span=node.span))


def _of_pixel(node: Call, phases: _Phases, weight: np.ndarray) -> Expr:
    """Compute the results of a single pixel as the row of a product."""
    batch, outputs, *sizes = extents(phases.result.shape)
    low = [before for before, _ in phases.attrs.padding]
    met = [slice(first, first + size) for first, size in zip(low, sizes, strict=True)]
    taps = np.ascontiguousarray(weight[:, :, *met])
    row = reshaped(node.args[0], (batch, len(weight)))
    matrix = constant(taps.reshape(len(weight), -1))
    made = call(nn.Matmul, row, matrix, attrs=nn.Matmul.Attrs(), span=node.span)
    image = reshaped(made, (batch, outputs, *sizes))
    for vector in node.args[2:]:
        image = call(Add, image, reshaped(vector, (outputs, *(1 for _ in sizes))), span=node.span)
    return image


def _one_by_one(node: Call, phases: _Phases, weight: np.ndarray) -> Expr:
    """Compute each phase by a convolution of its own taps alone."""
    strides = phases.attrs.strides
    every = phases.weights(weight, np.float32(0))
    (outputs,) = extents(phases.result.shape[1:2])
    split = every.reshape(outputs, prod(strides), *every.shape[1:])
    computed: list[Expr] = []
    for number, phase in enumerate(product(*map(range, strides))):
        cuts = phases.missing(phase)
        own = split[:, number, :, *(slice(cut, None) for cut in cuts)]
        attrs = phases.conv_attrs(cuts)
        operands = (node.args[0], constant(np.ascontiguousarray(own)), *node.args[2:])
        computed.append(call(nn.Conv, *operands, attrs=attrs, span=node.span))
    elements_per_word = call(Concatenate, *computed, attrs=Concatenate.Attrs(axis=1))
    return phases.side_by_side(elements_per_word, apart=True)


def _expanded_int8(node: Call) -> Expr | None:
    weight, parameters = node.args[3], node.args[1:]
    phases = _phases(node, weight, ranks=(4,))
    if phases is None or not all(isinstance(one, Constant) for one in parameters):
        return None
    values = [one.data for one in parameters if isinstance(one, Constant)]
    x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *bias = values
    missing = w_zero.reshape(-1, 1, 1) if w_zero.ndim else w_zero
    new = [x_scale, x_zero, phases.weights(w, missing), phases.each(w_scale), phases.each(w_zero)]
    new += [phases.each(y_scale), phases.each(y_zero), *(phases.each(one) for one in bias)]
    operands = [node.args[0], *(constant(one) for one in new)]
    computed = call(qnn_linear.Conv, *operands, attrs=phases.conv_attrs(), span=node.span)
    return phases.side_by_side(computed)


def _phases(node: Call, weight: Expr, *, ranks: tuple[int, ...]) -> _Phases | None:
    """Describe the convolution of a transposed one; ``None`` if it is left as it is.

    Args:
        node: The call.
        weight: Its weight.
        ranks: How many dimensions the data may have.
    """
    attrs, kinds = node.attrs, (tensor_type(node.args[0]), tensor_type(weight), tensor_type(node))
    if not isinstance(attrs, nn.ConvTranspose.Attrs) or kinds[0].rank not in ranks:
        return None
    low = [before for before, _ in attrs.padding]
    is_fixed = kinds[1].is_static and isinstance(kinds[0].shape[1], int)
    if not is_fixed or set(attrs.dilation) != {1} or min(low) < 0 or 0 in kinds[0].shape:
        return None
    phases = _Phases(attrs, *kinds)
    if any(isinstance(size, Dim) for d in range(len(low)) for size in phases.window(d)):
        return None  # a result of a given size
    every = prod(kinds[1].static_shape[:2]) * prod(phases.taps) * prod(attrs.strides)
    # A stride far longer than the window would have weights of nearly nothing but zeros.
    return phases if every <= max(_MOST_WEIGHTS, 4 * kinds[1].elements) else None


class _Phases(Struct, frozen=True):
    """How the phases of one transposed convolution are computed.

    Attributes:
        attrs: Its attributes.
        data: ``[N, C, *D]``, of two or three spatial dimensions.
        weight: ``[C, O / groups, *K]``.
        result: ``[N, O, *S]``.
    """

    attrs: nn.ConvTranspose.Attrs
    data: TensorType
    weight: TensorType
    result: TensorType

    @property
    def taps(self) -> list[int]:
        """Taps of a phase in each dimension."""
        kernel = self.weight.static_shape[2:]
        return [-(-size // step) for size, step in zip(kernel, self.attrs.strides, strict=True)]

    @property
    def is_pixel(self) -> bool:
        """Whether the data are a single pixel, and all results meet a tap of the kernel."""
        if set(self.data.shape[2:]) != {1} or self.attrs.groups > 1:
            return False
        sizes, kernel = extents(self.result.shape[2:]), self.weight.static_shape[2:]
        low = [before for before, _ in self.attrs.padding]
        return all(b + s <= taps for b, s, taps in zip(low, sizes, kernel, strict=True))

    def window(self, d: int) -> tuple[int, int, int]:
        """Return padding at both ends, and where in the phases side by side the result begins."""
        step, taps, low = self.attrs.strides[d], self.taps[d], self.attrs.padding[d][0]
        length, given = extents((self.result.shape[2 + d], self.data.shape[2 + d]))
        last = (low + length - 1) // step
        before = max(0, taps - 1 - low // step)
        first = taps - 1 - before
        (after,) = extents([maximum(0, last - first - given - before + taps)])
        return before, after, low - step * first

    def missing(self, phase: tuple[int, ...]) -> tuple[int, ...]:
        """Return how many taps a phase lacks in each dimension: none or one, its first."""
        kernel, strides = self.weight.static_shape[2:], self.attrs.strides
        return tuple(
            taps - len(range(own, size, step))
            for taps, own, size, step in zip(self.taps, phase, kernel, strides, strict=True)
        )

    @property
    def are_uneven(self) -> bool:
        """Whether phases are better computed one by one: many taps of some of them are missing."""
        kernel, strides = self.weight.static_shape[2:], self.attrs.strides
        every = prod(self.taps) * prod(strides)
        if prod(kernel) > _USEFUL * every or prod(strides) > _MOST_PHASES:
            return False
        if self.attrs.groups > 1 or any(
            size < step for size, step in zip(kernel, strides, strict=True)
        ):
            return False
        return all(
            size % step == 0 or self.window(d)[0] > 0
            for d, (size, step) in enumerate(zip(kernel, strides, strict=True))
        )

    def conv_attrs(self, missing: tuple[int, ...] = ()) -> nn.Conv.Attrs:
        """Return the attributes of the convolution, or of a phase that lacks some first taps."""
        ones = (1,) * len(self.attrs.strides)
        windows = [self.window(d) for d in range(len(ones))]
        cuts = missing or (0,) * len(ones)
        ends = [(low - cut, high) for (low, high, _), cut in zip(windows, cuts, strict=True)]
        return nn.Conv.Attrs(
            strides=ones, padding=tuple(ends), dilation=ones, groups=self.attrs.groups
        )

    def weights(self, data: np.ndarray, missing: np.ndarray | np.generic) -> np.ndarray:
        """Return the weights of the convolution, ``[O * phases, C / groups, *taps]``.

        Args:
            data: Weights of the transposed convolution.
            missing: What stands for taps that it has not: it is broadcast to ``[O / groups, *K]``.
        """
        taps, strides = self.taps, self.attrs.strides
        inputs, inner, *kernel = data.shape
        whole = [count * step for count, step in zip(taps, strides, strict=True)]
        padded_weight = np.empty((inputs, inner, *whole), data.dtype)
        padded_weight[...] = missing
        padded_weight[:, :, *map(slice, kernel)] = data
        groups, rank = self.attrs.groups, len(kernel)
        split = [size for pair in zip(taps, strides, strict=True) for size in pair]
        parts = padded_weight.reshape(groups, inputs // groups, inner, *split)
        along = range(3, 3 + 2 * rank, 2)  # the taps; phases are behind them
        order = (0, 2, *(axis + 1 for axis in along), 1, *along)
        transposed = np.flip(parts, tuple(along)).transpose(order)
        shape = (groups * inner * prod(strides), inputs // groups, *taps)
        return np.ascontiguousarray(transposed).reshape(shape)

    def each(self, vector: np.ndarray) -> np.ndarray:
        """Repeat what belongs to a channel for each of its phases."""
        return np.repeat(vector, prod(self.attrs.strides)) if vector.ndim else vector

    def side_by_side(self, phases: Expr, *, apart: bool = False) -> Expr:
        """Move the phases, which are channels, to their places; cut off what is not the result.

        Args:
            phases: ``[N, O * phases, *S]``.
            apart: Whether all channels of a phase lie together, not all phases of a channel.
        """
        strides = self.attrs.strides
        rank = len(strides)
        batch, channels, *sizes = extents(self.result.shape)
        _, _, *counts = extents(tensor_type(phases).shape)
        value = phases
        if set(strides) != {1}:
            shape = (*strides, channels) if apart else (channels, *strides)
            value = reshaped(value, (batch, *shape, *counts))
            first = 1 if apart else 2  # of the phases; the sizes are behind all
            pairs = [axis for d in range(rank) for axis in (2 + rank + d, first + d)]
            order = Transpose.Attrs(axes=(0, 1 + rank if apart else 1, *pairs))
            value = call(Transpose, value, attrs=order)
            whole = [count * step for count, step in zip(counts, strides, strict=True)]
            value = reshaped(value, (batch, channels, *whole))
        begin = (0, 0, *(self.window(d)[2] for d in range(rank)))
        end = (batch, channels, *(b + size for b, size in zip(begin[2:], sizes, strict=True)))
        if tensor_type(value).shape == self.result.shape:
            return value
        attrs = StridedSlice.Attrs(begin=begin, end=end, strides=(1,) * len(begin))
        return call(StridedSlice, value, attrs=attrs)
