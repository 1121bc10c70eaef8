# SPDX-License-Identifier: Apache-2.0
"""One artifact for several shapes: weights once, a program for each, chosen by the inputs."""

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
from intarsia_ir.example_sizes import example_sizes
from intarsia_ir.size_values import SizeValues
from intarsia_onnx import from_onnx
from intarsia_runtime.artifact.signature import SizeChoice, ValueSpec
from intarsia_runtime.artifact.size_bounds import SizeBounds, bounds_of
from intarsia_runtime.errors import (
    ArtifactError,
    ModelError,
    UnsupportedError,
    UsageError,
)
from intarsia_runtime.executors.variants import SizesExecutor

pytest.importorskip("intarsia_llvm", reason="needs a backend that generates code")

F, I64 = TensorProto.FLOAT, TensorProto.INT64
W = np.random.default_rng(0).standard_normal((256, 64)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((9, 256)).astype(np.float32)


def model(*nodes: onnx.NodeProto, sizes: tuple[int | str, ...] = ("N", 256)) -> bytes:
    """``relu(x @ w)``, which is ``r``, and what is given after that; the output is ``y``."""
    info = helper.make_tensor_value_info
    first = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["r"])]
    weights = {"w": W, "k": np.array([3]), "zero": np.array([0])}
    graph = helper.make_graph(
        [*first, *nodes],
        "g",
        [info("x", F, sizes)],
        [info("y" if nodes else "r", F, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return made.SerializeToString()


def reference(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ W, 0)


@pytest.fixture(scope="module")
def listed() -> intarsia.Artifact:
    def known(weights: object) -> None:
        raise AssertionError("these are of one program, and joined with others later")

    shapes = {"x": (SizeValues((2, 4, 8)), 256)}
    return intarsia.build(model(), "llvm", shapes=shapes, weights_known=known)


def test_a_list_runs_what_is_in_it(listed: intarsia.Artifact, tmp_path: Path) -> None:
    path = listed.save(tmp_path / "m.intarsia")
    assert path.stat().st_size < 1.5 * W.nbytes + 3 * 20_000  # the weights once, code three times
    with intarsia.load(path, threads=1) as executable:
        assert isinstance(executable, SizesExecutor)
        assert executable.inputs == (ValueSpec("x", "float32", ("N", 256)),)
        assert executable.outputs == (ValueSpec("r", "float32", ("N", 64)),)
        for size in (2, 4, 8):
            found = np.asarray(executable.run({"x": X[:size]})["r"])
            np.testing.assert_allclose(found, reference(X[:size]), rtol=1e-4, atol=1e-4)
            into = np.empty((size, 64), np.float32)
            executable.run_into([X[:size]], [into])
            np.testing.assert_array_equal(into, found)
        program, arrays = executable.fitted([X[:4]])
        np.testing.assert_array_equal(
            np.asarray(program.run(arrays)["r"]), np.asarray(executable.run([X[:4]])["r"])
        )


def test_what_does_not_run_is_said_with_what_does(listed: intarsia.Artifact) -> None:
    with listed.load(threads=1) as executable:
        for given, message in (
            (X[:0], "no program for N = 0"),
            (X[:3], "no program for N = 3"),
            (X[:2, :5], r"input 'x' must be float32 \(N, 256\), got float32 \(2, 5\)"),
            (X[0], r"must be float32 \(N, 256\), got float32 \(256,\)"),
            (X[:2].astype(np.float64), r"must be float32 \(N, 256\), got float64 \(2, 256\)"),
        ):
            with pytest.raises(ModelError, match=message) as caught:
                executable.run({"x": given})
            assert "N of 2 or 4 or 8" in caught.value.hint
        with pytest.raises(ModelError, match="the model has no input 'z'"):
            executable.run({"z": X})
        with pytest.raises(ModelError, match="cannot be read as an array"):
            executable.run([[[1.0], [2.0, 3.0]]])
        assert isinstance(executable, SizesExecutor)
        executable.prepare()
    with pytest.raises(ModelError, match="was closed"):
        executable.run({"x": X[:2]})


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_every_size_of_a_range_runs(target: str) -> None:
    """One program with a size variable; whatever mixes the positions along it."""
    norm = helper.make_node("Softmax", ["r"], ["y"], axis=0)
    made = intarsia.build(model(norm), target, shapes={"x": (SizeValues.of_range(2, 5), 256)})
    assert bounds_of(made.passport.plan) == {"N": SizeBounds(2, 5)}
    assert example_sizes(made.passport) == {"N": 5}
    with made.load(threads=1) as executable:
        for size in range(2, 6):
            r = reference(X[:size])
            wanted = np.exp(r - r.max(0)) / np.exp(r - r.max(0)).sum(0)
            found = np.asarray(executable.run([X[:size]])["y"])
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)
        for size in (0, 1, 6, 9):
            with pytest.raises(ModelError) as caught:
                executable.run([X[:size]])
            facts = f"2, more than N = {size}" if size < 2 else f"N = {size}, more than 5"
            wanted = f"the artifact was compiled for N from 2 to 5: {facts}"
            assert caught.value.message == wanted


def test_a_range_that_the_model_does_not_take_whole_is_refused() -> None:
    """A reshape to a number of elements fixes the batch; a table has so many positions."""
    fixed = numpy_helper.from_array(np.array([1, 32]), "shape")
    flat = single(helper.make_node("Reshape", ["x", "shape"], ["y"]), ("N", 32), fixed)
    with pytest.raises(UnsupportedError) as caught:
        intarsia.build(flat, "llvm", shapes={"x": (SizeValues.of_range(1, 8), 32)})
    assert caught.value.message.startswith(
        "the model does not take N from 1 to 8: not N = 8, since"
    )
    window = single(helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[4]), (1, 1, "S"))
    with pytest.raises(UnsupportedError, match="not S = 2, since"):
        intarsia.build(window, "llvm", shapes={"x": (1, 1, SizeValues.at_least(2))})
    assert intarsia.build(window, "llvm", shapes={"x": (1, 1, SizeValues.at_least(3))}).placement


def test_programs_of_a_list_have_ranges_of_their_own() -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    shapes = {"x": (SizeValues((1, 3)), SizeValues.of_range(2, 40))}
    made = intarsia.build(single(node, ("N", "S")), "llvm", shapes=shapes)
    assert (made.passport.sizes, example_sizes(made.passport)) == (
        (SizeChoice("N", (1, 3)),),
        {"N": 3, "S": 40},
    )
    rng = np.random.default_rng(3)
    with made.load(threads=1) as executable:
        assert executable.outputs == (ValueSpec("y", "float32", ("N", "S")),)
        for shape in ((1, 2), (3, 17), (3, 40)):
            x = rng.standard_normal(shape).astype(np.float32)
            found = np.asarray(executable.run([x])["y"])
            np.testing.assert_allclose(found, np.exp(x) / np.exp(x).sum(1, keepdims=True), 1e-5)
        for shape, message in (
            ((2, 9), "no program for N = 2"),
            ((3, 41), "S from 2 to 40: S = 41"),
        ):
            with pytest.raises(ModelError, match=message):
                executable.run([np.zeros(shape, np.float32)])


def test_a_size_that_nobody_gives_is_open() -> None:
    """One program takes every size."""
    made = intarsia.build(model(), "llvm")
    assert (made.passport.sizes, made.passport.plan.open is not None) == ((), True)
    with made.load(threads=1) as executable:
        for size in (1, 7, 8, 9):
            found = np.asarray(executable.run({"x": np.asfortranarray(X[:size])})["r"])
            np.testing.assert_allclose(found, reference(X[:size]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_who_asks_for_any_size_gets_one_program_of_open_size(target: str) -> None:
    """Whatever mixes the positions along it, and whatever the model declares of it."""
    norm = helper.make_node("Softmax", ["x"], ["y"], axis=0)
    rng = np.random.default_rng(4)
    for size in ("N", 5):
        data = single(norm, (size, 3, "W"))
        made = intarsia.build(data, target, shapes={"x": (SizeValues.at_least(1), 3, 2)})
        assert (made.passport.sizes, made.passport.plan.open is not None) == ((), True)
        with made.load(threads=1) as executable:
            for rows in (1, 5, 9):
                x = rng.standard_normal((rows, 3, 2)).astype(np.float32)
                found = np.asarray(executable.run([x])["y"])
                np.testing.assert_allclose(found, np.exp(x) / np.exp(x).sum(0), rtol=1e-5)
            with pytest.raises(ModelError, match="'x'"):
                executable.run([np.zeros((5, 3, 4), np.float32)])


def test_two_open_sizes() -> None:
    turn = helper.make_node("Transpose", ["a"], ["y"], perm=[1, 0])
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "k"], ["a"]), turn],
        "g",
        [helper.make_tensor_value_info("x", F, ("H", "W"))],
        [helper.make_tensor_value_info("y", F, None), helper.make_tensor_value_info("k", F, None)],
        [numpy_helper.from_array(np.float32([3]), "k")],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    x = np.random.default_rng(2).standard_normal((11, 10)).astype(np.float32)
    with intarsia.build(data.SerializeToString(), "llvm").load(threads=1) as executable:
        found = executable.run([x])
        np.testing.assert_array_equal(np.asarray(found["y"]), 3 * x.T)
        np.testing.assert_array_equal(np.asarray(found["k"]), [3])


