# SPDX-License-Identifier: Apache-2.0
"""Proves that inputs may be padded along a size: no result depends on what the padding holds.

The model is imported for two values of the size and both graphs are walked side by side. Where a
type differs, the one axis that does belongs to the size; a constant or an attribute that differs
depends on it, which padding would get wrong. Each operator must then treat the positions along
that axis alike and apart. Whatever is not known to do so is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import zip_longest
from math import prod
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from ..errors import UnsupportedError
from ..ir.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var
from ..ir.module import IRModule
from ..ir.op import OpKind
from ..ir.types import TensorType, TupleType, Type
from ..ir.walk import post_order

_SHAPES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "reshape": frozenset({"shape"}),
        "broadcast_to": frozenset({"shape"}),
        "full": frozenset({"shape"}),
        "nn.resize": frozenset({"sizes"}),
        "strided_slice": frozenset({"end"}),
    }
)
"""Attributes that are shapes, so that the types say how they may differ."""

_OTHER = "the model does something else for another size"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the size is in a tensor: ``axis`` has ``factor`` elements for each position."""

    axis: int
    factor: int = 1


@dataclass(frozen=True, slots=True)
class _Row:
    """A call, with the places of the size in its operands and in its result.

    Attributes:
        call: The call, of the first module.
        shapes: Shapes of the operands.
        places: Places in the operands; ``None`` in what does not depend on the size.
        shape: Shape of the result, of the first one of several.
        out: Place in the result.
    """

    call: Call
    shapes: tuple[tuple[int, ...], ...]
    places: tuple[_Place | None, ...]
    shape: tuple[int, ...]
    out: _Place

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes by name."""
        return asdict(self.call.attrs)

    def stays(self, index: int = 0) -> bool:
        """Say whether the place in an operand, counted from the first axis, is that in the result.

        No other operand may have one.
        """
        return self.places[index] == self.out and self.alone(index)

    def alone(self, index: int) -> bool:
        """Say whether no other operand depends on the size."""
        others = (place for at, place in enumerate(self.places) if at != index)
        return all(place is None for place in others)


def check_padding(first: IRModule, second: IRModule, sizes: tuple[int, int], name: str) -> None:
    """Refuse a size along which inputs cannot be padded.

    Args:
        first: The model for ``sizes[0]``.
        second: The same model for ``sizes[1]``, all else equal.
        sizes: Two different sizes, none of which is 0 or 1.
        name: What the size is called, for the message.

    Raises:
        UnsupportedError: Results may depend on the padding; the node is named.
    """
    pairs = zip_longest(post_order(first.main.body), post_order(second.main.body))
    for one, other in pairs:
        reason = _OTHER if one is None or other is None else _differs(one, other, sizes)
        if reason:
            raise UnsupportedError(
                f"inputs cannot be padded along size '{name}': {reason}",
                hint="name the sizes that are wanted, e.g. 1|4|16: each gets code of its own",
                where=str(one.span) if one is not None else "",
            )


def output_place(first: Type, second: Type, sizes: tuple[int, int]) -> int | None:
    """Return the axis of a model's output that has exactly the size; ``None`` if none has.

    Raises:
        UnsupportedError: The output depends on the size in another way.
    """
    place = _place(first, second, sizes)
    if isinstance(place, str) or (place is not None and place.factor != 1):
        raise UnsupportedError(f"an output is {first} and {second} for the sizes {sizes}")
    return None if place is None else place.axis


def _differs(one: Expr, other: Expr, sizes: tuple[int, int]) -> str:
    """Say in words why two expressions at the same place forbid padding; empty if they do not."""
    match one, other:
        case Var(), Var():
            found = _place(one.type, other.type, sizes)
            return found if isinstance(found, str) else ""
        case Constant(), Constant():
            same = one.type == other.type and _same_bytes(one.data, other.data)
            return "" if same else "a constant depends on it"
        case (Tuple(), Tuple()) | (TupleGetItem(), TupleGetItem()):
            return ""
        case Call(), Call() if one.op is other.op:
            return _call_differs(one, other, sizes)
        case _:
            return _OTHER


def _same_bytes(first: np.ndarray, second: np.ndarray) -> bool:
    """Compare element by element as bytes: a NaN is equal to itself."""
    one, other = (
        np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (first, second)
    )
    return np.array_equal(one, other)


def _call_differs(one: Call, other: Call, sizes: tuple[int, int]) -> str:
    out = _place(one.type, other.type, sizes)
    if isinstance(out, str):
        return out
    places: list[_Place | None] = []
    for mine, yours in zip(one.args, other.args, strict=True):
        found = _place(mine.type, yours.type, sizes)
        if isinstance(found, str):
            return found
        places.append(found)
    free = _SHAPES.get(one.name, frozenset())
    mine, yours = (
        {name: value for name, value in asdict(call.attrs).items() if name not in free}
        for call in (one, other)
    )
    if mine != yours:
        return f"an attribute of '{one.name}' depends on it"
    if out is None:
        return "" if not any(places) else f"'{one.name}' mixes the positions along it"
    shapes = tuple(_shape(arg.type) for arg in one.args)
    row = _Row(one, shapes, tuple(places), _shape(one.type), out)
    rule = _RULES.get(one.name, _aligned if one.op.kind is OpKind.ELEMWISE else None)
    if rule is not None and rule(row):
        return ""
    return f"'{one.name}' may mix the positions along it"


def _place(first: Type, second: Type, sizes: tuple[int, int]) -> _Place | str | None:
    """Return where two types differ, a text if not as sizes do; all fields of a tuple alike."""
    if isinstance(first, TupleType) and isinstance(second, TupleType):
        fields = [_place(a, b, sizes) for a, b in zip(first.fields, second.fields, strict=True)]
        return fields[0] if all(field == fields[0] for field in fields) else "results differ in it"
    if not isinstance(first, TensorType) or not isinstance(second, TensorType):
        return _OTHER
    a, b = first.static_shape, second.static_shape
    if len(a) != len(b) or first.dtype is not second.dtype:
        return "a type depends on it"
    axes = [axis for axis, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    if not axes:
        return None
    (axis, *more) = axes
    factor = a[axis] // sizes[0]
    if more or (a[axis], b[axis]) != (factor * sizes[0], factor * sizes[1]):
        return f"it becomes {first} and {second}"
    return _Place(axis, factor)


def _shape(type_: Type) -> tuple[int, ...]:
    first = type_.fields[0] if isinstance(type_, TupleType) else type_
    return first.static_shape if isinstance(first, TensorType) else ()


def _aligned(row: _Row) -> bool:
    """Element by element: the last axes of all operands meet."""
    rank = len(row.shape)
    return all(
        place is None or _Place(place.axis + rank - len(shape), place.factor) == row.out
        for place, shape in zip(row.places, row.shapes, strict=True)
    )


def _batch(row: _Row) -> bool:
    """The first axis of the first operand is that of independent examples."""
    return row.out.axis == 0 and row.stays()


def _examples(row: _Row) -> bool:
    """Both operands have the size as that of independent examples."""
    return row.out.axis == 0 and all(place == row.out for place in row.places)


def _anything(row: _Row) -> bool:
    """Positions are equal to each other, or copies of the same place."""
    return row.stays() if row.places and row.places[0] is not None else True


def _reshaped(row: _Row) -> bool:
    """Row-major: as many elements follow one position before as after."""
    place = row.places[0]
    if place is None:
        return False
    before = place.factor * prod(row.shapes[0][place.axis + 1 :])
    return before == row.out.factor * prod(row.shape[row.out.axis + 1 :])


def _transposed(row: _Row) -> bool:
    place = row.places[0]
    return place is not None and row.out == _Place(
        row.attrs["axes"].index(place.axis), place.factor
    )


def _joined(row: _Row) -> bool:
    """Operands are joined along another axis, and each has the size."""
    return row.attrs["axis"] != row.out.axis and all(place == row.out for place in row.places)


def _along(row: _Row) -> bool:
    """Works along one axis, which is another one."""
    return row.attrs["axis"] != row.out.axis and row.stays()


def _behind(row: _Row) -> bool:
    """Works on all axes from one on; the size is before."""
    return row.out.axis < row.attrs["axis"] and row.stays()


def _sliced(row: _Row) -> bool:
    axis = row.out.axis
    whole = row.attrs["begin"][axis] == 0 and row.attrs["strides"][axis] == 1
    return whole and row.stays()


def _padded(row: _Row) -> bool:
    return row.attrs["widths"][row.out.axis] == (0, 0) and row.stays()


def _flipped(row: _Row) -> bool:
    return row.out.axis not in row.attrs["axes"] and row.stays()


def _reduced(row: _Row) -> bool:
    """Reduced over other axes."""
    attrs, place = row.attrs, row.places[0]
    if place is None or not row.alone(0):
        return False
    axes = attrs["axes"] if "axes" in attrs else (attrs["axis"],)
    before = 0 if attrs["keepdims"] else sum(axis < place.axis for axis in axes)
    return place.axis not in axes and row.out == _Place(place.axis - before, place.factor)


def _taken(row: _Row) -> bool:
    """Taken along another axis, or at indices that have the size."""
    data, indices = row.places
    axis = row.attrs["axis"]
    if indices is not None:
        return data is None and row.out == _Place(axis + indices.axis, indices.factor)
    if data is None or data.axis == axis:
        return False
    shift = 0 if data.axis < axis else len(row.shapes[1]) - 1
    return row.out == _Place(data.axis + shift, data.factor)


def _gathered(row: _Row) -> bool:
    """Both operands have the size on an axis that is not gathered along."""
    return row.attrs["axis"] != row.out.axis and all(place == row.out for place in row.places)


def _hot(row: _Row) -> bool:
    place = row.places[0]
    if place is None:
        return False
    return row.out == _Place(place.axis + (place.axis >= row.attrs["axis"]), place.factor)


def _triangle(row: _Row) -> bool:
    return row.out.axis < len(row.shape) - 2 and row.stays()


def _product(row: _Row) -> bool:
    """Rows of the left operand, columns of the right one, or the batch of those that have one."""
    second = next((at for at in range(1, len(row.shapes)) if len(row.shapes[at]) >= 2), 1)
    attrs, rank = row.attrs, len(row.shape)
    seen: list[str] = []
    for index, inner in ((0, -2 if attrs["transpose_a"] else -1),
                         (second, -1 if attrs["transpose_b"] else -2)):  # fmt: skip
        place = row.places[index]
        if place is None:
            continue
        depth = len(row.shapes[index])
        at = place.axis - depth
        if depth < 2 or at == inner:
            return False
        landed = at if at < -2 else (-2 if index == 0 else -1)
        if row.out != _Place(landed + rank, place.factor):
            return False
        seen.append("batch" if at < -2 else f"own{index}")
    rest = (p for at, p in enumerate(row.places) if at not in (0, second))
    return all(place is None for place in rest) and seen in (
        ["batch"], ["batch", "batch"], ["own0"], ["own1"]
    )  # fmt: skip


_Rule: TypeAlias = Callable[[_Row], bool]
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
        "full": _anything,
        "copy": _anything,
        "broadcast_to": _aligned,
        "reshape": _reshaped,
        "transpose": _transposed,
        "concatenate": _joined,
        "split": _along,
        "strided_slice": _sliced,
        "nn.pad": _padded,
        "flip": _flipped,
        "take": _taken,
        "gather_elements": _gathered,
        "one_hot": _hot,
        "triangular": _triangle,
    }
)  # fmt: skip
