# SPDX-License-Identifier: Apache-2.0
"""Bytes on their way into a file: computed in memory that is used again, and hashed beside."""

from __future__ import annotations

import threading
from hashlib import sha256

import numpy as np
import pytest

from intarsia_ir.writing import stream
from intarsia_ir.writing.deferred import DeferredArray, Piece, Weights, array_of
from intarsia_ir.writing.stream import hashed
from intarsia_ir.writing.tensor_pieces import tensor_pieces
from intarsia_runtime.artifact.digest import MemberDigest, member_digest
from intarsia_runtime.artifact.tensors import array_bytes


def numbers(value: int, size: int) -> DeferredArray:
    def fill(array: np.ndarray) -> None:
        array[...] = value

    return DeferredArray((size, 2), np.dtype(np.float32), fill)


def pieces() -> list[Piece]:
    """Plain bytes among arrays of several sizes; one of them is there already."""
    known = numbers(4, 11)
    known.array()
    plain = memoryview(bytes(range(200)))
    return [plain, *(numbers(n, 5 + n) for n in range(9)), plain, known, numbers(7, 30)]


@pytest.mark.parametrize("beside", [0, 1 << 40])
def test_pieces_come_in_order_and_are_hashed(monkeypatch: pytest.MonkeyPatch, beside: int) -> None:
    monkeypatch.setattr(stream, "THREADED_BYTES", beside)
    digest = MemberDigest()
    found = b"".join(bytes(data) for data in hashed(pieces(), digest))
    want = b"".join(
        bytes(array_bytes(array_of(piece))) if isinstance(piece, DeferredArray) else bytes(piece)
        for piece in pieces()
    )
    assert found == want
    assert digest.hexdigest() == member_digest(memoryview(want)) == sha256(want).hexdigest()


def test_memory_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "THREADED_BYTES", 0)
    many = [numbers(n, 1000) for n in range(20)]
    places = {np.frombuffer(data, np.uint8).ctypes.data for data in hashed(many, MemberDigest())}
    assert len(places) == 2


@pytest.mark.parametrize("beside", [0, 1 << 40])
def test_an_array_that_cannot_be_computed_ends_it(
    monkeypatch: pytest.MonkeyPatch, beside: int
) -> None:
    monkeypatch.setattr(stream, "THREADED_BYTES", beside)

    def refuse(_: np.ndarray) -> None:
        raise MemoryError("no room")

    bad = DeferredArray((3,), np.dtype(np.float32), refuse)
    with pytest.raises(MemoryError, match="no room"):
        list(hashed([numbers(1, 4), bad, numbers(2, 4)], MemberDigest()))


def test_who_stops_early_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "THREADED_BYTES", 0)
    before = threading.active_count()
    parts = hashed([numbers(n, 1000) for n in range(20)], MemberDigest())
    next(parts)
    parts.close()
    assert threading.active_count() == before


def test_deferred_arrays_are_pieces_of_the_file() -> None:
    arrays = Weights({"b": numbers(3, 8), "a": np.ones(16, np.float32)})
    head, *rest = tensor_pieces(arrays)
    plain = tensor_pieces({name: arrays[name] for name in arrays})
    assert bytes(plain[0]) == bytes(head)
    assert [piece.nbytes for piece in rest] == [64, 64]
    assert isinstance(rest[1], DeferredArray)
    assert len(arrays) == 2
