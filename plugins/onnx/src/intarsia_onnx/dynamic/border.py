# SPDX-License-Identifier: Apache-2.0
"""Models whose inputs or outputs are sequences or optionals, compiled whole.

All nodes are in one piece. Around it a program unpacks lists into the tensors that compiled code
has in their place, and packs what it gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import Expr, Tuple, Var
from intarsia_ir.graph.guards import RequiredSizes, collecting_guards
from intarsia_ir.graph.types import TensorType, variable
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError

from ..builder import Builder
from ..converters import CONVERTERS
from ..converters.optionals import optional_input
from ..converters.ragged import ragged_sequence
from ..converters.sequences import ABSENT, flat_values, stacked_sequence
from ..graph import Attribute, Model, Node, ValueInfo
from ..importer import Importer, ImportScope
from ..kernels import OWN_DOMAIN
from ..ragged import ROW
from .program import DynamicModel, PieceStep, Program, typed_info

if TYPE_CHECKING:
    import numpy as np

PIECE = "piece0"


def has_border(model: Model) -> bool:
    """Whether an input or an output of a model is a sequence or an optional, as it declares."""
    infos = (*model.graph.inputs, *model.graph.outputs)
    return any(info.kind.startswith(("seq(", "optional(")) for info in infos)


def import_bordered(
    model: Model,
    inputs: Mapping[str, TensorType],
    fixed: Mapping[str, np.ndarray],
    *,
    opens: bool,
) -> DynamicModel:
    """Import a model whole.

    Args:
        model: The model.
        inputs: Types of its inputs that are tensors.
        fixed: Values of inputs that become constants.
        opens: Whether pieces may have sizes that only the run knows, and control flow.

    Raises:
        UnsupportedError: It cannot be.
        TypeRuleError: It cannot be for these sizes.
        ModelError: A node that breaks ONNX's rules.
    """
    if not opens:
        return BorderImporter(model, inputs, fixed, control_flow=False).whole()
    with collecting_guards() as guards:
        made = BorderImporter(model, inputs, fixed, control_flow=True).whole()
    required = RequiredSizes(tuple(guards))
    pieces = {PIECE: made.pieces[PIECE].with_attr(RequiredSizes, required)}
    return replace(made, pieces=MappingProxyType(pieces))


class BorderImporter(Importer):
    """Imports a model whole, with tensors in the place of sequences and optionals.

    Args:
        model: As of :class:`Importer`.
        inputs: As of :class:`Importer`, of those that are tensors.
        fixed: As of :class:`Importer`.
        control_flow: As of :class:`Importer`.
    """

    def __init__(
        self,
        model: Model,
        inputs: Mapping[str, TensorType],
        fixed: Mapping[str, np.ndarray],
        *,
        control_flow: bool,
    ) -> None:
        super().__init__(model, CONVERTERS, inputs, fixed, control_flow=control_flow)
        self._unpacks: list[Node] = []

    def whole(self) -> DynamicModel:
        """Import the model.

        Raises:
            UnsupportedError: Nodes that cannot be imported, or a sequence whose elements have no
                array in compiled code.
            ModelError: A node that breaks ONNX's rules.
        """
        graph = self._model.graph
        scope = ImportScope(graph, None, self._model.opset)
        params = [param for info in graph.inputs for param in self._parameters(info, scope)]
        results = self._import(scope)
        if self._problems or self._unknown or any(value is None for value in results):
            raise self._report()
        outputs: dict[str, Expr] = {}
        packs: list[Node] = []
        for info, value in zip(graph.outputs, results, strict=True):
            assert value is not None  # that is a problem
            packs += self._packed(info.name, value, outputs)
        module = self._whole(scope, params, outputs)
        piece = PieceStep(PIECE, tuple(param.name for param in params), tuple(outputs))
        infos = tuple(
            replace(info, type=self._inputs.get(info.name))
            for info in graph.inputs
            if info.name not in self._fixed
        )
        names = tuple(info.name for info in graph.outputs)
        steps = (*self._unpacks, piece, *packs)
        program = Program(self._model.opset, infos, names, steps, MappingProxyType({}))
        pieces = MappingProxyType({PIECE: module})
        given = tuple(typed_info(info, outputs.get(info.name)) for info in graph.outputs)
        return DynamicModel(program, pieces, MappingProxyType({}), given)

    def _parameters(self, info: ValueInfo, scope: ImportScope) -> list[Var]:
        if info.name in self._fixed or info.name in self._inputs:
            return super()._parameters(info, scope)
        where = f"input '{info.name}'"
        if info.element is None:
            raise UnsupportedError(f"is {info.kind or 'no tensor'}", where=where)
        builder = Builder(Span(info.name, "input"), self._folder)
        is_optional = info.kind.startswith("optional(")
        if "seq(" in info.kind:
            params, value = self._sequence(info, info.element, builder)
        else:
            params, value = self._held(info, info.element)
        if is_optional:
            holds = Var(f"{info.name} holds", TensorType((), DType.BOOL))
            self._unpack("Holds", info.name, holds)
            params, value = [*params, holds], optional_input(builder, value, holds)
        scope.values[info.name] = value
        return params

    def _sequence(self, info: ValueInfo, dtype: DType, builder: Builder) -> tuple[list[Var], Expr]:
        """Return the tensors that a sequence becomes."""
        name, count = info.name, variable(f"{info.name} count")
        sizes = [size for size in info.sizes or () if size is not None]
        if info.sizes is not None and len(sizes) == len(info.sizes):
            rows = Var(f"{name} rows", TensorType((count, *sizes), dtype))
            self._unpack("StackSequence", name, rows, dtype=dtype.value, shape=tuple(sizes))
            return [rows], stacked_sequence(builder, rows)
        known = None if info.sizes is None else (None,) * len(info.sizes)
        items = Var(f"{name} items", TensorType((variable(f"{name} total"),), dtype))
        shapes = Var(f"{name} shapes", TensorType((count, ROW), DType.INT64))
        given: dict[str, Attribute] = {} if known is None else {"rank": len(known)}
        self._unpack("PackSequence", name, items, shapes, dtype=dtype.value, **given)
        return [items, shapes], ragged_sequence(builder, items, shapes, known)

    def _held(self, info: ValueInfo, dtype: DType) -> tuple[list[Var], Expr]:
        """Return the tensor that an optional holds."""
        shape = tuple(size for size in info.sizes or () if size is not None)
        if info.sizes is None or len(shape) < len(info.sizes):
            where = f"input '{info.name}'"
            raise UnsupportedError("is an optional of a tensor of open sizes", where=where)
        held = Var(f"{info.name} held", TensorType(shape, dtype))
        self._unpack("HeldTensor", info.name, held, dtype=dtype.value, shape=shape)
        return [held], held

    def _unpack(self, kernel: str, name: str, *values: Var, **attrs: Attribute) -> None:
        self._unpacks.append(_step(kernel, (name,), tuple(x.name for x in values), attrs))

    def _packed(self, name: str, value: Expr, outputs: dict[str, Expr]) -> list[Node]:
        """Add the tensors of an output to those of the piece; return the steps that pack them."""
        if not isinstance(value, Tuple):
            outputs[name] = value
            return []
        if value is ABSENT:
            return [_step("Nothing", (), (name,))]
        held = self._folder.optionals.get(value)
        parts = flat_values((value if held is None else held,))
        names = tuple(f"{name} {number}" for number in range(len(parts)))
        outputs.update(zip(names, parts, strict=True))
        if held is None:
            return [_step(self._form(value), names, (name,))]
        is_there = f"{name} holds"
        outputs[is_there] = value.fields[0]
        whole, steps = names[0], list[Node]()
        if isinstance(held, Tuple):
            whole = f"{name} held"
            steps = [_step(self._form(held), names, (whole,))]
        return [*steps, _step("MakeOptional", (whole, is_there), (name,))]

    def _form(self, value: Tuple) -> str:
        """Return the kernel that makes a list of the tensors of a sequence."""
        if value in self._folder.stacked:
            return "UnstackSequence"
        return "UnpackSequence" if value in self._folder.ragged else "List"


def _step(
    kernel: str,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    attrs: Mapping[str, Attribute] = MappingProxyType({}),
) -> Node:
    return Node(kernel, OWN_DOMAIN, inputs, outputs, attrs, Span(outputs[0], kernel))
