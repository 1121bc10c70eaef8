# SPDX-License-Identifier: Apache-2.0
"""The loop compiler with the schedules of this backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia_loops.lower import lower
from intarsia_runtime.artifact.plan import ALIGNMENT

from .schedules.table import SCHEDULES, bound_stack, loops

if TYPE_CHECKING:
    from intarsia.plugin import Region, Target
    from intarsia_ir.graph.expr import Function
    from intarsia_ir.tir.module import Lowered
    from intarsia_ir.tir.space import Tuned

    from .target import LlvmOptions


def lower_function(
    main: Function,
    regions: Sequence[Region] = (),
    *,
    target: Target[LlvmOptions],
    alignment: int = ALIGNMENT,
    tuned: Tuned | None = None,
    name: str = "main",
) -> Lowered:
    """Lower a graph function; see :func:`intarsia_loops.lower.lower` for arguments and errors."""
    return lower(
        main,
        regions,
        target=target,
        schedules=SCHEDULES,
        loops=loops,
        bound_stack=bound_stack,
        alignment=alignment,
        tuned=tuned,
        name=name,
    )
