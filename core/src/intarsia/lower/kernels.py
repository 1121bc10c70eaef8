# SPDX-License-Identifier: Apache-2.0
"""Values that lowering hands on: fused groups, and the module a backend compiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..artifact.plan import CallPlan
from ..ir.walk import calls

if TYPE_CHECKING:
    import numpy as np

    from ..ir.expr import Call, Function
    from ..tir.func import PrimFunc
    from ..tir.intrinsic import Intrinsic, IntrinsicRule


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
class Delivery:
    """How the code of a module is driven, and where it runs.

    Attributes:
        model: Name of the model.
        executor: Its kind, and every option with its value.
        runtime: The same of the runtime.
        freestanding: Whether the code is for no process, but becomes part of somebody's program.
        constants: The weights by the names in the plan.
        sources: The C sources of regions that have some, file by file, by the region's name.
    """

    model: str = "default"
    executor: Mapping[str, object] = field(
        default_factory=lambda: MappingProxyType[str, object]({"kind": "aot"})
    )
    runtime: Mapping[str, object] = field(
        default_factory=lambda: MappingProxyType[str, object]({"kind": "cpp"})
    )
    freestanding: bool = False
    constants: Mapping[str, np.ndarray] = field(
        default_factory=lambda: MappingProxyType[str, "np.ndarray"]({})
    )
    sources: Mapping[str, Mapping[str, bytes]] = field(
        default_factory=lambda: MappingProxyType[str, Mapping[str, bytes]]({})
    )


@dataclass(frozen=True, slots=True, eq=False)
class TensorModule:
    """What a backend's ``tir_codegen`` gets.

    Attributes:
        functions: Kernels, no two alike.
        plan: The call plan that its ``main`` carries out.
        name: Name of the unit.
        delivery: What the code must be like for those who run it.
        rules: What ``lower_intrinsic`` of the kind's plugin answered; a code generator prefers
            these rules to its own.
    """

    functions: tuple[PrimFunc, ...]
    plan: CallPlan
    name: str = "main"
    delivery: Delivery = field(default_factory=Delivery)
    rules: Mapping[Intrinsic, IntrinsicRule] = field(
        default_factory=lambda: MappingProxyType["Intrinsic", "IntrinsicRule"]({})
    )
