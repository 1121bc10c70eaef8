# SPDX-License-Identifier: Apache-2.0
"""Read and validate an ONNX model; the only file that imports onnx.

A model is checked in this order, and nothing it says is believed before its check: size, protobuf,
operator sets, functions, tensors, operator signatures, names and order.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, TypeAlias

from intarsia_ir.diagnostics import Span
from intarsia_runtime.artifact.digest import member_digest
from intarsia_runtime.errors import (
    IntarsiaError,
    ModelError,
    ResourceError,
    UnsupportedError,
    UsageError,
)
from intarsia_runtime.interrupts import interrupts_later

from .bodies import FunctionBodies, Schema, locations
from .external import ExternalFiles, map_file
from .functions import verify_functions
from .graph import (
    ATTRIBUTE_TYPES,
    Attribute,
    Graph,
    Model,
    Node,
    UnsupportedAttribute,
    has_type,
)
from .import_scope import without_dead_nodes
from .label_classes import labels_apart, with_value_kinds
from .model_file import read_file
from .refusals import NO_NUMBERS_HINT, with_readers
from .sniff import describe_bytes, found_kind
from .structure import sorted_nodes, verify_graph
from .value_reader import ValueReader, check_text
from .wire import slim_model

if TYPE_CHECKING:
    import numpy as np
    import onnx

    ModelSource: TypeAlias = str | os.PathLike[str] | bytes | onnx.ModelProto
    TensorProto: TypeAlias = onnx.TensorProto
    TypeProto: TypeAlias = onnx.TypeProto
    ValueInfoProto: TypeAlias = onnx.ValueInfoProto

MAX_MODEL_BYTES = (1 << 31) - 1  # protobuf's own limit
OLDEST_OPSET = 7
MAX_NESTING = 28  # graphs inside graphs; protobuf itself gives up soon after
STANDARD = ("", "ai.onnx")
_NO_WEIGHTS: Mapping[int, memoryview] = MappingProxyType({})
_LOCATION = b"\x08location"  # the key, with its length, in front of every name of a file


def read_model(
    model: ModelSource,
    *,
    max_bytes: int = MAX_MODEL_BYTES,
    any_value: bool = False,
    mapped: bool = False,
) -> Model:
    """Read a model from a path, its bytes, or an ``onnx.ModelProto`` (which is not changed).

    Args:
        model: Where the model is. External data are read only if it is a path.
        max_bytes: Limit on the size of the model file itself.
        any_value: Let values be what no compiled function takes: strings, narrow numbers,
            sequences, optionals, tensors of unknown rank. The first one is ``refused`` of what is
            returned; without ``any_value`` it is an error.
        mapped: Leave large weights in the file, which must then stay as it is while they are used.

    Raises:
        ModelError: Not an ONNX model, or one that contradicts itself.
        UnsupportedError: Operator set or element type not supported.
        ResourceError: Larger than ``max_bytes``, or functions that expand without end.
        UsageError: The ``onnx`` package is missing.
    """
    onnx = _import_onnx()
    folder, source = None, "<model>"
    weights = _NO_WEIGHTS
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        folder, source = path.parent, path.name
        message, weights = _parse_slim(onnx, read_file(path, max_bytes, mapped=mapped), source)
    elif isinstance(model, bytes):
        if len(model) > max_bytes:
            raise ResourceError(f"{len(model)} bytes; the limit is {max_bytes}", where=source)
        message, weights = _parse_slim(onnx, model, source)
    elif isinstance(model, onnx.ModelProto):
        message = model
    else:
        raise UsageError(f"expected a path, bytes or onnx.ModelProto, got {type(model).__name__}")
    try:
        files = ExternalFiles(folder)
        read = _MessageReader(onnx, files, source, any_value=any_value).read(message, weights)
    except IntarsiaError as error:
        _place(error, source)
        raise
    if read.refused is not None:
        _place(read.refused, source)
    return read


def _place(error: IntarsiaError, source: str) -> None:
    """Put the model's name before the place of an error in it."""
    error.where = f"{source}: {error.where}" if error.where else source


