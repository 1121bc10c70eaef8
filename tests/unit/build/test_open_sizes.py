# SPDX-License-Identifier: Apache-2.0
"""Sizes that may be any: which are proved, what is said of the others, and examples of them."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from intarsia.build.open_sizes import example_shapes, open_choices, prove_ranges
from intarsia.build.sizes import Sizes, name_sizes
from intarsia.errors import UnsupportedError, UsageError

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


def test_what_nobody_gives_may_be_any() -> None:
    found = open_choices(model(1, "N", 4), None, None)
    assert found.shapes == {"x": ("N", 4), "z": ("N",)}
    assert [str(choice) for choice in found.choices] == ["N from 1 on"]
    found = open_choices(model(0, "N", "S"), {"z": (3,)}, None)
    assert found.shapes == {"x": (3, "S"), "z": (3,)}


@pytest.mark.parametrize(
    ("axis", "sizes", "hint"),
    [
        (0, ("N", 4), "--shape x:1,4 --shape z:1"),
        (1, ("N", "S"), "--shape x:1..,128 --shape z:1.."),
        (2, ("N", 3, "H", "W"), "--shape x:1..,3,128,1.. --shape z:1.."),
    ],
)
def test_what_may_not_is_shown_with_an_example(
    axis: int, sizes: tuple[int | str, ...], hint: str
) -> None:
    with pytest.raises(UnsupportedError, match="the size of input 'x' is not known") as caught:
        open_choices(model(axis, *sizes), None, None)
    assert "'nn.softmax' may mix the positions along it" in caught.value.message
    assert caught.value.hint.startswith(f"for example {hint}; or --executor vm")
    assert "soft" in caught.value.where


def test_ranges_are_proved_and_lists_need_not_be() -> None:
    for sizes, is_right in ((Sizes((2, 4)), True), (Sizes.of_range(1, 4), False),
                            (Sizes.at_least(1, 1), False)):  # fmt: skip
        shapes = name_sizes({"x": (sizes, 4), "z": (sizes,)}, {})
        if is_right:
            prove_ranges(model(0, "N", 4), shapes, None)
            continue
        with pytest.raises(UnsupportedError, match="along size"):
            prove_ranges(model(0, "N", 4), shapes, None)


def test_examples_are_small() -> None:
    assert example_shapes(model(1, 2, 4), {}) == {}
    assert example_shapes(model(1, "N", 4), {"x": (2, 4), "z": (2,)}) == {"x": (2, 4), "z": (2,)}
    assert example_shapes(model(1, "N", 4), {}) == {"x": (1, 4), "z": (1,)}
    with pytest.raises(UnsupportedError, match="cannot be any"):
        example_shapes(model(0, "N", 4), {})
    with pytest.raises(UsageError, match="which is no input"):
        example_shapes(model(1, "N", 4), {"q": (2,)})
