# SPDX-License-Identifier: Apache-2.0
"""What lowering makes: fused groups, and the module that a backend compiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec import field as struct_field

from intarsia_runtime.artifact.plan import CallPlan

from ..graph.walk import calls
from ..writing.deferred import Weights
from .space import ChosenKernel

if TYPE_CHECKING:
    import numpy as np

    from ..graph.expr import Call, Function
    from .func import PrimFunc
    from .intrinsic import Intrinsic, IntrinsicRule


@dataclass(frozen=True, slots=True, eq=False)
class FusedGroup:
    """Operator calls that become one kernel.

    Attributes:
        name: A C identifier made of the operators, e.g. ``nn_conv_add_nn_relu``.
        function: Inputs (constants included, scalars inlined) are parameters; the body is the
            group.
        anchor: The heavy operator whose schedule is used, if there is one.
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
class CodegenContext:
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
    """The input of a backend's ``tir_codegen``.

    Attributes:
        functions: The distinct kernels.
        plan: The call plan that its ``main`` executes.
        name: Name of the unit.
        context: Requirements of the executor and the runtime on the code.
        rules: The answer of ``lower_intrinsic`` of the kind's plugin; a code generator prefers
            these rules to its own.
    """

    functions: tuple[PrimFunc, ...]
    plan: CallPlan
    name: str = "main"
    context: CodegenContext = field(default_factory=CodegenContext)
    rules: Mapping[Intrinsic, IntrinsicRule] = field(
        default_factory=lambda: MappingProxyType["Intrinsic", "IntrinsicRule"]({})
    )


class Lowered(Struct, frozen=True, eq=False):
    """The result of ``lower``: kernels with their plan, and the constants that the plan reads.

    Attributes:
        module: Kernels and the plan.
        constants: Arrays by the names in ``module.plan.constants``, in that order.
        chosen: The choice of the tuning records by kernel name, for kernels that have one.
    """

    module: TensorModule
    constants: Weights
    chosen: Mapping[str, ChosenKernel] = struct_field(
        default_factory=lambda: MappingProxyType[str, ChosenKernel]({})
    )
