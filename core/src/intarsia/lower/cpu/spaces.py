# SPDX-License-Identifier: Apache-2.0
"""What can be tuned in the schedules for CPUs: the sizes that their rules would choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from ...dtype import DType
from ...target.target import Target
from ...tir.func import PrimFunc
from ..kernels import FusedGroup
from ..space import Choice, Knob, ScheduleSpace
from .table import Schedules
from .tile import Shape

VERSION = 1
"""Of the knobs; it changes when one of them, or what a schedule makes of it, does."""

_ROWS = Knob("rows", (0, 3, 4, 5, 6, 7, 8, 10, 12, 14), "rows of a tile two vectors wide")
_STRIP = Knob("strip_kib", (0, 16, 32, 64, 128, 448), "most memory of a padded strip, in KiB")
_COLUMNS = Knob("tile_columns", (0, 2, 4, 7, 8, 14, 28), "neighbours in a row that a tile computes")
_PANEL = Knob("panel_kib", (0, 24, 48, 96, 384), "rows that share a pass over weights, in KiB")
_COPY = Knob("copy_rows", (0, 1, 2), "1 copies these rows side by side first, 2 does not")
_FETCH = Knob("fetch", (0, 1), "1 does not fetch the next weights into the cache meanwhile")
_NEIGHBOURS = Knob("neighbours", (0, 2, 4, 6, 12, 16), "results in a row computed at a time")

_PRODUCT = (_ROWS, _STRIP, _COLUMNS, _PANEL, _COPY, _FETCH)
_KNOBS: Mapping[str, tuple[Knob, ...]] = MappingProxyType(
    {
        "cpu.conv": _PRODUCT,
        "cpu.qconv": _PRODUCT,
        "cpu.dense": (_ROWS, _PANEL, _COPY, _FETCH),
        "cpu.qdense": (_ROWS, _PANEL, _COPY, _FETCH),
        "cpu.depthwise": (_NEIGHBOURS,),
        "cpu.qdepthwise": (_NEIGHBOURS,),
        "matmul": (_ROWS,),
    }
)


class _ChosenShape(Struct, frozen=True):
    """``shape_of`` of :class:`Schedules` with some sizes given."""

    shape_of: Callable[[Target, DType], Shape]
    choice: Choice

    def __call__(self, target: Target, dtype: DType) -> Shape:
        return shape_with(self.shape_of(target, dtype), self.choice)


class _ChosenSchedule(Struct, frozen=True):
    """``schedule`` of the space of an operator."""

    shape_of: Callable[[Target, DType], Shape]
    operator: str

    def __call__(self, group: FusedGroup, target: Target, choice: Choice) -> PrimFunc | None:
        schedules = Schedules(_ChosenShape(self.shape_of, choice)).table()
        return schedules[self.operator](group, target)


def shape_with(shape: Shape, choice: Choice) -> Shape:
    """Return the register tile with what a choice says; knobs at 0 leave a size as it is."""

    def given(knob: Knob) -> int:
        return choice.get(knob.name, 0)

    return replace(
        shape,
        rows=given(_ROWS) or shape.rows,
        strip_bytes=given(_STRIP) * 1024 or shape.strip_bytes,
        tile_columns=given(_COLUMNS) or shape.tile_columns,
        panel_bytes=given(_PANEL) * 1024 or shape.panel_bytes,
        copies_rows=given(_COPY) == 1 if given(_COPY) else shape.copies_rows,
        prefetch=None if given(_FETCH) else shape.prefetch,
        neighbours=given(_NEIGHBOURS) or shape.neighbours,
    )


def cpu_spaces(shape_of: Callable[[Target, DType], Shape]) -> tuple[ScheduleSpace, ...]:
    """Return the spaces of the schedules that :class:`~intarsia.lower.cpu.table.Schedules` has.

    Args:
        shape_of: ``shape_of(target, dtype)``: the register tile of the machine.
    """
    return tuple(
        ScheduleSpace(operator, VERSION, knobs, _ChosenSchedule(shape_of, operator))
        for operator, knobs in _KNOBS.items()
    )
