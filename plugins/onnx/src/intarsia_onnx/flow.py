# SPDX-License-Identifier: Apache-2.0
"""Functions of the module that control flow carries out, while a model is imported."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import Call, Expr, Function, Var, call, get_item, tensor_type
from intarsia_ir.graph.guards import Guard, guards_apart
from intarsia_ir.graph.outline import outline
from intarsia_ir.ops import control
from intarsia_ir.ops.compare import Equal, NotEqual
from intarsia_ir.ops.shape import Reshape
from intarsia_ir.ops.unary import Cast
from intarsia_runtime.errors import UnsupportedError
from intarsia_runtime.size import Dim, minimum

from .fold import ConstantFolder
from .graph import ValueInfo


class Branch(Struct, frozen=True, eq=False):
    """What a branch gives, and the sizes that must be equal where it is chosen."""

    results: tuple[Expr, ...]
    guards: tuple[Guard, ...] = ()


class Flow(Struct, frozen=True, eq=False):
    """Where a node of control flow puts the functions that it carries out.

    Attributes:
        functions: All of the model by now, by name; filled in.
        values: Returns the values of the graphs around the node.
    """

    functions: dict[str, Function]
    values: Callable[[], set[Expr]]

    def loop(
        self, span: Span, params: Sequence[Var], results: Sequence[Expr]
    ) -> tuple[str, tuple[Expr, ...]]:
        """Make the body of a loop a function; return its name and the values that it captures.

        What does not change from turn to turn stays in the function around.
        """
        outlined = outline(params, results, outside=self.values(), hoist=True)
        return self._added(f"{span.name or span.op} body", outlined.function), outlined.captured

    def choose(
        self, span: Span, condition: Expr, branches: tuple[Branch, Branch]
    ) -> tuple[Expr, ...]:
        """Return the results of a call that carries out one of two branches."""
        results = tuple(branch.results for branch in branches)
        (then, orelse), captured = self._branches(span, results)
        types = tuple(tensor_type(value) for value in results[0])
        guards = [control.flat_guards(branch.guards) for branch in branches]
        attrs = control.If.Attrs(
            then=then, orelse=orelse, results=types, then_guards=guards[0], else_guards=guards[1]
        )
        made = call(control.If, condition, *captured, attrs=attrs, span=span)
        return tuple(get_item(made, index, span=span) for index in range(len(types)))

    def _branches(
        self, span: Span, branches: Sequence[Sequence[Expr]]
    ) -> tuple[list[str], tuple[Expr, ...]]:
        """Make branches functions; return their names and the values that all of them capture."""
        outside = self.values()
        with guards_apart():  # those of the branches are known
            made = [outline((), results, outside=outside, hoist=False) for results in branches]
        captured = tuple(dict.fromkeys(value for one in made for value in one.captured))
        names: list[str] = []
        for one, what in zip(made, ("then", "else"), strict=True):
            own = dict(zip(one.captured, one.function.params, strict=True))
            taken = {param.name for param in one.function.params}
            params: list[Var] = []
            for number, value in enumerate(captured):
                name = f"u{number}"
                while name in taken:
                    name += "_"
                params.append(own.get(value) or Var(name, value.type))
            function = Function(tuple(params), one.function.body)
            names.append(self._added(f"{span.name or span.op} {what}", function))
        return names, captured

    def _added(self, name: str, function: Function) -> str:
        number, found = 1, name
        while found in self.functions or found == "main":
            number += 1
            found = f"{name} {number}"
        self.functions[found] = function
        return found


def fits(branch: Branch, declared: Sequence[ValueInfo]) -> bool:
    """Whether results have the ranks that a graph declares of its outputs."""
    return all(
        info.type is None or info.type.rank == tensor_type(value).rank
        for value, info in zip(branch.results, declared, strict=True)
    )


def chosen(folder: ConstantFolder, condition: Expr, is_true: bool, span: Span) -> tuple[Guard, ...]:
    """Return what must hold of sizes for a condition to be true, or to be false.

    Raises:
        UnsupportedError: The condition is no comparison of sizes.
    """
    while isinstance(condition, Call) and condition.op in (Reshape, Cast):
        condition = condition.args[0]
    sizes: list[np.ndarray | None] = []
    if isinstance(condition, Call) and condition.op in (Equal, NotEqual):
        is_true = is_true is (condition.op is Equal)
        sizes = [folder.sizes(arg) for arg in condition.args]
    known = [array.reshape(-1)[0] for array in sizes if array is not None and array.size == 1]
    if len(known) != 2:
        raise UnsupportedError(
            "branches give values of different ranks, and no size decides which is taken",
            where=str(span),
        )
    left, right = (size if isinstance(size, Dim) else int(size) for size in known)
    why = f"{span}: only one branch fits what follows"
    if is_true:
        return (Guard(left, right, why),)
    difference = left - right
    return (Guard(minimum(difference * difference, 1), 1, why),)
