# SPDX-License-Identifier: Apache-2.0
"""What a unit holds beside its engine: tensors at its border, and what the engine was built with.

Shared by the compiling half and the runtime half; imports no compiler.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct, to_builtins

from intarsia_runtime.plugin import Dims, DType, read_versioned_json

SCHEMA = 1
FILE = "signature.json"
PLAN_FILE = "engine.plan"

TYPE_NAMES: Mapping[str, str] = MappingProxyType(
    {
        DType.FLOAT32.value: "FLOAT",
        DType.FLOAT16.value: "HALF",
        DType.BFLOAT16.value: "BF16",
        DType.INT32.value: "INT32",
        DType.INT64.value: "INT64",
        DType.INT8.value: "INT8",
        DType.UINT8.value: "UINT8",
        DType.BOOL.value: "BOOL",
    }
)
"""Element types that networks have, NumPy's name to the library's."""


class EngineBorder(Struct, frozen=True):
    """A tensor that crosses the border of a region.

    Attributes:
        name: Its name in the engine.
        dtype: NumPy's name of its element type.
        shape: Its sizes.
    """

    name: str
    dtype: str
    shape: Dims


class EngineSignature(Struct, frozen=True):
    """An engine from outside.

    Attributes:
        edition: ``tensorrt`` or ``tensorrt-rtx``.
        version: Of the library; an engine runs with the version that built it.
        device: The GPU it was built for.
        inputs: In the order of the region's parameters.
        outputs: In the order of the region's results.
        options: What it was built with.
    """

    edition: str
    version: str
    device: str
    inputs: tuple[EngineBorder, ...]
    outputs: tuple[EngineBorder, ...]
    options: Mapping[str, Any]

    def to_json(self) -> bytes:
        """Return it as text; :func:`parse_signature` is the inverse."""
        whole = {"schema": SCHEMA, **to_builtins(self)}
        return (json.dumps(whole, sort_keys=True, indent=1) + "\n").encode()


def parse_signature(content: bytes) -> EngineSignature:
    """Read what :meth:`EngineSignature.to_json` wrote.

    Raises:
        ArtifactError: It is damaged, or of another schema.
    """
    return read_versioned_json(
        content, EngineSignature, file=FILE, schema=SCHEMA, writer="intarsia-tensorrt"
    )
