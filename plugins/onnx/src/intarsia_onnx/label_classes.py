# SPDX-License-Identifier: Apache-2.0
"""Shapes behind the first version of LabelEncoder, of which ONNX infers none."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bodies import Message


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
