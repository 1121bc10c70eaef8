# SPDX-License-Identifier: Apache-2.0
"""Windows of bytes within a channel: the plain form, and which processors' sources have them.

That the form for vectors is equal is ``mcu/test_mcu.py``.
"""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import onnx
import pytest

import intarsia
from intarsia import Executor, Runtime
from intarsia_c.procedures import print_procedures, target_function

from .calling import STRICT, holds_here
from .mcu.tiny_nets import windows

CHANNELS, WIDTH = 5, 7


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize(("rows", "columns"), [(0, 1), (-1, 3), (1, 1), (2, 3), (3, 4)])
def test_plain_form_writes_the_sums(tmp_path, kind, rows, columns):
    letter = "i" if kind is np.int8 else "u"
    name = f"ix_taps_{letter}8_{columns}"
    signature = target_function(name)
    assert signature is not None
    assert signature.arguments == 10
    text = f"""#include <stdint.h>
{"".join(print_procedures([name]))}
void f(int32_t *s, const int8_t *w, const {letter if letter == "u" else ""}int8_t *x, intptr_t rows,
       intptr_t zero);
void f(int32_t *s, const int8_t *w, const {letter if letter == "u" else ""}int8_t *x, intptr_t rows,
       intptr_t zero)
{{
    {name}(s, w, x, {CHANNELS}, rows, {WIDTH * CHANNELS}, {CHANNELS},
           {columns * CHANNELS}, {CHANNELS}, zero);
}}
"""
    (tmp_path / "f.c").write_text(text)
    argv = ["cc", "-std=c99", "-O2", *STRICT, "-shared", "-fPIC", "f.c", "-o", "f.so"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    rng = np.random.default_rng(1)
    limits = np.iinfo(kind)
    data = rng.integers(limits.min, limits.max + 1, (4, WIDTH, CHANNELS)).astype(kind)
    weights = rng.integers(-128, 128, (4, columns, CHANNELS)).astype(np.int8)
    sums = rng.integers(-99, 99, CHANNELS).astype(np.int32)
    taps = max(rows, 0)
    zero = int(limits.min) + 3
    moved = data[:taps, :columns].astype(np.int64) - zero
    want = (moved * weights[:taps].astype(np.int64)).sum((0, 1))
    library = ctypes.CDLL(str(tmp_path / "f.so"))
    library.f(
        *(ctypes.c_void_p(array.ctypes.data) for array in (sums, weights, data)),
        ctypes.c_ssize_t(rows), ctypes.c_ssize_t(zero),
    )  # fmt: skip
    np.testing.assert_array_equal(sums, want)


@pytest.mark.parametrize(
    ("cpu", "has"),
    [("cortex-m55", True), ("cortex-m85", True), ("cortex-m55+nomve", False), ("cortex-m7", False)],
)
def test_only_sources_for_vectors_call_windows_by_name(tmp_path, cpu, has):
    x = np.zeros((1, 21, 7, 6), np.float32)
    path = tmp_path / "windows.onnx"
    onnx.save(windows(x, np.uint8), path)
    artifact = intarsia.build(
        path, target=f"c -mcpu={cpu} -prefix=net", executor=Executor("aot"),
        runtime=Runtime("c", {"link-params": True}),
    )  # fmt: skip
    source = (artifact.save(f"{tmp_path}/net/") / "src" / "net.c").read_text()
    assert ("ix_taps_u8_4(" in source) is has
    assert ("vmullbq_int_s16" in source) is has


def test_only_windows_are_known_by_name():
    assert target_function("ix_taps_u8_0") is None
    assert target_function("ix_taps_u16_3") is None


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_windows_on_this_machine(kind):
    """The same net by the loops for this machine."""
    x = np.random.default_rng(8).normal(size=(1, 21, 7, 6)).astype(np.float32)
    holds_here(windows(x, kind), x)
