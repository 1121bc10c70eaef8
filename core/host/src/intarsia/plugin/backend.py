# SPDX-License-Identifier: Apache-2.0
"""The backend interface: everything that a backend imports from the host.

A backend that uses the loop compiler imports it, and the IR, from their own distributions. Each
name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_runtime.lazy import lazy_names

if TYPE_CHECKING:
    from intarsia_ir.graph.expr import Call as Call
    from intarsia_ir.graph.expr import Constant as Constant
    from intarsia_ir.graph.expr import Function as Function
    from intarsia_ir.graph.expr import Var as Var
    from intarsia_ir.performance import Performance as Performance
    from intarsia_ir.performance import RelativePerformance as RelativePerformance
    from intarsia_ir.tir.intrinsic import Intrinsic as Intrinsic
    from intarsia_ir.tir.module import FusedGroup as FusedGroup
    from intarsia_ir.tir.module import Lowered as Lowered
    from intarsia_ir.tir.module import TensorModule as TensorModule
    from intarsia_ir.tir.space import Tuned as Tuned
    from intarsia_ir.tir.target_call import CodegenSignature as CodegenSignature
    from intarsia_ir.tir.target_call import call_target_intrinsic as call_target_intrinsic
    from intarsia_runtime.artifact.unit import SHARED_LIBRARY as SHARED_LIBRARY
    from intarsia_runtime.artifact.unit import SHARED_LIBRARY_FORMAT as SHARED_LIBRARY_FORMAT
    from intarsia_runtime.artifact.unit import CompiledUnit as CompiledUnit
    from intarsia_runtime.dtype import DType as DType
    from intarsia_runtime.errors import ArtifactError as ArtifactError
    from intarsia_runtime.errors import IntarsiaError as IntarsiaError
    from intarsia_runtime.errors import PluginError as PluginError
    from intarsia_runtime.errors import ResourceError as ResourceError
    from intarsia_runtime.errors import TargetError as TargetError
    from intarsia_runtime.errors import ToolchainError as ToolchainError
    from intarsia_runtime.errors import UnsupportedError as UnsupportedError
    from intarsia_runtime.errors import WorkerLost as WorkerLost
    from intarsia_runtime.errors import did_you_mean as did_you_mean

    from ..host.hookspecs import hookimpl as hookimpl
    from ..host.probe import Probe as Probe
    from ..target.config_kind import ExecutorKind as ExecutorKind
    from ..target.config_kind import Rule as Rule
    from ..target.config_kind import RuntimeKind as RuntimeKind
    from ..target.kind import KnownValue as KnownValue
    from ..target.kind import KnownValues as KnownValues
    from ..target.kind import Memory as Memory
    from ..target.kind import Role as Role
    from ..target.kind import TargetKind as TargetKind
    from ..target.kind_attribute import KindAttribute as KindAttribute
    from ..target.kind_attribute import KindAttributeValue as KindAttributeValue
    from ..target.options import option as option
    from ..target.target import CompositeTarget as CompositeTarget
    from ..target.target import Target as Target

if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "intarsia.host.hookspecs": "hookimpl",
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
