# SPDX-License-Identifier: Apache-2.0
"""Fold constants: run the reference of every call whose operands are known, within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from msgspec import Struct

from intarsia_runtime.errors import ResourceError

from ..budget import budget
from ..graph.expr import Call, Constant, Expr, constant, make_tuple
from ..graph.module import IRModule
from ..graph.op import OpKind
from ..graph.types import TensorType, TupleType, Type
from .base import Pass, Remarks, rewrite

RESULT_BUDGET = 16 << 20  # bytes: a larger result is folded only if its operands are as large
TOTAL_BUDGET = 256 << 20  # bytes by which folding may grow a module in all
_WEIGHTS = frozenset({"qnn.dequantize", "narrow.decode"})  # four bytes for one of the file
WORK_BUDGET = 1 << 32  # product of element counts up to which a heavy call is run


class _Folder(Struct):
    """The rule, with what it has spent so far."""

    remarks: Remarks
    kept: frozenset[str] = frozenset()
    grown: int = 0

    def fold(self, expr: Expr) -> Expr | None:
        """op(constants) --> constant"""
        if not isinstance(expr, Call) or expr.op.defines_size or expr.name in self.kept:
            return None
        operands = [arg for arg in expr.args if isinstance(arg, Constant)]
        if len(operands) != len(expr.args) or not self._affordable(expr, operands):
            return None
        arrays = [arg.data for arg in operands]
        made = _static_bytes(expr.type) or 0
        # A constant joined to itself over and over grows, though no result is above its operands.
        grows = made > max(RESULT_BUDGET, sum(one.data.nbytes for one in set(operands)))
        folding = budget().folding("folding constants", keeps=grows)
        try:
            with np.errstate(all="ignore"), folding as limits:
                limits.check(expr.span)
                limits.reserve(made, expr.span)
                result = expr.op.reference(expr.attrs, *arrays)
        except ResourceError:
            raise
        except Exception as error:  # folding is an optimization: the call itself stays
            self.remarks.add("fold-constants", f"'{expr.name}' is not folded: {error}", expr.span)
            return None
        return self._wrap(expr, result)

    def _affordable(self, expr: Call, operands: Sequence[Constant]) -> bool:
        made = _static_bytes(expr.type)
        if made is None or expr.name in _WEIGHTS:
            return made is not None
        read = sum(arg.data.nbytes for arg in operands)
        growth = max(0, made - read)
        if (made > RESULT_BUDGET and growth > 0) or self.grown + growth > TOTAL_BUDGET:
            return False
        if expr.op.kind is OpKind.ANCHOR and _work(expr, operands) > WORK_BUDGET:
            return False
        self.grown += growth
        return True

    def _wrap(self, expr: Call, result: object) -> Expr | None:
        if isinstance(expr.type, TupleType):
            parts = cast("tuple[object, ...]", result) if isinstance(result, tuple) else ()
            fields = [constant(np.asarray(part), span=expr.span) for part in parts]
            made: Expr = make_tuple(fields, span=expr.span)
        else:
            made = constant(np.asarray(result), span=expr.span)
        if made.type == expr.type:
            return made
        message = f"'{expr.name}' is not folded: its reference gives {made.type}, not {expr.type}"
        self.remarks.add("fold-constants", message, expr.span)
        return None


def fold_constants(module: IRModule, remarks: Remarks) -> IRModule:
    """Replace calls on constants by their results.

    A small file never becomes a large module: a result above 16 MiB is folded only if it is no
    larger than what it is made of, and all folding together adds at most 256 MiB. Weights that are
    stored in bytes do not count: a call that is not folded is computed in each run.
    """
    return rewrite(module, _Folder(remarks).fold)


def fold_floats(module: IRModule, remarks: Remarks) -> IRModule:
    """Fold constants, but leave quantized constants quantized: what reads them may be, too."""
    return rewrite(module, _Folder(remarks, frozenset({"qnn.dequantize"})).fold)


def _static_bytes(type_: Type) -> int | None:
    """Return the bytes of a value, or ``None`` if a size is symbolic."""
    total = 0
    todo: list[Type] = [type_]
    while todo:
        match todo.pop():
            case TupleType(fields=fields):
                todo.extend(fields)
            case TensorType() as tensor:
                if not tensor.is_static:
                    return None
                total += tensor.bytes
    return total


def _work(expr: Call, operands: Sequence[Constant]) -> int:
    """Return a bound on the multiplications of a heavy call."""
    result = expr.type.elements if isinstance(expr.type, TensorType) else 0
    return result * max((arg.data.size for arg in operands[1:]), default=1)


FOLD_CONSTANTS = Pass("fold-constants", fold_constants)
FOLD_FLOATS = Pass("fold-floats", fold_floats)
