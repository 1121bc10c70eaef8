# SPDX-License-Identifier: Apache-2.0
"""Verify: hold a module against the rules of the IR."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import IntarsiaError, VerifyError

from ..writing.deferred import DeferredArray
from .control import called_by, control_of, same_types
from .expr import (
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
    tensor_type,
)
from .module import IRModule
from .scopes import ExprScope, scopes
from .size_scopes import verify_size_scopes
from .types import TensorType, TupleType, Type
from .walk import post_order


def verify(module: IRModule) -> None:
    """Check every function of a module, in time linear in its size.

    Types agree with the type rules; every variable is a parameter or bound by one :class:`Let`
    whose body holds all its uses; a size variable that a call defines is used behind that call;
    called functions exist, fit their arguments and do not call each other in a circle; names of
    parameters and outputs are unique.

    Raises:
        VerifyError: A rule is broken; the message names the function and the node.
    """
    for name, function in module.functions.items():
        try:
            _verify_function(module, function)
        except VerifyError as error:
            error.where = f"@{name}, {error.where}" if error.where else f"@{name}"
            raise
    _verify_calls_end(module)


def _verify_function(module: IRModule, function: Function) -> None:
    _verify_names("parameter", [param.name for param in function.params])
    _verify_names("output", function.output_names)
    if function.output_names and len(function.output_names) != len(function.outputs):
        raise VerifyError(
            f"{len(function.output_names)} output names for {len(function.outputs)} outputs"
        )
    for node in post_order(function.body):
        _verify_node(module, node)
    _verify_variables(function)
    verify_size_scopes(function)


def _verify_names(what: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise VerifyError(f"two {what}s are called '{name}'")
        seen.add(name)


def _verify_node(module: IRModule, node: Expr) -> None:
    """Check one node against the types of its operands."""
    match node:
        case Call():
            _expect(_type_of_call(node), node)
            _verify_control(module, node)
        case CallFunction():
            _verify_function_call(module, node)
        case Constant(content=data):
            if not isinstance(data, DeferredArray) and not data.flags.c_contiguous:
                raise VerifyError("a constant is not C-contiguous", where=str(node.span))
            if data.shape != node.type.shape or data.dtype.name != node.type.dtype.value:
                raise VerifyError(
                    f"a constant of type {node.type} holds {data.dtype} {data.shape}",
                    where=str(node.span),
                )
        case Tuple(fields=fields):
            _expect(TupleType(tuple(field.type for field in fields)), node)
        case TupleGetItem(tuple=value, index=index):
            if not isinstance(value.type, TupleType) or not 0 <= index < len(value.type.fields):
                raise VerifyError(
                    f"no field {index} in a value of type {value.type}", where=str(node.span)
                )
            _expect(value.type.fields[index], node)
        case Let(var=var, value=value, body=body):
            _expect(body.type, node)
            if var.type != value.type:
                raise VerifyError(
                    f"variable '{var.name}' of type {var.type} is bound to a {value.type}",
                    where=str(node.span),
                )
        case If():
            _verify_if(node)
        case Var():
            pass


def _type_of_call(node: Call) -> Type:
    if type(node.attrs) is not node.op.Attrs:
        raise VerifyError(
            f"'{node.name}' has attributes of class {type(node.attrs).__qualname__}",
            where=str(node.span),
        )
    try:
        return node.op.type_rule(node.attrs, *(arg.type for arg in node.args))
    except IntarsiaError as error:
        raise VerifyError(
            f"'{node.name}' does not accept its operands: {error.message}", where=str(node.span)
        ) from error


def _verify_control(module: IRModule, node: Call) -> None:
    """Check that the functions of a call of control flow fit it."""
    op = control_of(node)
    if op is None:
        return
    types = [tensor_type(arg) for arg in node.args]
    for name in op.functions(node.attrs):
        if name not in module.functions:
            raise VerifyError(f"the module has no function '@{name}'", where=str(node.span))
        function = module.functions[name]
        params = [tensor_type(param) for param in function.params]
        results = [tensor_type(value) for value in function.outputs]
        given = op.params(node.attrs, types, name)
        wanted = op.results(node.attrs)
        if not same_types(given, params, op.inner(node.attrs)):
            raise _misfit(f"'@{name}' takes", params, f"'{node.name}' gives", given, node)
        if not same_types(results, wanted, op.defined(node.attrs)):
            raise _misfit(f"'@{name}' gives", results, f"'{node.name}' takes", wanted, node)


def _misfit(
    whose: str, own: Sequence[Type], others: str, wanted: Sequence[Type], node: Expr
) -> VerifyError:
    mine, other = (", ".join(map(str, side)) for side in (own, wanted))
    return VerifyError(f"{whose} ({mine}), {others} ({other})", where=str(node.span))


def _verify_function_call(module: IRModule, node: CallFunction) -> None:
    name = node.function.name
    if name not in module.functions:
        raise VerifyError(f"the module has no function '@{name}'", where=str(node.span))
    function = module.functions[name]
    wanted = [param.type for param in function.params]
    given = [arg.type for arg in node.args]
    if wanted != given:
        raise VerifyError(
            f"'@{name}' takes ({', '.join(map(str, wanted))}), got ({', '.join(map(str, given))})",
            where=str(node.span),
        )
    _expect(function.body.type, node)


def _verify_if(node: If) -> None:
    condition = node.condition.type
    one = (TensorType((), DType.BOOL), TensorType((1,), DType.BOOL))
    if condition not in one:
        raise VerifyError(
            f"the condition of an if is a {condition}, not one bool", where=str(node.span)
        )
    _expect(node.then_branch.type, node)
    _expect(node.else_branch.type, node)


def _expect(wanted: Type, node: Expr) -> None:
    if wanted != node.type:
        raise VerifyError(f"the type is {node.type}, should be {wanted}", where=str(node.span))


def _verify_variables(function: Function) -> None:
    """Check that every variable is bound once, and used only where it is bound."""
    params = set(function.params)
    binders: dict[Var, Let] = {}
    order = list(post_order(function.body))
    for node in order:
        if isinstance(node, Let):
            if node.var in params or node.var in binders:
                raise VerifyError(
                    f"variable '{node.var.name}' is bound twice", where=str(node.span)
                )
            binders[node.var] = node
    free = [n for n in order if isinstance(n, Var) and n not in params and n not in binders]
    if free:
        raise VerifyError(f"variable '{free[0].name}' is not bound", where=str(free[0].span))
    if binders:
        found = scopes(function.body)
        for var, binder in binders.items():
            _verify_scope(found[var], var, binder)


def _verify_scope(scope: ExprScope, var: Var, binder: Let) -> None:
    """All users of ``var`` are in scopes inside the body of its binder."""
    if scope.owner is not binder:
        raise VerifyError(
            f"variable '{var.name}' is used outside the body it is bound in", where=str(binder.span)
        )


def _verify_calls_end(module: IRModule) -> None:
    """Check that functions do not call each other in a circle."""
    callees = {
        name: [callee for node in post_order(function.body) for callee in called_by(node)]
        for name, function in module.functions.items()
    }
    done: set[str] = set()
    for start in callees:
        path: set[str] = set()
        stack = [(start, False)]
        while stack:
            name, leaving = stack.pop()
            if leaving:
                path.discard(name)
                done.add(name)
            elif name in path:
                raise VerifyError(f"'@{name}' calls itself, directly or through others")
            elif name not in done:
                path.add(name)
                stack.append((name, True))
                stack.extend((callee, False) for callee in callees[name])
