# SPDX-License-Identifier: Apache-2.0
"""Large weights are found in a model's bytes as protobuf reads them, whatever the bytes are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx
from intarsia_onnx.reader import model_digests, read_model
from intarsia_onnx.wire import LARGE, SlimModel, slim_model
from intarsia_runtime.errors import ModelError

from .onnx_models import model, node

COUNT = LARGE // 4
WEIGHTS: dict[str, np.ndarray] = {
    "small": np.array([1, 2], np.float32),
    "w": np.arange(COUNT, dtype=np.float32),
    "v": np.full((3, COUNT), -1, np.float32),
}


def proto(opset: int = 18) -> onnx.ModelProto:
    nodes = [node("Mul", "x w", "h"), node("Add", "h v", "y")]
    return model(nodes, {"x": (COUNT,)}, weights=WEIGHTS, opset=opset)


DATA = proto().SerializeToString()


def restored(slim: SlimModel) -> bytes:
    """The message with its weights put back."""
    message = onnx.ModelProto()
    message.ParseFromString(slim.message)
    for position, weight in slim.weights.items():
        assert not message.graph.initializer[position].raw_data
        message.graph.initializer[position].raw_data = bytes(weight)
    return message.SerializeToString(deterministic=True)


def whole(data: bytes) -> bytes | None:
    """The message as protobuf reads it; ``None`` if it does not."""
    message = onnx.ModelProto()
    try:
        message.ParseFromString(data)
    except Exception:  # protobuf's DecodeError has no stable home
        return None
    return message.SerializeToString(deterministic=True)


def test_large_weights_are_cut_out() -> None:
    slim = slim_model(memoryview(DATA))
    assert slim is not None
    assert len(slim.message) < 1000
    assert {at: len(data) for at, data in slim.weights.items()} == {1: LARGE, 2: 3 * LARGE}
    assert restored(slim) == whole(DATA)


def test_a_graph_in_two_fields_is_left_to_protobuf() -> None:
    assert slim_model(memoryview(DATA + DATA)) is None


def test_a_weight_with_its_data_twice_is_left_to_protobuf() -> None:
    twice, once = (tensor.SerializeToString() for tensor in proto().graph.initializer[1:])
    graph = b"".join(_field(5, tensor) for tensor in (twice + twice, once))
    slim = slim_model(memoryview(_field(7, graph)))
    assert slim is not None
    assert list(slim.weights) == [1]
    assert restored(slim) == whole(_field(7, graph))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + _varint(value >> 7) if value > 0x7F else bytes([value])


@given(
    at=st.one_of(
        st.integers(0, 400),
        st.sampled_from([DATA.index(b"small"), DATA.index(b"\x42\x01w"), DATA.index(b"\x42\x01v")]),
    ),
    shift=st.integers(-12, 12),
    put=st.binary(max_size=12),
    drop=st.integers(0, 12),
)
@settings(max_examples=300, deadline=None)
def test_damaged_bytes_mean_what_they_mean_to_protobuf(
    at: int, shift: int, put: bytes, drop: int
) -> None:
    start = max(0, at + shift)
    damaged = DATA[:start] + put + DATA[start + drop :]
    slim = slim_model(memoryview(damaged))
    if slim is not None:
        expected = whole(damaged)
        assert (whole(slim.message) is None) == (expected is None)
        assert expected is None or restored(slim) == expected


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("opset", [6, 18])
def test_weights_are_read_the_same_wherever_they_lie(
    tmp_path: Path, mapped: bool, opset: int
) -> None:
    message = model(
        [node("Mul", "x w", "y", **({"broadcast": 1} if opset < 7 else {}))],
        {"x": (COUNT,)},
        weights={"w": WEIGHTS["w"], "big": np.zeros(1 << 19, np.float32)},
        opset=opset,
    )
    path = tmp_path / "net.onnx"
    path.write_bytes(message.SerializeToString())
    found = read_model(path, mapped=mapped).graph.initializers
    assert found["w"].tobytes() == WEIGHTS["w"].tobytes()
    assert not found["w"].flags.writeable or opset < 7


def test_a_module_does_not_depend_on_its_file_unless_it_may(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    weights = {"w": np.ones(1 << 19, np.float32)}
    data = model([node("Mul", "x w")], {"x": (1,)}, weights=weights).SerializeToString()
    path.write_bytes(data)
    apart, inside = from_onnx(path), from_onnx(path, mapped=True)
    with path.open("r+b") as file:  # in place: the file that is mapped
        file.write(data.replace(b"\0\0\x80\x3f", b"\0\0\0\x40"))
    for module, value in ((apart, 1.0), (inside, 2.0)):
        (found,) = evaluate(module.main, {"x": np.ones(1, np.float32)})
        assert set(found.tolist()) == {value}


def test_a_weight_of_the_wrong_size_is_refused(tmp_path: Path) -> None:
    message = proto()
    message.graph.initializer[1].dims[0] = COUNT + 1
    with pytest.raises(ModelError, match=f"{LARGE} bytes of data"):
        from_onnx(message.SerializeToString())


def test_two_sources_of_data_are_refused() -> None:
    message = proto()
    message.graph.initializer[1].float_data.append(1.0)
    with pytest.raises(ModelError, match="both raw_data and float_data"):
        from_onnx(message.SerializeToString())
    message.graph.initializer[1].data_location = onnx.TensorProto.EXTERNAL
    with pytest.raises(ModelError, match="both external and inline"):
        from_onnx(message.SerializeToString())


def test_the_digest_of_a_model_sees_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(DATA)
    before = model_digests(path)
    path.write_bytes(DATA[:-9] + bytes([DATA[-9] ^ 1]) + DATA[-8:])
    assert model_digests(path) != before
