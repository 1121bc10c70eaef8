# SPDX-License-Identifier: Apache-2.0
"""The plugin author's face: everything that a plugin imports from the host.

One module for each kind of plugin: ``intarsia.plugin.accelerator``, ``.backend``, ``.frontend``,
``.loader`` (what runs without the compiler) and ``.testing``. This package has the names of both
kinds of compiling plugins together. Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_runtime.lazy import lazy_names

if TYPE_CHECKING:
    from intarsia_runtime.plugin import DeviceModel, LoadRequest, NativeCall

    from .accelerator import (
        ANY,
        CONST,
        SHARED_LIBRARY,
        SHARED_LIBRARY_FORMAT,
        ArtifactError,
        Call,
        Code,
        CompiledUnit,
        CompositeTarget,
        Constant,
        DType,
        Function,
        IntarsiaError,
        KindAttribute,
        KindAttributeValue,
        Match,
        MatchStep,
        Memory,
        OpPattern,
        Performance,
        PluginError,
        Probe,
        Region,
        RegionProgram,
        RelativePerformance,
        ResourceError,
        Role,
        Support,
        SupportRow,
        SupportTable,
        Target,
        TargetError,
        TargetKind,
        TensorType,
        ToolchainError,
        UnsupportedError,
        Var,
        Wildcard,
        count_macs,
        drop_regions,
        hookimpl,
        keep_calls,
        op,
        option,
        post_order,
        region_matches,
        region_program,
        split_region,
        too_few_macs,
        unknown_call,
    )
    from .backend import (
        CodegenSignature,
        ExecutorKind,
        FusedGroup,
        Intrinsic,
        KnownValue,
        KnownValues,
        Lowered,
        Rule,
        RuntimeKind,
        TensorModule,
        Tuned,
        call_target_intrinsic,
    )
    from .frontend import Frontend

__all__ = [
    "ANY",
    "CONST",
    "SHARED_LIBRARY",
    "SHARED_LIBRARY_FORMAT",
    "ArtifactError",
    "Call",
    "Code",
    "CodegenSignature",
    "CompiledUnit",
    "CompositeTarget",
    "Constant",
    "DType",
    "DeviceModel",
    "ExecutorKind",
    "Frontend",
    "Function",
    "FusedGroup",
    "IntarsiaError",
    "Intrinsic",
    "KindAttribute",
    "KindAttributeValue",
    "KnownValue",
    "KnownValues",
    "LoadRequest",
    "Lowered",
    "Match",
    "MatchStep",
    "Memory",
    "NativeCall",
    "OpPattern",
    "Performance",
    "PluginError",
    "Probe",
    "Region",
    "RegionProgram",
    "RelativePerformance",
    "ResourceError",
    "Role",
    "Rule",
    "RuntimeKind",
    "Support",
    "SupportRow",
    "SupportTable",
    "Target",
    "TargetError",
    "TargetKind",
    "TensorModule",
    "TensorType",
    "ToolchainError",
    "Tuned",
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

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
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
