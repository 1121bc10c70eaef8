# SPDX-License-Identifier: Apache-2.0
"""What kind of object of torch a value is; asked only where torch is imported already."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from .types import AtenOperator, FxNode, TorchTensor

_NUMBERS = ("SymBool", "SymFloat", "SymInt")


def is_tensor(value: object) -> TypeGuard[TorchTensor]:
    """Whether a value is a tensor, with contents or without."""
    return isinstance(value, sys.modules["torch"].Tensor)


def is_node(value: object) -> TypeGuard[FxNode]:
    """Whether an argument is the result of a node of the graph."""
    return isinstance(value, sys.modules["torch.fx"].Node)


def is_operator(target: object) -> TypeGuard[AtenOperator]:
    """Whether a node calls an operator of torch's own tables, and no function of Python."""
    return isinstance(target, sys.modules["torch._ops"].OpOverload)


def is_number(value: object) -> bool:
    """Whether a value of a tracing is a number: a size, or a condition on sizes."""
    return isinstance(value, int | float) or type(value).__name__ in _NUMBERS


def calls_one_of(target: object, names: tuple[str, ...]) -> bool:
    """Whether a node calls a function of Python that has one of these names."""
    text = str(target)
    return any(name in text for name in names)
