# SPDX-License-Identifier: Apache-2.0
"""What ``torch.export`` requires of sizes, as guards of the compiled program.

An exported program holds the ranges of symbols, the relations that tracing decided (a file from
``torch.export.save`` has these as text alone), and operators that assert relations.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Generator, Mapping, Sequence
from functools import reduce
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, cast

from intarsia_ir.graph.guards import require_at_most, require_equal
from intarsia_runtime.errors import ArtifactError, UnsupportedError, UsageError
from intarsia_runtime.size import Dim, Size, maximum, minimum
from intarsia_runtime.size_text import parse_size

from .aten.sizes import Symbols, depends_on_contents
from .kinds import calls_one_of

if TYPE_CHECKING:
    from types import ModuleType

    from .types import Exported, FxNode, SymbolRange, SymBool, SymExpression, TorchTensor

_LARGEST = 1 << 62
"""Bounds from here on are none."""

Comparison: TypeAlias = tuple[str, Size, Size]
"""An operation and its sides."""

_SIZE = re.compile(r"L((?:\[(?:\d+|'\w+')\])+)\.size\(\)\[(\d+)\]")
"""A size of an input in the text of a relation: ``L['images'][0].size()[2]``."""


_CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "Equality": "==",
        "Unequality": "!=",
        "LessThan": "<=",
        "StrictLessThan": "<",
        "GreaterThan": ">=",
        "StrictGreaterThan": ">",
    }
)
"""Relations of SymPy."""
_SPELLINGS: Mapping[type[ast.cmpop], str] = MappingProxyType(
    {ast.Eq: "==", ast.NotEq: "!=", ast.LtE: "<=", ast.Lt: "<", ast.GtE: ">=", ast.Gt: ">"}
)

_UNREADABLE = (
    ArtifactError,
    UnsupportedError,
    SyntaxError,
    ValueError,
    RecursionError,
    MemoryError,
)
"""Errors of texts of files that are no relations of sizes."""


def require_export(
    torch: ModuleType, exported: Exported, shapes: Mapping[str, tuple[Size, ...]]
) -> None:
    """Let a program that was imported in another way check all that the export requires.

    Args:
        torch: The package.
        exported: The program as it was exported or loaded.
        shapes: Shape of each input by its name.

    Raises:
        UnsupportedError: Something has no counterpart.
        UsageError: Sizes that are given do not meet it.
    """
    sizes: dict[str, Size] = {}
    for node, declared in _declared(exported, shapes):
        for own, size in zip(declared, shapes[node.name], strict=True):
            if isinstance(own, Dim) and own.is_variable:
                sizes.setdefault(own.name, size)
    symbols = Symbols({}, sizes)
    for node, declared in _declared(exported, shapes):
        for axis, (own, size) in enumerate(zip(declared, shapes[node.name], strict=True)):
            own = own.substitute(sizes) if isinstance(own, Dim) else own
            _require("==", size, own, f"{node.name}.size()[{axis}] == {own}")
    require_ranges(exported.range_constraints, symbols)
    require_traced(torch, exported, shapes)
    require_asserted(exported, symbols)


def require_ranges(ranges: Mapping[object, SymbolRange], symbols: Symbols) -> None:
    """Let the program check that sizes are within the ranges of the export.

    Raises:
        UnsupportedError: A range is of a size that depends on what a tensor holds.
        UsageError: One that is given is not.
    """
    for symbol, bounds in ranges.items():
        low, high = _bound_of(bounds.lower), _bound_of(bounds.upper)
        if (low is None or low <= 0) and high is None:
            continue
        size = symbols.size_of(cast("SymExpression", symbol))
        text = f"the program was exported for sizes '{symbol}'"
        holds = True
        if low is not None and low > 0:
            holds = require_equal(maximum(size, low), size, f"{text} of {low} or more")
        if high is not None:
            holds = holds and require_equal(minimum(size, high), size, f"{text} up to {high}")
        if not holds:
            raise UsageError(f"{text} in {low}..{high}, not {size}")


def require_traced(
    torch: ModuleType, exported: Exported, shapes: Mapping[str, tuple[Size, ...]]
) -> None:
    """Let the program check the relations of sizes that tracing decided, as torch's module does.

    ``int(height // 7 * 7)`` in a module leaves the height open and is the example's number; the
    module of the exported program checks ``7 * (height // 7) == 42`` too.

    Args:
        torch: The package.
        exported: The program as it was exported or loaded; decomposing loses relations of a file.
        shapes: Shape of each tensor of the caller by the name of its placeholder.

    Raises:
        UnsupportedError: A relation has no counterpart.
        UsageError: Sizes that are given do not meet one.
    """
    texts: Sequence[str] = attrgetter("_guards_code")(exported)
    names = _placeholders(torch, exported) if texts else {}
    for text in texts:
        shown = re.sub(r"L\['(\w+)'\]", r"\1", text)[:500]
        sizes: dict[str, Size] = {}
        for path, axis in _SIZE.findall(text):
            shape = shapes.get(names.get(path, ""), ())
            sizes.update({f"L{path}.size()[{axis}]": size for size in shape[int(axis) :][:1]})
        try:
            tree = ast.parse(_SIZE.sub(_quoted, text), mode="eval").body
            for comparison in _read(tree, sizes):
                _require(*comparison, shown)
        except _UNREADABLE:
            raise UnsupportedError(
                f"the program was exported for {shown}, which cannot be checked of open sizes",
                hint="export it for fixed sizes",
            ) from None


def require_asserted(exported: Exported, symbols: Symbols) -> None:
    """Let the program check the relations of sizes that its operators assert.

    What depends on the contents of tensors is not checked here.

    Raises:
        UnsupportedError: A relation has no counterpart.
        UsageError: Sizes that are given do not meet one.
    """
    for node in exported.graph_module.graph.nodes:
        if node.op != "call_function" or not calls_one_of(node.target, ("_assert_scalar",)):
            continue
        value = cast("FxNode", node.args[0]).meta.get("val")
        if type(value).__name__ != "SymBool":
            continue
        relation = cast("SymBool", value).node.expr
        if depends_on_contents(relation) or not relation.free_symbols:  # ``True`` by the shapes
            continue
        for comparison in _asserted(relation, symbols):
            _require(*comparison, str(relation))


def _declared(
    exported: Exported, shapes: Mapping[str, tuple[Size, ...]]
) -> Generator[tuple[FxNode, tuple[Size, ...]]]:
    """Give placeholders of tensors of the caller with their shapes in the export."""
    for node in exported.graph_module.graph.nodes:
        if node.op == "placeholder" and node.name in shapes:
            yield node, Symbols({}).type(cast("TorchTensor", node.meta["val"])).shape


def _placeholders(torch: ModuleType, exported: Exported) -> dict[str, str]:
    """Return the placeholder of each value of the caller by its path: ``['images'][0]``."""
    signature = exported.module_call_graph[0].signature
    specs = exported.graph_signature.input_specs
    names = [spec.arg.name for spec in specs if spec.kind.name == "USER_INPUT"]
    tree = torch.utils._pytree
    arguments, by_keyword = tree.tree_unflatten(names, signature.in_spec)
    values = [*arguments, *by_keyword.values()]
    found = {f"['flat_args'][{index}]": name for index, name in enumerate(names)}
    for argument, value in zip(signature.forward_arg_names or (), values, strict=False):
        base, _, index = argument.rpartition("_")
        roots = [f"['{argument}']"]
        if base and index.isdigit():  # of ``*images``
            roots.append(f"['{base}'][{index}]")
        for path, name in tree.tree_leaves_with_path(value):
            found.update({root + tree.keystr(path): name for root in roots})
    return found


def _quoted(match: re.Match[str]) -> str:
    """Return a size of an input as the text of a size names variables that are no identifiers."""
    return repr(match[0])


def _read(tree: ast.expr, sizes: Mapping[str, Size]) -> list[Comparison]:
    """Return the comparisons that a relation in Python's syntax requires.

    Args:
        tree: The relation; sizes of inputs are texts.
        sizes: Sizes of inputs by these texts.

    Raises:
        ArtifactError: It has something else than arithmetic of sizes.
        UnsupportedError: It is no relation, or a size is of no input.
    """
    match tree:
        case ast.BoolOp(op=ast.And(), values=parts):
            return [comparison for part in parts for comparison in _read(part, sizes)]
        case ast.BoolOp(values=parts):
            return [_any_of([_read(part, sizes) for part in parts])]
        case ast.Compare(left=left, ops=[operation], comparators=[right]) if (
            type(operation) in _SPELLINGS
        ):
            sides = _size_of(left, sizes), _size_of(right, sizes)
            return [(_SPELLINGS[type(operation)], *sides)]
        case _:
            raise UnsupportedError("it is no relation")


def _asserted(relation: SymExpression, symbols: Symbols) -> list[Comparison]:
    """Return the comparisons that a relation of SymPy requires.

    Raises:
        UnsupportedError: It has no counterpart.
    """
    name = type(relation).__name__
    if name in _CLASSES:
        left, right = map(symbols.size_of, relation.args)
        return [(_CLASSES[name], left, right)]
    if name not in {"And", "Or"}:
        raise UnsupportedError(f"the program asserts {relation}, which cannot be checked")
    parts = [_asserted(part, symbols) for part in relation.args]
    return [_any_of(parts)] if name == "Or" else list(chain.from_iterable(parts))


def _any_of(parts: Sequence[Sequence[Comparison]]) -> Comparison:
    """Return the comparison that holds if all of one part do: the least excess of a part is 0."""
    excesses = [reduce(maximum, [_excess(*comparison) for comparison in part]) for part in parts]
    return "==", reduce(minimum, excesses), 0


def _excess(operation: str, left: Size, right: Size) -> Size:
    """Return how far two sizes are from meeting a relation; 0 if they do."""
    if operation == "==":
        return maximum(left - right, right - left)
    low, high = _ordered(operation, left, right)
    return maximum(low - high, 0)


def _ordered(operation: str, left: Size, right: Size) -> tuple[Size, Size]:
    """Return two sizes of which the first is at most the second if a relation holds."""
    match operation:
        case "!=":
            return 1, maximum(left - right, right - left)
        case "<=":
            return left, right
        case "<":
            return left + 1, right
        case ">=":
            return right, left
        case _:
            return right + 1, left


def _size_of(side: ast.expr, sizes: Mapping[str, Size]) -> Size:
    """Return the size that one side of a comparison is; raises as :func:`_read`."""
    size = parse_size(ast.unparse(side))
    if not isinstance(size, Dim):
        return size
    if not size.variables() <= sizes.keys():
        raise UnsupportedError("it has a size of no input")
    return size.substitute(sizes)


def _require(operation: str, left: Size, right: Size, shown: str) -> None:
    """Require a relation of two sizes.

    Raises:
        UsageError: They are numbers that do not meet it.
    """
    text = f"the program was exported for {shown}"
    if operation == "==":
        holds = require_equal(left, right, text)
    else:
        holds = require_at_most(*_ordered(operation, left, right), text)
    if not holds:
        raise UsageError(f"{text}, and {left} {operation} {right} does not hold")


def _bound_of(value: SymExpression | int) -> int | None:
    """Return a bound of a range; ``None`` for infinity."""
    if not isinstance(value, int) and not value.is_Integer:
        return None
    found = int(cast("int", value))
    return found if abs(found) < _LARGEST else None
