# SPDX-License-Identifier: Apache-2.0
"""The interface for a plugin's own tests: make a graph, annotate, build, run, compare.

The conformance kit (``intarsia-testkit``) has the general tests. Each name is imported when it is
first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_runtime.lazy import lazy_names

if TYPE_CHECKING:
    from intarsia_ir.graph.expr import Call as Call
    from intarsia_ir.graph.expr import Constant as Constant
    from intarsia_ir.graph.expr import Expr as Expr
    from intarsia_ir.graph.expr import Function as Function
    from intarsia_ir.graph.expr import Var as Var
    from intarsia_ir.graph.expr import call as call
    from intarsia_ir.graph.expr import constant as constant
    from intarsia_ir.graph.expr import get_item as get_item
    from intarsia_ir.graph.expr import make_tuple as make_tuple
    from intarsia_ir.graph.match import match_pattern as match_pattern
    from intarsia_ir.graph.module import IRModule as IRModule
    from intarsia_ir.graph.types import TensorType as TensorType
    from intarsia_ir.graph.types import TupleType as TupleType
    from intarsia_ir.ops import OPERATORS as OPERATORS
    from intarsia_ir.ops.evaluate import evaluate as evaluate
    from intarsia_ir.partition.annotate import Annotated as Annotated
    from intarsia_ir.partition.annotate import annotate as annotate
    from intarsia_ir.partition.cost import Plan as Plan
    from intarsia_ir.regions.support import Code as Code
    from intarsia_ir.regions.support import Support as Support
    from intarsia_ir.regions.support import SupportTable as SupportTable
    from intarsia_runtime.dtype import DType as DType
    from intarsia_runtime.load import load as load
    from intarsia_runtime.loading import LoadRequest as LoadRequest
    from intarsia_runtime.loading import NativeCall as NativeCall

    from ..driver.artifact import Artifact as Artifact
    from ..driver.build import build as build
    from ..host.host import Host as Host

if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "intarsia.driver.artifact": "Artifact",
            "intarsia.driver.build": "build",
            "intarsia.host.host": "Host",
            "intarsia_ir.partition.annotate": "Annotated annotate",
            "intarsia_ir.partition.cost": "Plan",
            "intarsia_ir.regions.support": "Code Support SupportTable",
            "intarsia_ir.graph.expr": (
                "Call Constant Expr Function Var call constant get_item make_tuple"
            ),
            "intarsia_ir.graph.match": "match_pattern",
            "intarsia_ir.graph.module": "IRModule",
            "intarsia_ir.graph.types": "TensorType TupleType",
            "intarsia_ir.ops": "OPERATORS",
            "intarsia_ir.ops.evaluate": "evaluate",
            "intarsia_runtime.dtype": "DType",
            "intarsia_runtime.load": "load",
            "intarsia_runtime.loading": "LoadRequest NativeCall",
        },
    )
