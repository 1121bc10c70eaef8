# SPDX-License-Identifier: Apache-2.0
"""Operators that ONNX itself defines by a function of others, expanded where they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeAlias, cast

import numpy as np
from msgspec.structs import replace

from intarsia_ir.graph.types import TensorType, variable
from intarsia_runtime.errors import ModelError, UnsupportedError

from .graph import Graph, Node, UnsupportedAttribute, ValueInfo
from .label_classes import give_classes_shapes
from .tensors import element_type, is_element_type, onnx_code

Message: TypeAlias = Any
"""A protobuf message; its class has a name only where onnx is imported."""

Schema: TypeAlias = Any
"""An ``onnx.defs.OpSchema``."""

_LONGEST_SHAPE = 1024  # elements of a vector that may be sizes of something
_HIDDEN = "intarsia.hidden"  # a domain whose operators ONNX does not know


class FunctionBodies:
    """Finds the body of a node and fills in its attributes.

    Args:
        onnx: The ``onnx`` package.
        schema: Returns ONNX's description of an operator at an opset, or ``None``.
        convert: Turns a node message into a :class:`Node`, given its opset.
        model: The model, for the types of its values.
    """

    def __init__(
        self,
        onnx: ModuleType,
        schema: Callable[[str, int], Schema | None],
        convert: Callable[[Message, int], Node],
        model: Message | None = None,
    ) -> None:
        self._model = model
        self._onnx = onnx
        self._schema = schema
        self._convert = convert

    def infer_types(self, inputs: Mapping[str, TensorType]) -> Mapping[str, TensorType]:
        """Return the types of values of the model as far as ONNX infers them.

        A size that depends on the run is a size variable: that of an input, if ONNX gives it the
        same name, or one of the value's own. Names in the shapes of other inputs, of strings, say
        nothing: no run checks them.

        Args:
            inputs: Types of its inputs, which may say more than the model.
        """
        if self._model is None:
            return {}
        message = self._onnx.ModelProto()
        message.CopyFrom(self._model)
        for info in message.graph.input:
            if info.name in inputs and is_element_type(info.type.tensor_type.elem_type):
                info.type.ParseFromString(self._type(inputs[info.name]))
                continue
            for dim in info.type.tensor_type.shape.dim:
                dim.ClearField("dim_param")
        for info in (*message.graph.input, *message.graph.output):
            for dim in info.type.tensor_type.shape.dim:
                if dim.dim_value < 0:  # open, as some exporters write it
                    dim.Clear()
        del message.graph.value_info[:]
        give_classes_shapes(self._onnx, message)
        _clear_trees(message)
        try:
            self._hide_long_vectors(message)
            inferred = self._onnx.shape_inference.infer_shapes(message, data_prop=True)
        except Exception:  # the C++ side raises several unrelated types; types are a bonus
            return {}
        named = {str(size): size for type_ in inputs.values() for size in type_.shape}
        found: dict[str, TensorType] = {}
        for info in (*inferred.graph.value_info, *inferred.graph.output):
            tensor = info.type.tensor_type
            if not tensor.HasField("shape") or not is_element_type(tensor.elem_type):
                continue
            sizes = tuple(
                dim.dim_value
                if dim.WhichOneof("value") == "dim_value"
                else named.get(dim.dim_param) or variable(f"{info.name}.{axis}")
                for axis, dim in enumerate(tensor.shape.dim)
            )
            found[info.name] = TensorType(sizes, element_type(tensor.elem_type, info.name))
        for info in inferred.graph.output:  # what is open there is what the model's author wrote
            type_ = found.get(info.name)
            if type_ is not None and not type_.is_static:
                found[info.name] = type_.with_shape(
                    size if isinstance(size, int) else variable(f"{info.name}.{axis}")
                    for axis, size in enumerate(type_.shape)
                )
        return found

    def _hide_long_vectors(self, message: Message) -> None:
        """Keep ONNX from following values of vectors too long to be shapes.

        It would spell them out element by element: 60 bytes for each, per node. So nodes that read
        or make one become nodes of an unknown operator, with the types that ONNX infers without.
        """
        plain = self._onnx.shape_inference.infer_shapes(message)
        graph, types = plain.graph, {info.name: info for info in plain.graph.value_info}
        infos = (*graph.input, *graph.output, *graph.value_info)
        shapes = {info.name: info.type.tensor_type.shape.dim for info in infos}
        long = {name for name, dims in shapes.items() if len(dims) == 1}
        long = {name for name in long if shapes[name][0].dim_value > _LONGEST_SHAPE}
        for node in message.graph.node if long else ():
            if long.isdisjoint((*node.input, *node.output)):
                continue
            node.domain = _HIDDEN
            message.graph.value_info.extend(types[name] for name in node.output if name in types)
        if long:
            message.opset_import.add(domain=_HIDDEN, version=1)

    def knows(self, node: Node, opset: int) -> bool:
        """Whether ONNX defines the operator of ``node`` by a function, for some types."""
        schema = None if node.domain else self._schema(node.op_type, opset)
        return schema is not None and (schema.has_function or schema.has_context_dependent_function)

    def expand(
        self, node: Node, opset: int, types: Sequence[TensorType | None]
    ) -> tuple[Graph, int] | None:
        """Return the body of a node as a graph with the node's own input and output names.

        Args:
            node: A node of the standard operator set.
            opset: Its version.
            types: Types of the node's inputs; ``None`` for one left out.

        Returns:
            The body and the version of its operator set; ``None`` if there is none.

        Raises:
            UnsupportedError: ONNX cannot write down a body for these types.
        """
        if not self.knows(node, opset):
            return None
        schema = self._schema(node.op_type, opset)
        message = self._message(node, schema)
        function = self._function(schema, opset, message, types, node)
        if function is None:
            return None
        attributes = {attribute.name: attribute for attribute in message.attribute}
        _bind_attributes(function.node, attributes)
        names = _renaming(function.input, node.inputs) | _renaming(function.output, node.outputs)
        versions = {entry.domain: entry.version for entry in function.opset_import}
        version = versions.get("", opset)
        nodes = tuple(
            _renamed(self._convert(inner, version), names, node) for inner in function.node
        )
        inputs = tuple(ValueInfo(name, None) for name in dict.fromkeys(node.inputs) if name)
        outputs = tuple(ValueInfo(name, None) for name in node.outputs if name)
        return Graph(node.op_type, inputs, outputs, {}, nodes), version

    def _message(self, node: Node, schema: Schema) -> Message:
        """Write the node as a message again, with the defaults of attributes it leaves out."""
        helper, from_array = self._onnx.helper, self._onnx.numpy_helper.from_array
        message = helper.make_node(node.op_type, node.inputs, node.outputs)
        for name, value in node.attrs.items():
            if isinstance(value, Graph | UnsupportedAttribute):
                raise UnsupportedError(
                    f"operator '{node.op_type}' has attribute '{name}', which cannot be expanded",
                    where=str(node.span),
                )
            plain = from_array(value) if isinstance(value, np.ndarray) else value
            kind = schema.attributes[name].type.value
            message.attribute.append(helper.make_attribute(name, plain, attr_type=kind))
        for name, attribute in schema.attributes.items():
            if name not in node.attrs and attribute.default_value.name:
                message.attribute.append(attribute.default_value)
        return message

    def _function(
        self,
        schema: Schema,
        opset: int,
        message: Message,
        types: Sequence[TensorType | None],
        node: Node,
    ) -> Message:
        try:
            if schema.has_function:
                data = schema.get_function_with_opset_version(opset)
            else:
                written = [self._type(type_) for type_ in types]
                version = max(
                    (v for v in schema.context_dependent_function_opset_versions if v <= opset),
                    default=opset,
                )
                data = schema.get_context_dependent_function_with_opset_version(
                    version, message.SerializeToString(), written
                )
        except Exception as error:  # the C++ side raises several unrelated types
            raise UnsupportedError(
                f"operator '{node.op_type}' cannot be expanded for these operands: {error}",
                where=str(node.span),
            ) from None
        function = self._onnx.FunctionProto()
        function.ParseFromString(data)
        return function if function.node else None

    def _type(self, type_: TensorType | None) -> bytes:
        if type_ is None:
            return b""
        sizes = [size if isinstance(size, int) else str(size) for size in type_.shape]
        proto = self._onnx.helper.make_tensor_type_proto(onnx_code(type_.dtype), sizes)
        return proto.SerializeToString()


def locations(message: Message) -> set[str]:
    """Return the names of the files with weights, of all tensors at any depth of a message.

    Raises:
        ModelError: A name is not UTF-8 text.
    """
    found: set[str] = set()
    todo = [message]
    while todo:
        for field, value in todo.pop().ListFields():
            if field.message_type is None:
                continue
            repeated = isinstance(value, Iterable)
            parts: list[Message] = list(cast("Iterable[Message]", value)) if repeated else [value]
            if field.name != "external_data":
                todo += parts
                continue
            names = [entry.value for entry in parts if entry.key == "location"]
            if not all(isinstance(name, str) for name in names):
                raise ModelError("the location of external data is not UTF-8 text")
            found.update(names)
    return found


def _renaming(formal: Sequence[str], actual: Sequence[str]) -> dict[str, str]:
    """Return the node's name for each name of the function; empty for one left out."""
    names = [*actual, *("" for _ in range(len(formal) - len(actual)))]
    return dict(zip(formal, names, strict=False))


