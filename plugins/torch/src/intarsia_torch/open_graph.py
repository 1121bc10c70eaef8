# SPDX-License-Identifier: Apache-2.0
"""Import a traced graph of ``torch.compile`` with its sizes open, or for one set of sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from intarsia_ir.graph.expr import Expr, Function, Var, constant, make_tuple
from intarsia_ir.graph.guards import RequiredSizes, collecting_guards
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError
from intarsia_runtime.size import Dim, value_of, variable

from .aten.importer import AtenImporter
from .aten.in_place import memory_of
from .aten.sizes import Symbols
from .graph import Computed, Imported, Known, Result, View, array_of, overlap, require_cpu
from .kinds import is_node, is_number, is_tensor

if TYPE_CHECKING:
    from .aten.context import Operand
    from .tracing import Traced
    from .types import FxNode, TorchTensor


def import_traced(
    traced: Traced,
    args: Sequence[object],
    weights: Collection[int],
    *,
    fixed: Mapping[str, int] | None = None,
) -> Imported:
    """Import a traced graph.

    Args:
        traced: The graph.
        args: What it is called with.
        weights: Numbers of the tensors that become constants.
        fixed: The value of each symbol, if the graph is imported for one set of sizes.

    Raises:
        UnsupportedError: It writes to arguments, results share memory, or a tensor or operator is
            one that cannot be imported.
    """
    nodes = tuple(traced.graph_module.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    symbols = Symbols(traced.examples, fixed)
    (values,) = (node.args[0] for node in nodes if node.op == "output")
    outputs = [_value_of(value) for value in values]
    results = _results(outputs, inputs, symbols, traced.examples)
    chosen = [n for n, result in enumerate(results) if isinstance(result, Computed)]
    kinds = tuple(cast("TorchTensor", outputs[n]).dtype for n in chosen)
    require_cpu(
        cast("TorchTensor", args[n])
        for n, node in enumerate(inputs)
        if is_tensor(node.meta.get("val"))
    )
    given = {} if fixed is not None else _symbols_of(inputs, symbols)
    if not chosen:
        return Imported(None, (), results, (), given)
    with collecting_guards() as guards:
        operands, params = _operands(inputs, args, weights, symbols, given)
        importer = AtenImporter(traced.graph_module, symbols, array_of)
        made = importer.run(operands)
    found = [made[n] for n in chosen]
    body = [item for item in found if isinstance(item, Expr)]
    if len(body) != len(found):
        raise UnsupportedError("a result of the graph is no tensor")
    names = tuple(f"output_{n}" for n in range(len(body)))
    main = Function(tuple(params.values()), body[0] if len(body) == 1 else make_tuple(body), names)
    module = IRModule.from_function(main)
    if guards:
        module = module.with_attr(RequiredSizes, RequiredSizes(tuple(guards)))
    carried = frozenset(n for n in params if is_number(inputs[n].meta.get("val")))
    return Imported(module, tuple(params), results, kinds, given, carried)


def symbols_among(traced: Traced) -> dict[str, int]:
    """Return the arguments of a graph that are symbols, by their names."""
    nodes = traced.graph_module.graph.nodes
    inputs = [node for node in nodes if node.op == "placeholder"]
    return _symbols_of(inputs, Symbols(traced.examples))


def _value_of(item: object) -> object:
    """Return what torch knows of a result: a tensor without contents, a number, or ``None``."""
    return item.meta.get("val") if is_node(item) else item


def _symbols_of(inputs: Sequence[FxNode], symbols: Symbols) -> dict[str, int]:
    """Return the arguments that are symbols."""
    found: dict[str, int] = {}
    for number, node in enumerate(inputs):
        value = node.meta.get("val")
        if type(value).__name__ == "SymInt":
            size = symbols.size(cast("int", value))
            if isinstance(size, Dim) and size.is_variable:
                found.setdefault(size.name, number)
    return found


def _operands(
    inputs: Sequence[FxNode],
    args: Sequence[object],
    weights: Collection[int],
    symbols: Symbols,
    given: Mapping[str, int],
) -> tuple[list[Operand], dict[int, Var]]:
    """Return the value of each placeholder, and the parameters by the number of the argument."""
    operands: list[Operand] = []
    params: dict[int, Var] = {}
    for number, node in enumerate(inputs):
        value = node.meta.get("val")
        if number in weights:
            tensor = cast("TorchTensor", args[number])
            operands.append(constant(array_of(tensor), name=node.name))
        elif value is None or is_number(value):
            is_size = type(value).__name__ == "SymInt"
            operands.append(symbols.size(cast("int", value)) if is_size else cast("int", value))
        else:
            params[number] = Var(node.name, symbols.type(cast("TorchTensor", value)))
            operands.append(params[number])
    used = {number for number, node in enumerate(inputs) if node.users}
    params = {number: param for number, param in params.items() if number in used}
    bound = {size for param in params.values() for size in cast("TensorType", param.type).shape}
    for name, number in given.items():
        if variable(name) not in bound:
            params[number] = Var(inputs[number].name, TensorType((variable(name), 0), DType.UINT8))
    return operands, params


def _results(
    outputs: Sequence[object],
    inputs: Sequence[FxNode],
    symbols: Symbols,
    examples: Mapping[str, int],
) -> tuple[Result, ...]:
    """Return what becomes of each result."""
    owners: dict[object, int] = {}
    for number, node in enumerate(inputs):
        value = node.meta.get("val")
        if is_tensor(value):
            owners.setdefault(memory_of(value), number)
    results: list[Result] = []
    computed: list[TorchTensor] = []
    for value in outputs:
        if not is_tensor(value):
            is_size = type(value).__name__ == "SymInt"
            if not is_size and is_number(value) and not isinstance(value, int | float):
                raise UnsupportedError(f"the result {value} is computed of open sizes")
            results.append(Known(symbols.size(cast("int", value)) if is_size else value))
            continue
        tensor = value
        owner = owners.get(memory_of(tensor))
        if owner is not None:
            argument = cast("TorchTensor", inputs[owner].meta["val"])
            results.append(_view(tensor, argument, owner, symbols))
            continue
        for other in computed:
            if memory_of(other) == memory_of(tensor):
                _refuse_overlap(other, tensor, symbols, examples)
        results.append(Computed(len(computed)))
        computed.append(tensor)
    return tuple(results)


def _view(result: TorchTensor, argument: TorchTensor, number: int, symbols: Symbols) -> View:
    if result.dtype != argument.dtype:
        raise UnsupportedError(f"a result reads argument {number} as {result.dtype}")
    size, stride = (tuple(map(symbols.size, part)) for part in (result.shape, result.stride()))
    offset = symbols.size(result.storage_offset()) - symbols.size(argument.storage_offset())
    return View(number, size, stride, offset)


def _refuse_overlap(
    one: TorchTensor, other: TorchTensor, symbols: Symbols, examples: Mapping[str, int]
) -> None:
    """Refuse results of which one shows what is written to the other, at several sizes."""
    changes: tuple[Callable[[int], int], ...] = (lambda n: n, lambda n: n + 1, lambda n: 2 * n + 1)
    for change in changes:
        values = {name: change(value) for name, value in examples.items()}
        places = [
            tuple(value_of(symbols.size(item), values) for item in part)
            for tensor in (one, other)
            for part in (tensor.shape, tensor.stride(), (tensor.storage_offset(),))
        ]
        size = one.element_size()
        if overlap(places[:3], places[3:], size):
            raise UnsupportedError("two results of the graph share memory")
