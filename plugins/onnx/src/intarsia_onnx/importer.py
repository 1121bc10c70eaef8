# SPDX-License-Identifier: Apache-2.0
"""Turn a validated ONNX graph into a function, node by node, in time linear in its size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np

from intarsia_ir.budget import budget
from intarsia_ir.graph.expr import Constant, Expr, Function, Var, constant, make_tuple, tensor_type
from intarsia_ir.graph.guards import (
    Guard,
    fixed_sizes,
    guards_apart,
    is_collecting,
    require_all,
)
from intarsia_ir.graph.module import IRModule, OnlyFor
from intarsia_ir.graph.types import Dim, TensorType
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_ir.ops.evaluate import evaluate
from intarsia_runtime.errors import ModelError, UnsupportedError

from .broadcasts import bound
from .builder import STATIC_HINT, Builder
from .context import Converter, Diverging, NodeContext
from .converters.sequences import TAKE_SEQUENCES, is_sequence
from .flow import Branch, Flow, as_declared, chosen, fit_together, warn_of_choice
from .fold import ConstantFolder
from .forms import import_forms
from .graph import Graph, Model, Node, ValueInfo
from .implied import (
    FORMS,
    MOST_KEYS,
    UnknownOperands,
    choose,
    declared_shapes,
    forms,
    independent,
    shape_of,
)
from .import_scope import ImportScope, live_names, undefined, values_around, with_stored
from .names import affected, converter_name, defines, needed_names, nodes_towards
from .narrow import TAKE_NARROW, unwrapped
from .refusals import report, unknown_operator
from .structure import verify_graph
from .tensors import check_sizes, named_dtype

MAX_WRITTEN = 1 << 16
"""Most nodes that are imported once more for derivatives, and for derivatives of these."""
MAX_INSIDE = 1 << 16
"""Most nodes of graphs inside one node, turns of loops in each other counted; it may still run on
the host."""


class Importer:
    """Imports one model.

    Args:
        model: The model.
        converters: Converter of every standard operator by its name, of others by ``domain::name``.
        inputs: Types of the graph's inputs, overrides applied.
        fixed: Values of inputs that become constants.
        control_flow: Whether branches and loops that only the run decides become functions of the
            module; if not, both branches are computed and loops written out, or the node refused.
    """

    def __init__(
        self,
        model: Model,
        converters: Mapping[str, Converter],
        inputs: Mapping[str, TensorType],
        fixed: Mapping[str, np.ndarray],
        *,
        control_flow: bool = False,
    ) -> None:
        self._functions: dict[str, Function] | None = {} if control_flow else None
        self._model = model
        self._converters = converters
        self._inputs = inputs
        self._fixed = fixed
        self._folder = ConstantFolder()
        self._problems: list[UnsupportedError] = []
        self._unknown: dict[tuple[str, str], list[str]] = {}
        declared = {info.name: info.type for info in model.graph.inputs}
        self._believes = all(inputs[name] == declared.get(name) for name in inputs)
        self._shapes: Mapping[str, tuple[int, ...]] | None = None
        self._only: dict[str, tuple[tuple[int, ...], ...]] = {}
        self._written = 0
        self._inside = 0

    def run(self) -> IRModule:
        """Import the entry graph as ``main``.

        Raises:
            UnsupportedError: Nodes that cannot be imported; one error lists all of them.
            ModelError: A node that breaks ONNX's rules.
        """
        graph = self._model.graph
        scope = ImportScope(graph, None, self._model.opset)
        params = [param for info in graph.inputs for param in self._parameters(info, scope)]
        sizes = self._folder.broadcasts
        sizes.may_choose = self._functions is not None and is_collecting()
        try:
            with guards_apart() as found:
                results = self._import(scope)
        except (ModelError, UnsupportedError):
            if not sizes.numbers:
                raise
            return self._with_sizes(sizes.numbers)
        either: list[Expr | None] | None = None
        if not (self._problems or self._unknown):
            if decided := sizes.decided(fixed_sizes(found.guards)):
                return self._with_sizes(decided)
            either = self._broadcast(scope.anew())
        if sizes.numbers and not either:
            return self._with_sizes(sizes.numbers)
        require_all(() if either else found.guards)
        results = either or results
        for info, value in zip(graph.outputs, results, strict=True):
            if value is not None and is_sequence(value):
                where = f"output '{info.name}'"
                self._problems.append(UnsupportedError("is no tensor but a sequence", where=where))
        if self._problems or self._unknown:
            raise self._report()
        pairs = zip(graph.outputs, results, strict=True)
        return self._whole(scope, params, {info.name: x for info, x in pairs if x is not None})

    def _with_sizes(self, sizes: Mapping[Dim, int]) -> IRModule:
        """Import the model with numbers in the place of size variables of its inputs."""
        inputs, flows = bound(self._inputs, sizes.items()), self._functions is not None
        again = Importer(self._model, self._converters, inputs, self._fixed, control_flow=flows)
        return again.run()

    def _parameters(self, info: ValueInfo, scope: ImportScope) -> list[Var]:
        """Give an input of the model a value; return the parameters that it becomes."""
        if info.name in self._fixed:
            scope.values[info.name] = constant(self._fixed[info.name], name=info.name)
            return []
        param = Var(info.name, self._inputs[info.name])
        scope.values[info.name] = param
        if info.stored:
            scope.stored[info.name] = named_dtype(info.stored)
        return [param]

    def _whole(
        self, scope: ImportScope, params: Sequence[Var], results: Mapping[str, Expr]
    ) -> IRModule:
        """Return the module of a graph that is imported."""
        outputs = tuple(results.values())
        body = outputs[0] if len(outputs) == 1 else make_tuple(outputs)
        draws = self._folder.draws
        state = () if draws is None or draws.state is None else (draws.state,)
        module = with_stored(Function((*params, *state), body, tuple(results)), scope)
        if self._functions:
            module = module.with_functions({**module.functions, **self._functions})
        if self._only:
            module = module.with_attr(OnlyFor, OnlyFor(MappingProxyType(self._only)))
        return module

    def _import(self, scope: ImportScope, start: int = 0) -> list[Expr | None]:
        """Import the nodes of a graph, from one on, and return its outputs."""
        graph = scope.graph
        used = live_names(graph)
        for number, node in enumerate(graph.nodes[start:], start):
            if used.isdisjoint(node.outputs):
                continue
            try:
                results = self._convert(node, scope, used)
            except Diverging as fork:
                return self._continued(scope, number, fork)
            for name, value in zip(node.outputs, results, strict=False):
                scope.values[name] = value
        return [scope.find(info.name) for info in graph.outputs]

    def _continued(self, scope: ImportScope, number: int, fork: Diverging) -> list[Expr | None]:
        """Import what follows an ``if`` whose branches differ in type, once for each branch.

        If what follows is possible for one branch alone, or gives results of the declared ranks
        for one alone, that one is required. Otherwise all of it is in the branches. A node that
        is repeated leaves a size out in its first branch; where the declared outputs contradict
        both, the second one is required, which takes all sizes but one.

        Raises:
            Diverging: The results differ in rank, too; the graph is that of a decided branch, of
                whose node all of this is true.
        """
        node, functions = scope.graph.nodes[number], self._functions
        assert functions is not None  # nothing diverges without
        flow = Flow(functions, partial(values_around, scope.copied()))
        trials: list[Branch | None] = []
        for branch in fork.branches:
            inner = scope.repeating(number) if fork.is_repeated else scope.copied()
            inner.values.update(zip(node.outputs, branch.results, strict=False))
            trials.append(self._trial(inner, number + (not fork.is_repeated), branch.guards))
        both = [trial for trial in trials if trial is not None]
        tensors = all(not is_sequence(value) for trial in both for value in trial.results)
        if len(both) == 2 and tensors and fit_together(*both):
            builder = Builder(node.span, self._folder)
            return [*flow.choose(builder, fork.condition, (both[0], both[1]))]
        if len(both) == 2 and tensors and scope.outer is not None:
            raise Diverging(fork.message, fork.condition, (both[0], both[1]))
        if len(both) == 2:
            both = as_declared((both[0], both[1]), scope.graph.outputs, fork.is_repeated)
        if len(both) != 1:
            fork.where = fork.where or str(node.span)
            self._problems.append(fork)
            return [None] * len(scope.graph.outputs)
        require_all(both[0].guards)
        require_all(chosen(self._folder, fork.condition, both[0] is trials[0], node.span))
        if None not in trials:
            warn_of_choice(fork.message, both[0])
        return [*both[0].results]

    def _broadcast(self, scope: ImportScope) -> list[Expr | None] | None:
        """Import a model again, in two forms, if open sizes are broadcast.

        Args:
            scope: The values of inputs and weights.

        Returns:
            What the run chooses; ``None`` if no open sizes are broadcast, or it must be one form.
        """
        functions, folder = self._functions, self._folder
        is_drawn = folder.draws is not None and folder.draws.state is not None
        if functions is None or not folder.broadcasts.are_open or self._only or is_drawn:
            return None

        def trial(form: ImportScope, known: Sequence[Guard]) -> Branch | None:
            return self._trial(form, 0, known, is_optional=False)

        return import_forms(functions, folder, scope, self._inputs, trial)

    def _trial(
        self, scope: ImportScope, start: int, guards: Sequence[Guard], *, is_optional: bool = True
    ) -> Branch | None:
        """Import the nodes of a graph from one on, as a branch; ``None`` if it fails.

        Args:
            scope: The values before, to which others are added.
            start: Number of the first node.
            guards: What must hold of sizes for these values.
            is_optional: Whether what the nodes require of sizes need not hold for the model.
        """
        before, unknown = self._problems, {key: [*old] for key, old in self._unknown.items()}
        self._problems = []
        try:
            with guards_apart() as found, self._folder.run_sizes.apart(is_optional=is_optional):
                require_all(guards)
                results = self._import(scope, start)
            values = tuple(value for value in results if value is not None)
            failed = bool(self._problems) or len(values) < len(results)
        except (ModelError, UnsupportedError, _BranchFailed):
            return None
        finally:
            self._problems = before
            self._unknown = unknown
        return None if failed else Branch(values, found.guards)

    def _convert(self, node: Node, scope: ImportScope, used: set[str]) -> Sequence[Expr | None]:
        """Convert one node; what cannot be imported is noted, so that one error can list it all."""
        budget().check(node.span)
        if scope.outer is None:
            self._inside = 0
        nothing: list[Expr | None] = [None] * len(node.outputs)
        known_as = converter_name(node)
        converter = self._converters.get(known_as)
        if converter is None and not self._model.bodies.knows(node, scope.opset):
            self._unknown.setdefault((node.domain, node.op_type), []).append(node.span.name)
            return nothing
        args: list[Expr | None] = []
        for name in node.inputs:
            value = scope.find(name) if name else None
            if name and value is None:
                return nothing
            args.append(value)

        stored = [scope.stored_type(name) if name else None for name in node.inputs]
        if any(stored) and known_as not in TAKE_NARROW:
            first = next(filter(None, stored))
            message = f"operator '{node.op_type}' of {first} is not supported"
            self._problems.append(UnsupportedError(message, where=str(node.span)))
            return nothing
        places = TAKE_SEQUENCES.get(known_as, ())
        if any(x and is_sequence(x) and n not in places for n, x in enumerate(args)):
            message = f"operator '{node.op_type}' of a sequence is not supported"
            self._problems.append(UnsupportedError(message, where=str(node.span)))
            return nothing
        before, self._problems = self._problems, []
        results = self._applied(node, converter, args, stored, scope, used)
        waits = any(problem.hint == STATIC_HINT for problem in self._problems)
        if waits and self._believes and scope.graph is self._model.graph:
            results = self._implied(node, converter, args, scope, used) or results
        self._problems = before + self._problems
        return results

    def _implied(
        self,
        node: Node,
        converter: Converter | None,
        args: list[Expr | None],
        scope: ImportScope,
        used: set[str],
    ) -> Sequence[Expr | None] | None:
        """Import a node for the values of an operand that its declared results leave it."""
        case = self._case(node, args)
        if case is None:
            return None
        operands = [arg for arg in (args[place] for place in case.places) if isinstance(arg, Var)]
        problems, stored = self._problems, [None] * len(args)
        results: dict[tuple[int, ...], Sequence[Expr]] = {}
        values = forms(case)
        for value, key in values:
            if key in results:
                continue
            self._problems, trial = [], list(args)
            try:
                parts = zip(case.places, operands, case.parts(value), strict=True)
                for place, operand, part in parts:
                    given = np.array(part, numpy_dtype(tensor_type(operand).dtype))
                    trial[place] = constant(given.reshape(tensor_type(operand).static_shape))
            except OverflowError:
                continue  # no value of this operand
            try:
                found = self._applied(node, converter, trial, stored, scope, used)
            except ModelError:
                continue  # no value of this node
            exprs = [expr for expr in found if expr is not None]
            pairs = zip(node.outputs, exprs, strict=False)
            shapes = tuple(shape_of(expr) for name, expr in pairs if name)
            if not self._problems and shapes == case.results:
                results[key] = exprs
        self._problems = problems
        fitting = [form for form in values if form[1] in results]
        known = independent([case.parts(value) for value, _ in fitting])
        if known is None or len(results) > MOST_KEYS:
            return None
        allowed = [
            set(choices).intersection(self._only.get(operand.name, choices))
            for operand, choices in zip(operands, known, strict=True)
        ]
        if not all(allowed):
            return None
        self._problems = []
        for operand, choices in zip(operands, allowed, strict=True):
            self._only[operand.name] = tuple(sorted(choices))
        if len(results) == 1:
            return next(iter(results.values()))
        return choose(Builder(node.span, self._folder), operands, fitting, results)

    def _case(self, node: Node, args: Sequence[Expr | None]) -> UnknownOperands | None:
        """Return what is known of a node that few operands, all inputs, are missing for."""
        listed = FORMS[node.op_type][0] if node.op_type in FORMS and not node.domain else ()
        places = tuple(place for place in listed if place < len(args) and args[place] is not None)
        missing = [args[place] for place in places]
        if not missing or not all(
            isinstance(arg, Var) and tensor_type(arg).is_static for arg in missing
        ):
            return None
        if self._shapes is None:
            found = self._model.bodies.infer_types(self._inputs)
            known = {name: type_.static_shape for name, type_ in found.items() if type_.is_static}
            self._shapes = declared_shapes(self._model.graph, known)
        results = [self._shapes.get(name) for name in node.outputs if name]
        shapes = tuple(shape for shape in results if shape is not None)
        if len(shapes) < len(results):
            return None
        return UnknownOperands(node, places, tuple(shape_of(arg) for arg in args), shapes)

    def _applied(
        self,
        node: Node,
        converter: Converter | None,
        args: Sequence[Expr | None],
        stored: Sequence[np.dtype | None],
        scope: ImportScope,
        used: set[str],
    ) -> Sequence[Expr | None]:
        """Convert a node whose operands are there, by its converter or by its body."""
        nothing: list[Expr | None] = [None] * len(node.outputs)
        if converter is None:
            return self._expanded(node, args, scope) or nothing

        def branch(graph: Graph, given: Mapping[str, Expr]) -> tuple[Expr, ...]:
            self._inside += len(graph.nodes)
            if self._inside > MAX_INSIDE:
                raise UnsupportedError(
                    f"nested graphs have more than {MAX_INSIDE} nodes",
                    where=str(node.span),
                    hint=STATIC_HINT,
                )
            results = self._import(ImportScope(graph, scope, scope.opset, {**given}))
            whole = tuple(value for value in results if value is not None)
            if len(whole) < len(results):
                raise _BranchFailed
            return whole

        again = partial(self._again, node, scope)
        functions, values = self._functions, partial(values_around, scope)
        flow = None if functions is None else Flow(functions, values)
        context = NodeContext(
            node, args, scope.opset, self._folder, used, branch, stored, again, flow
        )
        try:
            converted = converter(context)
        except _BranchFailed:
            return nothing
        except Diverging:
            raise
        except UnsupportedError as error:
            if not error.where:
                error.where = str(node.span)
            self._problems.append(error)
            return nothing
        results = unwrapped(node, converted, stored, scope.stored)
        known = all(arg is None or isinstance(arg, Constant) for arg in args)
        if any(stored) and known and node.op_type != "DequantizeLinear":
            arrays = evaluate(Function((), make_tuple(results)), {})
            results = tuple(constant(array, span=node.span) for array in arrays)
        for value in results:
            if isinstance(value.type, TensorType):
                sizes = tuple(size for size in value.type.shape if isinstance(size, int))
                check_sizes(sizes, value.type.dtype, str(node.span))
        for name in node.outputs[len(results) :]:
            if name in used:
                message = f"output '{name}' is used but cannot be computed"
                self._problems.append(UnsupportedError(message, where=str(node.span)))
        return [*results, *nothing[len(results) :]]

    def _again(self, node: Node, scope: ImportScope, name: str, given: Mapping[str, Expr]) -> Expr:
        """Import a value of the graph that ``node`` is in, for other values of some names.

        What does not depend on those names stays what it is.
        """
        graph = scope.graph
        for wanted in (name, *given):
            if not defines(graph, wanted):
                raise undefined(wanted, node, scope)
        nodes = nodes_towards(graph, name, set(given))
        news = {key for key, value in given.items() if value is not scope.values.get(key)}
        changed = affected(nodes, news)
        # An input that is not there is one that only the run knows.
        values: dict[str, Expr | None] = {info.name: None for info in graph.inputs}
        values.update((key, value) for key, value in scope.values.items() if key not in changed)
        inner = ImportScope(
            graph, scope.outer, scope.opset, {**values, **given}, dict(scope.stored)
        )
        used = {wanted for inside in nodes for wanted in needed_names(inside)} | {name}
        for inside in nodes:
            if all(output in inner.values for output in inside.outputs if output in used):
                continue
            self._written += 1
            if self._written > MAX_WRITTEN:
                raise UnsupportedError(f"derivatives of more than {MAX_WRITTEN} nodes")
            results = Importer._convert(self, inside, inner, used)
            for output, value in zip(inside.outputs, results, strict=False):
                inner.values.setdefault(output, value)
        found = inner.find(name)
        if found is None:
            raise _BranchFailed
        return found

    def _expanded(
        self, node: Node, args: Sequence[Expr | None], scope: ImportScope
    ) -> Sequence[Expr | None] | None:
        """Import a node by the body that ONNX gives for it."""
        types = [None if arg is None else tensor_type(arg) for arg in args]
        try:
            body = self._model.bodies.expand(node, scope.opset, types)
        except UnsupportedError as error:
            self._problems.append(error)
            return None
        if body is None:
            self._unknown.setdefault((node.domain, node.op_type), []).append(node.span.name)
            return None
        graph, opset = body
        try:
            verify_graph(graph)
        except ModelError as error:  # ONNX leaves out what a wrong attribute chooses
            text = f"operator '{node.op_type}' cannot be expanded: {error.message}"
            self._problems.append(UnsupportedError(text, where=str(node.span)))
            return None
        inner = ImportScope(graph, None, opset)
        inner.values.update(zip(node.inputs, args, strict=True))
        results = iter(self._import(inner))
        return [next(results) if name else None for name in node.outputs]

    def _report(self) -> UnsupportedError:
        return report(self._problems, self._unknown, self._model.opset, self._converters)

    def _describe(self, domain: str, op_type: str, nodes: Sequence[str]) -> str:
        """Say which operator is unknown, where it is, and which known one has a similar name."""
        return unknown_operator(domain, op_type, nodes, self._model.opset, self._converters)


class _BranchFailed(Exception):
    """A graph inside or around a node could not be imported; why has been noted."""
