# SPDX-License-Identifier: Apache-2.0
"""Large weights of a serialized model, found where they lie, so that protobuf need not copy them.

Protobuf's wire format is a row of fields: a varint with number and wire type, then a varint, 4 or 8
bytes, or a length and that many bytes. Only the model, its main graph and that graph's weights are
walked, and only what is needed to cut out the bytes of a weight (``raw_data``). Whatever is odd
there is left to protobuf, which reads the model whole and says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

LARGE = 1 << 16
"""Bytes from which a weight stays where it is."""

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # numbers of fields in onnx.proto
_DELIMITED = 2  # the wire type of what has a length
_MAX_VARINT = 10
_MAX_KEY = (1 << 32) - 1


class _Odd(Exception):
    """The bytes are not what is expected; protobuf is to judge them."""


class _Field(NamedTuple):
    """A field of a message: number and wire type, and where it and its content begin and end."""

    number: int
    wire: int
    start: int
    content: int
    end: int


class SlimModel(Struct, frozen=True, eq=False):
    """A serialized model without its large weights.

    Attributes:
        message: The model, serialized; weights that were cut out have no data.
        weights: The data that were cut out, by position among the main graph's weights.
    """

    message: bytes
    weights: dict[int, memoryview]


def slim_model(data: memoryview) -> SlimModel | None:
    """Cut the large weights out of a model.

    Args:
        data: The bytes of a model, or of anything. Views of it are returned.

    Returns:
        ``None`` if there are none, or the bytes are nothing that is understood here.
    """
    try:
        return _slim(data)
    except (_Odd, IndexError):
        return None


def _slim(data: memoryview) -> SlimModel | None:
    graphs = [field for field in _fields(data, 0, len(data)) if field.number == _GRAPH]
    if len(graphs) != 1 or graphs[0].wire != _DELIMITED:
        return None  # protobuf merges several
    graph = graphs[0]
    weights: dict[int, memoryview] = {}
    pieces: list[bytes | memoryview] = []
    kept, position = graph.content, 0
    for field in _fields(data, graph.content, graph.end):
        if field.number != _INITIALIZER:
            continue
        if field.wire != _DELIMITED:
            raise _Odd  # no weight, for protobuf
        raw = _raw_data(data, field) if field.end - field.content >= LARGE else None
        if raw is not None:
            rest = (data[field.content : raw.start], data[raw.end : field.end])
            pieces += [data[kept : field.start], *_message(_INITIALIZER, rest)]
            kept = field.end
            weights[position] = data[raw.content : raw.end]
        position += 1
    if not weights:
        return None
    pieces.append(data[kept : graph.end])
    whole = [data[: graph.start], *_message(_GRAPH, pieces), data[graph.end :]]
    return SlimModel(b"".join(whole), weights)


def _raw_data(data: memoryview, tensor: _Field) -> _Field | None:
    """The field with a tensor's bytes if it has one, and it is large."""
    found = [
        field for field in _fields(data, tensor.content, tensor.end) if field.number == _RAW_DATA
    ]
    if len(found) != 1 or found[0].wire != _DELIMITED:
        return None
    return found[0] if found[0].end - found[0].content >= LARGE else None


def _fields(data: memoryview, start: int, end: int) -> Iterator[_Field]:
    """The fields of the message between two positions."""
    while start < end:
        key, content = _varint(data, start)
        if key > _MAX_KEY:
            raise _Odd
        match key & 7:
            case 0:
                _, stop = _varint(data, content)
            case 1:
                stop = content + 8
            case 2:
                size, content = _varint(data, content)
                stop = content + size
            case 5:
                stop = content + 4
            case _:
                raise _Odd  # groups, which ONNX does not use
        if stop > end:
            raise _Odd
        yield _Field(key >> 3, key & 7, start, content, stop)
        start = stop


def _varint(data: memoryview, start: int) -> tuple[int, int]:
    """Return an integer and where it ends."""
    value = 0
    for index in range(_MAX_VARINT):
        byte = data[start + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, start + index + 1
    raise _Odd


def _message(number: int, pieces: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Write a field that is a message of these pieces."""
    return [_written(number << 3 | _DELIMITED), _written(sum(map(len, pieces))), *pieces]


def _written(value: int) -> bytes:
    """Write an integer as a varint."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