def with_node_properties(
    model: str | os.PathLike[str], properties: Mapping[str, Mapping[str, str]]
) -> bytes:
    """Return the bytes of a model with entries added to ``metadata_props`` of its nodes.

    Weights in files of their own stay there; the result finds them only from the same folder.

    Args:
        model: Path of the model.
        properties: Keys and values by the name of a node, or of its first output if it has none.

    Raises:
        ModelError: Not an ONNX model.
        UsageError: The ``onnx`` package is missing.
    """
    onnx = _import_onnx()
    message = _parse(onnx, bytes(read_file(Path(model), MAX_MODEL_BYTES)), str(model))
    for node in message.graph.node:
        found = properties.get(node.name or next(iter(node.output), ""), {})
        keys = [entry.key for entry in node.metadata_props]
        for key, value in found.items():
            if key in keys:
                node.metadata_props[keys.index(key)].value = value
            else:
                node.metadata_props.add(key=key, value=value)
    message.ir_version = max(message.ir_version, 10)  # the first version with entries on nodes
    return message.SerializeToString(deterministic=True)


def model_digests(path: Path) -> dict[str, str]:
    """Return the digest of a model's file and of every file that it keeps weights in, by name.

    Raises:
        ModelError: Not an ONNX model, or weights in a file that may not be read.
        ResourceError: Larger than protobuf allows.
        UsageError: The ``onnx`` package is missing.
    """
    data = read_file(path, MAX_MODEL_BYTES, mapped=True)
    found = {"": member_digest(memoryview(data))}
    slim = slim_model(memoryview(data))
    if _LOCATION not in (bytes(data) if slim is None else slim.message):
        return found
    message, _ = _parse_slim(_import_onnx(), data, path.name)
    for location in sorted(locations(message)):
        mapped = map_file(path.parent, location, path.name)
        found[location] = member_digest(memoryview(mapped))
    return found


def standard_bodies() -> FunctionBodies:
    """Return what ONNX itself defines by functions, for a model that has been read before.

    Raises:
        UsageError: The ``onnx`` package is missing.
    """
    return _MessageReader(_import_onnx(), ExternalFiles(None), "<model>", any_value=True).bodies()


def _import_onnx() -> ModuleType:
    try:
        with interrupts_later():  # protobuf crashes if an exception ends the import of its messages
            import onnx
    except ImportError as error:
        raise UsageError(
            f"reading ONNX models needs the package 'onnx': {error}",
            hint="pip install 'intarsia[onnx]'",
        ) from None
    return onnx


def _parse_slim(
    onnx: ModuleType, data: bytes | mmap.mmap, source: str
) -> tuple[onnx.ModelProto, Mapping[int, memoryview]]:
    """Parse a model, and return the large weights of its main graph apart, by position.

    A model that has to be rewritten by the ``onnx`` package is parsed whole.
    """
    slim = slim_model(memoryview(data))
    if slim is not None:
        with suppress(ModelError):  # what is wrong is said of the whole
            message = _parse(onnx, slim.message, source)
            old = any(entry.version < OLDEST_OPSET for entry in message.opset_import)
            if not (message.functions or old):
                return message, slim.weights
    return _parse(onnx, bytes(data), source), _NO_WEIGHTS


def _parse(onnx: ModuleType, data: bytes, source: str) -> onnx.ModelProto:
    kind = found_kind(data) if data else "no data"
    if kind:
        raise ModelError(f"expected an ONNX model, found {kind}", where=source)
    message = onnx.ModelProto()
    try:
        message.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError has no stable home
        if isinstance(error, MemoryError):
            raise ResourceError("not enough memory to parse the model", where=source) from None
        found = describe_bytes(data)
        raise ModelError(f"expected an ONNX model, found {found}", where=source) from None
    if not message.HasField("graph"):
        found = "protobuf data without a graph" if message.ir_version else describe_bytes(data)
        raise ModelError(f"expected an ONNX model, found {found}", where=source)
    return message


