# SPDX-License-Identifier: Apache-2.0
"""Cut a model into what can be compiled now and what must wait for the values of a run.

Nodes are imported in order, as for a static model. A node that cannot be imported because it
depends on run time, or for which there is only a kernel on the host, becomes a step of a program,
and so does every node that uses its results, unless their types are known all the same: those go on
as variables of compiled code. What is compiled is cut into pieces that run between the steps.
A node of which all operands are known is carried out at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from intarsia_ir.budget import budget
from intarsia_ir.diagnostics import NO_SPAN, Span
from intarsia_ir.graph.expr import Expr, Function, Var, constant, make_tuple
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_runtime.artifact.plan import NARROW
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError

from ..builder import STATIC_HINT
from ..context import NeverSupported, NodeContext
from ..converters import TENSOR_CONVERTERS
from ..draws import DRAWING
from ..graph import Bodies, Graph, Model, Node, ValueInfo
from ..importer import Importer, ImportScope, with_stored
from ..kernels import KERNELS, OWN_DOMAIN
from ..names import all_nodes, converter_name, operand_names
from ..tensors import named_dtype
from .evaluator import Evaluator, moves_strings, no_branch, runs_by_converter
from .pieces import Levels, cut_pieces, plain_variables
from .program import DynamicModel, PieceStep, Program, Step, typed_info
from .tables import TABLES

if TYPE_CHECKING:
    from ..kernels import Value

MAX_PIECES = 32  # each is an artifact of its own; what comes later runs node by node
MOST_BODIES = 256  # graphs inside nodes that are planned, each round of a loop's body counted
MOST_DEPTH = 4  # of graphs inside each other
NOT_TENSORS = ("seq(", "optional(", "map")


class Planner(Importer):
    """Imports what it can and notes the other nodes as steps."""

    def __init__(
        self,
        model: Model,
        inputs: Mapping[str, TensorType],
        fixed: Mapping[str, np.ndarray],
    ) -> None:
        super().__init__(model, TENSOR_CONVERTERS, inputs, fixed)
        self._folder.draws = None
        self._conditions = self._folder.conditions = list[tuple[Expr, Span, str]]()
        self._shown: dict[str, Var] = {}
        self._nested: dict[str, IRModule] = {}
        self._believes = False  # the run shows what values are
        self._steps: list[Node] = []
        self._reasons: dict[str, str] = {}
        self._refused: list[UnsupportedError] = []
        self._known: dict[str, np.ndarray] = {}
        self._late: dict[str, int] = {}
        self._levels = Levels()
        self._step_levels: list[int] = []
        self._types: Mapping[str, TensorType] | None = None
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
        scope, params = self._begun(graph)
        results = self._import(scope)
        if self._refused:
            self._problems = self._refused
            raise self._report()
        values = [value for value in results if value is not None]
        is_static = all(scope.values[info.name] is not None for info in graph.inputs)
        if not self._steps and is_static and len(values) == len(results):
            body = values[0] if len(values) == 1 else make_tuple(values)
            names = tuple(info.name for info in graph.outputs)
            return with_stored(Function(tuple(params), body, names), scope)
        return self._program(scope)

    def _takes(self, type_: TensorType) -> bool:
        """Whether compiled pieces take values of a type."""
        return type_.is_static

    def _tried(self, node: Node, scope: ImportScope, used: set[str]) -> Sequence[Expr | None]:
        """Convert a node; what cannot be is noted."""
        return super()._convert(node, scope, used)

    def _may_wait(self, node: Node, operands: Sequence[str], scope: ImportScope) -> bool:
        """Whether a node that cannot be compiled may be one that the run's values make possible."""
        return False

    def _resolved(self, node: Node, scope: ImportScope) -> tuple[Node, Mapping[str, TensorType]]:
        """Return the step that a node becomes, and the types of its results that are known."""
        return node, self._inferred()

    def _begun(self, graph: Graph) -> tuple[ImportScope, list[Var]]:
        """Return the values that are there before the first node, and the variables among them."""
        scope = ImportScope(graph, None, self._model.opset)
        params: list[Var] = []
        for info in graph.inputs:
            if info.name in self._fixed:
                scope.values[info.name] = constant(self._fixed[info.name], name=info.name)
                continue
            type_ = self._inputs.get(info.name)
            if type_ is None or not self._takes(type_):
                self._late[info.name] = 0
                scope.values[info.name] = None  # a result may be an input as it is
                continue
            params.append(self._variable(info.name, type_, 0))
            scope.values[info.name] = params[-1]
            if info.stored:
                scope.stored[info.name] = named_dtype(info.stored)
        for name, data in graph.initializers.items():
            if not _is_plain(data) and data.dtype.name not in NARROW:
                self._known[name], scope.values[name] = data, None
        return scope, params

    def _variable(self, name: str, type_: TensorType, level: int, span: Span = NO_SPAN) -> Var:
        var = Var(name, type_, span)
        self._levels.of[var] = level
        for _, size in plain_variables(type_):
            is_first = self._shown.setdefault(size, var) is var
            if is_first and level and size not in self._folder.run_sizes.definitions:
                self._levels.sizes[size] = level
        return var

    def _convert(self, node: Node, scope: ImportScope, used: set[str]) -> Sequence[Expr | None]:
        if scope.outer is not None or scope.graph is not self._model.graph:
            return super()._convert(node, scope, used)
        operands = operand_names(node)
        late = next((name for name in operands if name in self._late), "")
        if late:
            self._check_kind(node, operands)
            self._note(node, f"'{late}' is only known at run time")
            return self._postponed(node, scope, operands)
        problems: list[UnsupportedError] = []
        if not any(name in self._known for name in operands):
            before = len(self._conditions)
            results = self._tried(node, scope, used)
            problems, self._problems = self._problems, []
            unknown, self._unknown = self._unknown, {}
            wanted = [
                value for name, value in zip(node.outputs, results, strict=False) if name in used
            ]
            if not problems and not unknown and all(value is not None for value in wanted):
                return results
            del self._conditions[before:]
            if unknown:
                problems.append(self._unknown_problem(unknown))
        return self._by_kernel(node, scope, operands, problems)

    def _unknown_problem(self, unknown: Mapping[tuple[str, str], list[str]]) -> UnsupportedError:
        """Name an operator that has no converter; of one that has a kernel, say that."""
        for (domain, op_type), names in unknown.items():
            if (domain, op_type) not in KERNELS:
                return UnsupportedError(self._describe(domain, op_type, names))
        op_type = next(iter(unknown))[1]
        return UnsupportedError(f"{op_type} runs on the host", hint=STATIC_HINT)

    def _by_kernel(
        self,
        node: Node,
        scope: ImportScope,
        operands: Sequence[str],
        problems: list[UnsupportedError],
    ) -> Sequence[Expr | None]:
        """Carry a node out now if its operands are known, else at run time; refuse if neither."""
        has_kernel = (node.domain, node.op_type) in KERNELS
        waits = any(problem.hint == STATIC_HINT for problem in problems)
        never = any(isinstance(problem, NeverSupported) for problem in problems)
        waits = not never and (waits or self._may_wait(node, operands, scope))
        if problems and not has_kernel and not waits:
            self._refused += problems
            self._late.update(dict.fromkeys((name for name in node.outputs if name), 0))
            return [None] * len(node.outputs)
        values = self._values(scope, operands)
        if values is not None and node.op_type not in DRAWING:
            self._check_runnable(node)
            if not self._refused:
                return self._carried_out(node, scope, values)
        tabled = self._tabled(node, scope)
        if tabled is not None:
            return self._postponed(tabled, scope, tabled.inputs)
        why = "; ".join(problem.message for problem in problems)
        self._note(node, why or "it runs on the host")
        return self._postponed(node, scope, operands)

    def _tabled(self, node: Node, scope: ImportScope) -> Node | None:
        """Compile what can be of a node, and return the node that makes its result of that."""
        convert = None if node.domain else TABLES.get(node.op_type)
        if convert is None:
            return None
        args = [scope.find(name) if name else None for name in node.inputs]
        table = convert(NodeContext(node, args, scope.opset, self._folder, set(), no_branch))
        if table is None:
            return None
        parts = {f"{node.outputs[0]}#{n}": part for n, part in enumerate(table.parts)}
        scope.values.update(parts)
        return replace(node, op_type=table.kernel, domain=OWN_DOMAIN, inputs=tuple(parts))

    def _values(self, scope: ImportScope, names: Sequence[str]) -> dict[str, Value] | None:
        """Return the values of names that are all known, else ``None``."""
        values: dict[str, Value] = {}
        for name in names:
            found = self._known.get(name)
            if found is None:
                expr = scope.find(name)
                found = None if expr is None else self._folder.value(expr)
                found = None if found is None else _unstored(found, scope.stored_type(name))
            if found is None:
                return None
            values[name] = found
        return values

    def _carried_out(
        self, node: Node, scope: ImportScope, values: dict[str, Value]
    ) -> Sequence[Expr | None]:
        with budget().folding("carrying out nodes of constants", keeps=True):
            results = self._evaluator.node(node, dict(values), self._model.opset)
        found: list[Expr | None] = []
        for name, value in zip(node.outputs, results, strict=False):
            if isinstance(value, np.ndarray) and _is_plain(value):
                found.append(constant(value, span=node.span))
                continue
            if isinstance(value, np.ndarray) and value.dtype.name in NARROW:
                found.append(constant(value.view(np.uint8), span=node.span))
                scope.stored[name] = value.dtype
                continue
            found.append(None)
            if isinstance(value, np.ndarray):
                self._known[name] = value
            elif name:
                self._note(node, "it gives a sequence or an optional")
                return self._postponed(node, scope, list(values))
        return found

    def _postponed(
        self,
        node: Node,
        scope: ImportScope,
        operands: Sequence[str],
        types: Mapping[str, TensorType] | None = None,
    ) -> Sequence[Expr | None]:
        """Make the node a step; results of known types go on as variables of compiled pieces."""
        self._check_runnable(node)
        if types is None:
            node, types = self._resolved(node, scope)
        level = max((self._level(name, scope) for name in operands), default=0)
        self._steps.append(node)
        self._step_levels.append(level)
        results: list[Expr | None] = []
        for name in node.outputs:
            type_ = types.get(name) if level < MAX_PIECES else None
            if type_ is None:
                self._late[name] = level
                results.append(None)
            else:
                results.append(self._variable(name, type_, level + 1, node.span))
        return results

    def _level(self, name: str, scope: ImportScope) -> int:
        """Return after which piece a value is there."""
        if name in self._late or name in self._known:
            return self._late.get(name, 0)
        expr = scope.find(name)
        return 0 if expr is None else self._levels.level(expr)

    def _inferred(self) -> Mapping[str, TensorType]:
        """Return the types of values that ONNX infers and that pieces can take."""
        if self._types is None:
            found = self._model.bodies.infer_types(self._inputs)
            self._types = {name: type_ for name, type_ in found.items() if self._takes(type_)}
        return self._types

    def _check_runnable(self, node: Node) -> None:
        """Note a node, or one in a graph inside it, that cannot be carried out."""
        for inner in all_nodes(node):
            key = (inner.domain, inner.op_type)
            if key in KERNELS or runs_by_converter(inner):
                continue
            if converter_name(inner) in TENSOR_CONVERTERS:
                text = f"operator '{inner.op_type}' cannot wait for values of the run"
                self._refused.append(
                    UnsupportedError(text, where=str(inner.span), hint=STATIC_HINT)
                )
            elif not self._model.bodies.knows(inner, self._model.opset):
                text = self._describe(inner.domain, inner.op_type, [inner.span.name])
                self._refused.append(UnsupportedError(text))

    def _check_kind(self, node: Node, operands: Sequence[str]) -> None:
        """Refuse an input that is no tensor of numbers where only those are taken."""
        moves = moves_strings(node)
        if (node.domain, node.op_type) in KERNELS:
            return
        for info in self._model.graph.inputs:
            texts = info.kind == "tensor(string)" and not moves
            special = texts or info.kind.startswith(NOT_TENSORS)
            if info.name in operands and special:
                self._refused.append(
                    UnsupportedError(
                        f"operator '{node.op_type}' does not take input '{info.name}', "
                        f"which is {info.kind}",
                        where=str(node.span),
                    )
                )

    def _note(self, node: Node, why: str) -> None:
        self._reasons[node.span.name] = why

    def _program(self, scope: ImportScope, prefix: str = "") -> DynamicModel:
        """Put the pieces, whose names get a prefix, and the steps together."""
        if self._steps or prefix:  # else there is nothing on the host that could
            self._check_conditions(scope)
        graph = self._model.graph
        outputs = tuple(info.name for info in graph.outputs)
        needed = dict.fromkeys(
            [name for step in self._steps for name in operand_names(step)] + list(outputs)
        )
        constants: dict[str, np.ndarray] = {}
        aliases: dict[str, str] = {}
        computed: dict[str, Expr] = {}
        for name in needed:
            if name not in scope.values and name not in graph.initializers:
                continue  # of the graph around this one
            if name in self._known:
                constants[name] = self._known[name]
            elif name not in self._late:
                expr = scope.find(name)
                value = None if expr is None else self._folder.value(expr)
                if value is not None:
                    constants[name] = _unstored(value, scope.stored_type(name))
                elif isinstance(expr, Var):
                    aliases[name] = expr.name
                elif expr is not None:
                    computed[name] = expr
        definitions = self._folder.run_sizes.definitions
        pieces = cut_pieces(computed, self._levels, self._shown, definitions)
        pieces = self._guarded(pieces)
        program = Program(
            self._model.opset,
            tuple(
                replace(info, type=self._inputs.get(info.name))
                for info in graph.inputs
                if info.name not in self._fixed
            ),
            outputs,
            self._ordered(pieces, prefix),
            MappingProxyType(constants),
            MappingProxyType({name: old for name, old in aliases.items() if name != old}),
        )
        modules = {f"{prefix}piece{n}": self._module(p, scope) for n, p in pieces.items()}
        modules.update(self._nested)
        infos = tuple(self._output(info, scope) for info in graph.outputs)
        reasons = MappingProxyType(self._reasons)
        return DynamicModel(program, MappingProxyType(modules), reasons, infos)

    def _check_conditions(self, scope: ImportScope) -> None:
        """Add the steps that end a run for which something does not hold."""
        for number, (holds, span, why) in enumerate(self._conditions):
            name = f"#holds{number}"
            scope.values[name] = holds
            attrs = {"of": str(span), "why": why}
            self._steps.append(Node("Require", OWN_DOMAIN, (name,), (), attrs, span))
            self._step_levels.append(self._levels.level(holds))

    def _guarded(self, pieces: dict[int, Function]) -> dict[int, Function]:
        """Return pieces that also take what they are to check of sizes."""
        return pieces

    def _module(self, piece: Function, scope: ImportScope) -> IRModule:
        """Return a piece as a module."""
        return with_stored(piece, scope)

    def _output(self, info: ValueInfo, scope: ImportScope) -> ValueInfo:
        """Return an output of the model as precisely as it is known."""
        late = info.name in self._late or info.name in self._known
        if late:
            return info
        stored = scope.stored_type(info.name)
        found = typed_info(info, scope.find(info.name))
        return replace(found, stored="" if stored is None else stored.name)

    def _ordered(self, pieces: Mapping[int, Function], prefix: str) -> tuple[Step, ...]:
        """Put each piece before the steps that wait for it."""
        steps: list[Step] = []
        levels = sorted({*pieces, *self._step_levels})
        for level in levels:
            piece = pieces.get(level)
            if piece is not None:
                names = tuple(param.name for param in piece.params)
                steps.append(PieceStep(f"{prefix}piece{level}", names, piece.output_names))
            found = zip(self._steps, self._step_levels, strict=True)
            steps += [step for step, at in found if at == level]
        return tuple(steps)


def _is_plain(array: np.ndarray) -> bool:
    """Whether compiled functions take arrays of this element type."""
    return array.dtype.name in {dtype.value for dtype in DType}


def _unstored(array: np.ndarray, stored: np.dtype | None) -> np.ndarray:
    """Return bytes as the narrow numbers that they store, other arrays as they are."""
    return array if stored is None else np.ascontiguousarray(array).view(stored)
