# SPDX-License-Identifier: Apache-2.0
"""What was measured of single claims and calls, by what they are and not by where they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from msgspec import Struct

from intarsia_ir.graph.expr import Call, Constant, Expr, Function, TupleGetItem, Var
from intarsia_ir.graph.types import TensorType


class MeasuredSeconds(Struct, frozen=True):
    """Seconds that were measured.

    Attributes:
        claims: (kind, signature) of a match to what the accelerator needs for a region of it alone:
            the launch and the copies at its border included.
        own: Signature of a heavy call to what the fallback needs for it alone.
    """

    claims: Mapping[tuple[str, str], float]
    own: Mapping[str, float]


def signature_of_calls(calls: Sequence[Call]) -> str:
    """Return what connected calls are: operators, attributes, types, and how they are connected.

    Names and the values of weights do not count. The text is meant to be read, too:
    ``nn.relu(a: Tensor[(1, 8), float32])``.

    Args:
        calls: Operands before users.
    """
    names: dict[Expr, str] = {}
    lines: list[str] = []
    for place, call in enumerate(calls):
        operands: list[str] = []
        for arg in call.args:
            known = names.get(arg)
            if known is None:
                known = f"{'w' if isinstance(arg, Constant) else 'x'}{len(names)}"
                names[arg] = known
                known = f"{known}: {arg.type}"
            operands.append(known)
        names[call] = f"y{place}"
        lines.append(f"{call.op.name}({', '.join(operands)}) {call.attrs}")
    return "; ".join(lines)


def function_of_calls(calls: Sequence[Call]) -> Function | None:
    """Return connected calls as a function of what they read; weights stay in it.

    ``None`` if they cannot stand alone: a size is not known, or a tuple enters, leaves, or lies
    between them.

    Args:
        calls: Operands before users; the last one gives the result.
    """
    renamed: dict[Expr, Expr] = {}
    params: list[Var] = []
    for call in calls:
        for arg in call.args:
            if arg in renamed or isinstance(arg, Constant):
                continue
            if isinstance(arg, TupleGetItem) and arg.tuple in renamed:
                return None
            if not isinstance(arg.type, TensorType) or not arg.type.is_static:
                return None
            params.append(Var(f"x{len(params)}", arg.type))
            renamed[arg] = params[-1]
        renamed[call] = replace(call, args=tuple(renamed.get(arg, arg) for arg in call.args))
    result = renamed[calls[-1]]
    if not isinstance(result.type, TensorType) or not result.type.is_static:
        return None
    return Function(tuple(params), result)
