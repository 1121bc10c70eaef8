# SPDX-License-Identifier: Apache-2.0
"""The tiny nets on emulated Cortex-M boards: the host's outputs, and what they cost.

``INTARSIA_MCU_REPORT`` names a file that gets one line for each run; ``nox -s mcu`` prints it.
"""

from __future__ import annotations

import os

import numpy as np
import onnx
import onnxruntime
import pytest

from .boards import BOARDS, MISSING, WHY_NOT, compile_model, run_on_board, run_on_host
from .tiny_nets import NETS, corners, save_net, windows

pytestmark = pytest.mark.skipif(bool(MISSING), reason=WHY_NOT)
REPORT = os.environ.get("INTARSIA_MCU_REPORT")
ALL = [f"{name}{kind}" for name in NETS for kind in ("", "_int8")]
QUICK = {
    ("keywords", "cortex-m4"),
    ("anomalies_int8", "cortex-m3"),
    ("keywords_int8", "cortex-m55"),
}
"""What runs without a report; all nets on all boards take minutes."""


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.cpu)
@pytest.mark.parametrize("name", ALL)
def test_outputs_are_those_of_the_host(tmp_path, name, board):
    if not REPORT and (name, board.cpu) not in QUICK:
        pytest.skip("only nox -s mcu runs every net on every board")
    path, x = save_net(tmp_path, name)
    model = compile_model(path, tmp_path / "out", board.cpu)
    want = run_on_host(model, x)
    got = run_on_board(model, x, board)
    output, hosts = (np.frombuffer(data, np.float32) for data in (got.output, want))
    # Softmax calls expf, which two C libraries round apart; all else is the same bit by bit.
    np.testing.assert_array_max_ulp(output, hosts, 0 if "anomalies" in name else 4)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (right,) = session.run(None, {"x": x})
    # Levels of 8-bit values that round the other way add up from layer to layer.
    near = 0.02 * np.abs(right).max() if "int8" in name else 1e-4
    np.testing.assert_allclose(output.reshape(right.shape), right, rtol=1e-3, atol=near)
    if REPORT:
        with open(REPORT, "a", encoding="utf-8") as file:
            file.write(f"{name} {board.cpu} {got.flash} {got.ram} {got.instructions}\n")


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("board", [BOARDS[0], BOARDS[3], BOARDS[4]], ids=lambda board: board.cpu)
def test_every_form_of_a_dot_product_gives_the_same_integers(tmp_path, kind, board):
    """Plain, by the DSP instructions, and by vectors; of rests, and of both kinds of data."""
    x = np.random.default_rng(8).normal(size=(1, 3, 7, 6)).astype(np.float32)
    path = tmp_path / "corners.onnx"
    onnx.save(corners(x, kind), path)
    holds_on(board, compile_model(path, tmp_path / "out", board.cpu), path, x)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("board", [BOARDS[0], BOARDS[4]], ids=lambda board: board.cpu)
def test_every_form_of_a_window_gives_the_same_integers(tmp_path, kind, board):
    """The source for vectors, with them and plain."""
    x = np.random.default_rng(8).normal(size=(1, 21, 7, 6)).astype(np.float32)
    path = tmp_path / "windows.onnx"
    onnx.save(windows(x, kind), path)
    model = compile_model(path, tmp_path / "out", "cortex-m55")
    assert "ix_taps_" in (model.folder / "src" / "windows.c").read_text()
    holds_on(board, model, path, x)


def holds_on(board, model, path, x):
    """Hold a model's output on a board to ONNX Runtime's."""
    got = np.frombuffer(run_on_board(model, x, board).output, np.float32)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": x})
    assert np.unique(want).size > 8
    np.testing.assert_array_equal(got.reshape(want.shape), want)
