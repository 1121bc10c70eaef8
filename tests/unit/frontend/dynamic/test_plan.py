# SPDX-License-Identifier: Apache-2.0
"""How a model is cut into compiled pieces and steps, and that the program computes the model."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from intarsia.driver.dynamic import import_any
from intarsia.driver.source import ModuleSource
from intarsia_ir.graph.expr import Function
from intarsia_ir.graph.module import IRModule
from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx.dynamic import DynamicModel, load, plan_onnx, tables
from intarsia_onnx.dynamic.program import PieceStep
from intarsia_onnx.dynamic.program_json import parse_program, print_program
from intarsia_runtime.artifact.signature import ValueSpec
from intarsia_runtime.errors import ArtifactError, ModelError, UnsupportedError
from intarsia_runtime.loading import ProgramRequest

from ..onnx_models import model, node
from .nodes import one

ML = "ai.onnx.ml"
F, I64, S = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def planned(proto: ModelProto, **named) -> DynamicModel:
    found = plan_onnx(proto, **named)
    assert isinstance(found, DynamicModel)
    return found


def caller(function: Function):
    def call(values):
        names = (param.name for param in function.params)
        return evaluate(function, dict(zip(names, values, strict=True)))

    return call


def run(found: DynamicModel, *values) -> list:
    """Run the program as it is read back from its files, pieces in the reference executor."""
    pieces = {name: caller(module.main) for name, module in found.pieces.items()}
    return load(ProgramRequest(print_program(found.program), pieces)).run(values)


def told(found: DynamicModel) -> list[str]:
    """The steps in order: names of pieces and operators."""
    return [s.name if isinstance(s, PieceStep) else s.op_type for s in found.program.steps]


def declared(proto: ModelProto, **kinds: tuple[int, list | None]) -> ModelProto:
    """Declare inputs."""
    for info in proto.graph.input:
        if info.name in kinds:
            info.CopyFrom(helper.make_tensor_value_info(info.name, *kinds[info.name]))
    return proto


def test_a_static_model_is_a_module() -> None:
    proto = model([node("Relu", "x")], {"x": (2,)})
    assert isinstance(plan_onnx(proto), IRModule)


def test_what_follows_a_size_of_the_run_is_a_step() -> None:
    nodes = [
        node("Relu", "x", "r"),
        node("Reshape", "r s", "q", name="shape"),
        node("Neg", "q", "y"),
    ]
    proto = declared(model(nodes, {"x": (2, 3), "s": (2,)}), s=(I64, [2]))
    found = planned(proto)
    assert told(found) == ["piece0", "Reshape", "Neg"]
    assert "not known at compile time" in found.reasons["shape"]
    x = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
    (y,) = run(found, x, np.array([3, 2]))
    np.testing.assert_array_equal(y, -np.maximum(x, 0).reshape(3, 2))


def test_results_of_known_types_go_on_in_compiled_pieces() -> None:
    first = {"keys_floats": [1.0, 2.0, 3.0, 4.0, 5.0], "values_floats": [0.0, 1.0, 0.0, 1.0, 0.0]}
    second = {"keys_floats": [14.0, 15.0], "values_floats": [0.0, 1.0]}
    nodes = [
        node("Abs", "x", "e"),
        node("LabelEncoder", "e", "v", domain=ML, **first),
        node("Neg", "v", "n"),
        node("ReduceSum", "e", "s"),
        node("Add", "n s", "a"),
        node("LabelEncoder", "a", "w", domain=ML, **second),
        node("Identity", "w", "y"),
        node("Identity", "x", "z"),
    ]
    proto = model(nodes, {"x": (5,)}, outputs=("y", "z", "n"))
    proto.opset_import.append(helper.make_opsetid(ML, 3))
    found = planned(proto)
    assert told(found) == ["piece0", "LabelEncoder", "piece1", "LabelEncoder"]
    x = np.array([1, 5, 2, 4, 3], np.float32)
    y, z, n = run(found, x)
    assert n.tolist() == [0, 0, -1, -1, 0]
    assert y.tolist() == [1, 1, 0, 0, 1]
    np.testing.assert_array_equal(z, x)


def test_indices_of_the_run_are_checked_beside_the_piece_that_reads_them() -> None:
    """Compiled code takes the nearest element; a run of ONNX Runtime ends, too."""
    table = {"keys_floats": [1.0, 2.0], "values_int64s": [0, 13]}
    nodes = [
        node("LabelEncoder", "e", "i", domain=ML, **table),
        node("Gather", "x i", "y"),
    ]
    proto = model(nodes, {"x": (3, 2), "e": (2,)})
    proto.opset_import.append(helper.make_opsetid(ML, 3))
    found = planned(proto)
    assert told(found) == ["LabelEncoder", "piece1", "Require"]
    assert list(found.reasons.values()) == ["LabelEncoder runs on the host"]
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    (y,) = run(found, x, np.array([1, 1], np.float32))
    np.testing.assert_array_equal(y, x[[0, 0]])
    wrong = r"y \(Gather\): an index is outside of the 3 elements of its dimension"
    with pytest.raises(ModelError, match=wrong):
        run(found, x, np.array([1, 2], np.float32))


def test_what_a_node_asked_for_that_becomes_a_step_is_not_checked() -> None:
    """The host checks its operands itself."""
    nodes = [
        node("LabelEncoder", "e", "l", domain=ML, keys_floats=[1.0], values_int64s=[1]),
        node("Gather", "x i", "g"),
        node("Reshape", "g l", "y"),
    ]
    proto = model(nodes, {"x": (3, 2), "e": (2,), "i": (2,)})
    proto.opset_import.append(helper.make_opsetid(ML, 3))
    found = planned(declared(proto, i=(I64, [2])))
    assert [name for name in told(found) if name != "Require"][-1] == "Reshape"
    assert told(found).count("Require") == 1


def test_known_operands_are_carried_out_at_once() -> None:
    weights = {"q": np.array([3, 1, 2], np.float32), "k": np.array([2])}
    nodes = [node("TopK", "q k", "v i"), node("Add", "x v", "y")]
    proto = model(nodes, {"x": (2,)}, weights=weights)
    found = plan_onnx(proto)
    assert isinstance(found, IRModule)
    assert evaluate(found.main, {"x": np.zeros(2, np.float32)})[0].tolist() == [3, 2]


def test_inputs_that_nothing_uses_stay_inputs() -> None:
    proto = model([node("Neg", "x", "y")], {"x": (2,), "z": ("N",)})
    found = planned(proto)
    assert [info.name for info in found.program.inputs] == ["x", "z"]
    (y,) = run(found, np.ones(2, np.float32), np.ones(5, np.float32))
    assert y.tolist() == [-1, -1]


def test_weights_of_four_bits_become_floats_at_once() -> None:
    nodes = [node("DequantizeLinear", "w s", "d"), node("Mul", "x d", "y")]
    proto = model(nodes, {"x": (3,)}, weights={"s": np.float32(0.5)}, opset=21)
    bits = helper.make_tensor("w", TensorProto.INT4, [3], bytes([0x71, 0x08]), raw=True)
    proto.graph.initializer.append(bits)
    found = plan_onnx(proto)
    assert isinstance(found, IRModule)
    y = evaluate(found.main, {"x": np.ones(3, np.float32)})[0]
    assert y.tolist() == [0.5, 3.5, -4.0]


def test_strings_and_sequences_are_values_of_the_program() -> None:
    nodes = [node("StringConcat", "x t", "c"), node("SequenceConstruct", "c x", "y")]
    proto = declared(model(nodes, {"x": (2,)}, opset=20), x=(S, [2]))
    proto.graph.initializer.append(helper.make_tensor("t", S, [1], [b"!"]))
    found = planned(proto)
    (y,) = run(found, np.array(["a", "b"], object))
    assert [item.tolist() for item in y] == [["a!", "b!"], ["a", "b"]]
    spec = load(ProgramRequest(print_program(found.program), {})).inputs[0]
    assert spec == ValueSpec("x", "tensor(string)", None)


def test_constant_sequences_run_in_the_program() -> None:
    nodes = [node("SequenceConstruct", "w w", "q"), node("SequenceLength", "q", "y")]
    found = planned(model(nodes, {"x": (1,)}, weights={"w": np.ones(2, np.float32)}))
    assert told(found) == ["SequenceConstruct", "SequenceLength"]
    assert run(found, np.zeros(1, np.float32))[0].item() == 2


def branches(**more) -> Mapping[str, object]:
    info = helper.make_tensor_value_info
    then = helper.make_graph([node("Neg", "r", "a")], "t", [], [info("a", F, [2])])
    other = helper.make_graph([node("Concat", "r r", "b", axis=0)], "e", [], [info("b", F, [4])])
    return {"then_branch": then, "else_branch": other, **more}


def test_branches_see_what_compiled_pieces_give() -> None:
    nodes = [node("Relu", "x", "r"), node("If", "c", "y", **branches())]
    proto = declared(model(nodes, {"x": (2,), "c": ()}), c=(TensorProto.BOOL, []))
    found = planned(proto)
    assert told(found) == ["piece0", "If"]
    x = np.array([-1, 2], np.float32)
    assert run(found, x, np.array(True))[0].tolist() == [0, -2]
    assert run(found, x, np.array(False))[0].tolist() == [0, 2, 0, 2]


def test_an_input_of_unknown_size_makes_all_after_it_steps() -> None:
    proto = model([node("Relu", "x", "r"), node("Neg", "r")], {"x": ("N",)})
    found = planned(proto)
    assert told(found) == ["Relu", "Neg"]
    assert run(found, np.array([1, -1], np.float32))[0].tolist() == [-1, 0]
    assert isinstance(plan_onnx(proto, shapes={"x": (3,)}), IRModule)
    fixed = plan_onnx(proto, constants={"x": np.ones(3, np.float32)})
    assert isinstance(fixed, IRModule)
    assert fixed.main.params == ()


def test_bodies_of_onnx_are_expanded_at_run_time() -> None:
    nodes = [node("MeanVarianceNormalization", "x")]
    found = planned(model(nodes, {"x": ("N", 2, 3, 3)}))
    x = np.arange(18, dtype=np.float32).reshape(1, 2, 3, 3)
    wanted = (x - x.mean((0, 2, 3), keepdims=True)) / x.std((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(run(found, x)[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Gradient", "x")], "operator 'Gradient'"),
        ([node("NonZero", "x", "n"), node("Gradient", "n")], "'Gradient'"),
        ([node("NonZero", "x", "n"), node("Gradient", "n", domain="a.b")], "domain 'a.b'"),
    ],
)
def test_what_can_neither_be_compiled_nor_carried_out(nodes: list, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        plan_onnx(model(nodes, {"x": (2, 2)}))


def test_text_for_an_operator_of_numbers() -> None:
    proto = declared(model([node("Relu", "x")], {"x": (2,)}), x=(S, [2]))
    with pytest.raises(UnsupportedError, match=r"'x', which is tensor\(string\)"):
        plan_onnx(proto)


def test_a_node_that_fails_names_itself() -> None:
    nodes = [node("NonZero", "x", "n"), node("Reshape", "n s", name="shape")]
    found = planned(model(nodes, {"x": (3,)}, weights={"s": np.array([7, 7])}))
    with pytest.raises(ModelError) as caught:
        run(found, np.ones(3, np.float32))
    assert "shape (Reshape)" in caught.value.where


def program_files() -> dict[str, bytes]:
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Neg", "v", "o")], "b", [info("v", F, ["K"])], [info("o", F, None)]
    )
    nodes = [
        node("NonZero", "x", "n"),
        node("Cast", "n", "f", to=F),
        node("SequenceConstruct", "f", "q"),
        node("SequenceMap", "q", "m", body=body),
        node("SequenceAt", "m z", "y"),
        node("LeakyRelu", "y", "l", alpha=0.1),
    ]
    proto = model(nodes, {"x": ("N",)}, weights={"z": np.array(0)}, outputs=("l",))
    return print_program(planned(proto).program)


def test_programs_are_read_back_as_they_were() -> None:
    files = program_files()
    assert print_program(parse_program(files)) == files
    loaded = load(ProgramRequest(files, {}))
    assert loaded.inputs == (ValueSpec("x", "float32", ("N",)),)
    np.testing.assert_allclose(loaded.run([np.array([0, 1, 1], np.float32)])[0], [[-0.1, -0.2]])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"schema": 2', '"schema": 9', "schema 9"),
        ('"opset": 18', '"opset": "x"', "opset"),
        ('"steps": [', '"stairs": [', "steps"),
        ('"dtype": "int64"', '"dtype": "int65"', "damaged"),
    ],
)
def test_damaged_programs(old: str, new: str, message: str) -> None:
    files = program_files()
    text = files["program.json"].decode()
    assert old in text
    with pytest.raises(ArtifactError, match=message):
        parse_program({**files, "program.json": text.replace(old, new).encode()})
    with pytest.raises(ArtifactError, match="damaged"):
        parse_program({**files, "program.json": b"{"})


def test_a_piece_must_be_there() -> None:
    found = planned(model([node("Relu", "x", "r"), node("NonZero", "r")], {"x": (3,)}))
    files = print_program(found.program)
    assert json.loads(files["program.json"])["steps"][0]["piece"] == "piece0"
    with pytest.raises(ArtifactError, match="calls piece 'piece0'"):
        load(ProgramRequest(files, {}))


def suppression(*limits: np.ndarray | None, **attrs: int) -> ModelProto:
    names = ["m", "o", "l"]
    known = {name: value for name, value in zip(names, limits, strict=False) if value is not None}
    taken = ["b", "s", *(name if name in known else "" for name in names[: len(limits)])]
    chosen = helper.make_node("NonMaxSuppression", taken, ["y"], **attrs)
    proto = model([chosen], {"b": (2, 70, 4), "s": (2, 3, 70)}, weights=known)
    return declared(proto, b=(F, [2, 70, 4]), s=(F, [2, 3, 70]))


@pytest.mark.parametrize("centred", [0, 1])
def test_boxes_are_chosen_by_a_piece_and_counted_by_the_run(centred: int) -> None:
    limits = np.array([20]), np.float32([0.2]), np.float32([0.4])
    found = planned(suppression(*limits, center_point_box=centred))
    assert told(found) == ["piece0", "ChosenBoxes"]
    assert (found.on_host, dict(found.reasons)) == ((), {})
    rng = np.random.default_rng(0)
    boxes = rng.random((2, 70, 4)).astype(np.float32)
    scores = rng.random((2, 3, 70)).astype(np.float32)
    (rows,) = run(found, boxes, scores)
    want = one("NonMaxSuppression", boxes, scores, *limits, center_point_box=centred)
    np.testing.assert_array_equal(rows, want)
    assert 50 < len(rows) <= 120


def test_boxes_without_known_limits_are_chosen_on_the_host(monkeypatch) -> None:
    assert told(planned(suppression(np.array([9])))) == ["piece0", "ChosenBoxes"]
    assert told(planned(suppression(np.array([0])))) == ["NonMaxSuppression"]
    assert told(planned(suppression())) == ["NonMaxSuppression"]
    open_shape = declared(suppression(np.array([9])), s=(F, [2, 3, "n"]))
    assert told(planned(open_shape)) == ["NonMaxSuppression"]
    monkeypatch.setattr(tables, "MOST_BYTES", 100)
    assert told(planned(suppression(np.array([9])))) == ["NonMaxSuppression"]


@pytest.mark.parametrize(
    ("boxes", "scores", "most", "message"),
    [
        ([2, 70, 5], [2, 3, 70], [9], r"boxes of shape \(2, 70, 5\) do not fit scores"),
        ([2, 70, 4], [2, 3, 69], [9], r"boxes of shape \(2, 70, 4\) do not fit scores"),
        ([70, 4], [2, 3, 70], [9], r"boxes of shape \(70, 4\) do not fit scores"),
        ([2, 70, 4], [2, 3, 70], [9, 9], "the number of boxes must be one number"),
    ],
)
def test_boxes_that_do_not_fit_are_an_error(boxes, scores, most, message: str) -> None:
    proto = declared(suppression(np.array(most)), b=(F, boxes), s=(F, scores))
    with pytest.raises(ModelError, match=message):
        plan_onnx(proto)
    with pytest.raises(ModelError, match=message):
        import_any(ModuleSource(proto.SerializeToString()), None, None, None)
