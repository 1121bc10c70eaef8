# SPDX-License-Identifier: Apache-2.0
"""Programs as files: ``program.json``, and ``program.bin`` with the bytes of its tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

import numpy as np

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.types import TensorType, variable
from intarsia_runtime.artifact.fields import (
    JsonObject,
    read_dict,
    read_int,
    read_list,
    read_str,
    read_texts,
)
from intarsia_runtime.dtype import parse_dtype
from intarsia_runtime.errors import ArtifactError, IntarsiaError

from ..graph import Attribute, Graph, Node, UnsupportedAttribute, ValueInfo
from ..tensors import named_dtype
from .program import PieceStep, Program, Step

SCHEMA = 2
PROGRAM_FILE = "program.json"
DATA_FILE = "program.bin"


def print_program(program: Program) -> dict[str, bytes]:
    """Return the files of a program by name; the same program gives the same bytes."""
    writer = _Writer()
    document = {
        "schema": SCHEMA,
        "opset": program.opset,
        "inputs": [_info_to_json(info) for info in program.inputs],
        "outputs": list(program.outputs),
        "aliases": dict(program.aliases),
        "constants": {name: writer.array(data) for name, data in program.constants.items()},
        "steps": [writer.step(step) for step in program.steps],
    }
    text = json.dumps(document, indent=1, ensure_ascii=True) + "\n"
    return {PROGRAM_FILE: text.encode(), DATA_FILE: bytes(writer.data)}


def parse_program(files: Mapping[str, bytes]) -> Program:
    """Read the files of a program.

    Raises:
        ArtifactError: They are damaged or of another schema.
    """
    try:
        document = read_dict(json.loads(files[PROGRAM_FILE]), PROGRAM_FILE)
        if document.get("schema") != SCHEMA:
            raise ArtifactError(
                f"the program has schema {document.get('schema')!r}, this version reads {SCHEMA}",
                hint="compile the model again with this version",
            )
        return _Reader(files[DATA_FILE]).program(document)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise ArtifactError(f"{PROGRAM_FILE} is damaged: {error!r}") from None
    except IntarsiaError as error:
        raise ArtifactError(error.message, hint=error.hint) from None


def check_names(program: Program) -> None:
    """Check that every value of a program is there before it is read.

    Raises:
        ArtifactError: One is not.
    """
    known = {*program.constants, *(info.name for info in program.inputs)}
    later: dict[str, list[str]] = {}
    for name, source in program.aliases.items():
        later.setdefault(source, []).append(name)
    for name in tuple(known):
        known.update(later.get(name, ()))
    for step in program.steps:
        absent = [name for name in step.inputs if name and name not in known]
        if absent:
            raise ArtifactError(f"the program reads '{absent[0]}' before it is computed")
        for name in step.outputs:
            known |= {name, *later.get(name, ())} if name else set()
    absent = [name for name in program.outputs if name not in known]
    if absent:
        raise ArtifactError(f"no step computes the program's output '{absent[0]}'")


class _Writer:
    """Writes values; all tensors go into one run of bytes."""

    def __init__(self) -> None:
        self.data = bytearray()

    def array(self, array: np.ndarray) -> JsonObject:
        shape = list(array.shape)
        if array.dtype == object:
            return {"strings": [str(text) for text in array.reshape(-1)], "shape": shape}
        self.data += bytes(-len(self.data) % 8)
        start = len(self.data)
        self.data += np.ascontiguousarray(array).tobytes()
        return {"dtype": array.dtype.name, "shape": shape, "at": start}

    def step(self, step: Step) -> JsonObject:
        if isinstance(step, PieceStep):
            return {"piece": step.name, "inputs": list(step.inputs), "outputs": list(step.outputs)}
        return self.node(step)

    def node(self, node: Node) -> JsonObject:
        return {
            "op": node.op_type,
            "domain": node.domain,
            "name": node.span.name,
            "inputs": list(node.inputs),
            "outputs": list(node.outputs),
            "attrs": {name: self.attribute(value) for name, value in node.attrs.items()},
        }

    def attribute(self, value: Attribute) -> object:
        match value:
            case np.ndarray():
                return {"tensor": self.array(value)}
            case Graph():
                return {"graph": self.graph(value)}
            case UnsupportedAttribute():
                return {"kind": value.kind}
            case tuple():
                return [self.attribute(item) for item in value]
            case float():
                return {"float": value.hex()}
            case _:
                return value

    def graph(self, graph: Graph) -> JsonObject:
        return {
            "name": graph.name,
            "inputs": [_info_to_json(info) for info in graph.inputs],
            "outputs": [_info_to_json(info) for info in graph.outputs],
            "constants": {name: self.array(data) for name, data in graph.initializers.items()},
            "nodes": [self.node(node) for node in graph.nodes],
        }


def _info_to_json(info: ValueInfo) -> JsonObject:
    if info.type is None:
        return {"name": info.name, "kind": info.kind}
    shape = [size if isinstance(size, int) else size.name for size in info.type.shape]
    row: JsonObject = {"name": info.name, "dtype": info.type.dtype.value, "shape": shape}
    return row | {"stored": info.stored} if info.stored else row


class _Reader:
    """Reads what :class:`_Writer` wrote."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def program(self, document: JsonObject) -> Program:
        return Program(
            opset=read_int(document, "opset"),
            inputs=self._infos(document, "inputs"),
            outputs=read_texts(document, "outputs"),
            steps=tuple(self._step(_object(item)) for item in read_list(document, "steps")),
            constants=self._arrays(document),
            aliases=MappingProxyType(
                {name: str(value) for name, value in _object(document["aliases"]).items()}
            ),
        )

    def _infos(self, document: JsonObject, key: str) -> tuple[ValueInfo, ...]:
        return tuple(_info_from_json(_object(item)) for item in read_list(document, key))

    def _arrays(self, document: JsonObject) -> Mapping[str, np.ndarray]:
        rows = _object(document["constants"])
        return MappingProxyType({name: self._array(_object(row)) for name, row in rows.items()})

    def _array(self, row: JsonObject) -> np.ndarray:
        shape = tuple(int(cast("int", size)) for size in read_list(row, "shape"))
        if "strings" in row:
            words = np.array(read_list(row, "strings"), object).reshape(shape)
            words.flags.writeable = False  # as other constants
            return words
        dtype = named_dtype(read_str(row, "dtype"))
        count = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(self._data, dtype, count, read_int(row, "at"))
        return array.reshape(shape)

    def _step(self, row: JsonObject) -> Step:
        if "piece" in row:
            return PieceStep(
                read_str(row, "piece"), read_texts(row, "inputs"), read_texts(row, "outputs")
            )
        return self._node(row)

    def _node(self, row: JsonObject) -> Node:
        op_type = read_str(row, "op")
        attrs = {name: self._attribute(value) for name, value in _object(row["attrs"]).items()}
        return Node(
            op_type,
            read_str(row, "domain"),
            read_texts(row, "inputs"),
            read_texts(row, "outputs"),
            attrs,
            Span(read_str(row, "name"), op_type),
        )

    def _attribute(self, value: object) -> Attribute:
        if isinstance(value, str | int):
            return value
        if isinstance(value, list):
            items = [self._attribute(item) for item in cast("list[object]", value)]
            return tuple(item for item in items if isinstance(item, int | float | str))
        row = _object(value)
        ((key, inner),) = row.items()
        match key:
            case "float":
                return float.fromhex(str(inner))
            case "tensor":
                return self._array(_object(inner))
            case "graph":
                return self._graph(_object(inner))
            case _:
                return UnsupportedAttribute(str(inner))

    def _graph(self, row: JsonObject) -> Graph:
        return Graph(
            read_str(row, "name"),
            self._infos(row, "inputs"),
            self._infos(row, "outputs"),
            self._arrays(row),
            tuple(self._node(_object(item)) for item in read_list(row, "nodes")),
        )


def _info_from_json(row: JsonObject) -> ValueInfo:
    name = read_str(row, "name")
    if "kind" in row:
        return ValueInfo(name, None, read_str(row, "kind"))
    sizes = tuple(
        size if isinstance(size, int) else variable(str(size)) for size in read_list(row, "shape")
    )
    if any(type(size) is bool or (isinstance(size, int) and size < 0) for size in sizes):
        raise ArtifactError(f"'{name}' has the shape {list(sizes)}")
    stored = read_str(row, "stored") if "stored" in row else ""
    return ValueInfo(name, TensorType(sizes, parse_dtype(read_str(row, "dtype"))), stored=stored)


def _object(value: object) -> JsonObject:
    return read_dict(value, "a part of the program")
