# SPDX-License-Identifier: Apache-2.0
"""The operators of the model that become operators of the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from intarsia.ir.expr import Call
from intarsia.ops.nn import Conv, Matmul
from intarsia.ops.pooling import AvgPool, PoolAttrs
from intarsia.ops.reduce import ReduceOp
from intarsia.ops.resize import DepthToSpace, Resize
from intarsia.ops.shape import Concatenate
from intarsia.ops.unary import Clip
from intarsia.partition.support import Code, Support

from .curves import find_curve
from .describe import (
    Sketch,
    array_of,
    device_shape,
    dtype_of,
    quantisation_of,
    quantisations,
    sizes,
)
from .network import Quantisation

Describe: TypeAlias = "Callable[[Sketch, Call], str | Support]"
BIAS = 8


@dataclass(frozen=True, slots=True)
class Row:
    """One operator.

    Attributes:
        op: Its name.
        data: Arguments that are activations.
        constant: Arguments that must be known at compile time.
        describe: Appends operations and returns the result's tensor, or says what has no operation.
        limits: In words, for the table of what is supported.
    """

    op: str
    data: tuple[int, ...]
    constant: tuple[int, ...]
    describe: Describe
    limits: str


def _no(detail: str, code: Code = Code.UNSUPPORTED_ATTRIBUTE) -> Support:
    return Support.no(code, detail)


def _product_scales(x: Quantisation, w: Quantisation, axis: int) -> Quantisation:
    """Return scales of the accumulator, in float32 as the library multiplies them."""
    by = np.float32(x.scale) * np.asarray(w.scales, np.float32)
    return Quantisation(0, tuple(by.tolist()), axis if len(w.scales) > 1 else -1)


def _result(call: Call) -> Quantisation:
    found = quantisations(call)[1]
    return Quantisation() if found is None else found


def _one_zero(call: Call) -> Support | None:
    if np.unique(array_of(call.args[5])).size > 1:
        return _no("one zero point for all weights is taken, not one a channel")
    return None


def _conv(sketch: Sketch, call: Call) -> str | Support:
    assert isinstance(call.attrs, Conv.Attrs)
    attrs, weight = call.attrs, array_of(call.args[3])
    if len(sizes(call)) != 4:
        return _no(f"rank {len(sizes(call))}: only images are taken", Code.UNSUPPORTED_SHAPE)
    channels, outputs = sizes(call.args[0])[1], weight.shape[0]
    depthwise = attrs.groups == channels and attrs.groups > 1
    if attrs.groups != 1 and not depthwise:
        return _no(f"groups={attrs.groups} of {channels} channels: 1 or one for each channel")
    if set(attrs.dilation) != {1}:
        return _no(f"dilation {attrs.dilation}: the device has none")
    refused = _one_zero(call)
    if refused is not None:
        return refused
    data = quantisation_of(call.args[1], call.args[2])
    by = quantisation_of(call.args[4], call.args[5], 2 if depthwise else 3)
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


def _bias(sketch: Sketch, call: Call, outputs: int, scales: Quantisation) -> str:
    given = array_of(call.args[BIAS]) if len(call.args) > BIAS else np.zeros(outputs, np.int32)
    return sketch.constant(given.reshape(1, 1, 1, -1), scales)


def _matmul(sketch: Sketch, call: Call) -> str | Support:
    assert isinstance(call.attrs, Matmul.Attrs)
    weight = array_of(call.args[3])
    if weight.ndim != 2 or len(sizes(call.args[0])) != 2 or call.attrs.transpose_a:
        return _no("only rows times a two-dimensional constant are taken", Code.UNSUPPORTED_SHAPE)
    refused = _one_zero(call)
    if refused is not None:
        return refused
    stored = weight.T if call.attrs.transpose_b else weight
    data = quantisation_of(call.args[1], call.args[2])
    by = quantisation_of(call.args[4], call.args[5], 3)
    inputs = (
        sketch.operand(call.args[0], data),
        sketch.constant(stored.reshape(1, 1, *stored.shape), by),
        _bias(sketch, call, stored.shape[1], _product_scales(data, by, 3)),
    )
    shape = device_shape(sizes(call))
    return sketch.add("fully-connected", inputs, shape, dtype_of(call), _result(call))


def _binary(sketch: Sketch, call: Call) -> str | Support:
    if len(sizes(call.args[0])) != len(sizes(call.args[3])):
        return _no("operands must have the same rank", Code.UNSUPPORTED_SHAPE)
    told, result = quantisations(call)
    inputs = [sketch.operand(call.args[index], told[index]) for index in (0, 3)]
    kind = "addition" if call.name == "qnn.add" else "multiplication"
    shape = device_shape(sizes(call))
    return sketch.add(kind, inputs, shape, dtype_of(call), result or Quantisation())


def _clip(sketch: Sketch, call: Call) -> str | Support:
    assert isinstance(call.attrs, Clip.Attrs)
    low, high = (0, 255) if dtype_of(call) == "u8" else (-128, 127)
    lower = int(np.ceil(np.clip(call.attrs.min, low, high)))
    upper = int(np.floor(np.clip(call.attrs.max, low, high)))
    name = sketch.operand(call.args[0])
    tensor = sketch.tensors[name]
    return sketch.add(
        "relu", (name,), tensor.shape, tensor.dtype, tensor.quantisation, lower=lower, upper=upper
    )


def _requantize(sketch: Sketch, call: Call) -> str | Support:
    if any(array_of(call.args[index]).size > 1 for index in (1, 2, 3, 4)):
        return _no("scales and zero points along an axis are not taken")
    source = sketch.operand(call.args[0], quantisation_of(call.args[1], call.args[2]))
    shape = sketch.tensors[source].shape
    return sketch.add("requantize", (source,), shape, dtype_of(call), _result(call))


def _window(call: Call) -> PoolAttrs | Support:
    assert isinstance(call.attrs, PoolAttrs)
    if len(sizes(call)) != 4:
        return _no(f"rank {len(sizes(call))}: only images are taken", Code.UNSUPPORTED_SHAPE)
    if call.attrs.ceil_mode:
        return _no("ceil_mode is not taken")
    if set(call.attrs.dilation) != {1}:
        return _no(f"dilation {call.attrs.dilation}: the device has none")
    return call.attrs


def _pool(sketch: Sketch, call: Call, source: str, attrs: PoolAttrs, way: str) -> str:
    tensor = sketch.tensors[source]
    (top, bottom), (left, right) = attrs.padding
    return sketch.add(
        "pooling",
        (source,),
        device_shape(sizes(call)),
        tensor.dtype,
        tensor.quantisation,
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
    told, result = quantisations(call)
    padded = any(any(pair) for pair in attrs.padding)
    counted = isinstance(attrs, AvgPool.Attrs) and attrs.count_include_pad
    if told[0] == result and dtype_of(call.args[0]) == dtype_of(call) and not (padded and counted):
        return _pool(sketch, call, sketch.operand(call.args[0], told[0]), attrs, "avg")
    if padded and not counted:
        return _no("a mean without its padding keeps its scale; this one changes it")
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
    told, result = quantisations(call)
    source = sketch.operand(call.args[0], told[0])
    channels = sketch.tensors[source].shape[3]
    by = Quantisation(0, (float(np.float32(1 / (window[0] * window[1]))),))
    ones = np.ones((*window, channels, 1), "u1" if dtype_of(call.args[0]) == "u8" else "i1")
    scales = _product_scales(told[0], by, 3)
    zeros = sketch.constant(np.zeros((1, 1, 1, channels), np.int32), scales)
    inputs = (source, sketch.constant(ones, by), zeros)
    shape = device_shape(sizes(call))
    given = result or Quantisation()
    return sketch.add(
        "depthwise", inputs, shape, dtype_of(call), given, padding=padding, stride=stride
    )


def _mean(sketch: Sketch, call: Call) -> str | Support:
    assert isinstance(call.attrs, ReduceOp.Attrs)
    if tuple(sorted(call.attrs.axes)) != (2, 3) or len(sizes(call.args[0])) != 4:
        return _no(f"axes {call.attrs.axes}: only means over height and width are taken")
    _, _, height, width = sizes(call.args[0])
    told, result = quantisations(call)
    if told[0] != result or dtype_of(call.args[0]) != dtype_of(call):
        return _ones(sketch, call, (height, width), (0, 0, 0, 0), (1, 1))
    source = sketch.operand(call.args[0], told[0])
    return sketch.add("mean", (source,), device_shape(sizes(call)), dtype_of(call), told[0])


def _reshape(sketch: Sketch, call: Call) -> str | Support:
    source, result = sizes(call.args[0]), sizes(call)
    shapes = device_shape(source), device_shape(result)
    if 0 in shapes[0] or 0 in shapes[1]:
        return _no(f"{list(source)} to {list(result)}: ranks 1, 2 and 4", Code.UNSUPPORTED_SHAPE)
    if not all(
        len(shape) < 4 or shape[1] == 1 or shape[2:] == (1, 1) for shape in (source, result)
    ):
        return _no(
            f"{list(source)} to {list(result)}: the device has the channels last, so the order"
            " of elements would differ",
            Code.UNSUPPORTED_LAYOUT,
        )
    name = sketch.operand(call.args[0])
    tensor = sketch.tensors[name]
    if tensor.shape == shapes[1]:
        return name
    return sketch.add("reshape", (name,), shapes[1], tensor.dtype, tensor.quantisation)


def _concatenate(sketch: Sketch, call: Call) -> str | Support:
    assert isinstance(call.attrs, Concatenate.Attrs)
    rank = len(sizes(call))
    axes = {4: (0, 3, 1, 2), 2: (0, 3), 1: (3,)}.get(rank)
    if axes is None:
        return _no(f"rank {rank}: 1, 2 and 4 are taken", Code.UNSUPPORTED_SHAPE)
    told = sketch.known.get(call)
    inputs = [sketch.operand(arg, told) for arg in call.args]
    given = sketch.tensors[inputs[0]].quantisation
    axis = axes[call.attrs.axis % rank]
    shape = device_shape(sizes(call))
    return sketch.add("concatenation", inputs, shape, dtype_of(call), given, axis=axis)


def _lookup(sketch: Sketch, call: Call) -> str | Support:
    table = array_of(call.args[1])
    if dtype_of(call) != dtype_of(call.args[0]):
        return _no(f"a table of {table.dtype}: operand and result have one 8-bit type")
    given = sketch.names.get(call.args[0])
    known = sketch.known.get(call.args[0])
    known = known if given is None else sketch.tensors[given].quantisation
    curve = find_curve(table, 0 if dtype_of(call) == "u8" else -128, known)
    if curve is None:
        return _no("the table is none of the device's sigmoid, tanh and leaky relu")
    attrs = {"alpha": curve.alpha} if curve.kind == "leaky-relu" else {}
    source = sketch.operand(call.args[0], curve.operand)
    shape = sketch.tensors[source].shape
    return sketch.add(curve.kind, (source,), shape, dtype_of(call), curve.result, **attrs)


def _depth_to_space(sketch: Sketch, call: Call) -> str | Support:
    assert isinstance(call.attrs, DepthToSpace.Attrs)
    if call.attrs.mode != "DCR":
        return _no(f"mode {call.attrs.mode}: the device has DCR")
    source = sketch.operand(call.args[0])
    tensor = sketch.tensors[source]
    shape, block = device_shape(sizes(call)), call.attrs.block
    return sketch.add(
        "depth-to-space", (source,), shape, tensor.dtype, tensor.quantisation, block=block
    )


def _resize(sketch: Sketch, call: Call) -> str | Support:
    assert isinstance(call.attrs, Resize.Attrs)
    before, after = sizes(call.args[0]), sizes(call)
    doubled = len(after) == 4 and after == (*before[:2], 2 * before[2], 2 * before[3])
    if call.attrs.mode != "nearest" or not doubled:
        return _no(f"{call.attrs.mode} from {list(before)} to {list(after)}: nearest, twice")
    rule = (call.attrs.coordinate_mode, call.attrs.nearest_mode)
    # Of twice as many elements both say: each of the old ones two times.
    if rule not in (("asymmetric", "floor"), ("half_pixel", "round_prefer_floor")):
        return _no(f"{' '.join(rule)}: asymmetric floor or half_pixel round_prefer_floor")
    source = sketch.operand(call.args[0])
    tensor = sketch.tensors[source]
    shape = device_shape(after)
    return sketch.add(
        "resize", (source,), shape, tensor.dtype, tensor.quantisation, algorithm="nearest"
    )


def all_rows() -> tuple[Row, ...]:
    """Return every operator."""
    weighted, pair = (1, 2, 3, 4, 5, 6, 7, BIAS), (1, 2, 4, 5, 6, 7)
    return (
        Row(
            "qnn.conv",
            (0,),
            weighted,
            _conv,
            "images; kernel sides 1, 2, 3, 5, 7, 9, depthwise square; strides equal, 1 or 2 (1"
            " above 7 and for depthwise 1x1); padding up to 7 or keeping the size; no dilation;"
            " groups 1 or one a channel; results scaled by less than 65536; one zero point for all"
            " weights",
        ),
        Row("qnn.matmul", (0,), weighted, _matmul, "one row, constant weights of one scale"),
        Row("qnn.add", (0, 3), pair, _binary, "equal shapes and types"),
        Row("qnn.multiply", (0, 3), pair, _binary, "equal shapes and types"),
        Row(
            "qnn.requantize",
            (0,),
            (1, 2, 3, 4),
            _requantize,
            "one scale; that of the result above 1/128 of the input's",
        ),
        Row(
            "qnn.mean",
            (0,),
            (1, 2, 3, 4),
            _mean,
            "over height and width; 7x7 or 8x8, or, with a change of scale, a kernel's size",
        ),
        Row(
            "qnn.avg_pool",
            (0,),
            (1, 2, 3, 4),
            _average,
            "all of 7x7 or 8x8; 3x3 with stride 1 and padding 1; with a change of scale as a"
            " depthwise convolution",
        ),
        Row(
            "nn.max_pool",
            (0,),
            (),
            _max_pool,
            "stride 2: 1x1, 2x2 of even sizes (odd with padding behind), 3x3 of odd ones (even with"
            " padding behind), up to 417 wide; stride 1: up to 9, or 17 with the size kept",
        ),
        *_shaping_rows(),
    )


def _shaping_rows() -> tuple[Row, ...]:
    """Return the operators without sums: limits, curves, and what moves elements."""
    return (
        Row("clip", (0,), (), _clip, "limits that do not cross"),
        Row("reshape", (0,), (), _reshape, "where channels last does not change the order"),
        Row(
            "qnn.lookup",
            (0,),
            (1,),
            _lookup,
            "tables of sigmoid (in steps of 1/256), tanh (of 1/128) and leaky relu, which are"
            " recognised by their numbers",
        ),
        Row("nn.depth_to_space", (0,), (), _depth_to_space, "blocks of 2, mode DCR"),
        Row("nn.resize", (0,), (), _resize, "nearest, to twice the height and width"),
        Row("concatenate", (), (), _concatenate, "any axis but the batch"),
    )
