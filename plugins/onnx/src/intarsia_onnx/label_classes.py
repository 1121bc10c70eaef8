# SPDX-License-Identifier: Apache-2.0
"""Labels that are text, and maps: what ONNX does not say of their types."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from intarsia_ir.diagnostics import Span

from .graph import Node, ValueInfo

if TYPE_CHECKING:
    from .bodies import Message

VALUE_KIND = "intarsia.values"
"""Attribute of a DictVectorizer: ONNX's name of the element type of its map's values."""

_CLASSIFIERS = ("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier")


def give_classes_shapes(onnx: ModuleType, message: Message) -> None:
    """Write casts for encoders of a model's texts: ONNX infers the same type of these.

    Args:
        onnx: The ``onnx`` package.
        message: The model, a protobuf message, whose types are inferred; it is changed.
    """
    code = onnx.TensorProto
    infos = message.graph.input
    texts = {info.name for info in infos if info.type.tensor_type.elem_type == code.STRING}
    for node in message.graph.node:
        has_classes = any(attribute.name == "classes_strings" for attribute in node.attribute)
        if node.op_type == "LabelEncoder" and has_classes and texts.issuperset(node.input):
            cast = onnx.helper.make_node("Cast", node.input, node.output, to=code.INT64)
            node.CopyFrom(cast)


def labels_apart(node: Node) -> tuple[Node, ...]:
    """Return a classifier whose labels are text as one of numbers, and what names these.

    Numbers can be compiled; a LabelEncoder makes text of them on the host.
    """
    labels = node.attrs.get("classlabels_strings")
    if node.domain != "ai.onnx.ml" or node.op_type not in _CLASSIFIERS or not labels:
        return (node,)
    if not isinstance(labels, tuple):
        return (node,)
    name = node.outputs[0] if node.outputs else ""
    numbers = tuple(range(len(labels)))
    attrs = {key: value for key, value in node.attrs.items() if key != "classlabels_strings"}
    attrs["classlabels_int64s"] = numbers
    inner = f"{name}#class" if name else ""
    classifier = replace(node, outputs=(inner, *node.outputs[1:]), attrs=attrs)
    if not name:
        return (classifier,)
    table = {"keys_int64s": numbers, "values_strings": labels}
    span = Span(node.span.name, "LabelEncoder")
    return (classifier, Node("LabelEncoder", node.domain, (inner,), (name,), table, span))


def with_value_kinds(nodes: Sequence[Node], inputs: Sequence[ValueInfo]) -> list[Node]:
    """Write into each DictVectorizer the element type of the values of its map."""
    kinds = {info.name: info.kind for info in inputs if info.kind.startswith("map(")}
    found: list[Node] = []
    for node in nodes:
        kind = kinds.get(node.inputs[0], "") if node.inputs else ""
        if kind and node.op_type == "DictVectorizer":
            values = kind.partition("tensor(")[2].rstrip(")")
            node = replace(node, attrs={**node.attrs, VALUE_KIND: values})
        found.append(node)
    return found
