# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements without computing: reshape, transpose, slice, pad and their kin."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr, get_item, tensor_type
from intarsia_ir.graph.guards import (
    is_collecting,
    require_equal,
)
from intarsia_ir.graph.types import Dim, Size
from intarsia_ir.ops import binary, compare, reduce, shape, slicing
from intarsia_ir.ops.type_rules import shape_text
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ModelError
from intarsia_runtime.size import maximum, numbers, product

from ..broadcasts import is_at_most_one
from ..builder import STATIC_HINT, rank_of, sizes_of
from ..context import NodeContext
from ..run_sizes import Hole, Partial
from .computed import computed_pad, computed_slice, counted_limits, is_known
from .slice_limits import computed_limits, is_reversal, known_limits, limit_tensor, open_limits
from .squeezing import squeeze, unsqueeze
from .triangles import trilu


def reshape(node: NodeContext) -> Expr:
    """Convert Reshape; 0 keeps a size (unless ``allowzero``), one -1 is inferred."""
    wanted = _computed_shape(node, node.partial_sizes(1, "the new shape"))
    sizes = sizes_of(node.input(0))
    misfit = node.model_error(
        f"the elements of shape {shape_text(sizes)} do not fit shape {wanted}"
    )
    new: list[Size] = list(wanted)
    if not node.integer("allowzero", 0):
        for position, size in enumerate(wanted):
            if size == 0:
                if position >= len(sizes):
                    raise misfit
                new[position] = sizes[position]
    if wanted.count(-1) > 1 or any(isinstance(size, int) and size < -1 for size in wanted):
        raise misfit
    if -1 in new:
        new[new.index(-1)] = _size_left(sizes, [size for size in new if size != -1], misfit)
    elements = product(sizes), product(new)
    if all(isinstance(count, int) for count in elements) and elements[0] != elements[1]:
        raise misfit
    if not require_equal(*elements, f"{node.span}: a reshape keeps the number of elements"):
        raise node.unsupported(f"shape {shape_text(sizes)} is only known at run time", STATIC_HINT)
    return node.reshape(node.input(0), new)


def _computed_shape(node: NodeContext, wanted: Sequence[Partial]) -> tuple[Size, ...]:
    """Return a new shape of which the model may compute sizes: also 0 and -1 have a meaning."""
    holes = [number for number, size in enumerate(wanted) if isinstance(size, Hole)]
    if not holes:
        return tuple(size for size in wanted if not isinstance(size, Hole))
    sizes = sizes_of(node.input(0))
    given = node.cast(node.input(1), DType.INT64)
    zero, one, open_size = (node.scalar(value, DType.INT64) for value in (0, 1, -1))
    if not node.integer("allowzero", 0):
        own = node.size_tensor(*(*sizes, *[1] * len(wanted))[: len(wanted)])
        is_kept = node.call(compare.Equal, given, zero)
        given = node.call(compare.Where, is_kept, own, given)
    if -1 not in wanted:
        is_open = node.call(compare.Equal, given, open_size)
        others = node.call(compare.Where, is_open, one, given)
        attrs = reduce.Prod.Attrs(axes=(0,), keepdims=True)
        taken = node.call(reduce.Prod, others, attrs=attrs)
        taken = node.call(binary.Maximum, taken, one)
        left = node.call(binary.Divide, node.size_tensor(product(sizes)), taken)
        given = node.call(compare.Where, is_open, left, given)
    return tuple(
        node.size_of(given, number) if isinstance(size, Hole) else size
        for number, size in enumerate(wanted)
    )


def _size_left(sizes: Sequence[Size], known: Sequence[Size], misfit: ModelError) -> Size:
    """Return what -1 stands for when the other sizes are ``known``."""
    total, taken = product(sizes), product(known)
    if isinstance(total, int) and isinstance(taken, int):
        if taken == 0 or total % taken:
            raise misfit
        return total // taken
    return total // taken


def flatten(node: NodeContext) -> Expr:
    """Convert Flatten to a matrix."""
    sizes = sizes_of(node.input(0))
    axis = node.integer("axis", 1)
    if not -len(sizes) <= axis <= len(sizes):
        raise node.model_error(f"axis {axis} is out of range for rank {len(sizes)}")
    return node.reshape(node.input(0), (product(sizes[:axis]), product(sizes[axis:])))


def transpose(node: NodeContext) -> Expr:
    """Convert Transpose; without ``perm`` the dimensions are reversed."""
    rank = rank_of(node.input(0))
    axes = node.integers("perm", tuple(reversed(range(rank))))
    if sorted(axes) != list(range(rank)):
        raise node.model_error(f"perm {axes} is no permutation of {rank} dimensions")
    return node.transpose(node.input(0), axes)


