# SPDX-License-Identifier: Apache-2.0
"""A program of the ``vm`` executor: steps over named values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field

from intarsia_ir.graph.expr import Expr, tensor_type
from intarsia_ir.graph.types import TensorType
from intarsia_runtime.artifact.signature import ModelSignature, ValueSpec

from ..graph import Graph, Node, ValueInfo
from ..kernels import OWN_DOMAIN

if TYPE_CHECKING:
    import numpy as np

    from intarsia_ir.graph.module import IRModule


PIECE = "CompiledPiece"
"""Operator of our own domain that calls a compiled piece, in a graph inside a node."""


class PieceStep(Struct, frozen=True):
    """Call a compiled piece.

    Attributes:
        name: Name of the piece.
        inputs: Values it takes, in the order of its parameters.
        outputs: Values it gives, in the order of its results.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


Step: TypeAlias = PieceStep | Node


class Program(Struct, frozen=True, eq=False):
    """What one run does, in order. A name is given a value once, before it is used.

    Attributes:
        opset: Version of the standard operator set of the nodes.
        inputs: Inputs of the model, in its order.
        outputs: Names of its outputs, in its order.
        steps: Compiled pieces and single nodes.
        constants: Values known at compile time.
        aliases: Further names of values.
    """

    opset: int
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[str, ...]
    steps: tuple[Step, ...]
    constants: Mapping[str, np.ndarray]
    aliases: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The steps that are no compiled pieces."""
        return tuple(step for step in self.steps if isinstance(step, Node))

    @property
    def called(self) -> frozenset[str]:
        """Names of the compiled pieces that steps, and nodes of graphs inside these, call."""
        found = {step.name for step in self.steps if isinstance(step, PieceStep)}
        pending = [*self.nodes]
        while pending:
            node = pending.pop()
            if node.domain == OWN_DOMAIN and node.op_type == PIECE:
                found.add(str(node.attrs.get("name", "")))
            for value in node.attrs.values():
                pending += value.nodes if isinstance(value, Graph) else ()
        return frozenset(found)


class DynamicModel(Struct, frozen=True, eq=False):
    """A model whose shapes, values or control flow are partly known at run time only.

    Attributes:
        program: What one run does.
        pieces: What can be compiled, by name.
        reasons: For every node of the model that is carried out on the host, why.
        outputs: Outputs of the model, in its order, as far as they are known.
    """

    program: Program
    pieces: Mapping[str, IRModule]
    reasons: Mapping[str, str]
    outputs: tuple[ValueInfo, ...]

    @property
    def on_host(self) -> tuple[Node, ...]:
        """Nodes of the model that are carried out on the host."""
        return tuple(node for node in self.program.nodes if node.domain != OWN_DOMAIN)

    @property
    def signature(self) -> ModelSignature:
        """Inputs and outputs of the model, in its order."""
        return ModelSignature(
            tuple(value_spec(info) for info in self.program.inputs),
            tuple(value_spec(info) for info in self.outputs),
        )

    @classmethod
    def of_module(cls, module: IRModule) -> DynamicModel:
        """Return a static module as a program of one piece."""
        main = module.main
        inputs = tuple(ValueInfo(param.name, tensor_type(param)) for param in main.params)
        names = tuple(param.name for param in main.params)
        step = PieceStep("piece0", names, main.output_names)
        program = Program(1, inputs, main.output_names, (step,), MappingProxyType({}))
        outputs = tuple(
            typed_info(ValueInfo(name, None), value)
            for name, value in zip(main.output_names, main.outputs, strict=True)
        )
        return cls(program, MappingProxyType({"piece0": module}), MappingProxyType({}), outputs)


def typed_info(info: ValueInfo, value: Expr | None) -> ValueInfo:
    """Return an output with the type of the expression that computes it, if one does."""
    if value is None or not isinstance(value.type, TensorType):
        return info
    return ValueInfo(info.name, value.type)


def value_spec(info: ValueInfo) -> ValueSpec:
    """Return what the runtime is told of an input or output."""
    if info.type is None:
        return ValueSpec(info.name, info.kind, None)
    shape = tuple(size if isinstance(size, int) else size.name for size in info.type.shape)
    return ValueSpec(info.name, info.stored or info.type.dtype.value, shape)
