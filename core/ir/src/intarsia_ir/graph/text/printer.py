# SPDX-License-Identifier: Apache-2.0
"""Print graph IR; linear in the number of nodes, and never recursive over them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct, field

from ...tokens import name_text, quote
from ..expr import (
    Call,
    CallFunction,
    Constant,
    Expr,
    Function,
    If,
    Let,
    Tuple,
    TupleGetItem,
    Var,
)
from ..module import IRModule
from ..scopes import ExprScope, scopes
from ..walk import count_uses, post_order
from .spelling import (
    array_text,
    attrs_text,
    sequence_text,
    span_text,
    type_text,
)

INLINE = 16  # elements up to which a constant is written out
MAX_INDENT = 16  # blocks deeper than this are not indented further, so that text stays linear


def print_module(module: IRModule) -> str:
    """Return the text of the settings, and of every function in the module's order."""
    names = _ParamNames()
    set_ = sorted((key.__name__, str(value)) for key, value in module.attrs.items())
    head = "".join(f"set {name} {quote(text)};\n" for name, text in set_)
    texts = [
        _GraphPrinter(names).function(f"def @{name_text(name)}", function)
        for name, function in module.functions.items()
    ]
    return "\n".join([*([head] if head else []), *texts])


def print_function(function: Function) -> str:
    """Return the text of one function, which begins with ``fn``."""
    return _GraphPrinter(_ParamNames()).function("fn", function)


def collect_params(module: IRModule) -> dict[str, np.ndarray]:
    """Return the arrays that :func:`print_module` names and does not write."""
    names = _ParamNames()
    for function in module.functions.values():
        for node in post_order(function.body):
            if isinstance(node, Constant) and node.data.size > INLINE:
                names.of(node)
    return names.arrays


class _ParamNames(Struct):
    """Unique names of large constants; one array is named once."""

    arrays: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    known: dict[tuple[int, str], str] = field(default_factory=dict[tuple[int, str], str])

    def of(self, constant: Constant) -> str:
        key = (id(constant.data), constant.name)
        if key not in self.known:
            name = constant.name or f"#{len(self.arrays)}"
            number = 1
            while name in self.arrays:
                number += 1
                name = f"{constant.name}#{number}"
            self.known[key] = name
            self.arrays[name] = constant.data
        return self.known[key]


class _GraphPrinter(Struct):
    """The state of printing one function."""

    params: _ParamNames
    lines: list[str] = field(default_factory=list[str])
    names: dict[Expr, str] = field(default_factory=dict[Expr, str])
    taken: dict[str, int] = field(default_factory=dict[str, int])
    uses: dict[Expr, int] = field(default_factory=dict[Expr, int])
    count: int = 0

    def function(self, head: str, function: Function) -> str:
        """Return the text of a function behind ``def @name`` or ``fn``."""
        self.uses = count_uses((function.body,))
        params = ", ".join(f"{self.variable(p)}: {type_text(p.type)}" for p in function.params)
        outputs = ""
        if function.output_names:
            outputs = f" as {sequence_text([quote(name) for name in function.output_names])}"
        self.lines.append(f"{head}({params}) -> {type_text(function.body.type)}{outputs} {{")
        self._blocks(function.body)
        self.lines.append("}\n")
        return "\n".join(self.lines)

    def variable(self, var: Var) -> str:
        """Return the reference to a variable; a second one of the same name gets a number."""
        if var not in self.names:
            text = f"%{name_text(var.name)}"
            number = self.taken.get(text, 0) + 1
            self.taken[text] = number
            self.names[var] = text if number == 1 else f"{text}#{number}"
        return self.names[var]

    def _blocks(self, body: Expr) -> None:
        """Print the statements of each scope where it belongs, without recursion."""
        scope_of = scopes(body)
        members: dict[ExprScope, list[Expr]] = {}
        by_owner: dict[tuple[Expr, str], ExprScope] = {}
        for node in post_order(body):
            scope = scope_of[node]
            members.setdefault(scope, []).append(node)
            if scope.owner is not None:
                by_owner[scope.owner, scope.slot] = scope
        stack = [self._block(members.get(scope_of[body], []), body, 1)]
        while stack:
            opened = next(stack[-1], None)
            if opened is None:
                stack.pop()
                continue
            owner, slot, result, depth = opened
            inner = members.get(by_owner[owner, slot], []) if (owner, slot) in by_owner else []
            stack.append(self._block(inner, result, depth))

    def _block(
        self, nodes: list[Expr], result: Expr, depth: int
    ) -> Iterator[tuple[Expr, str, Expr, int]]:
        """Print one block; yields (owner, slot, result, depth) where an inner block goes."""
        indent = "  " * min(depth, MAX_INDENT)
        for node in nodes:
            if not self._is_statement(node, result):
                continue
            left = f"{indent}{self._new_name(node)} = "
            match node:
                case If():
                    self.lines.append(f"{left}if ({self._operand(node.condition)}) {{")
                    yield node, "then", node.then_branch, depth + 1
                    self.lines.append(f"{indent}}} else {{")
                    yield node, "else", node.else_branch, depth + 1
                    self.lines.append(f"{indent}}};{span_text(node.span)}")
                case Let():
                    value = self._operand(node.value)
                    self.lines.append(f"{left}let {self.variable(node.var)} = {value} {{")
                    yield node, "body", node.body, depth + 1
                    self.lines.append(f"{indent}}};{span_text(node.span)}")
                case _:
                    self.lines.append(f"{left}{self._expression(node)};{span_text(node.span)}")
        if self._is_inline_result(result):
            text = f"{self._expression(result)}{span_text(result.span)}"
        else:
            text = self._operand(result)
        self.lines.append(f"{indent}{text}")

    def _is_statement(self, node: Expr, result: Expr) -> bool:
        if isinstance(node, Var):
            return False
        if isinstance(node, Constant):
            return self.uses[node] > 1 and node.data.size <= INLINE
        return not (node is result and self._is_inline_result(node))

    def _is_inline_result(self, result: Expr) -> bool:
        return isinstance(result, Tuple) and self.uses[result] == 1

    def _new_name(self, node: Expr) -> str:
        name = f"%{self.count}"
        self.count += 1
        self.names[node] = name
        return name

    def _operand(self, node: Expr) -> str:
        if isinstance(node, Var):
            return self.variable(node)
        if node in self.names:
            return self.names[node]
        assert isinstance(node, Constant), "operands are printed before their users"
        return self._constant(node)

    def _expression(self, node: Expr) -> str:
        match node:
            case Call(op=op, args=args, attrs=attrs):
                parts = [self._operand(arg) for arg in args] + attrs_text(attrs)
                return f"{op.name}({', '.join(parts)})"
            case CallFunction(function=function, args=args):
                parts = [self._operand(arg) for arg in args]
                return f"@{name_text(function.name)}({', '.join(parts)}): {type_text(node.type)}"
            case Tuple(fields=fields):
                return sequence_text([self._operand(item) for item in fields])
            case TupleGetItem(tuple=value, index=index):
                return f"{self._operand(value)}[{index}]"
            case Constant():
                return self._constant(node)
            case Var() | Let() | If():
                return self._operand(node)

    def _constant(self, node: Constant) -> str:
        if node.data.size > INLINE:
            return f"const {quote(self.params.of(node))}: {type_text(node.type)}"
        name = f" {quote(node.name)}" if node.name else ""
        dtype = node.type.dtype.value
        if node.data.size == 0:
            shape = sequence_text([str(size) for size in node.data.shape])
            return f"const{name}([], {dtype}, {shape})"
        return f"const{name}({array_text(node.data)}, {dtype})"
