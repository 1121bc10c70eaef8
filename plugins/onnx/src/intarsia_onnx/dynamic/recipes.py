# SPDX-License-Identifier: Apache-2.0
"""What converters made of nodes that ran before, so that a run repeats only what values change.

What a converter makes depends on the element types and sizes of the operands, and on the values
that it asks the constant folder for. Here it converts variables, so it can ask nothing else, and
the folder notes what it was asked. The next run with the same types, sizes and noted values finds
the operators that came out as a list of functions to call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from operator import itemgetter
from threading import Lock
from typing import TypeAlias, cast

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from intarsia_ir.graph.expr import Call, Constant, Expr, TupleGetItem, Var
from intarsia_ir.graph.types import TensorType, Type
from intarsia_ir.graph.walk import children, post_order

from ..fold import ConstantFolder
from ..graph import Node

NOTED_BYTES = 4096
"""Most bytes of an operand whose value is compared at every run."""
KEPT_BYTES = 1 << 16
"""Most bytes of a value that is computed once for a recipe, where others depend on the run."""
MOST_KEPT_BYTES = 1 << 24
"""The same where nothing depends on the run: weights that a model moves and joins."""
MOST_FORMS = 16
"""Most recipes of one node: for sizes, and for values that its converter reads."""
MOST_BYTES = 64 << 20
"""Most bytes of values that all recipes of a program keep; for more it begins anew, or leaves a
large one out."""
MOST_MISSES = 64
"""How often a node may come in a new form, if that is more often than in a known one."""

Signature: TypeAlias = "tuple[tuple[np.dtype, tuple[int, ...]] | None, ...]"
"""Element type and shape of every operand; ``None`` for one left out."""

Mark: TypeAlias = "bytes | int"
"""The value of an operand, or the identity of an array that never changes."""


class TooLargeError(Exception):
    """A converter reads a value that is too large to be compared at every run."""


class NotingFolder(ConstantFolder):
    """Knows the values of variables, and notes which of them were asked for.

    Args:
        values: Value of each variable that may be asked for.
    """

    def __init__(self, values: Mapping[Var, np.ndarray]) -> None:
        super().__init__()
        self._bound = values
        self.read: set[Var] = set()

    def value(self, expr: Expr) -> np.ndarray | None:
        """Return the value of ``expr``.

        Raises:
            TooLargeError: It depends on a variable whose value may not be asked for.
        """
        return self._noted(expr) if isinstance(expr, Var) else super().value(expr)

    def _evaluate(self, node: Expr) -> np.ndarray | tuple[np.ndarray, ...] | None:
        return self._noted(node) if isinstance(node, Var) else super()._evaluate(node)

    def _noted(self, var: Var) -> np.ndarray:
        if var not in self._bound:
            raise TooLargeError
        self.read.add(var)
        return self._bound[var]


class _Action(Struct, frozen=True):
    """Call a function on values by their numbers; those in ``last`` are not needed after it."""

    function: Callable[..., object]
    operands: tuple[int, ...]
    result: int
    last: tuple[int, ...] = ()


class _Result(Struct, frozen=True):
    """One result.

    Attributes:
        number: Of the value.
        value: The value itself, read-only, if it is the same at every run.
        stored: Element type that its bytes store, if they are narrow numbers.
    """

    number: int
    value: np.ndarray | None
    stored: np.dtype | None


class Recipe(Struct, frozen=True):
    """Operators in their order, as calls of their NumPy definitions.

    Attributes:
        values: One for each operand and each result of an operator; those that are known.
        actions: What computes the others.
        results: What a run gives.
    """

    values: tuple[object, ...]
    actions: tuple[_Action, ...]
    results: tuple[_Result, ...]

    @property
    def nbytes(self) -> int:
        """How much memory the known values take."""
        return sum(value.nbytes for value in self.values if isinstance(value, np.ndarray))

    def run(self, operands: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        """Compute the results, read-only if they are always the same.

        Errors are those of the operators' definitions.
        """
        values = list(self.values)
        values[: len(operands)] = operands
        for action in self.actions:
            found = action.function(*[values[n] for n in action.operands])
            values[action.result] = found if isinstance(found, tuple) else np.asarray(found)
            for n in action.last:
                values[n] = None
        arrays: list[np.ndarray] = []
        for result in self.results:
            if result.value is not None:
                arrays.append(result.value)
                continue
            array = np.asarray(values[result.number])
            arrays.append(array if result.stored is None else array.view(result.stored))
        return arrays


class Writer:
    """Writes one recipe.

    Args:
        operands: A variable for every operand, ``None`` for one left out.
        known: Values that operands have whenever the recipe is used.
    """

    def __init__(self, operands: Sequence[Var | None], known: Mapping[Var, np.ndarray]) -> None:
        self._numbers: dict[Expr, int] = {x: n for n, x in enumerate(operands) if x is not None}
        self._values: list[object] = [None] * len(operands)
        self._known: dict[Expr, object] = {**known}
        self._open: set[Expr] = {x for x in operands if x is not None and x not in known}
        self._actions: list[_Action] = []

    def write(self, results: Sequence[Expr], stored: Sequence[np.dtype | None]) -> Recipe | None:
        """Return the recipe; ``None`` if a result takes more than operators: a choice, a call.

        Args:
            results: Expressions of the operands.
            stored: For each the element type that its bytes store; ``None`` for plain numbers.
        """
        for node in post_order(*results):
            if node not in self._numbers and not self._add(node):
                return None
        numbers = [self._numbers[result] for result in results]
        found: list[_Result] = []
        for number, dtype in zip(numbers, stored, strict=True):
            value = self._values[number]
            array = cast("np.ndarray", value) if isinstance(value, np.ndarray) else None
            if array is not None and dtype is not None:
                array = array.view(dtype)
            found.append(_Result(number, array, dtype))
        return Recipe(tuple(self._values), tuple(self._with_ends(set(numbers))), tuple(found))

    def _add(self, node: Expr) -> bool:
        number = self._numbers[node] = len(self._values)
        self._values.append(None)
        if isinstance(node, Constant):
            self._known[node] = self._values[number] = _frozen(node.data)
            return True
        function = _function(node)
        if function is None:
            return False
        inputs = children(node)
        if not self._open.isdisjoint(inputs):
            self._open.add(node)
        elif self._is_kept(node.type) and all(x in self._known for x in inputs):
            found = np.asarray(function(*(self._known[x] for x in inputs)))
            self._known[node] = self._values[number] = _frozen(found)
            return True
        places = tuple(self._numbers[x] for x in inputs)
        self._actions.append(_Action(function, places, number))
        return True

    def _is_kept(self, type_: Type) -> bool:
        """Whether a value that is always the same is computed once; all are, if nothing changes."""
        limit = KEPT_BYTES if self._open else MOST_KEPT_BYTES
        return isinstance(type_, TensorType) and type_.is_static and type_.bytes <= limit

    def _with_ends(self, results: AbstractSet[int]) -> Iterator[_Action]:
        """Note with each action what it is the last to use, except results."""
        last: dict[int, int] = {}
        for place, action in enumerate(self._actions):
            last.update(dict.fromkeys(action.operands, place))
        for place, action in enumerate(self._actions):
            ends = {n for n in action.operands if last[n] == place and n not in results}
            yield replace(action, last=tuple(sorted(ends)))


def _frozen(array: np.ndarray) -> np.ndarray:
    """Return an array that nobody can write to, nor to views of it."""
    view = array.view()
    view.flags.writeable = False
    return view


def _function(node: Expr) -> Callable[..., object] | None:
    match node:
        case Call():
            return partial(node.op.reference, node.attrs)
        case TupleGetItem():
            return itemgetter(node.index)
        case _:
            return None


class _Forms(Struct):
    """What is known of one node."""

    node: Node
    met: set[Signature] = field(default_factory=set[Signature])
    reads: dict[Signature, list[tuple[int, ...]]] = field(
        default_factory=dict[Signature, list[tuple[int, ...]]]
    )
    recipes: dict[tuple[Signature, tuple[int, ...], tuple[Mark, ...]], Recipe] = field(
        default_factory=dict[tuple[Signature, tuple[int, ...], tuple[Mark, ...]], Recipe]
    )
    misses: int = 0
    hits: int = 0
    given_up: bool = False


class Recipes:
    """Recipes of the nodes of a program, within limits.

    Args:
        fixed: Identities of arrays that live and never change as long as this does.
    """

    def __init__(self, fixed: AbstractSet[int] = frozenset()) -> None:
        self._fixed = fixed
        self._results: dict[int, np.ndarray] = {}
        self._forms: dict[int, _Forms] = {}
        self._bytes = 0
        self._lock = Lock()

    def readable(self, operand: np.ndarray) -> np.ndarray | None:
        """Return an operand as it may be read for a recipe; ``None`` if it is too large for that.

        It is a copy, unless nobody can change it.
        """
        if self.is_fixed(operand):
            return operand
        return operand.copy() if operand.nbytes <= NOTED_BYTES else None

    def find(self, node: Node, operands: Sequence[np.ndarray | None]) -> Recipe | None:
        """Return the recipe for a node and operands, if there is one."""
        forms = self._forms.get(id(node))
        if forms is None or forms.node is not node:
            return None
        signature = signature_of(operands)
        for read in forms.reads.get(signature, ()):
            found = forms.recipes.get((signature, read, self._marks(operands, read)))
            if found is not None:
                forms.hits += 1
                return found
        return None

    def is_profitable(self, node: Node, operands: Sequence[np.ndarray | None]) -> bool:
        """Whether to write a recipe: the node comes again like this, and not ever anew."""
        with self._lock:
            forms = self._forms.get(id(node))
            if forms is None or forms.node is not node:
                forms = self._forms[id(node)] = _Forms(node)
            forms.misses += 1
            if forms.given_up or forms.misses > max(MOST_MISSES, forms.hits):
                return False
            signature = signature_of(operands)
            if signature in forms.met:
                return True
            if len(forms.met) >= MOST_FORMS:
                forms.met.clear()
            forms.met.add(signature)
            return False

    def give_up(self, node: Node) -> None:
        """Write no recipe for a node again: its converter wants to see the operands themselves."""
        with self._lock:
            forms = self._forms.get(id(node))
            if forms is not None:
                forms.given_up = True

    def keep(
        self,
        node: Node,
        operands: Sequence[np.ndarray | None],
        read: tuple[int, ...],
        recipe: Recipe,
    ) -> None:
        """Keep a recipe for operands of these types and sizes, and these values of some."""
        with self._lock:
            forms = self._forms.get(id(node))
            if forms is None:
                return
            if self._bytes + recipe.nbytes > MOST_BYTES:
                if recipe.nbytes > MOST_BYTES // 16:
                    forms.given_up = True
                else:
                    self._forms, self._results, self._bytes = {}, {}, 0
                return
            self._bytes += recipe.nbytes
            signature = signature_of(operands)
            if len(forms.recipes) >= MOST_FORMS:
                forms.recipes, forms.reads = {}, {}
            forms.recipes[signature, read, self._marks(operands, read)] = recipe
            arrays = (result.value for result in recipe.results)
            self._results.update((id(array), array) for array in arrays if array is not None)
            reads = forms.reads.get(signature, [])
            if read not in reads:
                forms.reads[signature] = [*reads, read]

    def _marks(
        self, operands: Sequence[np.ndarray | None], read: tuple[int, ...]
    ) -> tuple[Mark, ...]:
        return tuple(self._mark(operands[n]) for n in read)

    def _mark(self, operand: np.ndarray | None) -> Mark:
        if operand is None:
            return 0
        return id(operand) if self.is_fixed(operand) else operand.tobytes()

    def is_fixed(self, operand: np.ndarray) -> bool:
        """Whether an array, which lives as long as what is known of it here, never changes."""
        return id(operand) in self._fixed or id(operand) in self._results


def signature_of(operands: Sequence[np.ndarray | None]) -> Signature:
    """Return the element types and shapes of operands."""
    return tuple([None if x is None else (x.dtype, x.shape) for x in operands])
