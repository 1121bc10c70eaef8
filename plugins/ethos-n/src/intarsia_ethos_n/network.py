# SPDX-License-Identifier: Apache-2.0
"""A region as a network of the device: operators on 4-dimensional quantized tensors.

It is written as ``network.json`` and ``weights.bin``, which hold all that the Support Library
needs, so compiling it needs no Intarsia. Tensors are ``(N, H, W, C)``, weights ``(H, W, I, O)`` or,
depthwise, ``(H, W, I, M)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, TypeAlias, cast

import numpy as np
from msgspec import Meta, Struct, field, to_builtins
from msgspec.structs import asdict

from intarsia_runtime.plugin import (
    ArtifactError,
    Dims,
    Int32,
    Int64,
    Size,
    interpreting,
    print_unit_json,
    read_versioned_json,
    tensor_bytes,
)

FILE = "network.json"
WEIGHTS_FILE = "weights.bin"
SCHEMA = 1
"""Version of both files."""

Number: TypeAlias = "Int64 | float | str | tuple[Int64, ...]"
Shape: TypeAlias = tuple[Size, Size, Size, Size]


class NetworkQuantization(Struct, frozen=True):
    """Real numbers as ``(q - zero) * scale``; several scales run along ``axis``."""

    zero: Int32 = 0
    scales: tuple[float, ...] = (1.0,)
    axis: Annotated[int, Meta(ge=-1, le=3)] = -1

    @property
    def scale(self) -> float:
        """The scale of a tensor that has one."""
        return self.scales[0]


class NetworkTensor(Struct, frozen=True):
    """A tensor: shape, ``u8``, ``s8`` or ``s32``, and what its elements stand for."""

    shape: Shape
    dtype: str
    quantization: NetworkQuantization = NetworkQuantization()


class NetworkOperation(Struct, frozen=True):
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


class NetworkBorder(Struct, frozen=True):
    """How a tensor of the model becomes one of the network.

    Attributes:
        name: The tensor of the network.
        shape: Of the model's tensor.
        image: The model's tensor is ``(N, C, H, W)``.
    """

    name: str
    shape: Dims
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

    tensors: Mapping[str, NetworkTensor]
    constants: tuple[str, ...]
    operations: tuple[NetworkOperation, ...]
    inputs: tuple[NetworkBorder, ...]
    outputs: tuple[NetworkBorder, ...]

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
    return print_unit_json(body, schema=SCHEMA)


def print_weights(network: Network, arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return ``weights.bin``: the constants one after the other, little-endian."""
    return b"".join(
        np.ascontiguousarray(arrays[name].astype(arrays[name].dtype.newbyteorder("<"))).tobytes()
        for name in network.constants
    )


class _File(Struct, frozen=True):
    """``network.json`` as it is written: constants with their offsets in the weights."""

    tensors: Mapping[str, NetworkTensor]
    constants: Mapping[str, Size]
    operations: tuple[NetworkOperation, ...]
    inputs: tuple[NetworkBorder, ...]
    outputs: tuple[NetworkBorder, ...]


def parse_network(data: bytes) -> Network:
    """Read what :func:`print_network` wrote.

    Raises:
        ArtifactError: It is damaged, or of another schema.
    """
    body = read_versioned_json(data, _File, file=FILE, schema=SCHEMA, writer="intarsia-ethos-n")
    constants = tuple(sorted(body.constants, key=body.constants.__getitem__))
    network = Network(body.tensors, constants, body.operations, body.inputs, body.outputs)
    with interpreting(FILE):
        _check(network)
    return network


def _check(network: Network) -> None:
    """Check that every tensor is described, and there before it is read.

    Raises:
        ValueError: One is not, or is larger than any tensor.
    """
    for tensor in network.tensors.values():
        tensor_bytes(tensor.shape, item_bytes(tensor.dtype))
        if tensor.dtype not in DTYPES or not tensor.quantization.scales:
            raise ValueError(f"no tensor is {tensor.dtype}")
    known = {*network.constants, *(border.name for border in network.inputs)}
    for operation in network.operations:
        unknown = set(operation.inputs) - known
        if unknown:
            raise ValueError(f"{operation.kind} reads {min(unknown)}, which is not there")
        known.add(operation.output)
    known.update(border.name for border in network.outputs)
    if not known.issubset(network.tensors):
        raise ValueError(f"{min(known - set(network.tensors))} has no shape")


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