def _renamed(inner: Node, names: dict[str, str], outer: Node) -> Node:
    """Give a body's node the names outside; names of its own are made unlike any other."""

    def new(name: str) -> str:
        return names.get(name, f"{name} in {outer.outputs[0]}") if name else ""

    def result(name: str) -> str:
        return names.get(name, "") or (f"{name} in {outer.outputs[0]}" if name else "")

    def inside(graph: Graph) -> Graph:
        nodes = tuple(_renamed(node, names, outer) for node in graph.nodes)
        inputs = tuple(replace(info, name=result(info.name)) for info in graph.inputs)
        outputs = tuple(replace(info, name=new(info.name)) for info in graph.outputs)
        weights = {result(name): data for name, data in graph.initializers.items()}
        return Graph(graph.name, inputs, outputs, weights, nodes)

    return replace(
        inner,
        inputs=tuple(new(name) for name in inner.inputs),
        outputs=tuple(result(name) for name in inner.outputs),
        attrs={
            key: inside(value) if isinstance(value, Graph) else value
            for key, value in inner.attrs.items()
        },
        span=outer.span,
    )


def _clear_trees(message: Message) -> None:
    """Clear the tables of decision trees, of millions of nodes: ONNX infers no type from them."""
    for node in message.graph.node:
        if node.op_type in ("TreeEnsembleClassifier", "TreeEnsembleRegressor"):
            for attribute in node.attribute:
                if attribute.name.startswith(("nodes_", "class_", "target_")):
                    for field in ("ints", "floats", "strings"):
                        attribute.ClearField(field)


def _bind_attributes(nodes: Iterable[Message], values: dict[str, Message]) -> None:
    """Replace references to the function's attributes by their values; unset ones go away."""
    for node in nodes:
        kept: list[Message] = []
        for attribute in node.attribute:
            reference = attribute.ref_attr_name
            if not reference:
                kept.append(attribute)
            elif reference in values:
                name = attribute.name
                attribute.CopyFrom(values[reference])
                attribute.name = name
                kept.append(attribute)
        again = [_parsed_again(attribute) for attribute in kept]
        del node.attribute[:]
        node.attribute.extend(again)


def _parsed_again(attribute: Message) -> Message:
    again: Message = attribute.__class__()
    again.ParseFromString(attribute.SerializeToString())
    return again
