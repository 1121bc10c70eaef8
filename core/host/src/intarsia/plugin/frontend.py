# SPDX-License-Identifier: Apache-2.0
"""The frontend author's face: all that an importer of models needs to build a module.

Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_runtime.lazy import lazy_names

if TYPE_CHECKING:
    from intarsia_ir.diagnostics import Span
    from intarsia_ir.graph.expr import (
        Call,
        Constant,
        Expr,
        Function,
        Tuple,
        TupleGetItem,
        Var,
        call,
        constant,
        get_item,
        make_tuple,
        tensor_type,
    )
    from intarsia_ir.graph.module import IRModule
    from intarsia_ir.graph.types import TensorType, TupleType, Type
    from intarsia_ir.ops import OPERATORS
    from intarsia_runtime.dtype import DType
    from intarsia_runtime.errors import IntarsiaError, PluginError, UnsupportedError

    from ..host.frontend import Frontend
    from ..host.markers import hookimpl

__all__ = [
    "OPERATORS",
    "Call",
    "Constant",
    "DType",
    "Expr",
    "Frontend",
    "Function",
    "IRModule",
    "IntarsiaError",
    "PluginError",
    "Span",
    "TensorType",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "Type",
    "UnsupportedError",
    "Var",
    "call",
    "constant",
    "get_item",
    "hookimpl",
    "make_tuple",
    "tensor_type",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "intarsia.host.frontend": "Frontend",
            "intarsia.host.markers": "hookimpl",
            "intarsia_ir.diagnostics": "Span",
            "intarsia_ir.graph.expr": (
                "Call Constant Expr Function Tuple TupleGetItem Var call constant get_item "
                "make_tuple tensor_type"
            ),
            "intarsia_ir.graph.module": "IRModule",
            "intarsia_ir.graph.types": "TensorType TupleType Type",
            "intarsia_ir.ops": "OPERATORS",
            "intarsia_runtime.dtype": "DType",
            "intarsia_runtime.errors": "IntarsiaError PluginError UnsupportedError",
        },
    )
