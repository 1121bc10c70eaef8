# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements and compute none."""

from __future__ import annotations

from intarsia.plugin.accelerator import (
    Call,
    Code,
    Concatenate,
    DepthToSpace,
    Resize,
    SpaceToDepth,
    Split,
    Support,
    Transpose,
    sizes,
)

from .describe import TO_IMAGE, Sketch, device_shape, dtype_of
from .row import NetworkRow, no, row

_AXES = {4: (0, 3, 1, 2), 2: (1, 3), 1: (3,)}
"""Where the model's axes are on the device, by rank."""


def _reshape(sketch: Sketch, call: Call) -> str | Support:
    source, result = sizes(call.args[0]), sizes(call)
    shapes = device_shape(source), device_shape(result)
    if 0 in shapes[0] or 0 in shapes[1]:
        return no(f"{list(source)} to {list(result)}: ranks 1, 2 and 4", Code.UNSUPPORTED_SHAPE)
    if not all(
        len(shape) < 4 or shape[1] == 1 or shape[2:] == (1, 1) for shape in (source, result)
    ):
        return no(
            f"{list(source)} to {list(result)}: the device has the channels last, so the order"
            " of elements would differ",
            Code.UNSUPPORTED_LAYOUT,
        )
    name = sketch.operand(call.args[0])
    tensor = sketch.tensors[name]
    if tensor.shape == shapes[1]:
        return name
    return sketch.add("reshape", (name,), shapes[1], tensor.dtype, tensor.quantization)


def _concatenate(sketch: Sketch, call: Call) -> str | Support:
    assert isinstance(call.attrs, Concatenate.Attrs)
    rank = len(sizes(call))
    axes = _AXES.get(rank)
    if axes is None:
        return no(f"rank {rank}: 1, 2 and 4 are taken", Code.UNSUPPORTED_SHAPE)
    told = sketch.known.get(call)
    inputs = [sketch.operand(arg, told) for arg in call.args]
    given = sketch.tensors[inputs[0]].quantization
    axis = axes[call.attrs.axis % rank]
    shape = device_shape(sizes(call))
    return sketch.add("concatenation", inputs, shape, dtype_of(call), given, axis=axis)


def _depth_to_space(sketch: Sketch, call: Call) -> str | Support:
    assert isinstance(call.attrs, DepthToSpace.Attrs)
    if call.attrs.mode != "DCR":
        return no(f"mode {call.attrs.mode}: the device has DCR")
    source = sketch.operand(call.args[0])
    tensor = sketch.tensors[source]
    shape, block = device_shape(sizes(call)), call.attrs.block
    return sketch.add(
        "depth-to-space", (source,), shape, tensor.dtype, tensor.quantization, block=block
    )


def _resize(sketch: Sketch, call: Call) -> str | Support:
    assert isinstance(call.attrs, Resize.Attrs)
    before, after = sizes(call.args[0]), sizes(call)
    doubled = len(after) == 4 and after == (*before[:2], 2 * before[2], 2 * before[3])
    if call.attrs.mode != "nearest" or not doubled:
        return no(f"{call.attrs.mode} from {list(before)} to {list(after)}: nearest, twice")
    rule = (call.attrs.coordinate_mode, call.attrs.nearest_mode)
    # Of twice as many elements both say: each of the old ones two times.
    if rule not in (("asymmetric", "floor"), ("half_pixel", "round_prefer_floor")):
        return no(f"{' '.join(rule)}: asymmetric floor or half_pixel round_prefer_floor")
    source = sketch.operand(call.args[0])
    tensor = sketch.tensors[source]
    shape = device_shape(after)
    return sketch.add(
        "resize", (source,), shape, tensor.dtype, tensor.quantization, algorithm="nearest"
    )


def _split(sketch: Sketch, call: Call) -> str | Support:
    """One operation for each part; the library is asked for all of them at once."""
    assert isinstance(call.attrs, Split.Attrs)
    source = sketch.operand(call.args[0])
    tensor, rank = sketch.tensors[source], len(sizes(call.args[0]))
    axis, parts = _AXES[rank][call.attrs.axis % rank], call.attrs.sections
    names: list[str] = []
    for part, size in enumerate(parts):
        n, height, width, depth = (
            size if d == axis else whole for d, whole in enumerate(tensor.shape)
        )
        shape = (n, height, width, depth)
        attrs = {"axis": axis, "sizes": parts, "part": part}
        names.append(
            sketch.add("split", (source,), shape, tensor.dtype, tensor.quantization, **attrs)
        )
    sketch.parts[call] = tuple(names)
    return names[0]


def _transpose(sketch: Sketch, call: Call) -> str | Support:
    assert isinstance(call.attrs, Transpose.Attrs)
    if len(sizes(call)) != 4 or call.attrs.axes[0] != 0 or sizes(call)[0] != 1:
        return no(
            f"axes {call.attrs.axes} of {list(sizes(call.args[0]))}: images of batch 1, the batch"
            " stays"
        )
    source = sketch.operand(call.args[0])
    tensor = sketch.tensors[source]
    order = tuple(TO_IMAGE.index(call.attrs.axes[axis]) for axis in TO_IMAGE)
    shape = device_shape(sizes(call))
    return sketch.add("transpose", (source,), shape, tensor.dtype, tensor.quantization, order=order)


def _space_to_depth(sketch: Sketch, call: Call) -> str | Support:
    assert isinstance(call.attrs, SpaceToDepth.Attrs)
    source = sketch.operand(call.args[0])
    tensor = sketch.tensors[source]
    shape, block = device_shape(sizes(call)), call.attrs.block
    return sketch.add(
        "space-to-depth", (source,), shape, tensor.dtype, tensor.quantization, block=block
    )


def move_rows() -> tuple[NetworkRow, ...]:
    """Return the rows of these operators."""
    return (
        row("reshape", _reshape, data=(0,), doc="where channels last does not change the order"),
        row("transpose", _transpose, data=(0,), doc="images; the batch stays; fits in memory"),
        row("split", _split, data=(0,), doc="any axis but the batch"),
        row("concatenate", _concatenate, doc="any axis but the batch"),
        row("nn.depth_to_space", _depth_to_space, data=(0,), doc="blocks of 2, mode DCR"),
        row(
            "nn.space_to_depth",
            _space_to_depth,
            data=(0,),
            doc="never: the library estimates it and has no code for it",
        ),
        row("nn.resize", _resize, data=(0,), doc="nearest, to twice the height and width"),
    )
