# SPDX-License-Identifier: Apache-2.0
"""Schedule spaces for CPUs: the sizes that a search may choose instead of the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.space import Choice, Knob, ScheduleSpace
from intarsia_runtime.dtype import DType

from ..targets import LoopTarget
from .table import Schedules
from .tiling import CpuTiling

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
    """``tiling_of`` of :class:`Schedules` with some sizes given."""

    tiling_of: Callable[[LoopTarget, DType], CpuTiling]
    choice: Choice

    def __call__(self, target: LoopTarget, dtype: DType) -> CpuTiling:
        return shape_with(self.tiling_of(target, dtype), self.choice)


class _ChosenSchedule(Struct, frozen=True):
    """``schedule`` of the space of an operator."""

    tiling_of: Callable[[LoopTarget, DType], CpuTiling]
    operator: str

    def __call__(self, group: FusedGroup, target: LoopTarget, choice: Choice) -> PrimFunc | None:
        schedules = Schedules(_ChosenShape(self.tiling_of, choice)).table()
        return schedules[self.operator](group, target)


def shape_with(tiling: CpuTiling, choice: Choice) -> CpuTiling:
    """Return the register tile with what a choice says; knobs at 0 leave a size as it is."""

    def value_of(knob: Knob) -> int:
        return choice.get(knob.name, 0)

    return replace(
        tiling,
        rows=value_of(_ROWS) or tiling.rows,
        strip_bytes=value_of(_STRIP) * 1024 or tiling.strip_bytes,
        tile_columns=value_of(_COLUMNS) or tiling.tile_columns,
        panel_bytes=value_of(_PANEL) * 1024 or tiling.panel_bytes,
        copies_rows=value_of(_COPY) == 1 if value_of(_COPY) else tiling.copies_rows,
        prefetch=None if value_of(_FETCH) else tiling.prefetch,
        neighbours=value_of(_NEIGHBOURS) or tiling.neighbours,
    )


def cpu_spaces(tiling_of: Callable[[LoopTarget, DType], CpuTiling]) -> tuple[ScheduleSpace, ...]:
    """Return the spaces of the schedules that :class:`~intarsia_loops.cpu.table.Schedules` has.

    Args:
        tiling_of: ``tiling_of(target, dtype)``: the register tile of the machine.
    """
    return tuple(
        ScheduleSpace(operator, VERSION, knobs, _ChosenSchedule(tiling_of, operator))
        for operator, knobs in _KNOBS.items()
    )
