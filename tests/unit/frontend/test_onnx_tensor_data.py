# SPDX-License-Identifier: Apache-2.0
"""Data of a weight that contradict each other or their element type are refused, never guessed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from intarsia_onnx.external import ExternalFiles
from intarsia_onnx.tensors import decode_tensor
from intarsia_onnx.wire import LARGE, slim_model
from intarsia_runtime.errors import ModelError, UnsupportedError

from .onnx_models import model, node

FLOAT8, INT4 = TensorProto.FLOAT8E4M3FN, TensorProto.INT4


def tensor(kind: int, size: int, raw: bytes = b"", int32_data: Sequence[int] = ()) -> TensorProto:
    made = TensorProto(name="w", data_type=kind, dims=[size], int32_data=int32_data)
    if raw:
        made.raw_data = raw
    return made


def decoded(weight: TensorProto) -> np.ndarray:
    return decode_tensor(weight, ExternalFiles(None), "w")


@pytest.mark.parametrize("kind", [FLOAT8, INT4, TensorProto.INT8])
def test_data_in_two_places(kind: int) -> None:
    weight = tensor(kind, 1, b"\1", int32_data=[2])
    with pytest.raises(ModelError, match="both raw_data and int32_data are set"):
        decoded(weight)
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    with pytest.raises(ModelError, match="both external and inline data"):
        decoded(weight)


def test_small_numbers_in_a_field_of_large_ones() -> None:
    weight = TensorProto(data_type=FLOAT8, dims=[1], float_data=[1.0])
    with pytest.raises(ModelError, match="data in float_data; expected int32_data"):
        decoded(weight)


@pytest.mark.parametrize(
    ("kind", "value", "what"),
    [
        (TensorProto.INT8, 300, "int8"),
        (TensorProto.UINT8, -1, "uint8"),
        (TensorProto.INT16, 70000, "int16"),
        (TensorProto.UINT16, 1 << 16, "uint16"),
        (TensorProto.FLOAT16, 1 << 16, "16 bits"),
        (TensorProto.BFLOAT16, -40000, "16 bits"),
        (FLOAT8, 300, "8 bits"),
        (INT4, -129, "8 bits"),
    ],
)
def test_values_that_their_type_has_not(kind: int, value: int, what: str) -> None:
    with pytest.raises(ModelError, match=f"the value {value} does not fit in {what}"):
        decoded(tensor(kind, 1, int32_data=[value]))


def test_a_value_beyond_32_bits() -> None:
    with pytest.raises(ModelError, match="1099511627776 does not fit in uint32"):
        decoded(TensorProto(data_type=TensorProto.UINT32, dims=[1], uint64_data=[1 << 40]))
    weight = TensorProto(data_type=TensorProto.UINT64, dims=[1], uint64_data=[1 << 63])
    assert decoded(weight).tolist() == [1 << 63]


def test_bits_with_a_sign_are_those_without() -> None:
    signed = decoded(tensor(TensorProto.FLOAT16, 2, int32_data=[0x3C00 - (1 << 14), -0x4400]))
    whole = decoded(tensor(TensorProto.FLOAT16, 2, int32_data=[0x3C00 - (1 << 14), 0xBC00]))
    assert signed.tobytes() == whole.tobytes()


def test_true_is_one_byte_in_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\x02\x00\xff")
    weight = tensor(TensorProto.BOOL, 3)
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="w.bin")
    found = decode_tensor(weight, ExternalFiles(tmp_path), "w")
    assert found.view(np.uint8).tolist() == [1, 0, 1]


def test_true_is_one_byte() -> None:
    for weight in (
        tensor(TensorProto.BOOL, 3, b"\x02\x00\xff"),
        tensor(TensorProto.BOOL, 3, int32_data=[2, 0, -1]),
    ):
        assert decoded(weight).view(np.uint8).tolist() == [1, 0, 1]


def test_a_segment_is_no_tensor() -> None:
    weight = tensor(TensorProto.INT8, 1, b"\1")
    weight.segment.end = 1
    with pytest.raises(UnsupportedError, match="one segment of another"):
        decoded(weight)


def test_what_is_no_weight_moves_none() -> None:
    values = np.arange(LARGE // 4, dtype=np.float32)
    whole = model([node("Mul", "x w", "y")], {"x": values.shape}, weights={"w": values})
    assert slim_model(memoryview(whole.SerializeToString())) is not None
    odd = onnx.ModelProto()
    odd.CopyFrom(whole)
    graph = b"\x28\x01" + whole.graph.SerializeToString()  # field 5 as a number, not a message
    odd.ClearField("graph")
    size = len(graph)
    length = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14])
    assert slim_model(memoryview(odd.SerializeToString() + b"\x3a" + length + graph)) is None
