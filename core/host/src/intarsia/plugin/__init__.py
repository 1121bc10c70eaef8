# SPDX-License-Identifier: Apache-2.0
"""The plugin interface: everything that a plugin imports from the host.

There is one module for each kind of plugin: ``intarsia.plugin.accelerator``, ``.backend``,
``.frontend``, ``.loader`` (runs without the compiler) and ``.testing``. This package has the names
for accelerators and backends together. Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_runtime.lazy import lazy_names

if TYPE_CHECKING:
    from intarsia_runtime.plugin import DeviceModel as DeviceModel
    from intarsia_runtime.plugin import LoadRequest as LoadRequest
    from intarsia_runtime.plugin import NativeCall as NativeCall

    from .accelerator import ANY as ANY
    from .accelerator import CONST as CONST
    from .accelerator import SHARED_LIBRARY as SHARED_LIBRARY
    from .accelerator import SHARED_LIBRARY_FORMAT as SHARED_LIBRARY_FORMAT
    from .accelerator import ArtifactError as ArtifactError
    from .accelerator import Call as Call
    from .accelerator import Code as Code
    from .accelerator import CompiledUnit as CompiledUnit
    from .accelerator import CompositeTarget as CompositeTarget
    from .accelerator import Constant as Constant
    from .accelerator import DType as DType
    from .accelerator import Function as Function
    from .accelerator import IntarsiaError as IntarsiaError
    from .accelerator import KindAttribute as KindAttribute
    from .accelerator import KindAttributeValue as KindAttributeValue
    from .accelerator import Match as Match
    from .accelerator import MatchStep as MatchStep
    from .accelerator import Memory as Memory
    from .accelerator import OpPattern as OpPattern
    from .accelerator import Performance as Performance
    from .accelerator import PluginError as PluginError
    from .accelerator import Probe as Probe
    from .accelerator import Region as Region
    from .accelerator import RegionProgram as RegionProgram
    from .accelerator import RelativePerformance as RelativePerformance
    from .accelerator import ResourceError as ResourceError
    from .accelerator import Role as Role
    from .accelerator import Support as Support
    from .accelerator import SupportRow as SupportRow
    from .accelerator import SupportTable as SupportTable
    from .accelerator import Target as Target
    from .accelerator import TargetError as TargetError
    from .accelerator import TargetKind as TargetKind
    from .accelerator import TensorType as TensorType
    from .accelerator import ToolchainError as ToolchainError
    from .accelerator import UnsupportedError as UnsupportedError
    from .accelerator import Var as Var
    from .accelerator import Wildcard as Wildcard
    from .accelerator import count_macs as count_macs
    from .accelerator import drop_regions as drop_regions
    from .accelerator import hookimpl as hookimpl
    from .accelerator import keep_calls as keep_calls
    from .accelerator import op as op
    from .accelerator import option as option
    from .accelerator import post_order as post_order
    from .accelerator import region_matches as region_matches
    from .accelerator import region_program as region_program
    from .accelerator import split_region as split_region
    from .accelerator import too_few_macs as too_few_macs
    from .accelerator import unknown_call as unknown_call
    from .backend import CodegenSignature as CodegenSignature
    from .backend import ExecutorKind as ExecutorKind
    from .backend import FusedGroup as FusedGroup
    from .backend import Intrinsic as Intrinsic
    from .backend import KnownValue as KnownValue
    from .backend import KnownValues as KnownValues
    from .backend import Lowered as Lowered
    from .backend import Rule as Rule
    from .backend import RuntimeKind as RuntimeKind
    from .backend import TensorModule as TensorModule
    from .backend import Tuned as Tuned
    from .backend import call_target_intrinsic as call_target_intrinsic
    from .frontend import Frontend as Frontend

if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "intarsia.plugin.accelerator": (
                "ANY CONST SHARED_LIBRARY SHARED_LIBRARY_FORMAT ArtifactError Call Code "
                "CompiledUnit CompositeTarget Constant DType Function IntarsiaError "
                "KindAttribute KindAttributeValue Match Memory OpPattern Performance "
                "PluginError Probe Region RegionProgram MatchStep RelativePerformance "
                "ResourceError Role Support SupportRow SupportTable Target TargetError "
                "TargetKind TensorType ToolchainError UnsupportedError Var Wildcard count_macs "
                "drop_regions hookimpl keep_calls op option post_order region_matches "
                "region_program split_region too_few_macs unknown_call"
            ),
            "intarsia.plugin.backend": (
                "ExecutorKind FusedGroup Intrinsic KnownValue KnownValues Lowered Rule "
                "RuntimeKind CodegenSignature TensorModule Tuned call_target_intrinsic"
            ),
            "intarsia.plugin.frontend": "Frontend",
            "intarsia_runtime.plugin": "DeviceModel LoadRequest NativeCall",
        },
    )
