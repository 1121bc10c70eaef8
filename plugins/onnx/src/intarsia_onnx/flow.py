# SPDX-License-Identifier: Apache-2.0
"""Functions of the module that control flow carries out, while a model is imported."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from msgspec import Struct

from intarsia_ir.diagnostics import ModelWarning, Span
from intarsia_ir.graph.expr import Call, Expr, Function, Var, call, get_item, tensor_type
from intarsia_ir.graph.guards import (
    Guard,
    guards_apart,
    is_collecting,
    require_all,
)
from intarsia_ir.graph.outline import outline
from intarsia_ir.graph.types import Size, TensorType
from intarsia_ir.ops import control
from intarsia_ir.ops.compare import Equal, NotEqual
from intarsia_ir.ops.shape import Reshape
from intarsia_ir.ops.unary import Cast
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.errors import UnsupportedError
from intarsia_runtime.size import Dim, minimum

from .builder import Builder
from .fold import ConstantFolder
from .graph import ValueInfo
from .run_sizes import RunSizes


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
        self,
        span: Span,
        params: Sequence[Var],
        results: Sequence[Expr],
        sizes: Iterable[str] = (),
        computed: Iterable[Expr] = (),
    ) -> tuple[str, tuple[Expr, ...]]:
        """Make the body of a loop a function; return its name and the values that it captures.

        What does not change from iteration to iteration stays in the function around.

        Args:
            span: The node.
            params: Parameters that each iteration has values for.
            results: What an iteration gives.
            sizes: Names of size variables that each iteration has values for, or checks.
            computed: Values that are computed before the loop and have no name in the model, such
                as a size that an earlier loop defines.
        """
        own, outside = frozenset(sizes), self.values() | {*computed}
        with guards_apart():  # those of the body are known
            outlined = outline(params, results, outside=outside, hoist=True, sizes=own)
        return self._added(f"{span.name or span.op} body", outlined.function), outlined.captured

    def choose(
        self,
        builder: Builder,
        condition: Expr,
        branches: tuple[Branch, Branch],
        computed: Iterable[Expr] = (),
    ) -> tuple[Expr, ...]:
        """Return the results of a call that carries out one of two branches.

        Their types are equal, or differ in sizes: each size becomes a variable that the chosen
        branch decides.

        Args:
            builder: The node.
            condition: One bool.
            branches: What they give.
            computed: Values of the node itself that are computed before the choice.
        """
        span, known = builder.span, builder.folder.run_sizes
        outside = self.values() | known.definers | {*computed}
        types, pairs = _joined_types(branches, known)
        results = [
            [*(builder.size_tensor(pair[n]) for pair in pairs.values()), *branch.results]
            for n, branch in enumerate(branches)
        ]
        (then, orelse), captured = self._branches(span, results, outside)
        guards: list[tuple[int | str, ...]] = []
        for branch in branches:
            # What steps compute is compared where it is computed, which only the branch does.
            late = [g for g in branch.guards if not known.names.isdisjoint(g.variables())]
            require_all(late)
            guards.append(control.flat_guards([g for g in branch.guards if g not in late]))
        attrs = control.If.Attrs(
            then=then,
            orelse=orelse,
            results=(*(control.SIZE for _ in pairs), *types),
            sizes=extents(tuple(pairs)),
            then_guards=guards[0],
            else_guards=guards[1],
        )
        made = call(control.If, condition, *captured, attrs=attrs, span=span)
        fields = [get_item(made, index, span=span) for index in range(len(attrs.results))]
        for size, field in zip(pairs, fields, strict=False):
            known.define_result(size, field)
        return tuple(fields[len(pairs) :])

    def _branches(
        self, span: Span, branches: Sequence[Sequence[Expr]], outside: set[Expr]
    ) -> tuple[list[str], tuple[Expr, ...]]:
        """Make branches functions; return their names and the values that all of them capture."""
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


def fit_together(a: Branch, b: Branch) -> bool:
    """Whether results agree in type; where sizes are open, in rank and element type."""
    types = [[value.type for value in branch.results] for branch in (a, b)]
    if types[0] == types[1] or not is_collecting():
        return types[0] == types[1]
    pairs = zip(a.results, b.results, strict=True)
    kinds = [[(tensor_type(x).rank, tensor_type(x).dtype) for x in pair] for pair in pairs]
    return all(one == other for one, other in kinds)


def as_declared(
    branches: tuple[Branch, Branch], declared: Sequence[ValueInfo], is_repeated: bool
) -> list[Branch]:
    """Return those of two branches that give what a graph declares of its outputs.

    Where it contradicts both of a node that ``is_repeated``, that is the one for more sizes.
    """
    fitting = [branch for branch in branches if _fits(branch, declared)]
    contradicted = not any(_fits_open(branch, declared) for branch in fitting)
    return [branches[1]] if is_repeated and contradicted else fitting


def warn_of_choice(text: str, branch: Branch) -> None:
    """Say for which sizes of inputs one of two branches is compiled alone, if it names any.

    What it asks of others, as that they are not 1, a run that breaks it says.
    """
    sizes = "; ".join(
        f"{guard.left} = {guard.right}"
        for guard in branch.guards
        if isinstance(guard.left, Dim) and guard.left.is_variable
    )
    if sizes:
        message = (
            f"{text}: it is compiled for the declared outputs alone, where {sizes};"
            " other sizes need --shape"
        )
        warnings.warn(message, ModelWarning, stacklevel=2)


def _fits(branch: Branch, declared: Sequence[ValueInfo]) -> bool:
    """Whether results have the ranks that a graph declares of its outputs."""
    return all(
        info.type is None or info.type.rank == tensor_type(value).rank
        for value, info in zip(branch.results, declared, strict=True)
    )


def _fits_open(branch: Branch, declared: Sequence[ValueInfo]) -> bool:
    """Whether results of the declared ranks are open where the graph declares an open size."""
    pairs = [
        (info.type.shape, tensor_type(value).shape)
        for value, info in zip(branch.results, declared, strict=True)
        if info.type is not None
    ]
    return not any(
        isinstance(wanted, Dim) and isinstance(size, int)
        for shapes in pairs
        for wanted, size in zip(*shapes, strict=True)
    )


def _joined_types(
    branches: tuple[Branch, Branch], known: RunSizes
) -> tuple[list[TensorType], dict[Dim, tuple[Size, Size]]]:
    """Return the types of what one of two branches gives, and variables for sizes that differ."""
    variables: dict[tuple[Size, Size], Dim] = {}
    types: list[TensorType] = []
    for a, b in zip(branches[0].results, branches[1].results, strict=True):
        shape: list[Size] = []
        for pair in zip(tensor_type(a).shape, tensor_type(b).shape, strict=True):
            if pair[0] != pair[1] and pair not in variables:
                variables[pair] = known.new_name("if")
            shape.append(variables.get(pair, pair[0]))
        types.append(tensor_type(a).with_shape(shape))
    return types, {size: pair for pair, size in variables.items()}


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
            "branches give values of different ranks, and no size selects one",
            where=str(span),
        )
    left, right = (size if isinstance(size, Dim) else int(size) for size in known)
    why = f"{span}: only one branch fits what follows"
    if is_true:
        return (Guard(left, right, why),)
    difference = left - right
    return (Guard(minimum(difference * difference, 1), 1, why),)
