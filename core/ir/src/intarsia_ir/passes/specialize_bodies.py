# SPDX-License-Identifier: Apache-2.0
"""Specialize bodies: what control flow hands to its functions, and always the same, moves in.

Frontends write control flow before constants are folded. Afterwards a captured value may be a
constant, which kernels want to know, or unused; and a condition may be known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ..budget import budget
from ..graph.control import Control, called_by, control_calls, control_of
from ..graph.expr import Call, Constant, Expr, Function, Var, call, constant, make_tuple
from ..graph.module import IRModule
from ..graph.size_scopes import sizes_in, used_sizes
from ..graph.walk import post_order, rewrite_function, substitute
from ..ops.control import If
from ..ops.evaluate import evaluate
from .base import Pass, Remarks
from .eliminate_dead_code import drop_functions
from .fold_constants import fold_constants


def specialize_bodies(module: IRModule, remarks: Remarks) -> IRModule:
    """Put constants into the functions that control flow carries out, and drop unused operands.

    Of an ``if`` whose condition is a constant, the chosen function takes the place of the call. A
    call of constants alone is computed.
    """
    while len(module.functions) > 1:
        changed = _Specializer(module, remarks).run()
        if changed is module:
            break
        module = drop_functions(fold_constants(changed, remarks))
    return module


class _Specializer:
    def __init__(self, module: IRModule, remarks: Remarks) -> None:
        self._module = module
        self._remarks = remarks
        self._functions = dict(module.functions)
        self._callers = Counter(
            name
            for function in module.functions.values()
            for node, op in control_calls(function)
            for name in op.functions(node.attrs)
        )

    def run(self) -> IRModule:
        """Specialize what ``main`` carries out, callers before what they call."""
        todo, done = ["main"], set[str]()
        while todo:
            name = todo.pop(0)
            if name in done:
                continue
            done.add(name)
            function = self._functions[name]
            while (changed := rewrite_function(function, self._specialized)) is not function:
                function = changed  # a branch that was put in may have control flow of its own
            self._functions[name] = function
            for node, op in control_calls(function):
                todo += op.functions(node.attrs)
        if all(self._module.functions.get(n) is f for n, f in self._functions.items()):
            return self._module
        return self._module.with_functions(self._functions)

    def _specialized(self, expr: Expr) -> Expr | None:
        op = control_of(expr)
        if op is None or not isinstance(expr, Call):
            return None
        if op is If and isinstance(expr.args[0], Constant):
            return self._chosen(expr, bool(expr.args[0].data.reshape(())))
        if all(isinstance(arg, Constant) for arg in expr.args) and not self._is_sized(expr):
            return self._folded(expr)
        return self._narrowed(expr, op)

    def _is_sized(self, expr: Call) -> bool:
        """Whether sizes that only the run knows are in a call, or in what it carries out."""
        todo: list[Expr] = [expr]
        if any(True for _ in sizes_in(expr.attrs)):
            return True
        while todo:
            for node in post_order(todo.pop()):
                if used_sizes(node):
                    return True
                todo += [self._functions[name].body for name in called_by(node)]
        return False

    def _folded(self, expr: Call) -> Expr:
        """control(constants) --> constants

        Raises:
            ResourceError: It takes too long, or too much memory.
        """
        module = self._module.with_functions(self._functions)
        with budget().folding("folding constants"):
            arrays = evaluate(Function((), expr), {}, module)
        return make_tuple([constant(array, span=expr.span) for array in arrays], span=expr.span)

    def _chosen(self, expr: Call, condition: bool) -> Expr:
        """if (true) f else g --> f"""
        name = If.functions(expr.attrs)[0 if condition else 1]
        function = self._functions[name]
        self._remarks.add("specialize-bodies", "the condition is known", expr.span)
        given: dict[Expr, Expr] = dict(zip(function.params, expr.args[1:], strict=True))
        return make_tuple([substitute(value, given) for value in function.outputs], span=expr.span)

    def _narrowed(self, expr: Call, op: type[Control]) -> Expr | None:
        """Move constants in and drop captured values that no function reads."""
        first = op.captured(expr.attrs)
        captured = expr.args[first:]
        names = op.functions(expr.attrs)
        functions = [self._functions[name] for name in names]
        used = [set(post_order(*function.outputs)) for function in functions]
        kept: list[int] = []
        for number, arg in enumerate(captured):
            params = [f.params[len(f.params) - len(captured) + number] for f in functions]
            is_used = any(p in reached for p, reached in zip(params, used, strict=True))
            if is_used and not isinstance(arg, Constant) and arg not in captured[:number]:
                kept.append(number)
        if len(kept) == len(captured):
            return None
        fresh = [
            self._fresh(name, _bound(function, captured, kept))
            for name, function in zip(names, functions, strict=True)
        ]
        args = (*expr.args[:first], *(captured[number] for number in kept))
        return call(expr.op, *args, attrs=op.renamed(expr.attrs, fresh), span=expr.span)

    def _fresh(self, name: str, function: Function) -> str:
        """Keep a function under its name if nobody else calls it, else under a new one."""
        if self._callers[name] > 1:
            self._callers[name] -= 1
            number = 1
            while f"{name}_{number}" in self._functions:
                number += 1
            name = f"{name}_{number}"
            self._callers[name] = 1
        self._functions[name] = function
        return name


def _bound(function: Function, captured: Sequence[Expr], kept: Sequence[int]) -> Function:
    """Return a function without the captured values that are not kept."""
    first = len(function.params) - len(captured)
    own, params = function.params[:first], function.params[first:]
    given: dict[Expr, Expr] = {}
    for number, (param, arg) in enumerate(zip(params, captured, strict=True)):
        if isinstance(arg, Constant):
            given[param] = arg
        elif number not in kept and arg in captured[:number]:
            given[param] = params[captured.index(arg)]
    left: list[Var] = [*own, *(params[number] for number in kept)]
    return replace(function, params=tuple(left), body=substitute(function.body, given))


SPECIALIZE_BODIES = Pass("specialize-bodies", specialize_bodies)
