# SPDX-License-Identifier: Apache-2.0
"""What oneDNN accepts and computes wrong, and which of its implementations are slow.

The one place that knows: whoever chooses a primitive asks here, and takes the next candidate, or
runs post-operations as primitives of their own. The test of the matrix of primitives,
post-operations and layouts (``tests/matrix.py``) finds what is missing. Found with oneDNN 3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

from msgspec import Struct

from .layouts import is_usual
from .names import Query
from .program import PostOp, PrimitiveNode

if TYPE_CHECKING:
    from .assembly import Assembly

ANY = ""
"""Every kind of node, or every implementation."""


class Candidate(Struct, frozen=True):
    """A primitive that the library would make of a node.

    Attributes:
        assembly: The region, with the shapes of its values.
        node: What is computed.
        post: Post-operations that the primitive would do.
        made: Address of its descriptor.
    """

    assembly: Assembly
    node: PrimitiveNode
    post: Sequence[PostOp]
    made: int

    @property
    def implementation(self) -> str:
        """The library's name of the kernel."""
        return self.assembly.dnnl.implementation(self.made)

    @property
    def result(self) -> tuple[int, ...]:
        """Shape of the result."""
        return self.assembly.shapes[self.node.result]

    @property
    def layout(self) -> int:
        """Address of the descriptor of the result's layout."""
        return self.assembly.dnnl.queried(self.made, Query.DST)

    @property
    def operands(self) -> list[tuple[int, ...]]:
        """Shapes of the operands of binary post-operations."""
        return [self.assembly.shapes[op.value] for op in self.post if op.kind == "binary"]


class Fault(Struct, frozen=True):
    """A combination that the library accepts and computes wrong.

    Attributes:
        kind: Kind of node.
        implementations: How the name of the implementation begins.
        holds: Whether a candidate, of this kind and implementation, is such a combination.
        reason: What goes wrong.
    """

    kind: str
    implementations: tuple[str, ...]
    holds: Callable[[Candidate], bool]
    reason: str


def _broadcasts_to_flat(candidate: Candidate) -> bool:
    shape = candidate.result
    broadcast = any(prod(other) != 1 and other != shape for other in candidate.operands)
    return broadcast and len(shape) > 2 and prod(shape[2:]) == 1


def _is_unusual(candidate: Candidate) -> bool:
    usual = is_usual(candidate.assembly.dnnl, candidate.layout, candidate.result)
    return bool(candidate.operands) and not usual


def _is_not_row_major(candidate: Candidate) -> bool:
    assembly = candidate.assembly
    plain = assembly.row_major(candidate.node.result)
    return bool(candidate.operands) and not assembly.dnnl.equal(candidate.layout, plain)


def _pads_full_slope(candidate: Candidate) -> bool:
    assembly = candidate.assembly
    layout = assembly.dnnl.layout(candidate.layout)
    full = assembly.shapes[candidate.node.args[1]] == candidate.result
    return full and (layout is None or layout.padded != layout.shape)


def _has_sigmoid(candidate: Candidate) -> bool:
    return any(op.algorithm == "logistic" for op in candidate.post)


FAULTS = (
    Fault(
        "binary",
        (ANY,),
        _broadcasts_to_flat,
        "a broadcast operand of a post-operation is read at the wrong place where all axes"
        " but the first two have one element",
    ),
    Fault(
        ANY,
        (ANY,),
        _is_unusual,
        "operands of binary post-operations are read as if the result were row-major, channels"
        " last or blocked, whatever layout it has",
    ),
    Fault(
        "resampling",
        ("simple",),
        _is_not_row_major,
        "operands of binary post-operations are read as if the result were row-major",
    ),
    Fault(
        "prelu",
        ("jit",),
        _pads_full_slope,
        "a slope for each element is not read at the end of rows of padded channels",
    ),
    Fault(
        ANY,
        ("ref", "simple", "gemm", "x64:gemm", "conv:any"),
        _has_sigmoid,
        "post-operations of portable code make 0 of NaN in a sigmoid",
    ),
)
"""Combinations that are never made; post-operations of them become primitives of their own."""

_TILE = 16
"""Pixels of a tile of AMX."""


def _has_three_tiles(candidate: Candidate) -> bool:
    return 2 * _TILE < prod(candidate.result[2:]) <= 3 * _TILE


BROKEN = (
    Fault(
        ANY,
        ("jit_1x1:avx512_core_amx",),
        _has_three_tiles,
        "results behind the second tile of pixels are wrong, and memory behind them is overwritten",
    ),
)
"""Implementations that are never run: the library's next one is taken."""

SLOW = ((ANY, ("ref",)), ("resampling", ("simple",)))
"""Kinds of nodes and beginnings of names of implementations that do one element at a time.

A quicker one without post-operations, or of another layout, is preferred. (A convolution, nearest
to 96 channels of 160x160, channels last, and an addition, one thread: 319 ms; with the addition a
primitive of its own 13.)
"""


def find_fault(candidate: Candidate) -> Fault | None:
    """Return why a primitive must not be used; ``None`` if nothing is known against it."""
    for fault in FAULTS:
        if _names(fault.kind, fault.implementations, candidate) and fault.holds(candidate):
            return fault
    return None


def is_broken(candidate: Candidate) -> bool:
    """Whether an implementation must not be run."""
    return any(_names(f.kind, f.implementations, candidate) and f.holds(candidate) for f in BROKEN)


def skip_broken(candidate: Candidate) -> bool:
    """Take the first of the library's next implementations that is not broken; whether there is."""
    while candidate.assembly.dnnl.take_next_implementation(candidate.made):
        if not is_broken(candidate):
            return True
    return False


def is_slow(candidate: Candidate) -> bool:
    """Whether a primitive is right and does one element at a time."""
    return any(_names(kind, names, candidate) for kind, names in SLOW)


def _names(kind: str, implementations: tuple[str, ...], candidate: Candidate) -> bool:
    of_kind = kind in (ANY, candidate.node.kind)
    return of_kind and candidate.implementation.startswith(implementations)
