# SPDX-License-Identifier: Apache-2.0
"""The accelerator author's face: all that the compiling half of an accelerator imports.

An accelerator is a table (:class:`AcceleratorTable`): a :class:`Row` has the pattern, limits, the
predicate for what limits do not say, the lowering into a :class:`Draft`, and a sentence for the
documentation. Each name is imported when it is first used: a module of options loads no operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_runtime.lazy import lazy_names

if TYPE_CHECKING:
    from intarsia_ir.graph.expr import (
        Call,
        Constant,
        Expr,
        Function,
        Tuple,
        TupleGetItem,
        Var,
        constant,
        tensor_type,
    )
    from intarsia_ir.graph.pattern import (
        ANY,
        CONST,
        Match,
        OpPattern,
        Optional,
        Pattern,
        Wildcard,
        op,
    )
    from intarsia_ir.graph.types import TensorType, TupleType, Type
    from intarsia_ir.graph.walk import calls, count_uses, post_order
    from intarsia_ir.ops.arrays import numpy_dtype, widen
    from intarsia_ir.ops.nn import Conv, ConvTranspose, Matmul
    from intarsia_ir.ops.pooling import AvgPool, PoolAttrs
    from intarsia_ir.ops.reduce import ReduceOp
    from intarsia_ir.ops.resize import DepthToSpace, Resize, SpaceToDepth
    from intarsia_ir.ops.shape import Concatenate, Split, Transpose
    from intarsia_ir.ops.slicing import StridedSlice
    from intarsia_ir.ops.unary import Clip
    from intarsia_ir.performance import Performance, RelativePerformance
    from intarsia_ir.reduced import ReducedConvolution
    from intarsia_ir.regions.answers import (
        count_macs,
        drop_regions,
        region_matches,
        too_few_macs,
        unknown_call,
    )
    from intarsia_ir.regions.draft import (
        Draft,
        array_of,
        extents,
        label_of,
        scalar,
        sizes,
        typical_sizes,
    )
    from intarsia_ir.regions.program import MatchStep, RegionProgram, region_program
    from intarsia_ir.regions.region import Region, keep_calls, split_region
    from intarsia_ir.regions.support import (
        Code,
        Predicate,
        Support,
        SupportRow,
        SupportTable,
        support_markdown,
    )
    from intarsia_ir.regions.table import (
        AcceleratorTable,
        Limits,
        Row,
        Sentences,
        always,
        operator_row,
    )
    from intarsia_ir.regions.work import count_flops, count_products
    from intarsia_runtime.artifact.abandoned import temporary_folder
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
    from intarsia_runtime.size import Dim, OpenSizeError, numbers

    from ..host.markers import hookimpl
    from ..host.probe import Probe
    from ..target.kind import Memory, Role, TargetKind
    from ..target.kind_attribute import KindAttribute, KindAttributeValue
    from ..target.options import option
    from ..target.target import CompositeTarget, Target

__all__ = [
    "ANY",
    "CONST",
    "SHARED_LIBRARY",
    "SHARED_LIBRARY_FORMAT",
    "AcceleratorTable",
    "ArtifactError",
    "AvgPool",
    "Call",
    "Clip",
    "Code",
    "CompiledUnit",
    "CompositeTarget",
    "Concatenate",
    "Constant",
    "Conv",
    "ConvTranspose",
    "DType",
    "DepthToSpace",
    "Dim",
    "Draft",
    "Expr",
    "Function",
    "IntarsiaError",
    "KindAttribute",
    "KindAttributeValue",
    "Limits",
    "Match",
    "MatchStep",
    "Matmul",
    "Memory",
    "OpPattern",
    "OpenSizeError",
    "Optional",
    "Pattern",
    "Performance",
    "PluginError",
    "PoolAttrs",
    "Predicate",
    "Probe",
    "ReduceOp",
    "ReducedConvolution",
    "Region",
    "RegionProgram",
    "RelativePerformance",
    "Resize",
    "ResourceError",
    "Role",
    "Row",
    "Sentences",
    "SpaceToDepth",
    "Split",
    "StridedSlice",
    "Support",
    "SupportRow",
    "SupportTable",
    "Target",
    "TargetError",
    "TargetKind",
    "TensorType",
    "ToolchainError",
    "Transpose",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "Type",
    "UnsupportedError",
    "Var",
    "Wildcard",
    "WorkerLost",
    "always",
    "array_of",
    "calls",
    "constant",
    "count_flops",
    "count_macs",
    "count_products",
    "count_uses",
    "did_you_mean",
    "drop_regions",
    "extents",
    "hookimpl",
    "keep_calls",
    "label_of",
    "numbers",
    "numpy_dtype",
    "op",
    "operator_row",
    "option",
    "post_order",
    "region_matches",
    "region_program",
    "scalar",
    "sizes",
    "split_region",
    "support_markdown",
    "temporary_folder",
    "tensor_type",
    "too_few_macs",
    "typical_sizes",
    "unknown_call",
    "widen",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "intarsia.host.markers": "hookimpl",
            "intarsia.host.probe": "Probe",
            "intarsia_ir.regions.draft": (
                "Draft array_of extents label_of scalar sizes typical_sizes"
            ),
            "intarsia_ir.regions.table": (
                "AcceleratorTable Limits Row Sentences always operator_row"
            ),
            "intarsia_ir.regions.answers": (
                "count_macs drop_regions region_matches too_few_macs unknown_call"
            ),
            "intarsia_ir.regions.work": "count_flops count_products",
            "intarsia_ir.regions.program": "RegionProgram MatchStep region_program",
            "intarsia_ir.regions.region": "Region keep_calls split_region",
            "intarsia_ir.regions.support": (
                "Code Predicate Support SupportRow SupportTable support_markdown"
            ),
            "intarsia.target.kind": "Memory Role TargetKind",
            "intarsia.target.kind_attribute": "KindAttribute KindAttributeValue",
            "intarsia.target.options": "option",
            "intarsia.target.target": "CompositeTarget Target",
            "intarsia_ir.graph.expr": (
                "Call Constant Expr Function Tuple TupleGetItem Var constant tensor_type"
            ),
            "intarsia_ir.graph.pattern": "ANY CONST Match OpPattern Optional Pattern Wildcard op",
            "intarsia_ir.graph.types": "TensorType TupleType Type",
            "intarsia_ir.graph.walk": "calls count_uses post_order",
            "intarsia_ir.ops.arrays": "numpy_dtype widen",
            "intarsia_ir.ops.nn": "Conv ConvTranspose Matmul",
            "intarsia_ir.ops.pooling": "AvgPool PoolAttrs",
            "intarsia_ir.ops.reduce": "ReduceOp",
            "intarsia_ir.ops.resize": "DepthToSpace Resize SpaceToDepth",
            "intarsia_ir.ops.shape": "Concatenate Split Transpose",
            "intarsia_ir.ops.slicing": "StridedSlice",
            "intarsia_ir.ops.unary": "Clip",
            "intarsia_ir.performance": "Performance RelativePerformance",
            "intarsia_ir.reduced": "ReducedConvolution",
            "intarsia_runtime.artifact.abandoned": "temporary_folder",
            "intarsia_runtime.artifact.unit": "SHARED_LIBRARY SHARED_LIBRARY_FORMAT CompiledUnit",
            "intarsia_runtime.dtype": "DType",
            "intarsia_runtime.errors": (
                "ArtifactError IntarsiaError PluginError ResourceError TargetError "
                "ToolchainError UnsupportedError WorkerLost did_you_mean"
            ),
            "intarsia_runtime.size": "Dim OpenSizeError numbers",
        },
    )