def concat(node: NodeContext) -> Expr:
    """Convert Concat."""
    parts = node.variadic()
    axis = node.axis("axis", rank_of(parts[0]), None if node.opset >= 4 else 1)
    return node.concat(parts, axis)


def split(node: NodeContext) -> tuple[Expr, ...]:
    """Convert Split; sizes are an attribute, an operand, or equal parts with a shorter last one."""
    x = node.input(0)
    rank = rank_of(x)
    axis = node.axis("axis", rank, 0)
    length = sizes_of(x)[axis]
    if is_collecting() and (isinstance(length, Dim) or not node.is_fixed(1)):
        return _open_split(node, axis)
    if isinstance(length, Dim):
        raise node.unsupported(f"a split of the open size {length}", STATIC_HINT)
    if node.has("split"):
        sections = node.integers("split")
    elif node.optional(1) is not None:
        sections = node.required_ints(1, "the sizes of the parts")
    else:
        parts = node.integer("num_outputs", len(node.node.outputs))
        if parts != len(node.node.outputs):
            raise node.model_error(f"num_outputs={parts} for {len(node.node.outputs)} outputs")
        part = -(-length // parts)
        sections = (part,) * (parts - 1) + (length - part * (parts - 1),)
    if any(size < 0 for size in sections) or sum(sections) != length:
        raise node.model_error(f"parts {sections} do not add up to {length}")
    if len(sections) < len(node.node.outputs):
        raise node.model_error(f"{len(sections)} parts for {len(node.node.outputs)} outputs")
    if len(sections) == 1:
        return (x,)
    if is_collecting() and rank == 1 and tensor_type(x).dtype.is_integer:  # may be sizes
        ends = tuple(accumulate(sections))
        pairs = zip(ends, sections, strict=True)
        return tuple(node.slice(x, 0, end - size, end) for end, size in pairs)
    attrs = shape.Split.Attrs(sections=sections, axis=axis)
    whole = node.call(shape.Split, x, attrs=attrs)
    return tuple(get_item(whole, index, span=node.span) for index in range(len(sections)))


def _open_split(node: NodeContext, axis: int) -> tuple[Expr, ...]:
    """Convert a Split of an open size, or into parts of open sizes: a slice for each part."""
    x, parts = node.input(0), len(node.node.outputs)
    sizes = list(sizes_of(x))
    length = sizes[axis]
    if node.has("split"):
        sections: Sequence[Size] = node.integers("split")
    elif node.optional(1) is not None:
        sections = node.required_sizes(1, "the sizes of the parts")
    else:
        part = (length + (parts - 1)) // parts
        sections = [part] * (parts - 1) + [length - part * (parts - 1)]
    if len(sections) != parts:
        raise node.model_error(f"{len(sections)} parts for {parts} outputs")
    total: Size = 0
    made: list[Expr] = []
    for section in sections:
        begins, ends = [0] * len(sizes), list(sizes)
        begins[axis], ends[axis] = extents((total,))[0], total + section
        total = total + section
        made.append(strided_slice(node, x, begins, extents(ends), (1,) * len(sizes)))
    if not require_equal(total, length, f"{node.span}: parts add up to the whole"):
        raise node.model_error(f"parts {sections} do not add up to {length}")
    return tuple(made)


def slice_(node: NodeContext) -> Expr:
    """Convert Slice; a negative step is a flip followed by a positive step."""
    node = counted_limits(node)
    sizes = sizes_of(node.input(0))
    rank = len(sizes)
    if node.opset >= 10 and is_collecting() and not is_known(node, 3, 4):
        return computed_slice(node)
    if node.opset < 10:
        starts, ends = node.integers("starts"), node.integers("ends")
        axes = node.integers("axes", tuple(range(len(starts))))
        steps = (1,) * len(starts)
    else:
        starts = node.partial_sizes(1, "the starts")
        ends = node.partial_sizes(2, "the ends")
        given = node.optional(3)
        axes = tuple(range(len(starts))) if given is None else node.required_ints(3, "the axes")
        steps = (
            (1,) * len(starts) if node.optional(4) is None else node.required_ints(4, "the steps")
        )
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise node.model_error(f"starts {starts}, ends {ends}, axes {axes}, steps {steps}")
    axes = tuple(node.normal_axis(axis, rank) for axis in axes)
    node.normal_axes(axes, rank)
    begins: list[Size] = [0] * rank
    stops, strides = list(sizes), [1] * rank
    flipped: list[int] = []
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        size = sizes[axis]
        if step < 0 and isinstance(size, Dim) and is_reversal(start, end):
            flipped.append(axis)
            strides[axis] = -step
            continue
        if step < 1 and any(not isinstance(value, int) for value in (size, start, end)):
            return computed_slice(node)
        if isinstance(start, Hole) or isinstance(end, Hole):
            begins[axis], stops[axis] = computed_limits(node, size, start, end)
            strides[axis] = step
            continue
        if any(isinstance(value, Dim) for value in (size, start, end)):
            begins[axis], stops[axis] = open_limits(size, start, end)
            strides[axis] = step
            continue
        assert isinstance(size, int)  # as start and end are
        begin, stop, stride = known_limits(size, start, end, step)
        if stride < 0:
            flipped.append(axis)
            begin, stop, stride = size - 1 - begin, size - 1 - stop, -stride
        begins[axis], stops[axis], strides[axis] = begin, max(begin, stop), stride
    x = node.input(0)
    if flipped:
        x = node.call(shape.Flip, x, attrs=shape.Flip.Attrs(axes=tuple(sorted(flipped))))
    return strided_slice(node, x, extents(begins), extents(stops), strides)


def strided_slice(
    node: NodeContext, x: Expr, begins: Sequence[int], ends: Sequence[int], strides: Sequence[int]
) -> Expr:
    """Take every ``stride``-th element of each dimension; ``x`` itself if that is all of it."""
    whole = all(b == 0 and s == 1 for b, s in zip(begins, strides, strict=True))
    if whole and tuple(ends) == sizes_of(x):
        return x
    attrs = slicing.StridedSlice.Attrs(begin=tuple(begins), end=tuple(ends), strides=tuple(strides))
    return node.call(slicing.StridedSlice, x, attrs=attrs)


def expand(node: NodeContext) -> Expr:
    """Convert Expand: broadcast both ways."""
    sizes = sizes_of(node.input(0))
    wanted: Sequence[Size] = _wanted_sizes(node, sizes)
    if any(isinstance(size, Dim) for size in (*sizes, *wanted)):
        x = node.reshape(node.input(0), _ones(node, sizes, wanted))
        wanted = _ones(node, wanted, sizes)
        x = node.behind(x, *wanted)
        x, joined = node.folder.broadcasts.spread(node, x, wanted, to_numbers=True)
        return node.broadcast(x, extents(_broadcast(node, sizes_of(x), joined)))
    try:
        new = np.broadcast_shapes(numbers(sizes), numbers(wanted)) if len(wanted) <= 32 else None
    except ValueError:
        new = None
    if new is None or any(isinstance(size, int) and size < 0 for size in wanted):
        raise node.model_error(f"shape {sizes} does not broadcast with {wanted}")
    return node.broadcast(node.input(0), new)


def _ones(node: NodeContext, sizes: Sequence[Size], others: Sequence[Size]) -> list[Size]:
    """Require sizes that are at most 1, as that of ``x[:1]``, to be 1, unless others have them."""
    why, made = f"{node.span}: a size that is broadcast must be 1", list[Size]()
    for size in sizes:
        is_one = is_at_most_one(size) and size not in others and require_equal(size, 1, why)
        made.append(1 if is_one else size)
    return made


def _wanted_sizes(node: NodeContext, sizes: Sequence[Size]) -> tuple[Size, ...]:
    """Return the sizes to expand to; one that the model computes may be 1, which changes none."""
    wanted = node.partial_sizes(1, "the new shape")
    rank = max(len(sizes), len(wanted))
    own = (*[1] * (rank - len(sizes)), *sizes)[rank - len(wanted) :]
    found: list[Size] = []
    for size, asked in zip(own, wanted, strict=True):
        if not isinstance(asked, Hole):
            found.append(asked)
        elif size == 1:
            found.append(node.size_of(asked.expr, asked.index))
        else:
            value, one = limit_tensor(node, asked), node.scalar(1, DType.INT64)
            is_one = node.call(compare.Equal, value, one)
            value = node.call(compare.Where, is_one, node.size_tensor(size), value)
            found.append(node.size_of(value))
    return tuple(found)


def _broadcast(node: NodeContext, a: Sequence[Size], b: Sequence[Size]) -> list[Size]:
    """Return the shape that two shapes broadcast to; sizes that may differ become a guard."""
    rank = max(len(a), len(b))
    rows = zip((1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b), strict=True)
    made: list[Size] = []
    for one, other in rows:
        if (
            one != 1
            and other != 1
            and not require_equal(
                one, other, f"{node.span}: sizes that are broadcast must be equal"
            )
        ):
            raise node.unsupported(f"shape {shape_text(a)} is only known at run time", STATIC_HINT)
        made.append(other if one == 1 else one)
    return made


def tile(node: NodeContext) -> Expr:
    """Convert Tile: each repeated dimension becomes two, is broadcast, and is joined again."""
    sizes = node.static_shape(0)
    repeats = extents(node.required_sizes(1, "the repeats"))
    if len(repeats) != len(sizes) or any(count < 0 for count in numbers(repeats)):
        raise node.model_error(f"repeats {repeats} for shape {sizes}")
    split_sizes: list[int] = []
    grown: list[int] = []
    for size, count in zip(sizes, repeats, strict=True):
        split_sizes += [size] if count == 1 else [1, size]
        grown += [size] if count == 1 else [count, size]
    x = node.broadcast(node.reshape(node.input(0), split_sizes), grown)
    return node.reshape(x, [size * count for size, count in zip(sizes, repeats, strict=True)])


def pad(node: NodeContext) -> Expr:
    """Convert Pad; a negative width takes elements away."""
    x = node.input(0)
    sizes = sizes_of(x)
    mode = node.string("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise node.model_error(f"mode='{mode}' is not defined")
    operands = (1, 3) if mode != "constant" else (1, 2, 3)
    if node.opset >= 11 and is_collecting() and any(not node.is_fixed(n) for n in operands):
        return computed_pad(node)
    widths = _pad_widths(node, len(sizes))
    value: float = 0.0
    if node.opset < 11:
        value = node.number("value", 0.0)
    elif mode == "constant" and node.optional(2) is not None:
        value = node.required_scalar(2, "the value to pad with")
    late = [  # constants may be cut, too: these axes are padded first
        mode == "constant" and low * high < 0 and not _has(size, -min(low, high))
        for size, (low, high) in zip(sizes, widths, strict=True)
    ]
    x = _cut(node, x, widths, [not is_late for is_late in late])
    grown = tuple((max(low, 0), max(high, 0)) for low, high in widths)
    if any(low or high for low, high in grown):
        attrs = slicing.Pad.Attrs(widths=grown, mode=mode, value=value)
        x = node.call(slicing.Pad, x, attrs=attrs)
    return _cut(node, x, widths, late)


def _cut(
    node: NodeContext, x: Expr, widths: Sequence[tuple[int, int]], chosen: Sequence[bool]
) -> Expr:
    """Take away what negative widths say, along the chosen axes."""
    limits = [
        (max(-low, 0), size - max(-high, 0)) if is_chosen else (0, size)
        for size, (low, high), is_chosen in zip(sizes_of(x), widths, chosen, strict=True)
    ]
    if any(isinstance(end, int) and begin > end for begin, end in limits):
        shape = sizes_of(node.input(0))
        raise node.model_error(f"negative widths {widths} take more than shape {shape} has")
    begins, ends = [begin for begin, _ in limits], extents(end for _, end in limits)
    return strided_slice(node, x, begins, ends, (1,) * len(limits))


def _has(size: Size, count: int) -> bool:
    """Whether a size is known to be at least so large."""
    return maximum(size, count) == size


def _pad_widths(node: NodeContext, rank: int) -> list[tuple[int, int]]:
    if node.opset < 11:
        pads = node.integers("pads")
        axes = tuple(range(rank))
    else:
        pads = node.required_ints(1, "the widths")
        axes = tuple(range(rank))
        if node.optional(3) is not None:
            axes = node.required_ints(3, "the axes")
    if len(pads) != 2 * len(axes):
        raise node.model_error(f"{len(pads)} widths for {len(axes)} axes")
    node.normal_axes(axes, rank)
    widths = [(0, 0)] * rank
    for position, axis in enumerate(axes):
        widths[node.normal_axis(axis, rank)] = (pads[position], pads[position + len(axes)])
    return widths


CONVERTERS = MappingProxyType(
    {
        "Concat": concat,
        "Expand": expand,
        "Flatten": flatten,
        "Pad": pad,
        "Reshape": reshape,
        "Slice": slice_,
        "Split": split,
        "Squeeze": squeeze,
        "Tile": tile,
        "Transpose": transpose,
        "Trilu": trilu,
        "Unsqueeze": unsqueeze,
    }
)
