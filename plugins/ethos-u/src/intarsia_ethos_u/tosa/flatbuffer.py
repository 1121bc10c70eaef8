# SPDX-License-Identifier: Apache-2.0
"""Writes a program as the flatbuffer that TOSA tools read, version 1.0.

Numbers are those of the public TOSA schema: operators and their attribute tables share one
numbering, and a table's fields are counted from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from .program import Attr, TosaNode, TosaProgram

VERSION = (1, 0, 0)
"""Version of the specification that the file claims."""

DTYPES = MappingProxyType({"INT8": 3, "INT16": 4, "INT32": 5})
"""Numbers of the element types that programs use."""

OPS = MappingProxyType(
    {
        "AVG_POOL2D": 2,
        "CONV2D": 3,
        "DEPTHWISE_CONV2D": 5,
        "MAX_POOL2D": 8,
        "CLAMP": 11,
        "ADD": 15,
        "MUL": 28,
        "SUB": 30,
        "TABLE": 31,
        "CONCAT": 55,
        "PAD": 56,
        "RESHAPE": 57,
        "SLICE": 59,
        "TRANSPOSE": 61,
        "RESCALE": 66,
        "CONST": 67,
        "CONST_SHAPE": 75,
    }
)
"""Numbers of the operators that programs use."""

SHAPE_OPERANDS = MappingProxyType(
    {"RESHAPE": ("shape",), "SLICE": ("start", "size"), "PAD": ("padding",)}
)
"""Attributes that the format has as operands, in order; PAD's constant follows them."""

_POOL = (("kernel", "ints"), ("stride", "ints"), ("pad", "ints"))
_CONV = (("pad", "ints"), ("stride", "ints"), ("dilation", "ints"), ("local_bound", "bool"))
_FIELDS: Mapping[str, tuple[tuple[str, str], ...]] = MappingProxyType(
    {
        "AVG_POOL2D": (*_POOL, ("acc_type", "enum")),
        "MAX_POOL2D": (*_POOL, ("nan_mode", "enum")),
        "CONV2D": (*_CONV, ("acc_type", "enum")),
        "DEPTHWISE_CONV2D": (*_CONV, ("acc_type", "enum")),
        "CLAMP": (("min_val", "byte"), ("max_val", "byte"), ("nan_mode", "enum")),
        "CONCAT": (("axis", "int"),),
        "TRANSPOSE": (("perms", "ints"),),
        "RESCALE": (
            ("scale32", "bool"),
            ("rounding_mode", "enum"),
            ("per_channel", "bool"),
            ("input_unsigned", "bool"),
            ("output_unsigned", "bool"),
        ),
    }
)
_ENUMS = MappingProxyType({"INT32": 5, "PROPAGATE": 1, "SINGLE_ROUND": 1, "DOUBLE_ROUND": 3})


def to_flatbuffer(program: TosaProgram, constants: Mapping[str, np.ndarray]) -> bytes:
    """Return the file.

    Args:
        program: The graph.
        constants: Arrays by the names of ``program.constants``.
    """
    return _FlatbufferWriter(program, constants).write()


