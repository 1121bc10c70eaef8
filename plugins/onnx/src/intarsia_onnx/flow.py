# SPDX-License-Identifier: Apache-2.0
"""Functions of the module that control flow carries out, while a model is imported."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import Expr, Function, Var
from intarsia_ir.graph.outline import outline


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

    def branches(
        self, span: Span, branches: Sequence[Sequence[Expr]]
    ) -> tuple[list[str], tuple[Expr, ...]]:
        """Make branches functions; return their names and the values that all of them capture."""
        outside = self.values()
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
