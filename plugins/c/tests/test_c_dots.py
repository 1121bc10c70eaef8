# SPDX-License-Identifier: Apache-2.0
"""Dot products of bytes: what the source for a microcontroller has of them, and that it is right.

That the forms for boards are equal is ``mcu/test_mcu.py``.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

import intarsia
from intarsia import Executor, Runtime
from intarsia_c.procedures import print_procedures, target_function
from intarsia_c.spelling import KERNEL
from intarsia_c.target import this_machine

from .calling import STRICT, holds_here
from .mcu.tiny_nets import corners


@pytest.mark.parametrize("kind", ["i", "u"])
@pytest.mark.parametrize("tile", [(1, 1, 1), (1, 2, 2), (2, 1, 2), (2, 2, 2), (4, 1, 1)])
def test_plain_form_adds_to_the_sums(tmp_path, kind, tile):
    adds_to_the_sums(tmp_path, f"ix_dots_{kind}8", tile, ())


FORMS = {
    "plain": ("-U__SSE2__",),
    "sse2": (),
    "avx2": ("-mavx2",),
    "avx_vnni": ("-mavx2", "-mavxvnni"),
    "avx512bw": ("-mavx512bw",),
    "avx512_vnni": ("-mavx512bw", "-mavx512vnni"),
}
"""Feature of a processor, as the kernel of Linux names it, to the compiler's flags."""


@pytest.mark.parametrize("kind", ["i", "u"])
@pytest.mark.parametrize("tile", [(1, 8, 8), (6, 16, 16), (3, 8, 16), (7, 32, 32), (12, 4, 4)])
@pytest.mark.parametrize("form", FORMS)
def test_every_vector_form_adds_to_the_sums(tmp_path, kind, tile, form):
    if form != "plain":
        needs_feature(form)
    adds_to_the_sums(tmp_path, f"ix_vector_dots_{kind}8", tile, FORMS[form])


@pytest.mark.parametrize(
    ("triple", "is_called"), [("x86_64-linux-gnu", True), ("aarch64-linux-gnu", False)]
)
def test_layers_share_vector_forms_on_x86(tmp_path, triple, is_called):
    x = np.random.default_rng(8).normal(size=(1, 3, 7, 6)).astype(np.float32)
    onnx.save(corners(x, np.int8), tmp_path / "corners.onnx")
    artifact = intarsia.build(
        tmp_path / "corners.onnx", target=f"c -mtriple={triple} -freestanding -prefix=net",
        executor=Executor("aot"), runtime=Runtime("c", {"link-params": True}),
    )  # fmt: skip
    source = (artifact.save(f"{tmp_path}/net/") / "src" / "net.c").read_text()
    assert ("ix_vector_dots_i8_" in source) is is_called


def test_columns_without_vectors_are_plain():
    (*_, text) = print_procedures(["ix_vector_dots_u8_2x3of3"])
    assert "_mm" not in text


def needs_feature(name):
    if this_machine() != "x86_64":
        pytest.skip("the processor is none of x86")
    if name not in Path("/proc/cpuinfo").read_text().split():
        pytest.skip(f"the processor lacks {name}")


def adds_to_the_sums(tmp_path, family, tile, flags):
    """Compile one function and compare its sums with NumPy's."""
    rows, columns, width = tile
    name = f"{family}_{rows}x{columns}of{width}"
    signature = target_function(name)
    assert signature is not None
    assert signature.arguments == rows + 3
    places = [f"const void *a{r}" for r in range(rows)]
    given = ", ".join(["int32_t *s", "const int32_t *w", *places, "intptr_t n"])
    passed = ", ".join(["s", "w", *(f"a{r}" for r in range(rows)), "n"])
    text = "\n".join(
        ["#include <stdint.h>", KERNEL, *print_procedures([name]), f"void f({given});",
         f"void f({given}) {{ {name}({passed}); }}"]
    )  # fmt: skip
    (tmp_path / "f.c").write_text(text)
    argv = ["cc", "-std=c99", "-O2", *STRICT, *flags, "-shared", "-fPIC", "f.c", "-o", "f.so"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    rng = np.random.default_rng(1)
    quads = 7
    data = rng.integers(0, 256, (rows, 4 * quads)).astype(np.uint8)
    weights = rng.integers(-128, 128, (quads, width, 4)).astype(np.int8)
    sums = rng.integers(-99, 99, (rows, columns)).astype(np.int32)
    is_signed = family.endswith("i8")
    whole = data.view(np.int8).astype(np.int64) + 128 if is_signed else data.astype(np.int64)
    matrix = weights.astype(np.int64).transpose(1, 0, 2).reshape(width, -1)[:columns]
    want = sums + whole @ matrix.T
    library = ctypes.CDLL(str(tmp_path / "f.so"))
    rows_at = [ctypes.c_void_p(row.ctypes.data) for row in data]
    library.f(
        ctypes.c_void_p(sums.ctypes.data), ctypes.c_void_p(weights.ctypes.data), *rows_at,
        ctypes.c_ssize_t(quads),
    )  # fmt: skip
    np.testing.assert_array_equal(sums, want)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_sources_for_a_microcontroller_have_every_form(tmp_path, kind):
    x = np.random.default_rng(8).normal(size=(1, 3, 7, 6)).astype(np.float32)
    path = tmp_path / "corners.onnx"
    onnx.save(corners(x, kind), path)
    artifact = intarsia.build(
        path, target="c -mtriple=thumbv7em-none-eabi -prefix=net", executor=Executor("aot"),
        runtime=Runtime("c", {"link-params": True}),
    )  # fmt: skip
    source = (artifact.save(f"{tmp_path}/net/") / "src" / "net.c").read_text()
    assert "vmladavaq_s8" in source
    assert "__smlad" in source
    letter = "i" if kind is np.int8 else "u"
    assert f"ix_dots_{letter}8_2x2of2(" in source
    assert f"ix_dots_{letter}8_4x1of1(" in source


def test_only_dot_products_are_known_by_name():
    assert target_function("ix_dots_u8_0x1of1") is None
    assert target_function("ix_vector_dots_u8_0x8of8") is None
    assert target_function("memcpy") is None


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_corners_on_this_machine(kind):
    """The same net by the loops for this machine."""
    x = np.random.default_rng(8).normal(size=(1, 3, 7, 6)).astype(np.float32)
    holds_here(corners(x, kind), x)
