# SPDX-License-Identifier: Apache-2.0
"""Operators in place: a write gives the tensor written to a new value, under all its names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from intarsia_runtime.errors import UnsupportedError

from ..kinds import is_operator, is_tensor

if TYPE_CHECKING:
    from ..types import FxNode, OperatorSchema, TorchTensor


schema_of: Callable[[object], OperatorSchema] = attrgetter("_schema")
"""The schema of an operator of torch's own tables."""

_address_of: Callable[[object], object] = attrgetter("_cdata")


class WriteToViewError(UnsupportedError):
    """A graph writes to a part of a tensor that it reads later, or to several views of one."""


class Writes:
    """The writes of a graph in which tensors of one memory share it in ``meta["val"]``.

    Args:
        nodes: The graph's, in order.
    """

    def __init__(self, nodes: Sequence[FxNode]) -> None:
        self._places = {node: place for place, node in enumerate(nodes)}
        self._sharing: dict[object, list[FxNode]] = defaultdict(list)
        for node in nodes:
            value = node.meta.get("val")
            if is_tensor(value):
                self._sharing[memory_of(value)].append(node)

    def renamed(self, write: FxNode) -> list[FxNode]:
        """Return the earlier nodes that have the value of a write from now on.

        Raises:
            WriteToViewError: A later node reads another view of the memory.
            UnsupportedError: The memory is an argument's.
        """
        target = cast("FxNode", write.args[0])
        value = cast("TorchTensor", target.meta["val"])
        place = self._places[write]
        renamed: list[FxNode] = []
        for node in self._sharing[memory_of(value)]:
            if self._places[node] >= place:
                continue
            if node.op != "call_function":
                raise UnsupportedError(f"the graph writes to '{node.name}'")
            if _form(cast("TorchTensor", node.meta["val"])) == _form(value):
                renamed.append(node)
            elif any(self._places[user] > place for user in node.users):
                raise WriteToViewError(f"a write to a part of '{node.name}', which is read later")
        return renamed


def is_in_place(target: object) -> bool:
    """Whether an operator writes to its first argument, and its name says so."""
    if not is_operator(target):
        return False
    schema = schema_of(target)
    return schema.is_mutable and schema.name.endswith("_") and not schema.name.endswith("__")


def check_writes(nodes: Sequence[FxNode]) -> None:
    """Make sure that every write of a graph can become a new value.

    Raises:
        WriteToViewError: A part that is written to is read later as part of the whole.
        UnsupportedError: The graph writes to an argument.
    """
    writes = Writes(nodes)
    for node in nodes:
        if is_in_place(node.target):
            writes.renamed(node)


def memory_of(tensor: TorchTensor) -> object:
    """Return what is equal for tensors that are views of one memory."""
    return _address_of(tensor.untyped_storage())


def _form(tensor: TorchTensor) -> tuple[str, ...]:
    return str(tuple(tensor.shape)), str(tensor.stride()), str(tensor.storage_offset())
