# SPDX-License-Identifier: Apache-2.0
"""The face for a plugin's own tests: make a graph, ask the plugin, build, run, compare.

The conformance kit (``intarsia-testkit``) is the other half. Each name is imported when it is first
used.
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
        Var,
        call,
        constant,
        get_item,
        make_tuple,
    )
    from intarsia_ir.graph.match import match_pattern
    from intarsia_ir.graph.module import IRModule
    from intarsia_ir.graph.types import TensorType, TupleType
    from intarsia_ir.ops import OPERATORS
    from intarsia_ir.ops.evaluate import evaluate
    from intarsia_ir.partition.annotate import Annotated, annotate
    from intarsia_ir.partition.cost import Plan
    from intarsia_ir.regions.support import Code, Support, SupportTable
    from intarsia_runtime.dtype import DType
    from intarsia_runtime.load import load
    from intarsia_runtime.loading import LoadRequest, NativeCall

    from ..driver.artifact import Artifact
    from ..driver.build import build
    from ..host.host import Host

__all__ = [
    "OPERATORS",
    "Annotated",
    "Artifact",
    "Call",
    "Code",
    "Constant",
    "DType",
    "Expr",
    "Function",
    "Host",
    "IRModule",
    "LoadRequest",
    "NativeCall",
    "Plan",
    "Support",
    "SupportTable",
    "TensorType",
    "TupleType",
    "Var",
    "annotate",
    "build",
    "call",
    "constant",
    "evaluate",
    "get_item",
    "load",
    "make_tuple",
    "match_pattern",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
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