class _FlatbufferWriter:
    def __init__(self, program: TosaProgram, constants: Mapping[str, np.ndarray]) -> None:
        import flatbuffers  # compiling needs it, and asking what is supported does not

        self._program = program
        self._constants = constants
        self._out = flatbuffers.Builder(4096)
        self._operators: list[int] = []
        self._shapes: list[int] = []

    def write(self) -> bytes:
        program = self._program
        tensors = [self._tensor(name) for name in program.tensors]
        for name in program.constants:
            self._operator("CONST", (), name)
        for node in program.nodes:
            self._node(node)
        names = (
            [border.name for border in program.inputs],
            [border.name for border in program.outputs],
        )
        block = self._table(
            {
                0: self._text("main"),
                1: self._vector(self._operators),
                2: self._vector(tensors),
                3: self._texts(names[0]),
                4: self._texts(names[1]),
                5: self._vector(self._shapes),
            }
        )
        region = self._table({0: self._text("main"), 1: self._vector([block])})
        graph = self._table({0: self._version(), 1: self._vector([region])})
        self._out.Finish(graph, b"TOSA")
        return bytes(self._out.Output())

    def _version(self) -> int:
        out = self._out
        out.StartObject(4)
        for slot, number in enumerate(VERSION):
            out.PrependInt32Slot(slot, number, -1)
        out.PrependBoolSlot(3, False, True)
        return int(out.EndObject())

    def _tensor(self, name: str) -> int:
        tensor = self._program.tensors[name]
        constant = self._program.constants.get(name)
        fields = {0: self._text(name), 1: self._ints(tensor.shape)}
        if constant is not None:
            fields[3] = self._bytes(np.ascontiguousarray(self._constants[constant]).tobytes())
        return self._table(fields, slots=14, numbers={2: DTYPES[tensor.dtype]})

    def _node(self, node: TosaNode) -> None:
        shapes = [
            self._shape(f"{node.output}.{key}", node.ints(key))
            for key in SHAPE_OPERANDS.get(node.op, ())
        ]
        operands = (node.inputs[0], *shapes, *node.inputs[1:]) if shapes else node.inputs
        self._operator(node.op, operands, node.output, node.attrs)

    def _shape(self, name: str, sizes: Sequence[int]) -> str:
        data = self._bytes(np.asarray(sizes, np.int64).tobytes())
        self._shapes.append(self._table({0: self._text(name), 2: data}, numbers={1: len(sizes)}))
        self._operator("CONST_SHAPE", (), name)
        return name

    def _operator(
        self,
        op: str,
        inputs: Sequence[str],
        output: str,
        attrs: Mapping[str, Attr] = MappingProxyType({}),
    ) -> None:
        attribute = self._attribute(op, attrs)
        fields = {2: attribute, 3: self._texts(inputs), 4: self._texts([output])}
        self._operators.append(self._operator_table(OPS[op], fields))

    def _operator_table(self, number: int, fields: Mapping[int, int]) -> int:
        # Operator, type of the attribute, attribute, inputs, outputs, location.
        out = self._out
        out.StartObject(6)
        for slot, offset in fields.items():
            out.PrependUOffsetTRelativeSlot(slot, offset, 0)
        out.PrependUint32Slot(0, number, 0)
        out.PrependUint8Slot(1, number, 0)
        return int(out.EndObject())

    def _attribute(self, op: str, attrs: Mapping[str, Attr]) -> int:
        out = self._out
        fields = _FIELDS.get(op, ())
        vectors: dict[int, int] = {}
        for slot, (name, form) in enumerate(fields):
            match attrs.get(name), form:
                case tuple() as sizes, "ints":
                    vectors[slot] = self._ints(sizes)
                case int() as number, "byte":
                    vectors[slot] = self._bytes(np.int8(number).tobytes())
                case _:
                    continue
        out.StartObject(max(len(fields), 1))
        for slot, (name, form) in enumerate(fields):
            match attrs.get(name), form:
                case _ if slot in vectors:
                    out.PrependUOffsetTRelativeSlot(slot, vectors[slot], 0)
                case str() as word, "enum":
                    out.PrependUint32Slot(slot, _ENUMS[word], 0)
                case bool() as flag, "bool":
                    out.PrependBoolSlot(slot, flag, False)
                case int() as number, "int":
                    out.PrependInt32Slot(slot, number, 0)
                case _:
                    continue
        return int(out.EndObject())

    def _table(
        self,
        offsets: Mapping[int, int],
        *,
        slots: int = 0,
        numbers: Mapping[int, int] = MappingProxyType({}),
    ) -> int:
        out = self._out
        out.StartObject(slots or max((*offsets, *numbers)) + 1)
        for slot, offset in offsets.items():
            out.PrependUOffsetTRelativeSlot(slot, offset, 0)
        for slot, number in numbers.items():
            out.PrependUint32Slot(slot, number, 0)
        return int(out.EndObject())

    def _text(self, text: str) -> int:
        return int(self._out.CreateString(text))

    def _texts(self, texts: Sequence[str]) -> int:
        return self._vector([self._text(text) for text in texts])

    def _vector(self, offsets: Sequence[int]) -> int:
        self._out.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._out.PrependUOffsetTRelative(offset)
        return int(self._out.EndVector())

    def _ints(self, numbers: Sequence[int]) -> int:
        self._out.StartVector(4, len(numbers), 4)
        for number in reversed(numbers):
            self._out.PrependInt32(number)
        return int(self._out.EndVector())

    def _bytes(self, data: bytes) -> int:
        self._out.StartVector(1, len(data), 8)
        self._out.head = self._out.Head() - len(data)
        self._out.Bytes[self._out.Head() : self._out.Head() + len(data)] = data
        return int(self._out.EndVector())
