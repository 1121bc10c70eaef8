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

import intarsia

from ..calling import exact_session
from .boards import BOARDS, MISSING, WHY_NOT, compile_model, run_on_board, run_on_host
from .tiny_nets import NETS, ByteNet, corners, floats, save_net, spectrogram, strides, windows

pytestmark = pytest.mark.skipif(bool(MISSING), reason=WHY_NOT)
REPORT = os.environ.get("INTARSIA_MCU_REPORT")
ALL = [f"{name}{kind}" for name in NETS for kind in ("", "_int8")]
QUICK = {
    ("c", "keywords", "cortex-m4"),
    ("c", "anomalies_int8", "cortex-m3"),
    ("c", "keywords_int8", "cortex-m4"),
    ("c", "keywords_int8", "cortex-m55"),
    ("llvm", "keywords", "cortex-m4"),
    ("llvm", "anomalies_int8", "cortex-m3"),
    ("llvm", "keywords_int8", "cortex-m55"),
}
"""What runs without a report; all nets on all boards take minutes."""
PRODUCTS = {"keywords": 2656768, "images": 12501632, "persons": 7489664, "anomalies": 264192,
            "mobilenet": 10666928}  # fmt: skip
"""Multiply-adds of a run."""


def skip_unless_wanted(backend, name, board):
    """Skip what neither a report nor a quick run asks for."""
    if not REPORT and (backend, name, board.cpu) not in QUICK:
        pytest.skip("only nox -s mcu runs every net on every board")


def write_down(backend, name, board, got):
    """Add a line to the report."""
    if REPORT:
        with open(REPORT, "a", encoding="utf-8") as file:
            costs = f"{got.flash} {got.ram} {got.instructions}"
            file.write(f"{name} {board.cpu} {backend} {costs}\n")


