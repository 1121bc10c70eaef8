# SPDX-License-Identifier: Apache-2.0
"""Values that lowering hands on: fused groups, and the module a backend compiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..artifact.plan import CallPlan
from ..ir.walk import calls

if TYPE_CHECKING:
    from ..ir.expr import Call, Function
    from ..tir.func import PrimFunc


@dataclass(frozen=True, slots=True, eq=False)
class FusedGroup:
    """Operator calls that become one kernel.

    Attributes:
        name: A C identifier made of the operators, e.g. ``nn_conv_add_nn_relu``.
        function: Inputs (constants included, scalars inlined) are parameters; the body is the
            group.
        anchor: The heavy operator whose schedule decides, if there is one.
        nodes: Names of the model's nodes in it.
    """

    name: str
    function: Function
    anchor: Call | None
    nodes: tuple[str, ...]

    @property
    def label(self) -> str:
        """Operators joined by ``+``, for profiles."""
        return "+".join(call.name for call in calls(self.function))


@dataclass(frozen=True, slots=True, eq=False)
class TensorModule:
    """What a backend's ``tir_codegen`` gets.

    Attributes:
        functions: Kernels, no two alike.
        plan: The call plan that its ``main`` carries out.
        name: Name of the unit.
    """

    functions: tuple[PrimFunc, ...]
    plan: CallPlan
    name: str = "main"
