# SPDX-License-Identifier: Apache-2.0
"""The backend author's face: all that a backend imports of the host.

A backend that shares the loop compiler imports that, and the IR, from their own distributions.
Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_runtime.lazy import lazy_names

if TYPE_CHECKING:
    from intarsia_ir.graph.expr import Call, Constant, Function, Var
    from intarsia_ir.performance import Performance, RelativePerformance
    from intarsia_ir.tir.intrinsic import Intrinsic
    from intarsia_ir.tir.module import FusedGroup, Lowered, TensorModule
    from intarsia_ir.tir.space import Tuned
    from intarsia_ir.tir.target_call import CodegenSignature, call_target_intrinsic
    from intarsia_runtime.artifact.unit import SHARED_LIBRARY, SHARED_LIBRARY_FORMAT, CompiledUnit
    from intarsia_runtime.dtype import DType
    from intarsia_runtime.errors import (
        ArtifactError,
        IntarsiaError,
        PluginError,
        ResourceError,
        TargetError,
        ToolchainError,
        UnsupportedError,
        WorkerLost,
        did_you_mean,
    )

    from ..host.markers import hookimpl
    from ..host.probe import Probe
    from ..target.config_kind import ExecutorKind, Rule, RuntimeKind
    from ..target.kind import KnownValue, KnownValues, Memory, Role, TargetKind
    from ..target.kind_attribute import KindAttribute, KindAttributeValue
    from ..target.options import option
    from ..target.target import CompositeTarget, Target

__all__ = [
    "SHARED_LIBRARY",
    "SHARED_LIBRARY_FORMAT",
    "ArtifactError",
    "Call",
    "CodegenSignature",
    "CompiledUnit",
    "CompositeTarget",
    "Constant",
    "DType",
    "ExecutorKind",
    "Function",
    "FusedGroup",
    "IntarsiaError",
    "Intrinsic",
    "KindAttribute",
    "KindAttributeValue",
    "KnownValue",
    "KnownValues",
    "Lowered",
    "Memory",
    "Performance",
    "PluginError",
    "Probe",
    "RelativePerformance",
    "ResourceError",
    "Role",
    "Rule",
    "RuntimeKind",
    "Target",
    "TargetError",
    "TargetKind",
    "TensorModule",
    "ToolchainError",
    "Tuned",
    "UnsupportedError",
    "Var",
    "WorkerLost",
    "call_target_intrinsic",
    "did_you_mean",
    "hookimpl",
    "option",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "intarsia.host.markers": "hookimpl",
            "intarsia.host.probe": "Probe",
            "intarsia.target.config_kind": "ExecutorKind Rule RuntimeKind",
            "intarsia.target.kind": ("KnownValue KnownValues Memory Role TargetKind"),
            "intarsia.target.kind_attribute": "KindAttribute KindAttributeValue",
            "intarsia.target.options": "option",
            "intarsia.target.target": "CompositeTarget Target",
            "intarsia_ir.graph.expr": "Call Constant Function Var",
            "intarsia_ir.performance": "Performance RelativePerformance",
            "intarsia_ir.tir.intrinsic": "Intrinsic",
            "intarsia_ir.tir.module": "FusedGroup Lowered TensorModule",
            "intarsia_ir.tir.space": "Tuned",
            "intarsia_ir.tir.target_call": "CodegenSignature call_target_intrinsic",
            "intarsia_runtime.artifact.unit": "SHARED_LIBRARY SHARED_LIBRARY_FORMAT CompiledUnit",
            "intarsia_runtime.dtype": "DType",
            "intarsia_runtime.errors": (
                "ArtifactError IntarsiaError PluginError ResourceError TargetError "
                "ToolchainError UnsupportedError WorkerLost did_you_mean"
            ),
        },
    )
