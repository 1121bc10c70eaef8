# SPDX-License-Identifier: Apache-2.0
"""Where the positions of a size are in tensors, and which operators treat them alike and apart.

A size of an input is some examples of a batch, or steps of time. What is computed of them has them
at some axis, perhaps together with what is before or behind: six heads of each of ``N`` examples
are ``6 * N`` matrices. Each operator has a rule that follows the place from operands to result;
whatever has none may mix the positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType
from typing import TypeAlias, cast

from msgspec import Struct
from msgspec.structs import asdict, replace

from ..ir.expr import Call
from ..ir.op import OpKind
from ..ir.types import TensorType, TupleType, Type


class Place(Struct, frozen=True):
    """Where a size of ``N`` is in a tensor: ``axis`` has ``outer * N * inner`` elements.

    Attributes:
        axis: The axis, counted from the first.
        outer: How often all positions follow each other.
        inner: Elements of one position that are next to each other.
    """

    axis: int
    outer: int = 1
    inner: int = 1

    def elements(self, size: int) -> int:
        """Return how many elements the axis has if the size is this."""
        return self.outer * size * self.inner


class Row(Struct, frozen=True):
    """A call for two sizes, with the places of the size in its operands.

    Attributes:
        calls: The call for the one size and for the other.
        sizes: The sizes.
        places: Places in the operands; ``None`` in what does not depend on the size.
    """

    calls: tuple[Call, Call]
    sizes: tuple[int, int]
    places: tuple[Place | None, ...]

    @property
    def name(self) -> str:
        """Name of the operator."""
        return self.calls[1].name

    @property
    def attrs(self) -> Mapping[str, object]:
        """Attributes for the second size, by name."""
        return asdict(self.calls[1].attrs)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the operands for the second size."""
        return tuple(_shape(arg.type) for arg in self.calls[1].args)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result for the second size; of the first one of several."""
        return _shape(self.calls[1].type)

    def axes(self, name: str) -> tuple[int, ...]:
        """Return an attribute that is one number or several."""
        value = self.attrs[name]
        return (value,) if isinstance(value, int) else cast("tuple[int, ...]", value)

    def alone(self, index: int = 0) -> Place | None:
        """Return the place in an operand; ``None`` if another has one, too."""
        others = (place for at, place in enumerate(self.places) if at != index)
        return self.places[index] if all(place is None for place in others) else None

    def common(self) -> Place | None:
        """Return the place that all operands have; ``None`` if they differ."""
        return self.places[0] if len(set(self.places)) == 1 else None


def follow(row: Row) -> Place | None:
    """Return the place in the result of a call; ``None`` if it may mix the positions."""
    rule = _RULES.get(row.name, _aligned if row.calls[1].op.kind is OpKind.ELEMWISE else None)
    return None if rule is None else rule(row)


SHAPES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "reshape": frozenset({"shape"}),
        "broadcast_to": frozenset({"shape"}),
        "full": frozenset({"shape"}),
        "nn.resize": frozenset({"sizes"}),
        "split": frozenset({"sections"}),
        "strided_slice": frozenset({"begin", "end"}),
    }
)
"""Attributes that may differ with the size: types and rules say how."""


def _shape(type_: Type) -> tuple[int, ...]:
    first = type_.fields[0] if isinstance(type_, TupleType) else type_
    return first.static_shape if isinstance(first, TensorType) else ()


def _aligned(row: Row) -> Place | None:
    """Element by element: the last axes of all operands meet."""
    rank = len(row.shape)
    found = {
        replace(place, axis=place.axis + rank - len(shape))
        for place, shape in zip(row.places, row.shapes, strict=True)
        if place is not None
    }
    return found.pop() if len(found) == 1 else None


def _spread(row: Row) -> Place | None:
    """Copies of the same place, or one more axis before what has the size."""
    return _aligned(row) if any(row.places) else _copies(row)


def _copies(row: Row) -> Place | None:
    """Positions that are equal to each other, where nothing else is at their axis."""
    shapes = [_shape(call.type) for call in row.calls]
    axes = [axis for axis, pair in enumerate(zip(*shapes, strict=True)) if pair == row.sizes]
    return Place(axes[0]) if len(axes) == 1 else None


def _kept(row: Row) -> Place | None:
    return row.alone()


def _batch(row: Row) -> Place | None:
    """The first axis of the first operand is that of independent examples."""
    place = row.alone()
    return place if place is not None and place.axis == 0 else None


def _examples(row: Row) -> Place | None:
    """All operands have the size as that of independent examples."""
    place = row.common()
    return place if place is not None and place.axis == 0 else None


def _reshaped(row: Row) -> Place | None:
    """Row-major: as many elements are behind one position before as after."""
    place = row.places[0]
    if place is None:
        return None
    behind = place.inner * prod(row.shapes[0][place.axis + 1 :])
    after, size = 1, row.sizes[1]
    for axis in reversed(range(len(row.shape))):
        length = row.shape[axis]
        inner = behind // after
        if behind % after == 0 and inner and length % (size * inner) == 0:
            return Place(axis, length // (size * inner), inner)
        after *= length
    return None


def _transposed(row: Row) -> Place | None:
    place = row.places[0]
    return place and replace(place, axis=row.axes("axes").index(place.axis))


def _joined(row: Row) -> Place | None:
    """Each operand has the size, at another axis than that of joining or as whole rounds of it."""
    first = row.places[0]
    if first is None or first.axis not in row.axes("axis"):
        return row.common()
    rounds = [place for place in row.places if place is not None]
    alike = {replace(place, outer=1) for place in rounds}
    if len(rounds) < len(row.places) or len(alike) > 1:
        return None
    return replace(first, outer=sum(place.outer for place in rounds))


def _cut(row: Row) -> Place | None:
    """Cut along another axis, or into equal parts of whole rounds."""
    place = row.alone()
    if place is None or place.axis not in row.axes("axis"):
        return place
    parts = row.axes("sections")
    if len(set(parts)) > 1 or place.outer % len(parts):
        return None
    return replace(place, outer=place.outer // len(parts))


def _along(row: Row) -> Place | None:
    """Works along one axis, which is another one."""
    place = row.alone()
    return None if place is None or place.axis in row.axes("axis") else place


def _behind(row: Row) -> Place | None:
    """Works on all axes from one on; the size is before."""
    place = row.alone()
    return place if place is not None and place.axis < row.axes("axis")[0] else None


def _sliced(row: Row) -> Place | None:
    """The axis of the size is taken as it is, or whole rounds of it."""
    place = row.alone()
    if place is None or row.axes("strides")[place.axis] != 1:
        return None
    found: set[tuple[int, ...]] = set()
    for call, size in zip(row.calls, row.sizes, strict=True):
        attrs = asdict(call.attrs)
        begin, end = list(attrs["begin"]), list(attrs["end"])
        round_ = size * place.inner
        first, rest = divmod(begin.pop(place.axis), round_)
        last, more = divmod(end.pop(place.axis), round_)
        if rest or more:
            return None
        found.add((first, last, *begin, *end))
    (first, last, *_), *others = found
    return None if others else replace(place, outer=last - first)


def _padded(row: Row) -> Place | None:
    place = row.alone()
    widths = cast("tuple[tuple[int, int], ...]", row.attrs["widths"])
    return place if place is not None and widths[place.axis] == (0, 0) else None


def _flipped(row: Row) -> Place | None:
    place = row.alone()
    return None if place is None or place.axis in row.axes("axes") else place


def _reduced(row: Row) -> Place | None:
    """Reduced over other axes."""
    place = row.alone()
    axes = row.axes("axes" if "axes" in row.attrs else "axis")
    if place is None or place.axis in axes:
        return None
    before = 0 if row.attrs["keepdims"] else sum(axis < place.axis for axis in axes)
    return replace(place, axis=place.axis - before)


def _taken(row: Row) -> Place | None:
    """Taken along another axis, or at indices that have the size."""
    data, indices = row.places
    (axis,) = row.axes("axis")
    if indices is not None:
        return replace(indices, axis=axis + indices.axis) if data is None else None
    if data is None or data.axis == axis:
        return None
    shift = 0 if data.axis < axis else len(row.shapes[1]) - 1
    return replace(data, axis=data.axis + shift)


def _gathered(row: Row) -> Place | None:
    """Both operands have the size on an axis that is not gathered along."""
    place = row.common()
    return None if place is None or place.axis in row.axes("axis") else place


def _hot(row: Row) -> Place | None:
    place = row.places[0]
    return place and replace(place, axis=place.axis + (place.axis >= row.axes("axis")[0]))


def _triangle(row: Row) -> Place | None:
    place = row.alone()
    return place if place is not None and place.axis < len(row.shape) - 2 else None


def _product(row: Row) -> Place | None:
    """Rows of the left operand, columns of the right one, or the batch of those that have one."""
    second = next((at for at in range(1, len(row.shapes)) if len(row.shapes[at]) >= 2), 1)
    rank = len(row.shape)
    found: list[Place] = []
    for index, inner in ((0, -2 if row.attrs["transpose_a"] else -1),
                         (second, -1 if row.attrs["transpose_b"] else -2)):  # fmt: skip
        place = row.places[index]
        if place is None:
            continue
        depth = len(row.shapes[index])
        at = place.axis - depth
        if depth < 2 or at == inner:
            return None
        found.append(replace(place, axis=rank + (at if at < -2 else -2 if index == 0 else -1)))
    rest = (place for at, place in enumerate(row.places) if at not in (0, second))
    if any(rest) or len(set(found)) != 1 or (len(found) > 1 and found[0].axis >= rank - 2):
        return None
    return found[0]


_Rule: TypeAlias = Callable[[Row], "Place | None"]
_RULES: Mapping[str, _Rule] = MappingProxyType(
    {
        **dict.fromkeys(
            ("nn.conv", "nn.conv_transpose", "nn.max_pool", "nn.avg_pool", "nn.lrn", "nn.resize",
             "nn.depth_to_space", "nn.space_to_depth", "nn.instance_norm", "nn.group_norm",
             "nn.batch_norm", "qnn.conv_integer", "qnn.conv", "qnn.avg_pool"),
            _batch,
        ),
        **dict.fromkeys(
            ("sum", "prod", "max", "min", "all", "any", "mean", "argmax", "argmin", "qnn.mean"),
            _reduced,
        ),
        **dict.fromkeys(("nn.softmax", "nn.log_softmax", "nn.l2_normalize", "cumsum"), _along),
        **dict.fromkeys(("nn.layer_norm", "nn.rms_norm"), _behind),
        **dict.fromkeys(("matmul", "qnn.matmul_integer", "qnn.matmul"), _product),
        "nn.grid_sample": _examples,
        "full": _copies,
        "copy": _kept,
        "broadcast_to": _spread,
        "reshape": _reshaped,
        "transpose": _transposed,
        "concatenate": _joined,
        "split": _cut,
        "strided_slice": _sliced,
        "nn.pad": _padded,
        "flip": _flipped,
        "take": _taken,
        "gather_elements": _gathered,
        "one_hot": _hot,
        "triangular": _triangle,
    }
)  # fmt: skip
