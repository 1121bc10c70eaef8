# SPDX-License-Identifier: Apache-2.0
"""The digest of a member: its SHA-256, or that of its pieces' digests."""

from __future__ import annotations

import hashlib

import pytest

from intarsia_runtime.artifact.digest import PIECE, MemberDigest, member_digest


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


@pytest.mark.parametrize("size", [0, 1, PIECE])
def test_small_members_have_their_sha256(size: int) -> None:
    data = bytes(size)
    assert member_digest(memoryview(data)) == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("size", [PIECE + 1, 2 * PIECE, 5 * PIECE - 3])
def test_large_members_have_the_sha256_of_their_pieces_digests(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    digests = [_sha256(data[start : start + PIECE]) for start in range(0, size, PIECE)]
    assert member_digest(memoryview(data)) == _sha256(b"".join(digests)).hex()


@pytest.mark.parametrize("size", [0, 10, PIECE, PIECE + 1, 2 * PIECE])
@pytest.mark.parametrize("step", [PIECE - 1, 3 * PIECE])
def test_writing_in_steps_gives_the_same(size: int, step: int) -> None:
    data = memoryview(bytes(size - size // 2) + b"x" * (size // 2))
    digest = MemberDigest()
    for start in range(0, size, step):
        digest.update(data[start : start + step])
    assert digest.hexdigest() == member_digest(data)
