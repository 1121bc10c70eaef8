# SPDX-License-Identifier: Apache-2.0
"""Einsum: several operands, ellipses, and sizes of 1 that broadcast, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime as ort
import pytest
from tests.integration.frontend.test_onnx_counted import F32, check, floats, typed
from tests.unit.frontend.onnx_models import node

import intarsia

OPEN = [
    ("ij,jk->ik", ("ij", "mk"), [[(3, 1), (4, 5)], [(3, 4), (1, 5)], [(3, 4), (4, 5)]]),
    ("bij,bjk->bik", ("bij", "cmk"), [[(1, 3, 4), (2, 4, 5)], [(2, 3, 1), (1, 4, 5)]]),
    ("bij,bij->b", ("bij", "ckl"), [[(2, 3, 4), (1, 1, 1)], [(1, 3, 1), (5, 3, 4)]]),
    ("ij,ij->ij", ("ij", "kl"), [[(1, 4), (3, 1)], [(2, 3), (2, 3)]]),
    ("ij,jk,kl->il", ("ij", "jk", "kl"), [[(2, 3), (3, 4), (4, 5)], [(1, 1), (1, 1), (1, 7)]]),
    ("i,i,i->", ("i", "i", "i"), [[(4,), (4,), (4,)]]),
    ("...ij,...jk->...ik", ("abij", "abjk"), [[(2, 3, 4, 5), (2, 3, 5, 1)]]),
    ("...i->...", ("abc",), [[(2, 3, 4)], [(0, 3, 4)]]),
    ("i...->...i", ("abc",), [[(2, 3, 4)]]),
    ("...ji", ("abc",), [[(2, 3, 4)]]),
    (",ij->ij", ("", "nm"), [[(), (5, 3)]]),
    ("bii->bi", ("bij",), [[(2, 4, 4)], [(3, 1, 1)], [(0, 2, 2)]]),
    ("iji,jk->k", ("abc", "de"), [[(3, 2, 3), (2, 4)]]),
]


@pytest.mark.parametrize(("equation", "names", "rows"), OPEN, ids=[row[0] for row in OPEN])
def test_of_open_sizes(equation: str, names: Sequence[str], rows: list[list[tuple]]) -> None:
    inputs = {f"x{n}": (F32, tuple(axes)) for n, axes in enumerate(names)}
    made = typed([node("Einsum", " ".join(inputs), equation=equation)], inputs)
    session = ort.InferenceSession(made)
    with intarsia.build(made, "llvm").load(threads=1) as executable:
        for row in rows:
            feeds = {f"x{n}": floats(*size, seed=n) for n, size in enumerate(row)}
            (wanted,), (found,) = session.run(None, feeds), executable.run(feeds).values()
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "sizes"),
    [
        ("ij,jk->ik", [(3, 1), (4, 5)]),
        ("bij,bij->b", [(2, 3, 4), (1, 1, 4)]),
        ("bij,bjk->bki", [(1, 3, 4), (2, 4, 5)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (1, 4, 5)]),
        ("i,j,k->kji", [(2,), (3,), (4,)]),
    ],
)
def test_of_known_sizes(equation: str, sizes: list[tuple[int, ...]]) -> None:
    inputs = {f"x{n}": (F32, size) for n, size in enumerate(sizes)}
    made = typed([node("Einsum", " ".join(inputs), equation=equation)], inputs)
    check(made, {f"x{n}": floats(*size, seed=n) for n, size in enumerate(sizes)}, tolerance=1e-5)