def test_values_of_rank_0_beside_open_sizes() -> None:
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Mul", ["x", "s"], ["y"]), helper.make_node("Neg", ["s"], ["n"])]
    inputs = [info("x", F, ("N", 3)), info("s", F, ())]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", F, None), info("n", F, None)])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    with intarsia.build(data.SerializeToString(), "llvm").load(threads=1) as executable:
        for size in (1, 8, 19):
            x = np.arange(3 * size, dtype=np.float32).reshape(size, 3)
            found = executable.run([x, np.float32(0.5)])
            np.testing.assert_array_equal(np.asarray(found["y"]), 0.5 * x)
            assert (np.asarray(found["n"]).shape, float(np.asarray(found["n"]))) == ((), -0.5)


def test_a_recurrent_network_runs_any_batch() -> None:
    info, r = helper.make_tensor_value_info, np.random.default_rng(3)
    weights = {"w": r.standard_normal((1, 32, 6)), "r": r.standard_normal((1, 32, 8))}
    graph = helper.make_graph(
        [helper.make_node("LSTM", ["x", "w", "r"], ["y", "h"], hidden_size=8)],
        "g",
        [info("x", F, (5, "N", 6))],
        [info("y", F, None), info("h", F, None)],
        [numpy_helper.from_array(a.astype(np.float32), name) for name, a in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    data, x = made.SerializeToString(), r.standard_normal((5, 11, 6)).astype(np.float32)
    with intarsia.build(data, "llvm").load(threads=1) as executable:
        found = executable.run([x])
    with intarsia.build(data, "llvm", shapes={"x": x.shape}).load(threads=1) as executable:
        for name, wanted in executable.run([x]).items():
            np.testing.assert_allclose(np.asarray(found[name]), wanted, rtol=1e-5, atol=1e-6)


def test_a_node_that_needs_numbers_is_named() -> None:
    ones = [numpy_helper.from_array(np.ones(2, np.float32), name) for name in ("a", "b")]
    node = helper.make_node("GroupNormalization", ["x", "a", "b"], ["y"], num_groups=2)
    data = single(node, (1, "S", 4, 4), *ones)
    for options in ({"executor": "aot"}, {"shapes": {"x": (1, SizeValues.of_range(4, 8), 4, 4)}}):
        with pytest.raises(ModelError, match=r"GroupNormalization.*: S channels"):
            intarsia.build(data, "llvm", **options)


def single(node: onnx.NodeProto, sizes: tuple[int | str, ...], *weights: onnx.TensorProto) -> bytes:
    """A model of one node with input ``x`` and output ``y``."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph([node], "g", [info("x", F, sizes)], [info("y", F, None)], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return made.SerializeToString()


def test_programs_are_specialized_too() -> None:
    top = helper.make_node("TopK", ["r", "k"], ["t", "i"])
    unique = helper.make_node("Unique", ["t"], ["y"], sorted=1)
    shapes = {"x": (SizeValues((2, 4)), 256)}
    made = intarsia.build(model(top, unique), "llvm", shapes=shapes)
    assert {part.sizes for part in made.passport.parts} == {(2,), (4,)}
    assert sum(array.nbytes == W.nbytes for array in made.constants.values()) == 1
    with made.load(threads=1) as executable:
        assert isinstance(executable, SizesExecutor)
        for size in (2, 4):
            best = -np.sort(-reference(X[:size]), axis=1)[:, :3]
            found = np.asarray(executable.run({"x": X[:size]})["y"])
            np.testing.assert_allclose(found, np.unique(best), rtol=1e-4)


def test_several_shapes_need_a_model_and_a_process() -> None:
    shapes = {"x": (SizeValues((1, 2)), 256)}
    with pytest.raises(UsageError, match="an imported module has fixed shapes"):
        intarsia.build(from_onnx(model()), "llvm", shapes=shapes)
    pytest.importorskip("intarsia_c")
    with pytest.raises(UnsupportedError, match="code for runtime 'c' has one shape"):
        intarsia.build(model(), "c", runtime=intarsia.Runtime("c"), shapes=shapes)
    with pytest.raises(UnsupportedError, match="the size of input 'x' is not known") as caught:
        intarsia.build(model(), "c", runtime=intarsia.Runtime("c"))
    assert caught.value.hint == "--shape x:1,256"


def test_damaged_sizes(listed: intarsia.Artifact) -> None:
    passport = listed.passport
    for sizes, parts, message in (
        (passport.sizes, passport.parts[1:], "not those of its sizes"),
        ((SizeChoice("M", passport.sizes[0].sizes),), passport.parts, "not those of its sizes"),
        ((SizeChoice("N", (2, 3, 8)),), passport.parts, "not those of its sizes"),
    ):
        broken = dataclasses.replace(listed, passport=replace(passport, sizes=sizes, parts=parts))
        with pytest.raises(ArtifactError, match=message):
            broken.load()
    outer = replace(passport, sizes=(SizeChoice("N", (7,)),), parts=())
    nested = join(outer, (), [Piece("inner", listed, (7,))], listed.placement)
    with nested.load() as executable, pytest.raises(ArtifactError, match="has sizes of its own"):
        executable.run([np.zeros((7, 256), np.float32)])


def test_equal_weights_are_stored_once_under_any_name(listed: intarsia.Artifact) -> None:
    other = dataclasses.replace(listed, constants=MappingProxyType({"v": W, "w": W + 1}))
    first = dataclasses.replace(listed, constants=MappingProxyType({"w": W}))
    made = join(listed.passport, (), [Piece("a", first), Piece("b", other)], listed.placement)
    assert [dict(part.weights) for part in made.passport.parts] == [{}, {"v": "w", "w": "w.2"}]
    np.testing.assert_array_equal(made.constants["w.2"], W + 1)


def test_the_command_line(tmp_path: Path) -> None:
    path, out = tmp_path / "m.onnx", tmp_path / "m.intarsia"
    path.write_bytes(model(sizes=(1, 256)))

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "intarsia", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    shape = ("--target", "llvm", "--shape", "x:2..5,256")
    compiled = run("compile", path, *shape, "-o", out)
    assert compiled.returncode == 0, compiled.stderr
    inspected = run("inspect", out)
    assert "sizes:        x_0 from 2 to 5" in inspected.stdout
    assert "input   x     float32  x_0x256" in inspected.stdout
    verified = run("run", out, "--verify", "--model", path, "--json")
    assert verified.returncode == 0, verified.stderr
    said = json.loads(verified.stdout)
    assert said["outputs"][0]["shape"] == [5, 64]
    assert said["verify"][0]["ok"]
    np.savez(tmp_path / "x.npz", x=X[:3])
    verified = run("run", path, *shape, "--verify", "--inputs", tmp_path / "x.npz")
    assert verified.returncode == 0, verified.stderr
    assert "3x64" in verified.stdout
    assert run("explain", path, *shape, "--json").returncode == 0
    np.savez(tmp_path / "x.npz", x=X[:6])
    refused = run("run", out, "--inputs", tmp_path / "x.npz")
    assert refused.returncode == 3
    assert "x_0 from 2 to 5: x_0 = 6" in refused.stderr
