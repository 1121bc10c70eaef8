# SPDX-License-Identifier: Apache-2.0
"""A region as a network of the device: operators on 4-dimensional quantised tensors.

It is written as ``network.json`` and ``weights.bin``, which hold all that the Support Library
needs, so compiling it needs no Intarsia. Tensors are ``(N, H, W, C)``, weights ``(H, W, I, O)`` or,
depthwise, ``(H, W, I, M)``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias, cast

import numpy as np
from msgspec import Struct, field, to_builtins
from msgspec.structs import asdict

from intarsia.errors import ArtifactError

FILE = "network.json"
WEIGHTS_FILE = "weights.bin"
SCHEMA = 1
"""Version of both files."""

Number: TypeAlias = "int | float | str | tuple[int, ...]"
Shape: TypeAlias = tuple[int, int, int, int]


class Quantisation(Struct, frozen=True):
    """Real numbers as ``(q - zero) * scale``; several scales run along ``axis``."""

    zero: int = 0
    scales: tuple[float, ...] = (1.0,)
    axis: int = -1

    @property
    def scale(self) -> float:
        """The scale of a tensor that has one."""
        return self.scales[0]


class Tensor(Struct, frozen=True):
    """A tensor: shape, ``u8``, ``s8`` or ``s32``, and what its elements stand for."""

    shape: Shape
    dtype: str
    quantisation: Quantisation = Quantisation()


class Operation(Struct, frozen=True):
    """One operator of the device.

    Attributes:
        kind: ``convolution``, ``pooling``...
        inputs: Names of tensors; weights and bias follow the data.
        output: The tensor it gives.
        attrs: Its numbers by name.
    """

    kind: str
    inputs: tuple[str, ...]
    output: str
    attrs: Mapping[str, Number] = field(default_factory=lambda: MappingProxyType({}))

    def ints(self, key: str) -> tuple[int, ...]:
        """Return an attribute that is a list of whole numbers."""
        return cast("tuple[int, ...]", self.attrs[key])

    def number(self, key: str) -> float:
        """Return an attribute that is one number."""
        return cast("float", self.attrs[key])

    def integer(self, key: str) -> int:
        """Return an attribute that is one whole number."""
        return cast("int", self.attrs[key])


class Border(Struct, frozen=True):
    """How a tensor of the model becomes one of the network.

    Attributes:
        name: The tensor of the network.
        shape: Of the model's tensor.
        image: The model's tensor is ``(N, C, H, W)``.
    """

    name: str
    shape: tuple[int, ...]
    image: bool


class Network(Struct, frozen=True):
    """A region.

    Attributes:
        tensors: Every tensor by name.
        constants: Tensors whose content is in the weights, in the order of the file.
        operations: In the order they run.
        inputs: What the caller gives.
        outputs: What the caller gets.
    """

    tensors: Mapping[str, Tensor]
    constants: tuple[str, ...]
    operations: tuple[Operation, ...]
    inputs: tuple[Border, ...]
    outputs: tuple[Border, ...]

    def bytes_of(self, name: str) -> int:
        """Return the bytes of a tensor."""
        tensor = self.tensors[name]
        return int(np.prod(tensor.shape)) * (4 if tensor.dtype == "s32" else 1)


def print_network(network: Network) -> bytes:
    """Return ``network.json``, the same bytes for the same network."""
    offsets: dict[str, int] = {}
    end = 0
    for name in network.constants:
        offsets[name] = end
        end += network.bytes_of(name)
    body: dict[str, object] = {
        "schema": SCHEMA,
        "tensors": {name: to_builtins(tensor) for name, tensor in network.tensors.items()},
        "constants": offsets,
        "operations": [
            {
                "kind": operation.kind,
                "inputs": operation.inputs,
                "output": operation.output,
                "attrs": dict(operation.attrs),
            }
            for operation in network.operations
        ],
        "inputs": [asdict(border) for border in network.inputs],
        "outputs": [asdict(border) for border in network.outputs],
    }
    return (json.dumps(body, sort_keys=True, separators=(",", ":")) + "\n").encode()


def print_weights(network: Network, arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return ``weights.bin``: the constants one after the other, little-endian."""
    return b"".join(
        np.ascontiguousarray(arrays[name].astype(arrays[name].dtype.newbyteorder("<"))).tobytes()
        for name in network.constants
    )


def parse_network(data: bytes) -> Network:
    """Read what :func:`print_network` wrote.

    Raises:
        ArtifactError: It is damaged, or of another schema.
    """
    try:
        body = json.loads(data)
        schema = body["schema"]
        if schema != SCHEMA:
            raise ArtifactError(
                f"{FILE} has schema {schema}, this plugin reads schema {SCHEMA}",
                hint="compile the model again, or install the intarsia-ethos-n that compiled it",
            )
        constants: Mapping[str, int] = body["constants"]
        return Network(
            tensors={name: _tensor(item) for name, item in body["tensors"].items()},
            constants=tuple(sorted(constants, key=constants.__getitem__)),
            operations=tuple(_operation(item) for item in body["operations"]),
            inputs=tuple(_border(item) for item in body["inputs"]),
            outputs=tuple(_border(item) for item in body["outputs"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(
            f"{FILE} is damaged: {error!r}", hint="compile the model again"
        ) from error


def parse_weights(network: Network, data: bytes) -> dict[str, np.ndarray]:
    """Return the constants of a network.

    Raises:
        ArtifactError: The file is not as long as the network says.
    """
    needed = sum(network.bytes_of(name) for name in network.constants)
    if len(data) != needed:
        raise ArtifactError(
            f"{WEIGHTS_FILE} has {len(data)} bytes, {FILE} wants {needed}",
            hint="compile the model again",
        )
    arrays: dict[str, np.ndarray] = {}
    start = 0
    for name in network.constants:
        tensor, size = network.tensors[name], network.bytes_of(name)
        found = np.frombuffer(data, DTYPES[tensor.dtype], size // item_bytes(tensor.dtype), start)
        arrays[name] = found.reshape(tensor.shape)
        start += size
    return arrays


DTYPES: Mapping[str, str] = MappingProxyType({"u8": "|u1", "s8": "|i1", "s32": "<i4"})
"""NumPy's name of each element type."""


def item_bytes(dtype: str) -> int:
    """Return the bytes of an element."""
    return 4 if dtype == "s32" else 1


def _tensor(body: Mapping[str, object]) -> Tensor:
    numbers = cast("Mapping[str, object]", body["quantisation"])
    scales = cast("Sequence[float]", numbers["scales"])
    return Tensor(
        cast("Shape", tuple(cast("Sequence[int]", body["shape"]))),
        str(body["dtype"]),
        Quantisation(cast("int", numbers["zero"]), tuple(scales), cast("int", numbers["axis"])),
    )


def _operation(body: Mapping[str, object]) -> Operation:
    attrs = cast("Mapping[str, int | float | str | list[int]]", body["attrs"])
    return Operation(
        str(body["kind"]),
        tuple(cast("Sequence[str]", body["inputs"])),
        str(body["output"]),
        {key: tuple(item) if isinstance(item, list) else item for key, item in attrs.items()},
    )


def _border(body: Mapping[str, object]) -> Border:
    shape = tuple(cast("Sequence[int]", body["shape"]))
    return Border(str(body["name"]), shape, bool(body["image"]))
