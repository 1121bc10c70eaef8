# SPDX-License-Identifier: Apache-2.0
"""Types of torch, as far as its objects are asked here; torch itself need not be installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np


class TorchDevice(Protocol):
    """Where a tensor lives: ``cpu``, ``cuda:0``."""

    type: str


class Storage(Protocol):
    """A ``torch.UntypedStorage``: the memory that tensors share."""

    _cdata: int


class TorchTensor(Protocol):
    """A ``torch.Tensor``; strides and offsets count elements."""

    shape: tuple[int, ...]
    dtype: object
    device: TorchDevice
    requires_grad: bool

    def item(self) -> object:
        """The one element as a number."""
        ...

    def stride(self) -> tuple[int, ...]:
        """Elements from one index to the next, for each dimension."""
        ...

    def storage_offset(self) -> int:
        """Elements of the memory in front of the first."""
        ...

    def element_size(self) -> int:
        """Bytes of an element."""
        ...

    def untyped_storage(self) -> Storage:
        """The memory that it is a view of."""
        ...

    def is_inference(self) -> bool:
        """Whether it was made in inference mode."""
        ...

    def as_strided(self, size: Sequence[int], stride: Sequence[int], offset: int) -> TorchTensor:
        """Another view of the same memory."""
        ...

    def view(self, dtype: object) -> TorchTensor:
        """The same memory as elements of another type of the same size."""
        ...

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The same memory as an array, where NumPy has the element type."""
        ...


class Module(Protocol):
    """A ``torch.nn.Module``."""

    training: bool


class FxNode(Protocol):
    """A ``torch.fx.Node``."""

    op: str
    target: object
    args: tuple[Sequence[object], ...]
    users: Mapping[FxNode, object]

    def replace_all_uses_with(self, other: FxNode) -> object:
        """Let all users of it use another node."""
        ...


class FxGraph(Protocol):
    """A ``torch.fx.Graph``."""

    nodes: Iterable[FxNode]

    def erase_node(self, node: FxNode) -> None:
        """Remove a node without users."""
        ...

    def eliminate_dead_code(self) -> bool:
        """Remove what no result needs."""
        ...


class GraphModule(Protocol):
    """A ``torch.fx.GraphModule``: a graph that can be called."""

    graph: FxGraph

    def __call__(self, *args: object) -> tuple[object, ...]:
        """Run it in PyTorch."""
        ...

    def recompile(self) -> object:
        """Take notice of changes of the graph."""
        ...


class InputName(Protocol):
    """The argument of an input of an exported program."""

    name: str


class InputSpec(Protocol):
    """An input of an exported program."""

    arg: InputName


class ExportSignature(Protocol):
    """Inputs of an exported program, and the names of what it writes to."""

    input_specs: Sequence[InputSpec]
    buffers_to_mutate: Mapping[str, str]
    user_inputs_to_mutate: Mapping[str, str]


class Exported(Protocol):
    """A ``torch.export.ExportedProgram``."""

    @property
    def graph_signature(self) -> ExportSignature:
        """What its inputs and outputs are."""
        ...

    @property
    def graph_module(self) -> GraphModule:
        """Its operators."""
        ...

    def run_decompositions(self, decomp_table: Mapping[object, Callable[..., object]]) -> Exported:
        """The same with some operators in terms of others."""
        ...
