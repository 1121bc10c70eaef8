# SPDX-License-Identifier: Apache-2.0
"""The frontend interface: everything that an importer of models needs to build a module.

Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_runtime.lazy import lazy_names

if TYPE_CHECKING:
    from intarsia_ir.diagnostics import Span as Span
    from intarsia_ir.graph.expr import Call as Call
    from intarsia_ir.graph.expr import Constant as Constant
    from intarsia_ir.graph.expr import Expr as Expr
    from intarsia_ir.graph.expr import Function as Function
    from intarsia_ir.graph.expr import Tuple as Tuple
    from intarsia_ir.graph.expr import TupleGetItem as TupleGetItem
    from intarsia_ir.graph.expr import Var as Var
    from intarsia_ir.graph.expr import call as call
    from intarsia_ir.graph.expr import constant as constant
    from intarsia_ir.graph.expr import get_item as get_item
    from intarsia_ir.graph.expr import make_tuple as make_tuple
    from intarsia_ir.graph.expr import tensor_type as tensor_type
    from intarsia_ir.graph.module import IRModule as IRModule
    from intarsia_ir.graph.types import TensorType as TensorType
    from intarsia_ir.graph.types import TupleType as TupleType
    from intarsia_ir.graph.types import Type as Type
    from intarsia_ir.ops import OPERATORS as OPERATORS
    from intarsia_runtime.dtype import DType as DType
    from intarsia_runtime.errors import IntarsiaError as IntarsiaError
    from intarsia_runtime.errors import PluginError as PluginError
    from intarsia_runtime.errors import UnsupportedError as UnsupportedError

    from ..host.frontend import Frontend as Frontend
    from ..host.hookspecs import hookimpl as hookimpl

if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "intarsia.host.frontend": "Frontend",
            "intarsia.host.hookspecs": "hookimpl",
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
