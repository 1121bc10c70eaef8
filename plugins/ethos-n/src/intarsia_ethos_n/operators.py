# SPDX-License-Identifier: Apache-2.0
"""The operators of the model that become operators of the device."""

from __future__ import annotations

import numpy as np

from intarsia.plugin.accelerator import (
    AvgPool,
    Call,
    Clip,
    Code,
    Conv,
    ConvTranspose,
    Matmul,
    PoolAttrs,
    ReduceOp,
    Support,
    array_of,
    sizes,
)

from .curves import find_curve
from .describe import Sketch, device_shape, dtype_of, quantization_of, quantizations
from .moves import move_rows
from .network import NetworkQuantization
from .row import NetworkRow, no, row

BIAS = 8


def _product_scales(
    x: NetworkQuantization, w: NetworkQuantization, axis: int
) -> NetworkQuantization:
    """Return scales of the accumulator, in float32 as the library multiplies them."""
    by = np.float32(x.scale) * np.asarray(w.scales, np.float32)
    return NetworkQuantization(0, tuple(by.tolist()), axis if len(w.scales) > 1 else -1)


def _result(call: Call) -> NetworkQuantization:
    found = quantizations(call)[1]
    return NetworkQuantization() if found is None else found


def _one_zero(call: Call) -> Support | None:
    if np.unique(array_of(call.args[5])).size > 1:
        return no("one zero point for all weights is taken, not one a channel")
    return None


