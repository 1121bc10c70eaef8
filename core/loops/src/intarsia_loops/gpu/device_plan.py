# SPDX-License-Identifier: Apache-2.0
"""Plans that the host part of a device carries out: kernels, copies, and regions of known sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from intarsia_ir.graph.expr import Function
from intarsia_ir.graph.size_scopes import defined_sizes
from intarsia_ir.graph.walk import calls
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import Lowered
from intarsia_ir.tir.space import Tuned
from intarsia_runtime.artifact.plan import ALIGNMENT
from intarsia_runtime.errors import UnsupportedError

from ..lower import ScheduleTable, lower
from ..tensors import Stages

if TYPE_CHECKING:
    from ..targets import LoopTarget, OutlinedRegion

HINT = "give every input a shape, e.g. --shape input:1,3,224,224"


def lower_for_device(
    main: Function,
    regions: Sequence[OutlinedRegion] = (),
    *,
    target: LoopTarget,
    schedules: ScheduleTable,
    loops: Callable[[str, Stages, LoopTarget], PrimFunc],
    alignment: int = ALIGNMENT,
    tuned: Tuned | None = None,
    name: str = "main",
) -> Lowered:
    """Fuse, schedule and plan a function whose plan runs on a device.

    Arguments and errors are those of :func:`intarsia_loops.lower.lower`.

    Raises:
        UnsupportedError: A size is computed while the model runs, or a region of an accelerator
            has an open size.
    """
    for call in calls(main):
        if defined_sizes(call):
            raise UnsupportedError(
                f"a device does not compute sizes while it runs, and '{call.name}' does",
                where=str(call.span),
                hint=f"{HINT}; or --executor vm",
            )
    lowered = lower(
        main,
        regions,
        target=target,
        schedules=schedules,
        loops=loops,
        on_device=True,
        name=name,
        alignment=alignment,
        tuned=tuned,
    )
    plan = lowered.module.plan
    if plan.open is not None and plan.regions:
        raise UnsupportedError(
            "regions in front of a device have sizes that are known when they are compiled",
            hint=HINT,
        )
    return lowered