class _MessageReader:
    """Turns one message into plain values."""

    def __init__(
        self, onnx: ModuleType, files: ExternalFiles, source: str, *, any_value: bool = False
    ) -> None:
        self._onnx = onnx
        self._values = ValueReader(onnx, files, any_value=any_value)
        self._source = source
        self._schemas: dict[tuple[str, int], Schema | None] = {}

    def read(self, message: onnx.ModelProto, large: Mapping[int, memoryview]) -> Model:
        opset = self._opset(message)
        if message.functions:
            verify_functions(message.graph, message.functions)
            message = self._inlined(message)
        if opset < OLDEST_OPSET:
            message, opset = self._upgrade(message, opset)
        graph = self._graph(message.graph, opset, 0, large)
        verify_graph(graph)
        graph = without_dead_nodes(graph)
        refused = self._values.refused
        if refused is not None and self._values.refused_input:
            refused.message = with_readers(refused.message, graph, self._values.refused_input)
            refused.hint = refused.hint or NO_NUMBERS_HINT
        return Model(graph, opset, self._source, self.bodies(message), refused)

    def bodies(self, message: onnx.ModelProto | None = None) -> FunctionBodies:
        """Return what ONNX itself knows of operators, and of values of ``message``."""
        return FunctionBodies(self._onnx, self._schema, self._body_node, message)

    def _opset(self, message: onnx.ModelProto) -> int:
        check_text(*(entry.domain for entry in message.opset_import))
        versions = {entry.domain: entry.version for entry in message.opset_import}
        found = versions.get("", versions.get("ai.onnx"))
        if found is None:
            if message.opset_import and all(n.domain not in STANDARD for n in message.graph.node):
                return OLDEST_OPSET
            raise ModelError("the model does not say which operator set it uses (opset_import)")
        newest = self._onnx.defs.onnx_opset_version()
        if not 1 <= found <= newest:
            raise UnsupportedError(
                f"operator set {found} is not supported; known are 1 to {newest}",
                hint="upgrade the 'onnx' package" if found > newest else "",
            )
        return found

    def _upgrade(self, message: onnx.ModelProto, opset: int) -> tuple[onnx.ModelProto, int]:
        """Convert an operator set older than the converters speak."""
        from onnx import version_converter

        try:
            converted = version_converter.convert_version(message, OLDEST_OPSET)
        except Exception as error:  # the C++ converter raises several unrelated types
            reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
            raise UnsupportedError(f"operator set {opset} cannot be upgraded: {reason}") from None
        return converted, OLDEST_OPSET

    def _inlined(self, message: onnx.ModelProto) -> onnx.ModelProto:
        """Expand the functions that the model itself defines."""
        from onnx import inliner

        try:
            return inliner.inline_local_functions(message, True)
        except Exception as error:  # the C++ inliner raises several unrelated types
            reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
            raise ModelError(f"functions cannot be expanded: {reason}") from None

    def _schema(self, op_type: str, opset: int) -> Schema | None:
        key = (op_type, opset)
        if key not in self._schemas:
            try:
                self._schemas[key] = self._onnx.defs.get_schema(op_type, opset, "")
            except self._onnx.defs.SchemaError:
                self._schemas[key] = None
        return self._schemas[key]

    def _graph(
        self,
        message: onnx.GraphProto,
        opset: int,
        depth: int,
        large: Mapping[int, memoryview] = _NO_WEIGHTS,
    ) -> Graph:
        if depth > MAX_NESTING:
            raise ModelError(f"graphs nested more than {MAX_NESTING} deep", where=message.name)
        weights: dict[str, np.ndarray] = {}
        check_text(message.name)
        for position, tensor in enumerate(message.initializer):
            check_text(tensor.name)
            if not tensor.name or tensor.name in weights:
                raise ModelError(f"two weights are called '{tensor.name}'")
            where = f"weight '{tensor.name}'"
            raw = large.get(position)
            weights[tensor.name] = self._values.array(tensor, where, raw)
        if message.sparse_initializer:
            name = message.sparse_initializer[0].values.name
            raise UnsupportedError(f"weight '{name}' is sparse")
        read_nodes = (self._node(node, opset, depth) for node in message.node)
        nodes = [part for node in read_nodes for part in labels_apart(node)]
        nodes = sorted_nodes(nodes, f"{self._source}: graph '{message.name}'")
        read = self._values.inner_value if depth else self._values.value
        inputs = tuple(read(v, "input") for v in message.input if v.name not in weights or depth)
        outputs = tuple(read(v, "output") for v in message.output)
        return Graph(message.name, inputs, outputs, weights, tuple(with_value_kinds(nodes, inputs)))

    def _node(self, node: onnx.NodeProto, opset: int, depth: int) -> Node:
        inputs, outputs = tuple(node.input), tuple(node.output)
        op_type = node.op_type
        check_text(node.name, op_type, node.domain, *inputs, *outputs)
        domain = "" if node.domain in STANDARD else node.domain
        span = Span(node.name or next((name for name in outputs if name), op_type), op_type)
        attrs: dict[str, Attribute] = {}
        for attribute in node.attribute:
            check_text(attribute.name, attribute.ref_attr_name)
            if attribute.name in attrs:
                raise ModelError(f"attribute '{attribute.name}' is set twice", where=str(span))
            attrs[attribute.name] = self._attribute(attribute, span, opset, depth)
        if not domain:
            self._check_signature(op_type, opset, len(inputs), len(outputs), attrs, span)
        return Node(op_type, domain, inputs, outputs, attrs, span)

    def _body_node(self, node: onnx.NodeProto, opset: int) -> Node:
        return self._node(node, opset, 0)

    def _check_signature(
        self,
        op_type: str,
        opset: int,
        inputs: int,
        outputs: int,
        attrs: dict[str, Attribute],
        span: Span,
    ) -> None:
        """Check a node against ONNX's own schema; operators ONNX does not know are left alone."""
        schema = self._schema(op_type, opset)
        if schema is None:
            return
        if not schema.min_input <= inputs <= schema.max_input:
            raise ModelError(
                f"{inputs} inputs; {op_type} of opset {opset} takes "
                f"{schema.min_input} to {schema.max_input}",
                where=str(span),
            )
        if not schema.min_output <= outputs <= schema.max_output:
            raise ModelError(
                f"{outputs} outputs; {op_type} of opset {opset} gives "
                f"{schema.min_output} to {schema.max_output}",
                where=str(span),
            )
        if attrs:
            unknown = next((name for name in attrs if name not in schema.attributes), None)
            if unknown is not None:
                raise ModelError(
                    f"{op_type} of opset {opset} has no attribute '{unknown}'", where=str(span)
                )
            for name, value in attrs.items():
                wanted = schema.attributes[name].type.name
                if not has_type(value, wanted):
                    text = f"attribute '{name}' is not {ATTRIBUTE_TYPES[wanted]}"
                    raise ModelError(text, where=str(span))

    def _attribute(
        self, attribute: onnx.AttributeProto, span: Span, opset: int, depth: int
    ) -> Attribute:
        kinds = self._onnx.AttributeProto
        where = f"attribute '{attribute.name}' of {span}"
        match attribute.type:
            case kinds.INT:
                return attribute.i
            case kinds.FLOAT:
                return attribute.f
            case kinds.STRING:
                return attribute.s.decode("utf-8", "replace")
            case kinds.INTS:
                return tuple(attribute.ints)
            case kinds.FLOATS:
                return tuple(attribute.floats)
            case kinds.STRINGS:
                return tuple(text.decode("utf-8", "replace") for text in attribute.strings)
            case kinds.TENSOR:
                return self._values.array(attribute.t, where)
            case kinds.GRAPH:
                return self._graph(attribute.g, opset, depth + 1)
            case _:
                if attribute.ref_attr_name:
                    raise ModelError("refers to a function's attribute outside one", where=where)
                names = {value: name.lower() for name, value in kinds.AttributeType.items()}
                return UnsupportedAttribute(names.get(attribute.type, "unknown"))
