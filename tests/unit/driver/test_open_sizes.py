# SPDX-License-Identifier: Apache-2.0
"""Models of open sizes on a fallback of fixed sizes, and examples of sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from intarsia.driver.build import build
from intarsia.driver.open_sizes import example_shapes
from intarsia.driver.source import ModuleSource
from intarsia_ir.size_values import SizeValues
from intarsia_onnx import reader
from intarsia_runtime.errors import UnsupportedError, UsageError

from .toy import Backend, host_of

F = TensorProto.FLOAT


def model(axis: int, *sizes: int | str) -> bytes:
    """``softmax(x) + x`` over an axis, and ``z`` of the first size."""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Softmax", ["x"], ["s"], axis=axis, name="soft"),
        helper.make_node("Add", ["s", "x"], ["y"]),
        helper.make_node("Neg", ["z"], ["n"]),
    ]
    inputs = [info("x", F, sizes), info("z", F, sizes[:1])]
    outputs = [info(name, F, None) for name in ("y", "n")]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return made.SerializeToString()


def one_node(op: str, *, sizes: tuple[int | str, ...], **attrs: object) -> bytes:
    """An operator on an input."""
    info = helper.make_tensor_value_info
    node = helper.make_node(op, ["x"], ["y"], **attrs)
    graph = helper.make_graph([node], "g", [info("x", F, sizes)], [info("y", F, None)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return made.SerializeToString()


@pytest.mark.parametrize(
    ("axis", "sizes", "hint"),
    [
        (0, ("N", 4), "--shape x:1,4 --shape z:1;"),
        (1, ("N", "S"), "--shape x:1,128 --shape z:1;"),
        (2, ("N", 3, "H", "W"), "--shape x:1,3,128,128 --shape z:1;"),
    ],
)
def test_a_fallback_of_fixed_sizes_wants_numbers(
    axis: int, sizes: tuple[int | str, ...], hint: str
) -> None:
    message = "the size of input 'x' is not known: .*, and 'toy' compiles for known sizes alone"
    with pytest.raises(UnsupportedError, match=message) as caught:
        build(model(axis, *sizes), "toy", host=host_of(Backend()))
    assert hint in caught.value.hint
    ranged = {"x": (SizeValues.of_range(1, 8), *sizes[1:])}
    with pytest.raises(UnsupportedError, match=message):
        build(model(axis, *sizes), "toy", host=host_of(Backend()), shapes=ranged)


def test_where_no_example_fits_none_is_given() -> None:
    """A window of 20 000 samples is wider than each size that is tried."""
    wide = one_node("MaxPool", sizes=("N", 1, "S"), kernel_shape=[20_000])
    with pytest.raises(UnsupportedError, match="is not known") as caught:
        build(wide, "toy", host=host_of(Backend()))
    assert "for example every size with --shape" in caught.value.hint
    with pytest.raises(UnsupportedError, match="is not known") as caught:
        example_shapes(wide, {})
    assert "--shape input:1,3,224,224" in caught.value.hint


def test_weights_that_the_user_gives_are_no_open_sizes() -> None:
    made = build(one_node("Neg", sizes=("N", 4)), "toy", host=host_of(Backend()),
                 params={"x": np.zeros((3, 4), np.float32)})  # fmt: skip
    assert made.passport.signature.inputs == ()


def test_what_only_a_program_takes_is_read_once_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    data = helper.make_model(
        helper.make_graph(
            [helper.make_node("StringNormalizer", ["x"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.STRING, ("N",))],
            [helper.make_tensor_value_info("y", TensorProto.STRING, None)],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    ).SerializeToString()
    read_model, seen = reader.read_model, list[object]()

    def reading(*given: Any, **more: Any) -> object:
        seen.append(given)
        return read_model(*given, **more)

    monkeypatch.setattr(reader, "read_model", reading)
    source = ModuleSource(data)
    assert not source.may_be_open(None)
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="string"):
            source.module()
    assert len(seen) == 1


def test_examples_are_likely_sizes() -> None:
    assert example_shapes(model(1, 2, 4), {}) == {}
    assert example_shapes(model(1, "N", 4), {"x": (2, 4), "z": (2,)}) == {"x": (2, 4), "z": (2,)}
    assert example_shapes(model(1, "N", 4), {}) == {"x": (1, 4), "z": (1,)}
    assert example_shapes(model(1, "N", "S"), {}) == {"x": (1, 128), "z": (1,)}
    long = one_node("MaxPool", sizes=("N", 1, "S"), kernel_shape=[400], strides=[400])
    assert example_shapes(long, {}) == {"x": (1, 1, 512)}
    with pytest.raises(UsageError, match="which is no input"):
        example_shapes(model(1, "N", 4), {"q": (2,)})
