# SPDX-License-Identifier: Apache-2.0
"""Proof that a model runs any value of a size, by comparing its graphs for some values.

Where the positions along a size have nothing to do with each other, inputs may be padded, and cut:
:mod:`.padding` compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import prod
from types import MappingProxyType
from typing import TypeAlias

from intarsia_runtime.artifact.signature import SizeChoice
from intarsia_runtime.errors import ResourceError, UnsupportedError

from ..budget import MAX_TENSOR_BYTES
from ..graph.module import IRModule
from ..graph.types import TensorType
from ..size_values import ShapeChoices
from .padding import calculated, check_padding, output_place

ImportAt: TypeAlias = Callable[[Mapping[str, tuple[int, ...]], bool], IRModule]
"""Imports a model with shapes of its inputs; whether to keep the module."""

_FAR = 1021
"""A size beyond what is compiled: a slice of the first 512 shows only there.

Where a model has larger numbers that sizes may be compared with, a size beyond these is taken.
"""


def prove_size(
    shapes: ShapeChoices,
    choice: SizeChoice,
    import_at: ImportAt,
    *,
    bound: int,
    others: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Prove that any value of a size gives the results it should, padded or in chunks.

    The other sizes are at their largest, or what ``others`` has.

    Every compiled size is compared with the largest one, and with one beyond, so that what depends
    on the size itself is seen: an odd one, and for any size a large one if its tensors may be as
    large. Code for 1 runs no padded inputs, but it runs chunks.

    Args:
        shapes: Shapes with names of sizes.
        choice: The size.
        import_at: Imports the model; keeps the module if it is asked to.
        bound: Largest number of the model that a size may be compared with; asked of open sizes.
        others: Values of other sizes.

    Raises:
        UnsupportedError: Results may depend on other positions, or a size beyond the numbers that
            the model has cannot be compared although inputs may have it.
    """
    if choice.sizes[-1] == choice.low and not choice.is_open:
        return
    values = {**{other.name: other.sizes[-1] for other in shapes.choices}, **others}
    largest = max(choice.sizes[-1], 2)

    def imported(size: int) -> IRModule:
        return import_at(shapes.at({**values, choice.name: size}), size in choice.sizes)

    def compare(size: int) -> None:
        other = imported(size)
        check_padding(other, base, (size, largest), choice.name, cut=choice.is_open)
        for one, two in zip(other.main.outputs, base.main.outputs, strict=True):
            output_place(one.type, two.type, (size, largest))

    base = calculated(imported(largest))  # compared several times
    for size in choice.sizes:
        if size != largest and (size > 1 or choice.is_open):
            compare(size)
    beyond = max(_FAR, largest + 1)
    if choice.is_open and bound >= beyond:
        at = shapes.at({**values, choice.name: bound + 1})
        try:
            compare((bound + 1) | 1)
            return
        except ResourceError as error:
            if _can_be(base, at):
                raise _not_compared(choice.name, bound, error) from None
    if choice.is_open:
        with suppress(ResourceError):
            compare(beyond)
            return
    compare(largest + 1)


def _can_be(module: IRModule, shapes: Mapping[str, Sequence[int]]) -> bool:
    """Whether inputs of these shapes are no larger than any tensor may be."""
    types = {param.name: param.type for param in module.main.params}
    return all(
        prod(shape) * type_.dtype.bytes <= MAX_TENSOR_BYTES
        for name, shape in shapes.items()
        if isinstance(type_ := types.get(name), TensorType)
    )


def _not_compared(name: str, bound: int, error: ResourceError) -> UnsupportedError:
    return UnsupportedError(
        f"the model has the number {bound:,}, and whether it does something else where size "
        f"'{name}' is larger cannot be seen: {error.message}",
        hint="name the sizes that are wanted, e.g. 1|4|16, or a range, e.g. 1..16",
        where=error.where,
    )
