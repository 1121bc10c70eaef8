# SPDX-License-Identifier: Apache-2.0
"""Import what ``torch.export`` made, operator by operator, with the sizes that it leaves open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from intarsia_ir.graph.expr import Expr, Function, Var, constant, make_tuple
from intarsia_ir.graph.guards import RequiredSizes, collecting_guards
from intarsia_ir.graph.module import IRModule
from intarsia_onnx.api import input_types
from intarsia_onnx.graph import Graph, ValueInfo
from intarsia_runtime.errors import UnsupportedError
from intarsia_runtime.size import Dim

from .aten.importer import AtenImporter, unknown_among
from .aten.in_place import is_in_place
from .aten.sizes import Symbols, environment_of, examples_of, ranges_of_symbols
from .checks import require_asserted, require_ranges, require_traced
from .graph import array_of, require_cpu
from .kinds import is_number, is_tensor
from .onnx_export import refuse_changes
from .tracing import MOST_ROUNDS, decompositions

if TYPE_CHECKING:
    from types import ModuleType

    from intarsia_ir.graph.types import TensorType

    from .aten.context import Operand
    from .types import (
        Exported,
        FxNode,
        InputSpec,
        TorchTensor,
    )


def import_exported(
    torch: ModuleType, exported: Exported, shapes: Mapping[str, Sequence[int]] | None
) -> IRModule:
    """Import an exported program.

    Args:
        torch: The package.
        exported: The program; it is not changed.
        shapes: Shapes of inputs.

    Raises:
        UnsupportedError: It writes to inputs or buffers, or a part of it cannot be imported.
        UsageError: The shapes do not fit the program.
    """
    original = exported
    exported = _plain(original)
    refuse_changes(exported)
    nodes = tuple(exported.graph_module.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    specs = exported.graph_signature.input_specs
    declared = Symbols({})
    examples = examples_of(environment_of(inputs))
    given = _input_nodes(inputs, specs)
    types = {node.name: declared.type(cast("TorchTensor", node.meta["val"])) for node in given}
    fixed = _bound(types, shapes or {})
    symbols = Symbols({**examples, **fixed}, fixed)
    with collecting_guards() as guards:
        given_types = {n.name: symbols.type(cast("TorchTensor", n.meta["val"])) for n in given}
        require_ranges(original.range_constraints, symbols)
        require_traced(torch, original, {name: t.shape for name, t in given_types.items()})
        require_asserted(original, symbols)
        params = {name: Var(name, type_) for name, type_ in given_types.items()}
        operands = [
            _operand(exported, node, spec, params) for node, spec in zip(inputs, specs, strict=True)
        ]
        importer = AtenImporter(exported.graph_module, symbols, array_of)
        made = importer.run(operands)
    body = [item for item in made if isinstance(item, Expr)]
    if len(body) != len(made):
        raise UnsupportedError("a result of the program is no tensor")
    (values,) = (node.args[0] for node in nodes if node.op == "output")
    names = _distinct([cast("FxNode", value).name for value in values])
    main = Function(tuple(params.values()), body[0] if len(body) == 1 else make_tuple(body), names)
    module = IRModule.from_function(main)
    required = RequiredSizes(tuple(guards))
    return module.with_attr(RequiredSizes, required) if guards else module


def _plain(exported: Exported) -> Exported:
    """Return a program without writes, and with operators that no converter knows decomposed.

    The first round also leaves no operators that PyTorch itself composes of others. These may need
    another one: weight normalization becomes an operator of its own before it becomes arithmetic.
    """
    table: dict[object, Callable[..., object]] = {}
    for attempt in range(MOST_ROUNDS):
        nodes = tuple(exported.graph_module.graph.nodes)
        unknown = unknown_among(nodes)
        found = {**table, **decompositions(unknown)}
        writes = any(is_in_place(node.target) for node in nodes)
        if not (writes or found.keys() - table.keys() or (unknown and attempt == 0)):
            break
        table = found
        with ranges_of_symbols(environment_of(nodes)):
            exported = exported.run_decompositions(table)
    return exported


def _input_nodes(inputs: Sequence[FxNode], specs: Sequence[InputSpec]) -> list[FxNode]:
    """Return the placeholders that are tensors of the caller."""
    found: list[FxNode] = []
    for node, spec in zip(inputs, specs, strict=True):
        value = node.meta.get("val")
        if type(value).__name__ == "SymInt":
            raise UnsupportedError(f"the input '{node.name}' is a size")
        if spec.kind.name == "USER_INPUT" and is_tensor(value):
            found.append(node)
    require_cpu(cast("TorchTensor", node.meta["val"]) for node in found)
    return found


def _bound(types: Mapping[str, TensorType], shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return the values that shapes of inputs give symbols.

    Raises:
        UsageError: They do not fit.
    """
    infos = tuple(ValueInfo(name, type_) for name, type_ in types.items())
    found = input_types(Graph("program", infos, (), {}, ()), shapes, {})
    fixed: dict[str, int] = {}
    for name, type_ in types.items():
        for size, own in zip(type_.shape, found[name].shape, strict=True):
            if isinstance(size, Dim) and size.is_variable and isinstance(own, int):
                fixed[size.name] = own
    return fixed


def _operand(
    exported: Exported, node: FxNode, spec: InputSpec, params: Mapping[str, Var]
) -> Operand:
    """Return the value of a placeholder."""
    if node.name in params:
        return params[node.name]
    value = node.meta.get("val")
    target = spec.target
    if target is None or is_number(value) or not is_tensor(value):
        return cast("Operand", value)
    held = exported.state_dict.get(target)
    tensor = exported.constants[target] if held is None else held
    return constant(array_of(tensor).copy(), name=target)


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return names of outputs, each once."""
    found: dict[str, None] = {}
    for name in names:
        fresh, number = name, 1
        while fresh in found:
            fresh, number = f"{name}_{number}", number + 1
        found[fresh] = None
    return tuple(found)
