# SPDX-License-Identifier: Apache-2.0
"""Sizes that may be any: which are proved, what is said of the others, and examples of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia.driver.build import build
from intarsia.driver.open_sizes import example_shapes, open_choices, prove_ranges
from intarsia.driver.source import ModuleSource
from intarsia_ir.graph.module import IRModule
from intarsia_ir.size_values import SizeValues, name_sizes
from intarsia_onnx import api, reader
from intarsia_runtime.errors import ResourceError, UnsupportedError, UsageError

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


def test_what_nobody_gives_may_be_any() -> None:
    found = open_choices(ModuleSource(model(1, "N", 4)), None)
    assert found.shapes == {"x": ("N", 4), "z": ("N",)}
    assert [str(choice) for choice in found.choices] == ["N from 1 on"]
    found = open_choices(ModuleSource(model(0, "N", "S")), {"z": (3,)})
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
        open_choices(ModuleSource(model(axis, *sizes)), None)
    assert "'nn.softmax' may mix the positions along it" in caught.value.message
    assert caught.value.hint.startswith(f"for example {hint}; or --executor vm")
    assert "soft" in caught.value.where


def test_unnamed_sizes_of_audio_and_state_are_not_one() -> None:
    """The axis 1 is time in one input and the batch in the other, as in Silero's net."""
    info = helper.make_tensor_value_info
    weights = [
        numpy_helper.from_array(np.ones((1, 4, 1), np.float32), "w"),
        numpy_helper.from_array(np.ones((1, 4, 1), np.float32), "r"),
        numpy_helper.from_array(np.array([2]), "axes"),
    ]
    nodes = [
        helper.make_node("Transpose", ["audio"], ["t"]),
        helper.make_node("Unsqueeze", ["t", "axes"], ["x"]),
        helper.make_node("Split", ["state"], ["h", "c"], num_outputs=2),
        helper.make_node("LSTM", ["x", "w", "r", "", "", "h", "c"], ["y"], hidden_size=1),
    ]
    inputs = [info("audio", F, [None, None]), info("state", F, [2, None, 1])]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", F, None)], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    sizes = SizeValues.at_least(1)
    source = ModuleSource(made.SerializeToString())
    named = name_sizes({"audio": (sizes, sizes), "state": (2, sizes, 1)}, source.declared())
    assert named.shapes == {"audio": ("audio.0", "audio.1"), "state": (2, "state.1", 1)}
    with pytest.raises(UnsupportedError) as caught:
        open_choices(source, None)
    assert "--shape audio:1,128 --shape state:2,1,1;" in caught.value.hint


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


@pytest.mark.parametrize(
    "bounds",
    [
        *((0, 512), (-12, 2**31), (0, -12), (500, 600), (0, 2000), (-1500, 2**31), (1021, 2**60)),
        *((0, 10**6), (0, 10**9)),
    ],
)
def test_bounds_beyond_what_is_compiled_are_seen(bounds: tuple[int, int]) -> None:
    """Of sizes up to 8 such a slice takes everything, or nothing."""
    with pytest.raises(UnsupportedError, match="cannot be any"):
        open_choices(ModuleSource(one_node("Slice", *bounds, 0, sizes=("N", 4))), None)
    for whole in ((0, 2**31), (0, 2**60)):
        assert open_choices(
            ModuleSource(one_node("Slice", *whole, 0, sizes=("N", 4))), None
        ).choices


def shaped(*nodes: tuple[str, str, str], **numbers: float) -> bytes:
    """``x[:end]`` for an end that is computed of the size of ``x``.

    Args:
        nodes: Operator, operands and result; ``n`` is the size.
        numbers: Constants: integers, or numbers of 32 bits.
    """
    info = helper.make_tensor_value_info
    made = [
        helper.make_node("Shape", ["x"], ["n"], end=1),
        *(helper.make_node(op, names.split(), [result]) for op, names, result in nodes),
        helper.make_node("Slice", ["x", "zero", "end"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(np.array([v], np.float32 if isinstance(v, float) else None), name)
        for name, v in {"zero": 0, **numbers}.items()
    ]
    graph = helper.make_graph(made, "g", [info("x", F, ("N", 4))], [info("y", F, None)], weights)
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return whole.SerializeToString()


COMPARED = {
    "least": shaped(("Min", "n c", "end"), c=1500),
    "sum": shaped(("Mul", "a b", "c"), ("Min", "n c", "end"), a=40, b=50),
    "part": shaped(
        ("Div", "n d", "p"), ("Min", "p c", "q"), ("Mul", "q d", "r"), ("Mod", "n d", "s"),
        ("Add", "r s", "end"), d=8, c=600,
    ),
    "chosen": shaped(("Greater", "n c", "g"), ("Where", "g zero n", "end"), c=3000),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARED)
def test_numbers_that_sizes_are_compared_with_are_seen(name: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot be any"):
        open_choices(ModuleSource(COMPARED[name]), None)


def test_what_cannot_be_compared_is_refused_unless_no_input_can_reach_it() -> None:
    """Inputs of 10**8 rows of 1000 numbers are larger than a tensor may be, 10**6 rows of 1 not."""
    whole = one_node("Slice", 0, 10**8, 0, sizes=("N", 1000))
    assert open_choices(ModuleSource(whole), None).choices
    model = onnx.load_from_string(one_node("Slice", 0, 10**6, 0, sizes=("N", 1)))
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 10**5]), "wide"))
    model.graph.node.append(helper.make_node("Expand", ["y", "wide"], ["z"], name="grow"))
    model.graph.output[0].name = "z"
    with pytest.raises(UnsupportedError, match="the model has the number 1,000,000, and") as caught:
        prove_ranges(
            ModuleSource(model.SerializeToString()),
            name_sizes({"x": (SizeValues.at_least(1), 1)}, {}),
        )
    assert "a range" in caught.value.hint
    assert "grow" in caught.value.where


