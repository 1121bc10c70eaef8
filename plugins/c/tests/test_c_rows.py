# SPDX-License-Identifier: Apache-2.0
"""Products of rows and depthwise windows of bytes: the plain forms, and which sources have them.

That the forms for boards are equal is ``mcu/test_mcu.py``.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from intarsia_c.procedures import target_function

from .calling import exact_session
from .mcu.boards import compile_model, run_on_host
from .mcu.tiny_nets import ByteNet, corners, save_net, spectrogram, windows

SOURCES = ("cortex-m4", "cortex-m55")


def holds(folder, model, x, cpu):
    """Compile the sources for a processor on this machine; returns them, and compares."""
    path = folder / "net.onnx"
    onnx.save(model, path)
    built = compile_model(path, folder / "out", f"c -mcpu={cpu}")
    got = np.frombuffer(run_on_host(built, x), np.float32)
    (want,) = exact_session(str(path)).run(None, {"x": x})
    assert np.unique(want).size > 8
    np.testing.assert_array_equal(got.reshape(want.shape), want)
    return (built.folder / "src" / "net.c").read_text()


def image(*shape):
    """An input."""
    return np.random.default_rng(8).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("cpu", SOURCES)
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_rows_have_every_form_and_the_plain_one_is_right(tmp_path, kind, cpu):
    x = image(1, 3, 7, 6)
    source = holds(tmp_path, corners(x, kind), x, cpu)
    for text in ("vmladavaq_s8", "vmladava.s8", "smlad %[s00]", "ldmia %[a]!, {r4, r5, r6, r8}"):
        assert text in source
    letter = "i" if kind is np.int8 else "u"
    for function in (
        f"ix_bytes_{letter}8_4of4x1",
        f"ix_pack_{letter}8_4",
        f"ix_window_{letter}8_4",
    ):
        assert function in source


@pytest.mark.parametrize("cpu", SOURCES)
def test_one_channel_becomes_rows(tmp_path, cpu):
    x = image(1, 1, 9, 11)
    source = holds(tmp_path, spectrogram(x, np.uint8), x, cpu)
    assert "concatenate" in source
    assert "ix_pack_u8_4(" in source


@pytest.mark.parametrize("cpu", SOURCES)
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_long_rows_are_unpacked_two_at_a_time(tmp_path, kind, cpu):
    x = image(1, 132, 3, 5)
    net = ByteNet(x, kind)
    net.conv((6, 132, 3, 3), pads=[2, 1, 2, 1], dilations=[2, 1])
    net.conv((3, 6, 1, 1))
    source = holds(tmp_path, net.finish((1, 3, 3, 5)), x, cpu)
    letter = "i" if kind is np.int8 else "u"
    assert f"ix_bytes_{letter}8_2of2x1" in source
    assert f"ix_bytes_{letter}8_1of2x1" in source


def test_a_single_row_takes_four_columns_together(tmp_path):
    path, x = save_net(tmp_path, "anomalies_int8")
    for cpu, names in (("cortex-m4", ("ix_rows_1of1x4", "ix_bytes_u8_0_1of1x4")),
                       ("cortex-m55", ("ix_rows_1of1x1", "ix_bytes_u8_0_1of1x1"))):  # fmt: skip
        built = compile_model(path, tmp_path / cpu, f"c -mcpu={cpu}")
        source = (built.folder / "src" / "anomalies_int8.c").read_text()
        assert all(f"IX_KERNEL {name}(" in source for name in names)
        got = np.frombuffer(run_on_host(built, x), np.float32)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (want,) = session.run(None, {"x": x})
        np.testing.assert_allclose(got, want.reshape(-1), atol=0.02 * np.abs(want).max())


@pytest.mark.parametrize("cpu", SOURCES)
@pytest.mark.parametrize("channels", [24, 12])
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_windows_within_a_channel_are_one_function(tmp_path, kind, channels, cpu):
    x = image(2, channels, 7, 6)
    net = windows(x, kind)
    source = holds(tmp_path, net, x, cpu)
    letter = "i" if kind is np.int8 else "u"
    assert (
        source.count(f"IX_KERNEL ix_depthwise_{letter}8_{letter}8_") == 2
    )  # the last one gives floats
    assert ("vmladav.s8 %[s0], %q[x]" in source) is (channels % 8 == 0)


@pytest.mark.parametrize("cpu", SOURCES)
@pytest.mark.parametrize("kernel", [(5, 5), (1, 7), (7, 3)])
def test_large_windows_are_right(tmp_path, kernel, cpu):
    x = image(1, 16, 9, 8)
    net = ByteNet(x, np.uint8)
    net.conv((16, 1, *kernel), group=16, pads=[k // 2 for k in (*kernel, *kernel)])
    net.conv((4, 16, 1, 1))
    assert "ix_depthwise_u8" in holds(tmp_path, net.finish((1, 4, 9, 8)), x, cpu)


def test_odd_channels_stay_with_loops(tmp_path):
    x = image(1, 21, 7, 6)
    assert "ix_depthwise" not in holds(tmp_path, windows(x, np.uint8), x, "cortex-m4")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("ix_rows_4of4x1", 6),
        ("ix_bytes_i8_1of1x4", 8),
        ("ix_rows_5of4x1", None),
        ("ix_start_1_bias", 5),
        ("ix_start_one_4", 4),
        ("ix_pack_u8_4", 4),
        ("ix_pack_u8_3", None),
        ("ix_window_i8_2_h7w6c4_k3x3_s1_d1x1_z3", 5),
        ("ix_window_i8_2_h7w6c4_k3x3", None),
        ("ix_depthwise_start_bias", 6),
        ("ix_depthwise_start", 5),
        ("ix_depthwise_u8_i8_0_h7w6c8_o7x6_k3x3_s1x1_p1x1_d1x1_z0", 7),
        ("ix_depthwise_u8_h7w6c8", None),
    ],
)
def test_functions_are_known_by_name(name, arguments):
    found = target_function(name)
    assert (None if found is None else found.arguments) == arguments
