# SPDX-License-Identifier: Apache-2.0
"""What stages of a build return, besides regions, units and the artifact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from intarsia_ir.diagnostics import Remark
from intarsia_ir.graph.module import IRModule
from intarsia_ir.tir.module import Lowered

if TYPE_CHECKING:
    from intarsia_onnx.dynamic import DynamicModel


class ImportResult(Struct, frozen=True, eq=False):
    """A model as modules.

    Attributes:
        pieces: One module called ``main``; or the pieces of a program.
        program: What runs the pieces if a part of the model is known at run time only.
    """

    pieces: Mapping[str, IRModule]
    program: DynamicModel | None = None


class PrepareResult(Struct, frozen=True, eq=False):
    """A module that accelerators can be asked about.

    Attributes:
        module: Normalized, and rewritten as the accelerators want it.
        remarks: What the passes had to say.
    """

    module: IRModule
    remarks: tuple[Remark, ...]


class LowerResult(Struct, frozen=True, eq=False):
    """What the fallback compiles.

    Attributes:
        lowered: Kernels, call plan and weights.
        tuned: What a passport says of measured schedules; empty if none decided.
    """

    lowered: Lowered
    tuned: Mapping[str, object]