def test_what_is_run_piece_by_piece_is_not_said_to_be_padded() -> None:
    for sizes, words in (
        (
            SizeValues.of_range(1, 4),
            "inputs cannot be padded along size 'x.0': 'nn.softmax' may mix",
        ),
        (
            SizeValues.at_least(1),
            "inputs cannot be run piece by piece along size 'x.0': 'nn.softmax'",
        ),
    ):
        with pytest.raises(UnsupportedError, match=words) as caught:
            prove_ranges(
                ModuleSource(model(0, "N", 4)), name_sizes({"x": (sizes, 4), "z": (sizes,)}, {})
            )
        assert "1|4|16: each gets code of its own" in caught.value.hint


def test_an_axis_that_is_there_for_some_sizes_only() -> None:
    with pytest.raises(UnsupportedError, match="it becomes"):
        open_choices(ModuleSource(one_node("Squeeze", sizes=("N", 1))), None)
    assert open_choices(ModuleSource(one_node("Squeeze", 1, sizes=("N", 1))), None).choices


def test_a_size_too_large_for_the_machine_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    import_read = api.import_read

    def limited(
        read: Any, shapes: dict[str, tuple[int, ...]], *_: object, **_on: object
    ) -> IRModule:
        seen.append(shapes["x"][0])
        if seen[-1] > 9:
            raise ResourceError("too large")
        return import_read(read, shapes)

    monkeypatch.setattr(api, "import_read", limited)
    assert open_choices(ModuleSource(one_node("Neg", sizes=("N", 4))), None).choices
    assert seen == [8, 1, 1021, 9]
    shapes = name_sizes({"x": (SizeValues.at_least(1, 64), 4)}, {})
    with pytest.raises(ResourceError):
        prove_ranges(ModuleSource(one_node("Neg", sizes=("N", 4))), shapes)


def test_a_build_reads_once_and_imports_each_size_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the sizes are compiled, one shows what happens far from these."""
    seen: list[object] = []
    read_model, import_read = reader.read_model, api.import_read

    def reading(*given: Any, **more: Any) -> object:
        seen.append("read")
        return read_model(*given, **more)

    def importing(
        read: Any, shapes: dict[str, tuple[int, ...]], *_: object, **_on: object
    ) -> IRModule:
        seen.append(shapes["x"][0])
        return import_read(read, shapes)

    monkeypatch.setattr(reader, "read_model", reading)
    monkeypatch.setattr(api, "import_read", importing)
    assert build(one_node("Neg", sizes=("N", 4)), "toy", host=host_of(Backend())).passport.sizes
    assert seen == ["read", 8, 1, 1021]


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


def test_ranges_are_proved_and_lists_need_not_be() -> None:
    for sizes, is_right in ((SizeValues((2, 4)), True), (SizeValues.of_range(1, 4), False),
                            (SizeValues.at_least(1, 1), False)):  # fmt: skip
        shapes = name_sizes({"x": (sizes, 4), "z": (sizes,)}, {})
        if is_right:
            prove_ranges(ModuleSource(model(0, "N", 4)), shapes)
            continue
        with pytest.raises(UnsupportedError, match="along size"):
            prove_ranges(ModuleSource(model(0, "N", 4)), shapes)


def test_examples_are_small() -> None:
    assert example_shapes(model(1, 2, 4), {}) == {}
    assert example_shapes(model(1, "N", 4), {"x": (2, 4), "z": (2,)}) == {"x": (2, 4), "z": (2,)}
    assert example_shapes(model(1, "N", 4), {}) == {"x": (1, 4), "z": (1,)}
    with pytest.raises(UnsupportedError, match="cannot be any"):
        example_shapes(model(0, "N", 4), {})
    with pytest.raises(UsageError, match="which is no input"):
        example_shapes(model(1, "N", 4), {"q": (2,)})
