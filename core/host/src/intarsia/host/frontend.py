# SPDX-License-Identifier: Apache-2.0
"""Model formats that plugins import: what ``register_frontend`` answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from intarsia_ir.graph.module import IRModule

SNIFF_BYTES = 4096
"""First bytes of a file that ``sniff`` gets."""

ModelSource: TypeAlias = "Path | bytes"
"""A model in a file, or its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontend:
    """A model format.

    Attributes:
        name: The format, as the manifest declares it: ``onnx``.
        suffixes: Suffixes of file names, with the dot, as the manifest declares them.
        importer: ``importer(model, shapes, mapped)`` returns the model as a module. ``shapes`` has
            shapes of inputs by name, or is ``None``; ``mapped`` lets large weights stay in it.
        sniff: ``sniff(head)`` tells whether a model begins with these bytes, at most
            :data:`SNIFF_BYTES`. Without it the suffix alone decides.
        digests: ``digests(path)`` returns a digest of the model's file (under the name ``""``) and
            of each file that it refers to, for caches. Without it the file itself is hashed.
    """

    name: str
    suffixes: tuple[str, ...]
    importer: Callable[[ModelSource, Mapping[str, Sequence[int]] | None, bool], IRModule]
    sniff: Callable[[bytes], bool] | None = None
    digests: Callable[[Path], Mapping[str, str]] | None = None
