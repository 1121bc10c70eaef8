# SPDX-License-Identifier: Apache-2.0
"""The accelerator interface: everything that the compiling half of an accelerator imports.

An accelerator is a table (:class:`AcceleratorTable`). A :class:`Row` has the pattern, limits, a
predicate for further conditions, the lowering into a :class:`Draft`, and a sentence for the
documentation. Each name is imported when it is first used: a module of options loads no operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_runtime.lazy import lazy_names

if TYPE_CHECKING:
    from intarsia_ir.c_text import c_string as c_string
    from intarsia_ir.capabilities import ReducedConvolution as ReducedConvolution
    from intarsia_ir.graph.expr import Call as Call
    from intarsia_ir.graph.expr import Constant as Constant
    from intarsia_ir.graph.expr import Expr as Expr
    from intarsia_ir.graph.expr import Function as Function
    from intarsia_ir.graph.expr import Tuple as Tuple
    from intarsia_ir.graph.expr import TupleGetItem as TupleGetItem
    from intarsia_ir.graph.expr import Var as Var
    from intarsia_ir.graph.expr import constant as constant
    from intarsia_ir.graph.expr import tensor_type as tensor_type
    from intarsia_ir.graph.pattern import ANY as ANY
    from intarsia_ir.graph.pattern import CONST as CONST
    from intarsia_ir.graph.pattern import Match as Match
    from intarsia_ir.graph.pattern import OpPattern as OpPattern
    from intarsia_ir.graph.pattern import Optional as Optional
    from intarsia_ir.graph.pattern import Pattern as Pattern
    from intarsia_ir.graph.pattern import Wildcard as Wildcard
    from intarsia_ir.graph.pattern import op as op
    from intarsia_ir.graph.types import TensorType as TensorType
    from intarsia_ir.graph.types import TupleType as TupleType
    from intarsia_ir.graph.types import Type as Type
    from intarsia_ir.graph.walk import calls as calls
    from intarsia_ir.graph.walk import count_uses as count_uses
    from intarsia_ir.graph.walk import post_order as post_order
    from intarsia_ir.ops.arrays import numpy_dtype as numpy_dtype
    from intarsia_ir.ops.arrays import widen as widen
    from intarsia_ir.ops.nn import Conv as Conv
    from intarsia_ir.ops.nn import ConvTranspose as ConvTranspose
    from intarsia_ir.ops.nn import Matmul as Matmul
    from intarsia_ir.ops.pooling import AvgPool as AvgPool
    from intarsia_ir.ops.pooling import PoolAttrs as PoolAttrs
    from intarsia_ir.ops.reduce import ReduceOp as ReduceOp
    from intarsia_ir.ops.resize import DepthToSpace as DepthToSpace
    from intarsia_ir.ops.resize import Resize as Resize
    from intarsia_ir.ops.resize import SpaceToDepth as SpaceToDepth
    from intarsia_ir.ops.shape import Concatenate as Concatenate
    from intarsia_ir.ops.shape import Split as Split
    from intarsia_ir.ops.shape import Transpose as Transpose
    from intarsia_ir.ops.slicing import StridedSlice as StridedSlice
    from intarsia_ir.ops.unary import Clip as Clip
    from intarsia_ir.passes.unroll_recurrent import unroll_recurrent as unroll_recurrent
    from intarsia_ir.performance import Performance as Performance
    from intarsia_ir.performance import RelativePerformance as RelativePerformance
    from intarsia_ir.reduced import is_reduced as is_reduced
    from intarsia_ir.regions.answers import count_macs as count_macs
    from intarsia_ir.regions.answers import drop_regions as drop_regions
    from intarsia_ir.regions.answers import region_matches as region_matches
    from intarsia_ir.regions.answers import too_few_macs as too_few_macs
    from intarsia_ir.regions.answers import unknown_call as unknown_call
    from intarsia_ir.regions.draft import Draft as Draft
    from intarsia_ir.regions.draft import array_of as array_of
    from intarsia_ir.regions.draft import extents as extents
    from intarsia_ir.regions.draft import label_of as label_of
    from intarsia_ir.regions.draft import scalar as scalar
    from intarsia_ir.regions.draft import sizes as sizes
    from intarsia_ir.regions.draft import typical_sizes as typical_sizes
    from intarsia_ir.regions.program import MatchStep as MatchStep
    from intarsia_ir.regions.program import RegionProgram as RegionProgram
    from intarsia_ir.regions.program import region_program as region_program
    from intarsia_ir.regions.region import Region as Region
    from intarsia_ir.regions.region import keep_calls as keep_calls
    from intarsia_ir.regions.region import split_region as split_region
    from intarsia_ir.regions.support import Code as Code
    from intarsia_ir.regions.support import Predicate as Predicate
    from intarsia_ir.regions.support import Support as Support
    from intarsia_ir.regions.support import SupportRow as SupportRow
    from intarsia_ir.regions.support import SupportTable as SupportTable
    from intarsia_ir.regions.support import support_markdown as support_markdown
    from intarsia_ir.regions.table import AcceleratorTable as AcceleratorTable
    from intarsia_ir.regions.table import Limits as Limits
    from intarsia_ir.regions.table import Row as Row
    from intarsia_ir.regions.table import Sentences as Sentences
    from intarsia_ir.regions.table import always as always
    from intarsia_ir.regions.table import operator_row as operator_row
    from intarsia_ir.regions.work import count_flops as count_flops
    from intarsia_ir.regions.work import count_products as count_products
    from intarsia_runtime.artifact.abandoned import temporary_folder as temporary_folder
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
    from intarsia_runtime.size import Dim as Dim
    from intarsia_runtime.size import OpenSizeError as OpenSizeError
    from intarsia_runtime.size import numbers as numbers

    from ..host.hookspecs import hookimpl as hookimpl
    from ..host.probe import Probe as Probe
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
            "intarsia_ir.c_text": "c_string",
            "intarsia_ir.capabilities": "ReducedConvolution",
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
            "intarsia_ir.passes.unroll_recurrent": "unroll_recurrent",
            "intarsia_ir.performance": "Performance RelativePerformance",
            "intarsia_ir.reduced": "is_reduced",
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
