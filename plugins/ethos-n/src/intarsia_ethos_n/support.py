# SPDX-License-Identifier: Apache-2.0
"""What an Ethos-N takes of a model: a call is described as operations, and each is checked."""

from __future__ import annotations

from msgspec import Struct

from intarsia.ir.expr import Call, Constant, Expr
from intarsia.ir.pattern import Match, op
from intarsia.ir.types import TensorType, TupleType
from intarsia.partition.support import Code, Support, SupportRow, SupportTable

from .constraints import check
from .describe import DTYPES, Sketch
from .operators import all_rows
from .row import Row
from .target import EthosNOptions
from .variants import Variant
from .verdict import Level


class Judge(Struct, frozen=True):
    """Says yes or no to the calls of one operator.

    Attributes:
        row: The operator.
        variant: What the device is.
    """

    row: Row
    variant: Variant

    def __call__(self, match: Match) -> Support:
        """Describe the call, then check each operation; the first no counts."""
        call = match.root
        refused = self._tensors(call)
        if refused is not None:
            return refused
        sketch = Sketch()
        described = self.row.describe(sketch, call)
        if isinstance(described, Support):
            return described
        for operation in sketch.operations:
            if operation.kind == "reinterpret":
                continue
            verdict = check(operation, sketch.tensors, self.variant)
            if verdict.level is not Level.SUPPORTED:
                words = " (can be estimated only)" if verdict.level is Level.ESTIMATE_ONLY else ""
                return Support.no(
                    Code.UNSUPPORTED_ATTRIBUTE, f"{operation.kind}: {verdict.reason}{words}"
                )
        return Support.yes()

    def _tensors(self, call: Call) -> Support | None:
        chosen = [call.args[index] for index in self.row.data] or list(call.args)
        for expr in (*chosen, call):
            refused = check_tensor(expr)
            if refused is not None:
                return refused
        for index in self.row.constant:
            if index < len(call.args) and not isinstance(call.args[index], Constant):
                return Support.no(
                    Code.UNSUPPORTED_ATTRIBUTE,
                    f"argument {index} of {call.name} must be known at compile time",
                )
        return None


def check_tensor(expr: Expr) -> Support | None:
    """Refuse what is no static 8-bit tensor of one, two or four dimensions."""
    match expr.type:
        case TensorType() as type_:
            return _check_type(type_)
        case TupleType(fields=fields):
            types = [field for field in fields if isinstance(field, TensorType)]
            return next((no for no in map(_check_type, types) if no is not None), None)
        case _:
            return Support.no(Code.UNSUPPORTED_OP, f"{expr.type} is no tensor")


def _check_type(type_: TensorType) -> Support | None:
    if DTYPES.get(type_.dtype) not in ("u8", "s8"):
        return Support.no(Code.UNSUPPORTED_DTYPE, f"only int8 and uint8 are taken, not {type_}")
    if not type_.is_static:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"the shape of {type_} is not static")
    if type_.rank not in (1, 2, 4) or 0 in type_.static_shape:
        return Support.no(
            Code.UNSUPPORTED_SHAPE, f"{type_}: one, two or four dimensions with elements are taken"
        )
    return None


def support_table(options: EthosNOptions) -> SupportTable:
    """Return what the variant takes, for the ``annotate`` hook."""
    return SupportTable(
        tuple(SupportRow(row.op, op(row.op), Judge(row, options.memory)) for row in all_rows())
    )


def support_text() -> str:
    """Return the table as Markdown, for the README."""
    lines = ["| operator | taken with |", "|---|---|"]
    lines += [f"| `{row.op}` | {row.limits} |" for row in all_rows()]
    return "\n".join(lines) + "\n"
