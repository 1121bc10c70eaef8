# SPDX-License-Identifier: Apache-2.0
"""Cut a model into what can be compiled now and what must wait for the values of a run.

Nodes are imported in order, as for a static model. A node that cannot be imported because it
depends on run time, or for which there is only a kernel on the host, becomes a step of a program,
and so does every node that uses its results. The rest is one compiled piece, which runs first.
A node of which all operands are known is carried out at once.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from ....dtype import DType
from ....errors import IntarsiaError, UnsupportedError
from ....ir.expr import Expr, Function, Var, constant, make_tuple
from ....ir.module import IRModule
from ....ir.types import TensorType
from ....ir.walk import post_order
from ..api import input_types, place_error
from ..builder import STATIC_HINT
from ..converters import CONVERTERS
from ..graph import Bodies, Graph, Model, Node
from ..importer import Importer, Scope
from ..kernels import KERNELS
from ..reader import MAX_MODEL_BYTES, read_model
from .evaluator import Evaluator
from .program import DynamicModel, PieceStep, Program

if TYPE_CHECKING:
    from ..kernels import Value
    from ..reader import ModelSource

PIECE = "piece0"
RANDOM = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
"""Operators that give something else at each run, so that none is carried out beforehand."""


def plan_onnx(
    model: ModelSource,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    max_bytes: int = MAX_MODEL_BYTES,
) -> IRModule | DynamicModel:
    """Import a model of which a part may only be known at run time.

    Args:
        model: Path, serialised bytes, or ``onnx.ModelProto`` (which is not changed).
        shapes: Shape of an input by its name. Inputs whose size stays unknown are values of the
            program, and what depends on them is no part of a compiled piece.
        constants: Value of an input by its name; such an input is no input of the result.
        max_bytes: Limit on the size of the model file itself.

    Returns:
        A module if nothing depends on run time, else a program with its piece.

    Raises:
        ModelError: The file is no model, or a broken one.
        UnsupportedError: A node that can be neither compiled nor carried out.
        UsageError: ``shapes`` or ``constants`` do not fit the model.
        ResourceError: The model is too large.
    """
    read = read_model(model, max_bytes=max_bytes, any_value=True)
    fixed = {} if constants is None else constants
    try:
        return _Planner(read, input_types(read.graph, shapes or {}, fixed), fixed).plan()
    except IntarsiaError as error:
        error.where = place_error(read, error.where)
        raise


class _Planner(Importer):
    """Imports what it can and notes the other nodes as steps."""

    def __init__(
        self,
        model: Model,
        inputs: Mapping[str, TensorType],
        fixed: Mapping[str, np.ndarray],
    ) -> None:
        super().__init__(model, CONVERTERS, inputs, fixed)
        self._steps: list[Node] = []
        self._reasons: dict[str, str] = {}
        self._refused: list[UnsupportedError] = []
        self._known: dict[str, np.ndarray] = {}
        self._late: set[str] = set()
        self._evaluator = Evaluator(self._own_bodies)

    def _own_bodies(self) -> Bodies:
        return self._model.bodies

    def plan(self) -> IRModule | DynamicModel:
        """Import the entry graph.

        Raises:
            UnsupportedError: Nodes that can be neither compiled nor carried out.
            ModelError: A node that breaks ONNX's rules.
        """
        graph = self._model.graph
        scope = Scope(graph, None, self._model.opset)
        params: list[Var] = []
        for info in graph.inputs:
            if info.name in self._fixed:
                scope.values[info.name] = constant(self._fixed[info.name], name=info.name)
                continue
            type_ = self._inputs.get(info.name)
            if type_ is None or not type_.is_static:
                self._late.add(info.name)
                continue
            params.append(Var(info.name, type_))
            scope.values[info.name] = params[-1]
        for name, data in graph.initializers.items():
            if not _is_plain(data):
                self._known[name] = data
        results = self._import(scope)
        if self._refused:
            self._problems = self._refused
            raise self._report()
        values = [value for value in results if value is not None]
        if not self._steps and len(values) == len(results):
            body = values[0] if len(values) == 1 else make_tuple(values)
            names = tuple(info.name for info in graph.outputs)
            return IRModule.from_function(Function(tuple(params), body, names))
        return self._program(scope, params)

    def _convert(self, node: Node, scope: Scope, used: set[str]) -> Sequence[Expr | None]:
        if scope.outer is not None or scope.graph is not self._model.graph:
            return super()._convert(node, scope, used)
        operands = _operands(node)
        late = next((name for name in operands if name in self._late), "")
        if late:
            self._note(node, f"'{late}' is only known at run time")
            return self._postponed(node)
        problems: list[UnsupportedError] = []
        if not any(name in self._known for name in operands):
            results = super()._convert(node, scope, used)
            problems, self._problems = self._problems, []
            unknown, self._unknown = self._unknown, {}
            wanted = [
                value for name, value in zip(node.outputs, results, strict=False) if name in used
            ]
            if not problems and not unknown and all(value is not None for value in wanted):
                return results
            if unknown:
                problems.append(self._unknown_problem(unknown))
        return self._by_kernel(node, scope, operands, problems)

    def _unknown_problem(
        self, unknown: Mapping[tuple[str, str], list[str]]
    ) -> UnsupportedError:
        """Name an operator that has no converter; of one that has a kernel, say that."""
        for (domain, op_type), names in unknown.items():
            if (domain, op_type) not in KERNELS:
                return UnsupportedError(self._describe(domain, op_type, names))
        op_type = next(iter(unknown))[1]
        return UnsupportedError(f"{op_type} is carried out on the host", hint=STATIC_HINT)

    def _by_kernel(
        self, node: Node, scope: Scope, operands: Sequence[str], problems: list[UnsupportedError]
    ) -> Sequence[Expr | None]:
        """Carry a node out now if its operands are known, else at run time; refuse if neither."""
        has_kernel = (node.domain, node.op_type) in KERNELS
        waits = any(problem.hint == STATIC_HINT for problem in problems)
        if problems and not has_kernel and not waits:
            self._refused += problems
            return self._postponed(node, count=False)
        self._check_runnable(node)
        values = self._values(scope, operands)
        if values is not None and node.op_type not in RANDOM:
            return self._carried_out(node, values)
        why = "; ".join(problem.message for problem in problems)
        self._note(node, why or "it is carried out on the host")
        return self._postponed(node)

    def _values(self, scope: Scope, names: Sequence[str]) -> dict[str, Value] | None:
        """Return the values of names that are all known, else ``None``."""
        values: dict[str, Value] = {}
        for name in names:
            found = self._known.get(name)
            if found is None:
                expr = scope.find(name)
                found = None if expr is None else self._folder.value(expr)
            if found is None:
                return None
            values[name] = found
        return values

    def _carried_out(self, node: Node, values: dict[str, Value]) -> Sequence[Expr | None]:
        results = self._evaluator.node(node, ChainMap(values), self._model.opset)
        found: list[Expr | None] = []
        for name, value in zip(node.outputs, results, strict=False):
            if isinstance(value, np.ndarray) and _is_plain(value):
                found.append(constant(value, span=node.span))
                continue
            found.append(None)
            if isinstance(value, np.ndarray):
                self._known[name] = value
            elif name:
                self._postpone_known(node, values)
        return found

    def _postpone_known(self, node: Node, values: Mapping[str, Value]) -> None:
        """Let a node that gives a sequence run in the program all the same."""
        self._known.update({n: v for n, v in values.items() if isinstance(v, np.ndarray)})
        self._note(node, "it gives a sequence or an optional")
        self._postponed(node)

    def _postponed(self, node: Node, *, count: bool = True) -> Sequence[Expr | None]:
        if count:
            self._check_runnable(node)
            self._steps.append(node)
        self._late.update(name for name in node.outputs if name)
        return [None] * len(node.outputs)

    def _check_runnable(self, node: Node) -> None:
        """Note a node, or one in a graph inside it, that cannot be carried out."""
        for inner in _all_nodes(node):
            key = (inner.domain, inner.op_type)
            if key in KERNELS or (not inner.domain and inner.op_type in CONVERTERS):
                continue
            if not self._model.bodies.knows(inner, self._model.opset):
                text = self._describe(inner.domain, inner.op_type, [inner.span.name])
                self._refused.append(UnsupportedError(text))

    def _note(self, node: Node, why: str) -> None:
        self._reasons[node.span.name] = why

    def _program(self, scope: Scope, params: Sequence[Var]) -> DynamicModel:
        """Put the piece and the steps together."""
        graph = self._model.graph
        outputs = tuple(info.name for info in graph.outputs)
        needed = dict.fromkeys(
            [name for step in self._steps for name in _operands(step)] + list(outputs)
        )
        constants: dict[str, np.ndarray] = {}
        aliases: dict[str, str] = {}
        computed: dict[str, Expr] = {}
        for name in needed:
            if name in self._known:
                constants[name] = self._known[name]
            elif name not in self._late:
                expr = scope.find(name)
                value = None if expr is None else self._folder.value(expr)
                if value is not None:
                    constants[name] = value
                elif isinstance(expr, Var):
                    aliases[name] = expr.name
                elif expr is not None:
                    computed[name] = expr
        aliases = {name: source for name, source in aliases.items() if name != source}
        piece = _piece(params, computed)
        pieces = {} if piece is None else {PIECE: IRModule.from_function(piece)}
        steps: list[PieceStep | Node] = list(self._steps)
        if piece is not None:
            names = tuple(param.name for param in piece.params)
            steps.insert(0, PieceStep(PIECE, names, piece.output_names))
        program = Program(
            self._model.opset,
            tuple(
                replace(info, type=self._inputs.get(info.name))
                for info in graph.inputs
                if info.name not in self._fixed
            ),
            outputs,
            tuple(steps),
            MappingProxyType(constants),
            MappingProxyType(aliases),
        )
        return DynamicModel(program, MappingProxyType(pieces), MappingProxyType(self._reasons))


def _piece(params: Sequence[Var], computed: Mapping[str, Expr]) -> Function | None:
    """Make the function of all values that the program takes from compiled code."""
    if not computed:
        return None
    values = tuple(computed.values())
    body = values[0] if len(values) == 1 else make_tuple(values)
    used = {node for node in post_order(body) if isinstance(node, Var)}
    return Function(tuple(p for p in params if p in used), body, tuple(computed))


def _is_plain(array: np.ndarray) -> bool:
    """Whether compiled functions take arrays of this element type."""
    return array.dtype.name in {dtype.value for dtype in DType}


def _operands(node: Node) -> list[str]:
    """Names that a node takes: its inputs, and what graphs inside it use from outside."""
    names = dict.fromkeys(name for name in node.inputs if name)
    for value in node.attrs.values():
        if isinstance(value, Graph):
            names.update(dict.fromkeys(_free_names(value)))
    return list(names)


def _free_names(graph: Graph) -> list[str]:
    """Names that a graph, or one inside it, takes from around it."""
    own = {info.name for info in graph.inputs} | set(graph.initializers)
    free: dict[str, None] = {}
    for node in graph.nodes:
        free.update(dict.fromkeys(name for name in _operands(node) if name not in own))
        own.update(node.outputs)
    free.update(dict.fromkeys(info.name for info in graph.outputs if info.name not in own))
    return list(free)


def _all_nodes(node: Node) -> Iterable[Node]:
    """A node and all nodes of graphs inside it."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        for value in current.attrs.values():
            if isinstance(value, Graph):
                pending.extend(value.nodes)
