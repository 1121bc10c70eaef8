# SPDX-License-Identifier: Apache-2.0
"""The plugin author's face: everything that a plugin's compiling half imports from the host.

What loads a plugin's units at run time imports ``intarsia.runtime.loading`` and
``intarsia.artifact`` only.
"""

from __future__ import annotations

from .artifact.unit import SHARED_LIBRARY, SHARED_LIBRARY_FORMAT, CompiledUnit
from .dtype import DType
from .errors import (
    ArtifactError,
    IntarsiaError,
    PluginError,
    ResourceError,
    TargetError,
    ToolchainError,
    UnsupportedError,
)
from .host.markers import hookimpl
from .host.probe import Probe
from .ir.expr import Call, Constant, Function, Var
from .ir.pattern import ANY, CONST, Match, OpPattern, Wildcard, op
from .ir.types import TensorType
from .ir.walk import post_order
from .lower.kernels import FusedGroup, TensorModule
from .partition.answers import (
    count_macs,
    drop_regions,
    region_matches,
    too_few_macs,
    unknown_call,
)
from .partition.program import RegionProgram, RegionStep, region_program
from .partition.region import Region, keep_calls, split_region
from .partition.support import Code, Support, SupportRow, SupportTable
from .runtime.loading import DeviceModel, LoadRequest, NativeCall
from .target.config_kind import ExecutorKind, Rule, RuntimeKind
from .target.kind import (
    KnownValue,
    KnownValues,
    Memory,
    Performance,
    RelativePerformance,
    Role,
    TargetKind,
)
from .target.kind_attribute import KindAttribute, KindAttributeValue
from .target.options import option
from .target.target import CompositeTarget, Target
from .tir.intrinsic import Intrinsic
from .tir.target_call import Signature, call_target_intrinsic

__all__ = [
    "ANY",
    "CONST",
    "SHARED_LIBRARY",
    "SHARED_LIBRARY_FORMAT",
    "ArtifactError",
    "Call",
    "Code",
    "CompiledUnit",
    "CompositeTarget",
    "Constant",
    "DType",
    "DeviceModel",
    "ExecutorKind",
    "Function",
    "FusedGroup",
    "IntarsiaError",
    "Intrinsic",
    "KindAttribute",
    "KindAttributeValue",
    "KnownValue",
    "KnownValues",
    "LoadRequest",
    "Match",
    "Memory",
    "NativeCall",
    "OpPattern",
    "Performance",
    "PluginError",
    "Probe",
    "Region",
    "RegionProgram",
    "RegionStep",
    "RelativePerformance",
    "ResourceError",
    "Role",
    "Rule",
    "RuntimeKind",
    "Signature",
    "Support",
    "SupportRow",
    "SupportTable",
    "Target",
    "TargetError",
    "TargetKind",
    "TensorModule",
    "TensorType",
    "ToolchainError",
    "UnsupportedError",
    "Var",
    "Wildcard",
    "call_target_intrinsic",
    "count_macs",
    "drop_regions",
    "hookimpl",
    "keep_calls",
    "op",
    "option",
    "post_order",
    "region_matches",
    "region_program",
    "split_region",
    "too_few_macs",
    "unknown_call",
]
