# SPDX-License-Identifier: Apache-2.0
"""Planning where compiled pieces take sizes that only the run knows.

Inputs of open size are variables of pieces. So are the results of a step whose rank is known: sizes
that the step shows are size variables. Graphs inside steps are planned like the model.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np
from msgspec.structs import replace

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import Call, Expr, Function
from intarsia_ir.graph.guards import COMPUTED, Guard, RequiredSizes, collecting_guards
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.size_scopes import defined_sizes
from intarsia_ir.graph.types import Dim, Size, TensorType
from intarsia_ir.graph.walk import post_order
from intarsia_ir.ops.shape import Concatenate
from intarsia_runtime.errors import ModelError, TypeRuleError, UnsupportedError

from ..builder import STATIC_HINT
from ..context import Diverging
from ..graph import Graph, Model, Node, ValueInfo
from ..importer import ImportScope, live_names
from ..kernels import OWN_DOMAIN
from ..names import free_names, operand_names
from .evaluator import runs_by_converter
from .inner import BRANCHES, Body, as_graph, is_profitable, plan_control
from .pieces import plain_variables
from .planner import Planner
from .program import DynamicModel
from .results import Operands, result_types

MOST_BODIES = 256  # graphs inside nodes that are planned, each round of a loop's body counted
MOST_DEPTH = 6  # of graphs inside each other
MOST_TAILS = 3  # branches inside each other that the rest of a graph becomes a part of


class OpenPlanner(Planner):
    """Plans a model, or a graph inside one, for sizes that only the run knows.

    Args:
        model: The model; its graph is the one that is planned.
        inputs: As of :class:`Importer`.
        fixed: As of :class:`Importer`.
        hosted: Names of nodes that cannot be compiled, with the reason.
        outer: The planner of the graph around this one.
    """

    def __init__(
        self,
        model: Model,
        inputs: Mapping[str, TensorType],
        fixed: Mapping[str, np.ndarray],
        hosted: Mapping[str, str] = MappingProxyType({}),
        outer: OpenPlanner | None = None,
    ) -> None:
        super().__init__(model, inputs, fixed)
        self._hosted = hosted
        self._given: dict[str, TensorType] = {}
        self._depth = 0
        self._numbers: Iterator[int] = itertools.count()
        self._tails = 0
        self._guards: dict[Guard, None] = {}
        self._placed: set[Guard] = set()
        self._piece_sizes: frozenset[str] = frozenset()  # sizes that pieces know
        if outer is not None:
            self._depth, self._numbers = outer._depth + 1, outer._numbers
            self._tails = outer._tails
            self._shown = dict(outer._shown)
            self._types = {}  # ONNX infers those of the model's own graph

    def plan(self) -> IRModule | DynamicModel:
        """Import the entry graph; as :meth:`Planner.plan`."""
        with collecting_guards() as self._guards:
            return super().plan()

    def body(
        self, graph: Graph, formals: Sequence[TensorType | None], scope: ImportScope
    ) -> Body | None:
        """Plan a graph inside a node; ``None`` if it cannot be imported.

        Args:
            graph: The graph.
            formals: Types of its inputs, of those of known rank.
            scope: Values around it.
        """
        number = next(self._numbers)
        if self._depth >= MOST_DEPTH or number >= MOST_BODIES:
            return None
        infos = [replace(i, type=t) for i, t in zip(graph.inputs, formals, strict=False)]
        infos += graph.inputs[len(infos) :]
        types = {info.name: info.type for info in infos if info.type is not None}
        fixed: dict[str, np.ndarray] = {}
        for name in free_names(graph):
            expr = self._found(name, scope)
            value = None if expr is None else self._folder.value(expr)
            infos.append(ValueInfo(name, None))
            if value is not None:
                fixed[name] = value
            elif expr is not None and isinstance(expr.type, TensorType):
                types[name] = expr.type
        whole = replace(graph, inputs=tuple(infos))
        inner = OpenPlanner(replace(self._model, graph=whole), types, fixed, self._hosted, self)
        try:
            with collecting_guards() as inner._guards:
                return inner.planned(graph, f"body{number}")
        except (UnsupportedError, TypeRuleError, ModelError):
            return None

    def planned(self, graph: Graph, prefix: str) -> Body:
        """Import a graph inside a node, whose inputs are this planner's.

        Raises:
            IntarsiaError: It cannot be imported for these types.
        """
        scope, _ = self._begun(self._model.graph)
        results = self._import(scope)
        if self._refused:
            raise self._refused[0]
        types = [
            value.type if value is not None and isinstance(value.type, TensorType) else None
            for value in results
        ]
        types = [
            None if scope.stored_type(info.name) is not None else type_
            for info, type_ in zip(graph.outputs, types, strict=True)
        ]
        model = self._program(scope, prefix)
        if not (is_profitable(model.pieces) or self._nested):
            return Body(graph, {}, {}, types)
        return Body(as_graph(graph, model.program), model.pieces, model.reasons, types)

    def _found(self, name: str, scope: ImportScope) -> Expr | None:
        """Return a plain value that compiled code can take; ``None`` for what only steps know."""
        if name in self._late or name in self._known or scope.stored_type(name) is not None:
            return None
        return scope.find(name)

    def _import(self, scope: ImportScope, start: int = 0) -> list[Expr | None]:
        """Import a graph; what follows a branch that decides a rank becomes a part of the branch.

        An exporter writes ``If`` around a ``Squeeze``, say. Its result has one rank or another, so
        that nothing could be compiled behind it; in each branch for itself all can be.
        """
        if start or scope.graph is not self._model.graph:
            return super()._import(scope, start)
        graph = scope.graph
        used = live_names(graph)
        for place, node in enumerate(graph.nodes):
            if used.isdisjoint(node.outputs):
                continue
            before = len(self._steps)
            results = self._convert(node, scope, used)
            rest = graph.nodes[place + 1 :]
            if node.op_type == "If" and rest and len(self._steps) > before:
                is_late = any(name in self._late for name in node.outputs if name in used)
                if is_late and self._depth < MOST_DEPTH and self._tails < MOST_TAILS:
                    self._with_rest(node, rest, scope)
                    break
            for name, value in zip(node.outputs, results, strict=False):
                scope.values[name] = value
        return [scope.find(info.name) for info in graph.outputs]

    def _with_rest(self, node: Node, rest: Sequence[Node], scope: ImportScope) -> None:
        """Put the other nodes of the graph into the branches of an ``If``, the last step."""
        self._tails += 1
        self._steps.pop()
        self._step_levels.pop()
        for name in node.outputs:
            self._late.pop(name, None)
        known = {*scope.values, *scope.graph.initializers}
        outputs = tuple(info for info in scope.graph.outputs if info.name not in known)
        attrs = dict(node.attrs)
        for name in BRANCHES:
            branch = attrs[name]
            assert isinstance(branch, Graph)  # the reader has checked it
            attrs[name] = _continued(branch, node, rest, outputs)
        names = tuple(info.name for info in outputs)
        whole = replace(node, outputs=names, attrs=attrs)
        results = self._postponed(whole, scope, operand_names(whole))
        scope.values.update(zip(names, results, strict=True))

    def _program(self, scope: ImportScope, prefix: str = "") -> DynamicModel:
        model = super()._program(scope, prefix)
        for guard in self._guards:
            if guard not in self._placed and not self._is_unused(guard):
                raise UnsupportedError(
                    f"{guard.why}: no piece knows {guard.left} and {guard.right}"
                )
        return model

    def _guarded(self, pieces: dict[int, Function]) -> dict[int, Function]:
        """Let the first piece that comes after all sizes of a guard know them.

        What asked for the guard has these sizes in its type, so it is in this piece or a later one.
        """
        known = {level: _known_sizes(piece) for level, piece in pieces.items()}
        for guard in self._guards:
            sizes = guard.variables()
            if any(sizes <= names for names in known.values()):
                continue
            for level, piece in pieces.items():
                missing = sorted(sizes - known[level])
                if all(self._is_shown_at(level, name) for name in missing):
                    added = dict.fromkeys(self._shown[name] for name in missing)
                    params = tuple(dict.fromkeys((*piece.params, *added)))
                    pieces[level] = Function(params, piece.body, piece.output_names)
                    known[level] = _known_sizes(pieces[level])
                    break
        self._piece_sizes = frozenset[str]().union(*known.values())
        return pieces

    def _is_shown_at(self, level: int, size: str) -> bool:
        """Whether a value of the program that is there at a level has this size."""
        return size in self._shown and self._levels.of.get(self._shown[size], 0) <= level

    def _is_unused(self, guard: Guard) -> bool:
        """Whether no piece computes a size that the model itself would: nothing depends on it."""
        return any(COMPUTED in name for name in guard.variables() - self._piece_sizes)

    def _module(self, piece: Function, scope: ImportScope) -> IRModule:
        """Return a piece as a module that requires what must hold of the sizes it knows."""
        module = super()._module(piece, scope)
        known = _known_sizes(piece)
        guards = tuple(guard for guard in self._guards if guard.variables() <= known)
        self._placed.update(guards)
        return module.with_attr(RequiredSizes, RequiredSizes(guards)) if guards else module

    def _takes(self, type_: TensorType) -> bool:
        return True

    def _tried(self, node: Node, scope: ImportScope, used: set[str]) -> Sequence[Expr | None]:
        """Convert a node; that it cannot be for open sizes is a problem like others."""
        before = len(self._guards)
        try:
            results = super()._tried(node, scope, used)
        except Diverging as fork:
            self._problems.append(fork)
            results = [None] * len(node.outputs)
        except TypeRuleError as error:
            self._problems.append(UnsupportedError(error.message, where=str(node.span)))
            results = [None] * len(node.outputs)
        if self._problems or self._unknown:
            for guard in [*self._guards][before:]:
                del self._guards[guard]
            return results
        why = self._hosted.get(node.span.name)
        if why is None:
            return results
        pairs = zip(node.outputs, results, strict=False)
        types = ((name, value.type) for name, value in pairs if value is not None)
        self._given.update((n, type_) for n, type_ in types if isinstance(type_, TensorType))
        self._problems.append(UnsupportedError(why, where=str(node.span), hint=STATIC_HINT))
        return [None] * len(node.outputs)

    def _may_wait(self, node: Node, operands: Sequence[str], scope: ImportScope) -> bool:
        if not runs_by_converter(node):
            return False
        found = (self._found(name, scope) for name in operands)
        types = (expr.type for expr in found if expr is not None)
        return any(isinstance(type_, TensorType) and not type_.is_static for type_ in types)

    def _resolved(self, node: Node, scope: ImportScope) -> tuple[Node, Mapping[str, TensorType]]:
        """Return a step with the graphs inside it planned, and the types of its results."""
        known = {**self._inferred(), **self._given}
        if node.domain not in ("", OWN_DOMAIN) or node.span.name in self._hosted:
            return node, known
        found = [self._found(name, scope) if name else None for name in node.inputs]
        types = [
            expr.type if expr is not None and isinstance(expr.type, TensorType) else None
            for expr in found
        ]
        planned = plan_control(node, types, partial(self.body, scope=scope), self._is_shown)
        if planned is not None:
            attrs = {**node.attrs, **{key: body.graph for key, body in planned.bodies.items()}}
            for body in planned.bodies.values():
                self._nested.update(body.pieces)
                self._reasons.update(body.reasons)
            return replace(node, attrs=attrs), planned.types
        rows = result_types(node, Operands(types, partial(self._sizes_of, found)))
        inferred = {name: known[name] for name in node.outputs if name in known}
        return node, {**inferred, **rows, **{n: t for n, t in inferred.items() if t.is_static}}

    def _is_shown(self, size: Size) -> bool:
        return isinstance(size, int) or size.variables() <= self._shown.keys()

    def _sizes_of(
        self, operands: Sequence[Expr | None], number: int
    ) -> Sequence[Size | None] | None:
        """Return the sizes that an operand lists, ``None`` in the place of an unknown one."""
        expr = operands[number] if number < len(operands) else None
        if expr is None or not isinstance(expr.type, TensorType) or expr.type.rank != 1:
            return None
        if isinstance(expr, Call) and expr.op is Concatenate:
            parts = [self._sizes_of([part], 0) for part in expr.args]
            whole = [part for part in parts if part is not None]
            return [size for part in whole for size in part] if len(whole) == len(parts) else None
        found = self._folder.sizes(expr)
        if found is not None:
            return [size if isinstance(size, Dim) else int(size) for size in found]
        length = expr.type.shape[0]
        return [None] * length if isinstance(length, int) else None


def _known_sizes(piece: Function) -> frozenset[str]:
    """Return the size variables that the parameters of a piece show, and those that it computes."""
    shown = {name for param in piece.params for _, name in plain_variables(param.type)}
    return frozenset(shown).union(*(defined_sizes(node) for node in post_order(piece.body)))


def _continued(
    branch: Graph, node: Node, rest: Sequence[Node], outputs: tuple[ValueInfo, ...]
) -> Graph:
    """Return a branch of a node with the nodes that follow it, and their results."""
    pairs = zip(branch.outputs, node.outputs, strict=False)
    named = tuple(
        Node("Identity", "", (info.name,), (name,), {}, Span(name, "Identity"))
        for info, name in pairs
        if name and name != info.name
    )
    infos = tuple(ValueInfo(info.name, None) for info in outputs)
    return replace(branch, outputs=infos, nodes=(*branch.nodes, *named, *rest))
