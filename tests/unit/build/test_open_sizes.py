# SPDX-License-Identifier: Apache-2.0
"""Sizes that may be any: which are proved, what is said of the others, and examples of them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia.build import open_sizes
from intarsia.build.importing import import_model
from intarsia.build.open_sizes import example_shapes, open_choices, prove_ranges
from intarsia.build.sizes import Sizes, name_sizes
from intarsia.errors import ResourceError, UnsupportedError, UsageError

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


def one_node(op: str, *constants: int, sizes: tuple[int | str, ...]) -> bytes:
    """An operator on an input, with lists of one number."""
    info = helper.make_tensor_value_info
    names = [f"c{n}" for n in range(len(constants))]
    weights = [
        numpy_helper.from_array(np.array([number]), name)
        for name, number in zip(names, constants, strict=True)
    ]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], ["y"])],
        "g",
        [info("x", F, sizes)],
        [info("y", F, None)],
        weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return made.SerializeToString()


@pytest.mark.parametrize("bounds", [(0, 512), (-12, 2**31), (0, -12), (500, 600)])
def test_bounds_beyond_what_is_compiled_are_seen(bounds: tuple[int, int]) -> None:
    """Of sizes up to 8 such a slice takes everything, or nothing."""
    with pytest.raises(UnsupportedError, match="cannot be any"):
        open_choices(one_node("Slice", *bounds, 0, sizes=("N", 4)), None, None)
    for whole in ((0, 2**31), (0, 2**60)):
        assert open_choices(one_node("Slice", *whole, 0, sizes=("N", 4)), None, None).choices


def test_an_axis_that_is_there_for_some_sizes_only() -> None:
    with pytest.raises(UnsupportedError, match="it becomes"):
        open_choices(one_node("Squeeze", sizes=("N", 1)), None, None)
    assert open_choices(one_node("Squeeze", 1, sizes=("N", 1)), None, None).choices


def test_a_size_too_large_for_the_machine_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def limited(model: object, shapes: dict[str, tuple[int, ...]], *given: object, **more: object):
        seen.append(shapes["x"][0])
        if seen[-1] > 9:
            raise ResourceError("too large")
        return import_model(model, shapes, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(open_sizes, "import_model", limited)
    assert open_choices(one_node("Neg", sizes=("N", 4)), None, None).choices
    assert sorted(set(seen)) == [1, 8, 9, 1021]
    monkeypatch.setattr(open_sizes, "_FAR", 0)
    limit = Sizes.at_least(1, 64)
    with pytest.raises(ResourceError):
        prove_ranges(one_node("Neg", sizes=("N", 4)), name_sizes({"x": (limit, 4)}, {}), None)


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