def is_right(path, x, output):
    """Hold an output against ONNX Runtime's."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (right,) = session.run(None, {"x": x})
    # Levels of 8-bit values that round the other way add up from layer to layer.
    near = 1e-4 if path.stem in NETS else 0.02 * np.abs(right).max()
    np.testing.assert_allclose(output.reshape(right.shape), right, rtol=1e-3, atol=near)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.cpu)
@pytest.mark.parametrize("name", ALL)
def test_outputs_are_those_of_the_host(tmp_path, name, board):
    skip_unless_wanted("c", name, board)
    path, x = save_net(tmp_path, name)
    model = compile_model(path, tmp_path / "out", f"c -mcpu={board.cpu}")
    want = run_on_host(model, x)
    got = run_on_board(model, x, board)
    output, hosts = (np.frombuffer(data, np.float32) for data in (got.output, want))
    # Softmax calls expf, which two C libraries round apart; all else is the same bit by bit.
    np.testing.assert_array_max_ulp(output, hosts, 0 if "anomalies" in name else 4)
    is_right(path, x, output)
    write_down("c", name, board, got)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.cpu)
@pytest.mark.parametrize("name", ALL)
def test_objects_compute_what_the_host_does(tmp_path, name, board):
    pytest.importorskip("intarsia_llvm")
    skip_unless_wanted("llvm", name, board)
    path, x = save_net(tmp_path, name)
    target = f"llvm -mtriple={board.triple} -mcpu={board.cpu}"
    model = compile_model(path, tmp_path / "out", target)
    assert not model.sources
    got = run_on_board(model, x, board)
    output = np.frombuffer(got.output, np.float32)
    is_right(path, x, output)
    with intarsia.build(path, "llvm", mod_name=path.stem).load(threads=1) as host:
        (hosts,) = host.run([x]).values()
    # The host adds in wider vectors, so another order; levels may round the other way.
    near = 0.02 if "int8" in name else 1e-5
    span = np.abs(hosts).max()
    np.testing.assert_allclose(output, hosts.reshape(-1), rtol=1e-4, atol=near * span)
    write_down("llvm", name, board, got)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("board", [BOARDS[0], BOARDS[3], BOARDS[4]], ids=lambda board: board.cpu)
def test_every_form_of_a_dot_product_gives_the_same_integers(tmp_path, kind, board):
    """Plain, by the DSP instructions, and by vectors; of rests, and of both kinds of data."""
    x = np.random.default_rng(8).normal(size=(1, 3, 7, 6)).astype(np.float32)
    path = tmp_path / "corners.onnx"
    onnx.save(corners(x, kind), path)
    holds_on(board, compile_model(path, tmp_path / "out", f"c -mcpu={board.cpu}"), path, x)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("board", [BOARDS[0], BOARDS[3], BOARDS[4]], ids=lambda board: board.cpu)
def test_windows_over_one_channel_give_the_same_integers(tmp_path, kind, board):
    x = np.random.default_rng(8).normal(size=(1, 1, 9, 11)).astype(np.float32)
    path = tmp_path / "spectrogram.onnx"
    onnx.save(spectrogram(x, kind), path)
    model = compile_model(path, tmp_path / "out", f"c -mcpu={board.cpu}")
    source = (model.folder / "src" / "spectrogram.c").read_text()
    assert "concatenate" in source
    holds_on(board, model, path, x)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize(
    ("channels", "function"), [(21, "taps"), (24, "depthwise"), (12, "depthwise")]
)
@pytest.mark.parametrize("board", [BOARDS[0], BOARDS[3], BOARDS[4]], ids=lambda board: board.cpu)
def test_every_form_of_a_window_gives_the_same_integers(tmp_path, board, channels, function, kind):
    """The source for vectors, with them, with the DSP instructions, and plain."""
    x = np.random.default_rng(8).normal(size=(1, channels, 7, 6)).astype(np.float32)
    path = tmp_path / "windows.onnx"
    onnx.save(windows(x, kind), path)
    model = compile_model(path, tmp_path / "out", "c -mcpu=cortex-m55")
    assert f"ix_{function}_" in (model.folder / "src" / "windows.c").read_text()
    holds_on(board, model, path, x)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("channels", [8, 24])
@pytest.mark.parametrize("board", [BOARDS[3], BOARDS[4]], ids=lambda board: board.cpu)
def test_windows_apart_and_large_ones_give_the_same_integers(tmp_path, board, channels, kind):
    """Rows of results that share nothing, and taps that are more than a vector."""
    x = np.random.default_rng(8).normal(size=(1, channels, 9, 11)).astype(np.float32)
    path = tmp_path / "strides.onnx"
    onnx.save(strides(x, kind), path)
    model = compile_model(path, tmp_path / "out", f"c -mcpu={board.cpu}")
    source = (model.folder / "src" / "strides.c").read_text()
    assert source.count("IX_KERNEL ix_depthwise_") == 3
    holds_on(board, model, path, x)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("inputs", [4, 12, 16, 36, 68])
@pytest.mark.parametrize("board", [BOARDS[3], BOARDS[4]], ids=lambda board: board.cpu)
def test_rows_of_any_length_give_the_same_integers(tmp_path, board, inputs, kind):
    """Rows that are written out, and longer ones; whole vectors, and parts of one."""
    x = np.random.default_rng(8).normal(size=(1, inputs, 3, 4)).astype(np.float32)
    net = ByteNet(x, kind)
    net.conv((10, inputs, 1, 1))
    net.conv((4, 10, 1, 1))
    path = tmp_path / "rows.onnx"
    onnx.save(net.finish((1, 4, 3, 4)), path)
    holds_on(board, compile_model(path, tmp_path / "out", f"c -mcpu={board.cpu}"), path, x)


@pytest.mark.parametrize(
    ("name", "cpu", "most"),
    [
        ("keywords_int8", "cortex-m4", 1.40),
        ("images_int8", "cortex-m7", 1.15),
        ("persons_int8", "cortex-m4", 1.45),
        ("persons_int8", "cortex-m7", 1.45),
        ("anomalies_int8", "cortex-m4", 1.65),
        ("keywords_int8", "cortex-m55", 0.37),
        ("images_int8", "cortex-m55", 0.36),
        ("persons_int8", "cortex-m55", 0.47),
        ("anomalies_int8", "cortex-m55", 0.53),
        ("mobilenet_int8", "cortex-m4", 1.70),
        ("mobilenet_int8", "cortex-m7", 1.70),
        ("mobilenet_int8", "cortex-m55", 0.58),
        ("keywords", "cortex-m4", 3.25),
        ("anomalies", "cortex-m7", 3.55),
        ("keywords", "cortex-m55", 1.09),
        ("mobilenet_signed", "cortex-m4", 1.70),
        ("mobilenet_signed", "cortex-m7", 1.70),
        ("mobilenet_signed", "cortex-m55", 0.58),
    ],
)
def test_instructions_of_a_multiply_add_stay_few(tmp_path, name, cpu, most):
    """All instructions of a run, quantization of the input included."""
    path, x = save_net(tmp_path, name)
    model = compile_model(path, tmp_path / "out", f"c -mcpu={cpu}")
    board = next(board for board in BOARDS if board.cpu == cpu)
    got = run_on_board(model, x, board)
    assert got.instructions <= most * PRODUCTS[name.partition("_")[0]]
    is_right(path, x, np.frombuffer(got.output, np.float32))


@pytest.mark.parametrize("channels", [3, 8, 12, 200])
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_every_tile_of_floats_gives_the_bits_of_the_host(tmp_path, channels, level):
    """One, two and three vectors of columns; rests of rows; weights that lie far apart; NaN."""
    x = np.random.default_rng(8).normal(size=(1, 5, 7, 6)).astype(np.float32)
    x[0, 0, 0, 0] = np.nan
    path = tmp_path / "floats.onnx"
    onnx.save(floats(x, channels), path)
    model = compile_model(path, tmp_path / "out", "c -mcpu=cortex-m55")
    assert "ix_products_" in (model.folder / "src" / "floats.c").read_text()
    got, want = run_on_board(model, x, BOARDS[4], level).output, run_on_host(model, x)
    np.testing.assert_array_equal(*(np.frombuffer(data, np.float32) for data in (got, want)))
    assert 0 < np.isnan(np.frombuffer(got, np.float32)).mean() < 0.9


@pytest.mark.parametrize(("cpu", "level"), [("cortex-m4", "-O0"), ("cortex-m55", "-Os")])
def test_other_levels_of_gcc_give_the_same_bytes(tmp_path, cpu, level):
    """Where a register is the frame's, and where GCC makes instructions conditional."""
    path, x = save_net(tmp_path, "mobilenet_int8")
    model = compile_model(path, tmp_path / "out", f"c -mcpu={cpu}")
    board = next(board for board in BOARDS if board.cpu == cpu)
    assert run_on_board(model, x, board, level).output == run_on_host(model, x)


def holds_on(board, model, path, x):
    """Hold a model's output on a board to ONNX Runtime's."""
    got = np.frombuffer(run_on_board(model, x, board).output, np.float32)
    session = exact_session(str(path))
    (want,) = session.run(None, {"x": x})
    assert np.unique(want).size > 8
    np.testing.assert_array_equal(got.reshape(want.shape), want)