def _conv(sketch: Sketch, call: Call) -> str | Support:
    assert isinstance(call.attrs, Conv.Attrs)
    attrs, weight = call.attrs, array_of(call.args[3])
    if len(sizes(call)) != 4:
        return no(f"rank {len(sizes(call))}: only images are taken", Code.UNSUPPORTED_SHAPE)
    channels, outputs = sizes(call.args[0])[1], weight.shape[0]
    depthwise = attrs.groups == channels and attrs.groups > 1
    if attrs.groups != 1 and not depthwise:
        return no(f"groups={attrs.groups} of {channels} channels: 1 or one for each channel")
    if set(attrs.dilation) != {1}:
        return no(f"dilation {attrs.dilation}: the device has none")
    refused = _one_zero(call)
    if refused is not None:
        return refused
    data = quantization_of(call.args[1], call.args[2])
    by = quantization_of(call.args[4], call.args[5], 2 if depthwise else 3)
    if depthwise:
        grouped = weight.reshape(channels, outputs // channels, *weight.shape[2:])
        stored = grouped.transpose(2, 3, 0, 1)
    else:
        stored = weight.transpose(2, 3, 1, 0)
    inputs = (sketch.operand(call.args[0], data), sketch.constant(stored, by))
    inputs = (*inputs, _bias(sketch, call, outputs, _product_scales(data, by, 3)))
    (top, bottom), (left, right) = attrs.padding
    return sketch.add(
        "depthwise" if depthwise else "convolution",
        inputs,
        device_shape(sizes(call)),
        dtype_of(call),
        _result(call),
        padding=(top, bottom, left, right),
        stride=(attrs.strides[1], attrs.strides[0]),
    )


def _conv_transpose(sketch: Sketch, call: Call) -> str | Support:
    assert isinstance(call.attrs, ConvTranspose.Attrs)
    attrs, weight = call.attrs, array_of(call.args[3])
    if attrs.groups != 1 or set(attrs.dilation) != {1} or any(attrs.output_padding):
        return no("groups, dilation and output padding are not taken")
    (top, bottom), (left, right) = attrs.padding
    kernel = weight.shape[2:]
    if min(top, bottom, left, right) < 0 or max(top, bottom) >= kernel[0]:
        return no(f"padding {attrs.padding}: not negative, and smaller than the kernel")
    if max(left, right) >= kernel[1]:
        return no(f"padding {attrs.padding}: not negative, and smaller than the kernel")
    refused = _one_zero(call)
    if refused is not None:
        return refused
    data = quantization_of(call.args[1], call.args[2])
    by = quantization_of(call.args[4], call.args[5], 3)
    stored = sketch.constant(weight.transpose(2, 3, 0, 1), by)
    bias = _bias(sketch, call, weight.shape[1], _product_scales(data, by, 3))
    return sketch.add(
        "transpose-convolution",
        (sketch.operand(call.args[0], data), stored, bias),
        device_shape(sizes(call)),
        dtype_of(call),
        _result(call),
        padding=(top, bottom, left, right),
        stride=(attrs.strides[1], attrs.strides[0]),
    )


def _bias(sketch: Sketch, call: Call, outputs: int, scales: NetworkQuantization) -> str:
    given = array_of(call.args[BIAS]) if len(call.args) > BIAS else np.zeros(outputs, np.int32)
    return sketch.constant(given.reshape(1, 1, 1, -1), scales)


def _matmul(sketch: Sketch, call: Call) -> str | Support:
    assert isinstance(call.attrs, Matmul.Attrs)
    weight = array_of(call.args[3])
    rows = sizes(call.args[0])
    if weight.ndim != 2 or len(rows) != 2 or call.attrs.transpose_a:
        return no("only rows times a two-dimensional constant are taken", Code.UNSUPPORTED_SHAPE)
    refused = _one_zero(call)
    if refused is not None:
        return refused
    stored = weight.T if call.attrs.transpose_b else weight
    data = quantization_of(call.args[1], call.args[2])
    by = quantization_of(call.args[4], call.args[5], 3)
    inputs = (
        sketch.operand(call.args[0], data),
        sketch.constant(stored.reshape(1, 1, *stored.shape), by),
        _bias(sketch, call, stored.shape[1], _product_scales(data, by, 3)),
    )
    shape, dtype = device_shape(sizes(call)), dtype_of(call)
    if rows[0] == 1 and len(by.scales) == 1:
        return sketch.add("fully-connected", inputs, shape, dtype, _result(call))
    # The device's product has one row and one scale; a convolution of 1x1 has neither limit.
    window = {"padding": (0, 0, 0, 0), "stride": (1, 1)}
    return sketch.add("convolution", inputs, shape, dtype, _result(call), **window)


def _binary(sketch: Sketch, call: Call) -> str | Support:
    if len(sizes(call.args[0])) != len(sizes(call.args[3])):
        return no("operands must have the same rank", Code.UNSUPPORTED_SHAPE)
    told, result = quantizations(call)
    inputs = [sketch.operand(call.args[index], told[index]) for index in (0, 3)]
    kind = "addition" if call.name == "qnn.add" else "multiplication"
    shape = device_shape(sizes(call))
    return sketch.add(kind, inputs, shape, dtype_of(call), result or NetworkQuantization())


def _clip(sketch: Sketch, call: Call) -> str | Support:
    assert isinstance(call.attrs, Clip.Attrs)
    low, high = (0, 255) if dtype_of(call) == "u8" else (-128, 127)
    lower = int(np.ceil(np.clip(call.attrs.min, low, high)))
    upper = int(np.floor(np.clip(call.attrs.max, low, high)))
    name = sketch.operand(call.args[0])
    tensor = sketch.tensors[name]
    return sketch.add(
        "relu", (name,), tensor.shape, tensor.dtype, tensor.quantization, lower=lower, upper=upper
    )


def _requantize(sketch: Sketch, call: Call) -> str | Support:
    if any(array_of(call.args[index]).size > 1 for index in (1, 2, 3, 4)):
        return no("scales and zero points along an axis are not taken")
    source = sketch.operand(call.args[0], quantization_of(call.args[1], call.args[2]))
    shape = sketch.tensors[source].shape
    return sketch.add("requantize", (source,), shape, dtype_of(call), _result(call))


def _window(call: Call) -> PoolAttrs | Support:
    assert isinstance(call.attrs, PoolAttrs)
    if len(sizes(call)) != 4:
        return no(f"rank {len(sizes(call))}: only images are taken", Code.UNSUPPORTED_SHAPE)
    if call.attrs.ceil_mode:
        return no("ceil_mode is not taken")
    if set(call.attrs.dilation) != {1}:
        return no(f"dilation {call.attrs.dilation}: the device has none")
    return call.attrs


def _pool(sketch: Sketch, call: Call, source: str, attrs: PoolAttrs, way: str) -> str:
    tensor = sketch.tensors[source]
    (top, bottom), (left, right) = attrs.padding
    return sketch.add(
        "pooling",
        (source,),
        device_shape(sizes(call)),
        tensor.dtype,
        tensor.quantization,
        size=attrs.kernel[::-1],
        stride=attrs.strides[::-1],
        padding=(top, bottom, left, right),
        type=way,
    )


def _max_pool(sketch: Sketch, call: Call) -> str | Support:
    attrs = _window(call)
    if isinstance(attrs, Support):
        return attrs
    return _pool(sketch, call, sketch.operand(call.args[0]), attrs, "max")


def _average(sketch: Sketch, call: Call) -> str | Support:
    attrs = _window(call)
    if isinstance(attrs, Support):
        return attrs
    told, result = quantizations(call)
    padded = any(any(pair) for pair in attrs.padding)
    counted = isinstance(attrs, AvgPool.Attrs) and attrs.count_include_pad
    if told[0] == result and dtype_of(call.args[0]) == dtype_of(call) and not (padded and counted):
        return _pool(sketch, call, sketch.operand(call.args[0], told[0]), attrs, "avg")
    if padded and not counted:
        return no("a mean without its padding keeps its scale; this one changes it")
    (top, bottom), (left, right) = attrs.padding
    window = (attrs.kernel[0], attrs.kernel[1])
    stride = (attrs.strides[1], attrs.strides[0])
    return _ones(sketch, call, window, (top, bottom, left, right), stride)


def _ones(
    sketch: Sketch,
    call: Call,
    window: tuple[int, int],
    padding: tuple[int, int, int, int],
    stride: tuple[int, int],
) -> str:
    """A mean that changes the scale: a depthwise convolution with ones."""
    told, result = quantizations(call)
    source = sketch.operand(call.args[0], told[0])
    channels = sketch.tensors[source].shape[3]
    by = NetworkQuantization(0, (float(np.float32(1 / (window[0] * window[1]))),))
    ones = np.ones((*window, channels, 1), "u1" if dtype_of(call.args[0]) == "u8" else "i1")
    scales = _product_scales(told[0], by, 3)
    zeros = sketch.constant(np.zeros((1, 1, 1, channels), np.int32), scales)
    inputs = (source, sketch.constant(ones, by), zeros)
    shape = device_shape(sizes(call))
    given = result or NetworkQuantization()
    return sketch.add(
        "depthwise", inputs, shape, dtype_of(call), given, padding=padding, stride=stride
    )


def _mean(sketch: Sketch, call: Call) -> str | Support:
    assert isinstance(call.attrs, ReduceOp.Attrs)
    if tuple(sorted(call.attrs.axes)) != (2, 3) or len(sizes(call.args[0])) != 4:
        return no(f"axes {call.attrs.axes}: only means over height and width are taken")
    _, _, height, width = sizes(call.args[0])
    told, result = quantizations(call)
    if told[0] != result or dtype_of(call.args[0]) != dtype_of(call):
        return _ones(sketch, call, (height, width), (0, 0, 0, 0), (1, 1))
    source = sketch.operand(call.args[0], told[0])
    return sketch.add("mean", (source,), device_shape(sizes(call)), dtype_of(call), told[0])


def _lookup(sketch: Sketch, call: Call) -> str | Support:
    table = array_of(call.args[1])
    if dtype_of(call) != dtype_of(call.args[0]):
        return no(f"a table of {table.dtype}: operand and result have one 8-bit type")
    given = sketch.names.get(call.args[0])
    known = sketch.known.get(call.args[0])
    known = known if given is None else sketch.tensors[given].quantization
    curve = find_curve(table, 0 if dtype_of(call) == "u8" else -128, known)
    if curve is None:
        return no("the table is none of the device's sigmoid, tanh and leaky relu")
    attrs = {"alpha": curve.alpha} if curve.kind == "leaky-relu" else {}
    source = sketch.operand(call.args[0], curve.operand)
    shape = sketch.tensors[source].shape
    return sketch.add(curve.kind, (source,), shape, dtype_of(call), curve.result, **attrs)


def all_rows() -> tuple[NetworkRow, ...]:
    """Return every operator."""
    pair = (1, 2, 4, 5, 6, 7)
    return (
        *_product_rows(),
        row("qnn.add", _binary, data=(0, 3), constant=pair, doc="equal shapes and types"),
        row("qnn.multiply", _binary, data=(0, 3), constant=pair, doc="equal shapes and types"),
        row(
            "qnn.requantize",
            _requantize,
            data=(0,),
            constant=(1, 2, 3, 4),
            doc="one scale; that of the result above 1/128 of the input's",
        ),
        row(
            "qnn.mean",
            _mean,
            data=(0,),
            constant=(1, 2, 3, 4),
            doc="over height and width; 7x7 or 8x8, or, with a change of scale, a kernel's size",
        ),
        row(
            "qnn.avg_pool",
            _average,
            data=(0,),
            constant=(1, 2, 3, 4),
            doc="all of 7x7 or 8x8; 3x3 with stride 1 and padding 1; with a change of scale as"
            " a depthwise convolution",
        ),
        row(
            "nn.max_pool",
            _max_pool,
            data=(0,),
            doc="stride 2: 1x1, 2x2 of even sizes (odd with padding behind), 3x3 of odd ones"
            " (even with padding behind), up to 417 wide; stride 1: up to 9, or 17 with the"
            " size kept",
        ),
        *_shaping_rows(),
    )


def _product_rows() -> tuple[NetworkRow, ...]:
    """Return the operators that sum up products with weights."""
    weighted = (1, 2, 3, 4, 5, 6, 7, BIAS)
    return (
        row(
            "qnn.conv",
            _conv,
            data=(0,),
            constant=weighted,
            doc="images; kernel sides 1, 2, 3, 5, 7, 9, depthwise square; strides equal, 1 or 2"
            " (1 above 7 and for depthwise 1x1); padding up to 7 or keeping the size; no"
            " dilation; groups 1 or one a channel; results scaled by less than 65536; one"
            " zero point for all weights",
        ),
        row(
            "qnn.conv_transpose",
            _conv_transpose,
            data=(0,),
            constant=weighted,
            doc="images; kernel sides 1, 2, 3, 5, 7, 9; strides of 2; padding smaller than the"
            " kernel, and some above 7; no groups, dilation or output padding; one zero"
            " point for all weights",
        ),
        row(
            "qnn.matmul",
            _matmul,
            data=(0,),
            constant=weighted,
            doc="rows times a constant matrix; several rows or scales as a convolution of 1x1",
        ),
    )


def _shaping_rows() -> tuple[NetworkRow, ...]:
    """Return the operators without sums: limits, curves, and what moves elements."""
    return (
        row("clip", _clip, data=(0,), doc="limits that do not cross"),
        row(
            "qnn.lookup",
            _lookup,
            data=(0,),
            constant=(1,),
            doc="tables of sigmoid (in steps of 1/256), tanh (of 1/128) and leaky relu, which"
            " are recognized by their numbers",
        ),
        *move_rows(),
    )
