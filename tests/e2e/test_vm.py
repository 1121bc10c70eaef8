# SPDX-License-Identifier: Apache-2.0
"""Models partly known at run time: built, saved, loaded, run, from Python and the shell."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
import pytest
from msgspec.structs import replace
from onnx import TensorProto, helper, numpy_helper

import intarsia
from intarsia.driver.parts import Piece, join
from intarsia_runtime.artifact.signature import ValueSpec
from intarsia_runtime.errors import ArtifactError, ModelError, UnsupportedError, UsageError
from intarsia_runtime.executors.vm import VmExecutor
from intarsia_runtime.program import LoadedProgram

pytest.importorskip("intarsia_llvm", reason="needs a backend that generates code")

F, I64 = TensorProto.FLOAT, TensorProto.INT64
ML = "ai.onnx.ml"
X = np.array([[1, -2, 3, 0.5], [0, 4, -1, 2]], np.float32)


def top(sizes: tuple = (2, 4)) -> onnx.ModelProto:
    """The two largest of ``exp(x)``, negated: compiled pieces around a step that marks all."""
    info = helper.make_tensor_value_info
    table = {"keys_floats": [0.0], "values_floats": [0.0], "default_float": 1.0}
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("LabelEncoder", ["e"], ["b"], name="marks", domain=ML, **table),
        helper.make_node("Mul", ["e", "b"], ["m"]),
        helper.make_node("TopK", ["m", "k"], ["v", "i"], name="best"),
        helper.make_node("Neg", ["v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", F, sizes)],
        [info("y", F, None), info("i", I64, None)],
        [numpy_helper.from_array(np.array([2]), "k")],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def reshaped() -> onnx.ModelProto:
    """A reshape to a shape that is an input."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Reshape", ["e", "s"], ["y"])],
        "g",
        [info("x", F, [2, 4]), info("s", I64, [2])],
        [info("y", F, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.fixture(scope="module")
def artifact() -> intarsia.Artifact:
    return intarsia.build(top().SerializeToString(), "llvm")


def test_pieces_are_compiled_and_the_rest_is_said(artifact: intarsia.Artifact) -> None:
    assert "1 node runs in NumPy on the host (LabelEncoder)" in str(artifact.placement)
    (row,) = artifact.placement.to_json()["host"]
    assert (row["node"], row["op"]) == ("marks", "LabelEncoder")
    names = [unit.name for unit in artifact.units]
    assert names == ["main", "piece0.main", "piece1.main"]
    assert sorted(artifact.units[0].files) == ["program.bin", "program.json"]
    with artifact.load(threads=1) as executable:
        y, i = executable.run([X]).values()
    np.testing.assert_allclose(y, -np.exp(np.array([[3, 1], [4, 2]])), rtol=1e-6)
    assert i.tolist() == [[2, 0], [1, 3]]


def test_a_saved_program_is_loaded_and_is_the_same_each_time(
    artifact: intarsia.Artifact, tmp_path: Path
) -> None:
    path = artifact.save(tmp_path / "top.intarsia")
    again = intarsia.build(top().SerializeToString(), "llvm").save(tmp_path / "again.intarsia")
    assert path.read_bytes() == again.read_bytes()
    with intarsia.load(path) as executable:
        assert isinstance(executable, VmExecutor)
        assert executable.passport.executor["kind"] == "vm"
        assert executable.inputs == (ValueSpec("x", "float32", (2, 4)),)
        out = {"y": np.empty((2, 2), np.float32), "i": np.empty((2, 2), np.int64)}
        executable.run_into({"x": X}, out)
        assert out["i"].tolist() == [[2, 0], [1, 3]]
        with pytest.raises(ModelError, match=r"output 'y' is float32 \(2, 2\), the array for it"):
            executable.run_into({"x": X}, [np.empty((1, 2), np.float32), out["i"]])
        with pytest.raises(ModelError, match="no output 'y' was given"):
            executable.run_into({"x": X}, {"i": out["i"]})
    with pytest.raises(ModelError, match="was closed"):
        executable.run([X])
    with pytest.raises(UsageError, match="compiled for executor 'vm', which 'aot'"):
        intarsia.load(path, executor="aot")


@pytest.mark.parametrize(
    ("target", "brings"), [("dnnl -min-flops=0 -min-gain=0, llvm", True), ("llvm", False)]
)
def test_pieces_know_whether_one_of_them_brings_a_library(
    monkeypatch: pytest.MonkeyPatch, target: str, brings: bool
) -> None:
    if brings:
        pytest.importorskip("intarsia_dnnl", reason="needs an accelerator with a library")
    seen: list[tuple[bool, bool]] = []

    class Seen(LoadedProgram):
        def __init__(self, opened, threads, *, with_libraries=False) -> None:
            seen.append((bool(opened.passport.plan.regions), with_libraries))
            super().__init__(opened, threads, with_libraries=with_libraries)

    table = {"keys_floats": [0.0], "values_floats": [0.0], "default_float": 1.0}
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("LabelEncoder", ["e"], ["b"], domain=ML, **table),
        helper.make_node("MatMul", ["b", "w"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    weights = [numpy_helper.from_array(np.ones((4, 64), np.float32), "w")]
    graph = helper.make_graph(nodes, "g", [info("x", F, (2, 4))], [info("y", F, None)], weights)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    monkeypatch.setattr("intarsia_runtime.load.LoadedProgram", Seen)
    with intarsia.build(model.SerializeToString(), target).load(threads=2) as executable:
        (y,) = executable.run([X]).values()
    np.testing.assert_array_equal(y, np.full((2, 64), 4, np.float32))
    assert len(seen) == 2
    assert {beside for _, beside in seen} == {brings}
    assert any(own for own, _ in seen) is brings


def test_inputs_are_checked(artifact: intarsia.Artifact) -> None:
    with artifact.load(threads=1) as executable:
        for given, message in (
            ({}, "no input 'x' was given; expected 1 input: 'x'"),
            ({"z": X}, "the model has no input 'z'; expected 1 input: 'x'"),
            ({"x": X, "z": X}, "the model has no input 'z'"),
            ([X, X], "expected 1 input: 'x', got 2"),
            (X, "the inputs are a ndarray, not a mapping or a sequence"),
            ([[[1.0], [2.0, 3.0]]], "input 'x' cannot be read as an array"),
            ([X.astype(np.float64)], r"must be float32 \(2, 4\), got float64"),
            ([X[:1]], r"got float32 \(1, 4\)"),
        ):
            with pytest.raises(ModelError, match=message):
                executable.run(given)


def test_what_results_are_copied_into_is_checked(artifact: intarsia.Artifact) -> None:
    y, i = np.zeros((2, 2), np.float32), np.zeros((2, 2), np.int64)
    fixed = i.copy()
    fixed.flags.writeable = False
    with artifact.load(threads=1) as executable:
        for given, message in (
            ([], "expected 2 outputs: 'y', 'i', got 0"),
            (None, "the outputs are a NoneType"),
            ({"y": y}, "no output 'i' was given"),
            ({"y": y, "i": i, "z": i}, "the model has no output 'z'"),
            ([y, i.tolist()], "output 'i' is no array"),
            ([y, i.astype(np.int32)], r"output 'i' is int64 \(2, 2\), the array for it is int32"),
            ([y, fixed], "the array for output 'i' is read-only"),
            ([i.view(np.float32)[:, :2], i], "the array for output 'i' overlaps"),
        ):
            with pytest.raises(ModelError, match=message):
                executable.run_into([X], given)
            assert not y.any()
        executable.run_into([X], [y, i])
        assert y.any()


def same(sizes: tuple) -> onnx.ModelProto:
    """Results that need no work: an input as it is and in another shape, constants, a sequence."""
    info = helper.make_tensor_value_info
    words = numpy_helper.from_array(np.array(["a", "b"], object), "words")
    numbers = numpy_helper.from_array(np.ones(3, np.float32), "numbers")
    flat = numpy_helper.from_array(np.array([-1]), "flat")
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["row"]),
        helper.make_node("Identity", ["row"], ["again"]),
        helper.make_node("SequenceConstruct", ["x", "row"], ["both"]),
        helper.make_node("NonZero", ["x"], ["places"]),
    ]
    outputs = [
        *(info("x", F, sizes), info("row", F, None), info("again", F, None)),
        *(info("numbers", F, [3]), info("words", TensorProto.STRING, [2])),
        *(helper.make_empty_tensor_value_info("both"), info("places", I64, None)),
    ]
    graph = helper.make_graph(nodes, "g", [info("x", F, sizes)], outputs, [words, numbers, flat])
    imports = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


@pytest.mark.parametrize("sizes", [(2, 4), ("N", 4)])
def test_results_are_the_callers_own(sizes: tuple) -> None:
    """Writing into an input, or into a result, changes no result and not the model."""
    executor = intarsia.Executor("vm")
    with intarsia.build(same(sizes), "llvm", executor=executor).load() as executable:
        for _ in range(2):
            x = X.copy()
            found = executable.run([x])
            x[:] = 9.0
            arrays = [found[name] for name in ("x", "row", "again", "numbers", "places")]
            arrays += found["both"]
            wanted = [X, X.reshape(-1), X.reshape(-1), np.ones(3), np.nonzero(X), X, X.reshape(-1)]
            for array, value in zip(arrays, wanted, strict=True):
                np.testing.assert_array_equal(array, value)
                array[...] = 7
            assert found["words"].tolist() == ["a", "b"]
            found["words"][:] = "c"


def test_an_input_may_be_a_shape() -> None:
    with intarsia.build(reshaped().SerializeToString(), "llvm").load() as executable:
        for shape in ((8, 1), (4, 2)):
            (y,) = executable.run({"x": X, "s": np.array(shape)}).values()
            np.testing.assert_allclose(y, np.exp(X).reshape(shape), rtol=1e-6)


def test_unknown_sizes_are_those_of_pieces() -> None:
    data = top(("N", 4)).SerializeToString()
    for executor in (None, intarsia.Executor("vm")):
        chosen = intarsia.build(data, "llvm", executor=executor)
        assert [row.op for row in chosen.placement.host] == ["LabelEncoder"]
        with chosen.load() as executable:
            assert executable.run([X[:1]])["i"].tolist() == [[2, 0]]
            assert executable.run([X])["i"].shape == (2, 2)
    static = intarsia.build(data, "llvm", shapes={"x": (1, 4)})
    assert len(static.placement.host) == 1
    with pytest.raises(UnsupportedError, match="LabelEncoder"):
        intarsia.build(data, "llvm", executor=intarsia.Executor("aot"), shapes={"x": (1, 4)})


def test_a_module_runs_as_a_program_too() -> None:
    from intarsia_onnx import from_onnx

    proto = top()
    del proto.graph.node[1:]
    del proto.graph.output[:]
    proto.graph.output.append(helper.make_tensor_value_info("e", F, None))
    made = intarsia.build(from_onnx(proto), "llvm", executor=intarsia.Executor("vm"))
    with made.load() as executable:
        np.testing.assert_allclose(executable.run([X])["e"], np.exp(X), rtol=1e-6)


def test_damaged_parts(artifact: intarsia.Artifact) -> None:
    passport = artifact.passport
    first, second = passport.parts
    lost = MappingProxyType({"w": "nowhere"})
    for part, message in (
        (replace(first, weights=lost), "part 'piece0': the weight 'nowhere' is not there"),
        (replace(first, sizes=(1,)), "part 'piece0' is for 1 sizes, not 0"),
        (replace(first, name="other"), "part 'other': unit 'main' has no file 'lib.so'"),
    ):
        broken = dataclasses.replace(artifact, passport=replace(passport, parts=(part, second)))
        with pytest.raises(ArtifactError, match=message):
            broken.load()
    nested = join(passport, artifact.units[:1], [Piece("piece0", artifact)], artifact.placement)
    with pytest.raises(ArtifactError, match="the piece 'default' is itself a program"):
        nested.load()


def test_the_command_line_says_what_runs_where(tmp_path: Path) -> None:
    model, out = tmp_path / "top.onnx", tmp_path / "top.intarsia"
    onnx.save(top(), model)

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "intarsia", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    compiled = run("compile", model, "--target", "llvm", "-o", out, "--json")
    assert compiled.returncode == 0, compiled.stderr
    assert json.loads(compiled.stdout)["placement"]["host"][0]["op"] == "LabelEncoder"
    ran = run("run", out, "--json")
    assert [row["shape"] for row in json.loads(ran.stdout)["outputs"]] == [[2, 2], [2, 2]]
    onnx.save(top(("N", 4)), model)
    assert run("compile", model, "--target", "llvm", "--executor", "vm", "-o", out).returncode == 0
    ran = run("run", out)
    assert (ran.returncode, "made up, with N = 1" in ran.stderr) == (0, True)


def test_the_command_line_prints_text_and_sequences(tmp_path: Path) -> None:
    info = helper.make_tensor_value_info
    path, out = tmp_path / "m.onnx", tmp_path / "y.npz"
    imports = [helper.make_opsetid("", 20)]
    outputs = {"Cast": {"to": TensorProto.STRING}, "SequenceConstruct": {}}
    for op, attrs in outputs.items():
        result = helper.make_empty_tensor_value_info("y")
        made = helper.make_node(op, ["x"], ["y"], **attrs)
        graph = helper.make_graph([made], "g", [info("x", TensorProto.FLOAT, [2])], [result])
        onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
        command = [sys.executable, "-m", "intarsia", "run", path, "--target", "llvm"]
        ran = subprocess.run(
            [*command, "--outputs", out], capture_output=True, text=True, check=False, timeout=120
        )
        if op == "Cast":
            assert ran.returncode == 0, ran.stderr
            assert "text" in ran.stdout
            assert np.load(out)["y"].dtype.kind == "U"
        else:
            assert ran.returncode == 0, ran.stderr
            assert list(np.load(out)) == ["y[0]"]
            assert "y[0]" in ran.stdout
