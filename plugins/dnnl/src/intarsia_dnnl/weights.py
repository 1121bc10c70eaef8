# SPDX-License-Identifier: Apache-2.0
"""The constants of a region, in every layout that one of its primitives reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from .arena import Pool
from .stored import StoredWeight, stored_weight

if TYPE_CHECKING:
    from .program import PrimitiveProgram
    from .sdk import Dnnl


class Reordered(Struct, frozen=True):
    """A constant in another layout.

    Attributes:
        source: Descriptor of the layout that it was seen in.
        target: Descriptor of its own layout.
        address: Where it lies.
        bytes: Its size.
    """

    source: int
    target: int
    address: int
    bytes: int


class Weights:
    """Constants that the primitives of all sizes share: each is reordered once for each layout.

    Args:
        dnnl: Owns the descriptors of layouts.
        program: Says which constants there are.
        constants: Their content, as it is stored.

    Attributes:
        pool: Memory of those that were reordered.
    """

    def __init__(
        self, dnnl: Dnnl, program: PrimitiveProgram, constants: Mapping[str, np.ndarray]
    ) -> None:
        self._dnnl = dnnl
        self._stored = {
            value: stored_weight(program, value, constants) for value in program.constants
        }
        self._reordered: dict[tuple[int, int], list[Reordered]] = {}
        self.pool = Pool()

    def stored(self, value: int) -> StoredWeight:
        """Return a constant as it is stored."""
        return self._stored[value]

    def find(self, value: int, offset: int, source: int, target: int) -> Reordered | None:
        """Return a part of a constant that was reordered before.

        Args:
            value: The constant.
            offset: Bytes before the part.
            source: Descriptor of the layout that it is seen in.
            target: Descriptor of the layout that is wanted.
        """
        for known in self._reordered.get((value, offset), ()):
            equal = self._dnnl.equal
            if equal(known.source, source) and equal(known.target, target):
                return known
        return None

    def keep(
        self, value: int, offset: int, source: int, target: int, address: int, size: int
    ) -> None:
        """Remember a part of a constant that was reordered to ``address``, ``size`` bytes."""
        clone = self._dnnl.cloned
        known = Reordered(clone(source), clone(target), address, size)
        self._reordered.setdefault((value, offset), []).append(known)

    @property
    def reordered_bytes(self) -> int:
        """Bytes of constants that were reordered or unpacked."""
        moved = sum(known.bytes for rows in self._reordered.values() for known in rows)
        return moved + sum(stored.unpacked_bytes for stored in self._stored.values())
