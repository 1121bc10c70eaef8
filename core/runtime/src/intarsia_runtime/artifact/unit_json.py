# SPDX-License-Identifier: Apache-2.0
"""The one typed reader of what units hold: JSON as a class with bounds, or an error with a name.

A loader states what its file holds as ``msgspec.Struct`` classes, whose numbers have the types of
this module, and reads it with :func:`read_unit_json`, or :meth:`LoadRequest.read_json
<intarsia_runtime.loading.LoadRequest.read_json>`. What does not fit, wherever it is, becomes an
:class:`~intarsia_runtime.errors.ArtifactError`. What types cannot say (an index within a list, a
size that follows from others) the loader checks then, inside :func:`interpreting`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from math import prod
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from ..errors import ArtifactError
from .fields import check_characters

T = TypeVar("T")

MAX_BYTES = 1 << 46
"""No tensor is larger: 64 TiB. Products of sizes up to it fit into 64 bits with room to spare."""

MAX_RANK = 64

Size: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_BYTES)]
"""A number of elements or bytes."""

Index: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
"""A position in a list."""

Int32: TypeAlias = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
"""A number that a C interface takes as ``int``."""

Int64: TypeAlias = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A number that a C interface takes as ``int64_t``."""

Dims: TypeAlias = Annotated[tuple[Size, ...], Meta(max_length=MAX_RANK)]
"""A shape."""

_HINT = "compile the model again"


def read_unit_json(data: bytes, kind: type[T], *, file: str) -> T:
    """Read JSON as a value of ``kind``.

    Args:
        data: The file's content.
        kind: Type of the content: a class of msgspec, whose annotations are checked.
        file: Its name, for messages.

    Raises:
        ArtifactError: It is not JSON, or not of this type; the message names the position.
    """
    try:
        # Python's own reader: it knows Infinity, which limits of a clip may be.
        document: object = json.loads(data)
        check_characters(data, document)
        return msgspec.convert(document, kind, str_keys=True)
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
        raise ArtifactError(f"{file} is damaged: {error}", hint=_HINT) from None


class _VersionedFile(msgspec.Struct, frozen=True):
    """What every version of a file has."""

    schema: int


def read_versioned_json(
    data: bytes, kind: type[T], *, file: str, schema: int | tuple[int, ...], writer: str
) -> T:
    """Read what :func:`print_unit_json` wrote, as :func:`read_unit_json` does.

    Args:
        data: The file's content.
        kind: What it holds.
        file: Its name, for messages.
        schema: The version that is read, or several.
        writer: Distribution of the plugin that wrote it.

    Raises:
        ArtifactError: It is damaged, or of another schema.
    """
    found = read_unit_json(data, _VersionedFile, file=file).schema
    known = (schema,) if isinstance(schema, int) else schema
    if found not in known:
        raise ArtifactError(
            f"{file} has schema {found}, this plugin reads schema {' and '.join(map(str, known))}",
            hint=f"{_HINT}, or install the {writer} that compiled it",
        )
    return read_unit_json(data, kind, file=file)


def print_unit_json(body: Mapping[str, object], *, schema: int) -> bytes:
    """Return JSON with its schema, the same bytes for the same content."""
    text = json.dumps({"schema": schema, **body}, sort_keys=True, separators=(",", ":"))
    return f"{text}\n".encode()


@contextmanager
def interpreting(file: str) -> Generator[None]:
    """Make an :class:`ArtifactError` of what Python raises where a checked file is interpreted.

    For the few lines that make something of what the file says: a key that a node of its kind must
    have, a size that does not follow from others.
    """
    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
        struct.error,
    ) as error:
        raise ArtifactError(
            f"{file} is damaged: {type(error).__name__}: {error}", hint=_HINT
        ) from error


def tensor_bytes(shape: Iterable[int], item: int) -> int:
    """Return the bytes of a tensor of ``item`` bytes an element.

    Raises:
        ArtifactError: It is larger than any tensor.
    """
    sizes = tuple(shape)
    size = prod(sizes) * item
    if not 0 <= size <= MAX_BYTES or min(sizes, default=0) < 0:
        raise ArtifactError(f"no tensor has the shape {list(sizes)}", hint=_HINT)
    return size
