# SPDX-License-Identifier: Apache-2.0
"""Digests of an artifact's members: SHA-256, of large ones in pieces that are hashed side by side.

The digest of a member of at most :data:`PIECE` bytes is its SHA-256. That of a larger one is the
SHA-256 of the SHA-256 digests, 32 bytes each, of its pieces of :data:`PIECE` bytes in their order.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Sequence

PIECE = 8 << 20
"""Bytes of a piece; the last one may be shorter."""


class MemberDigest:
    """The digest of bytes that come one after another."""

    def __init__(self) -> None:
        self._done: list[bytes] = []
        self._piece = hashlib.sha256()
        self._room = PIECE

    def update(self, data: memoryview) -> None:
        """Add bytes, of any number."""
        while len(data):
            if not self._room:
                self._done.append(self._piece.digest())
                self._piece, self._room = hashlib.sha256(), PIECE
            part, data = data[: self._room], data[self._room :]
            self._piece.update(part)
            self._room -= len(part)

    def hexdigest(self) -> str:
        """Return the digest in hexadecimal."""
        return _join([*self._done, self._piece.digest()])


def member_digest(data: memoryview) -> str:
    """Return the digest of a member in hexadecimal; a large one keeps all processors busy.

    Args:
        data: Its bytes, contiguous.
    """
    starts = range(0, max(1, len(data)), PIECE)
    digests = [b""] * len(starts)
    workers = min(len(starts), os.cpu_count() or 1)

    def work(first: int) -> None:
        for number in range(first, len(starts), workers):
            start = starts[number]
            digests[number] = hashlib.sha256(data[start : start + PIECE]).digest()

    others = [threading.Thread(target=work, args=(first,)) for first in range(1, workers)]
    for thread in others:
        thread.start()
    work(0)
    for thread in others:
        thread.join()
    return _join(digests)


def _join(digests: Sequence[bytes]) -> str:
    return digests[0].hex() if len(digests) == 1 else hashlib.sha256(b"".join(digests)).hexdigest()
