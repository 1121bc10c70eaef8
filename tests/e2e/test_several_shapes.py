# SPDX-License-Identifier: Apache-2.0
"""One artifact for several shapes: weights once, a program for each, chosen by the inputs."""

from __future__ import annotations

import dataclasses
import json
import re
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
from intarsia.driver.stages import read_target
from intarsia.host.host import Host
from intarsia.target.target import CompositeTarget
from intarsia_ir.size_values import SizeValues
from intarsia_onnx import from_onnx
from intarsia_runtime.artifact.signature import SizeChoice, ValueSpec
from intarsia_runtime.errors import ArtifactError, ModelError, UnsupportedError, UsageError
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
def ranged() -> intarsia.Artifact:
    def known(weights: object) -> None:
        raise AssertionError("these are of one program, and joined with others later")

    shapes = {"x": (SizeValues.of_range(1, 8), 256)}
    return intarsia.build(model(), "llvm", shapes=shapes, weights_known=known)


def test_every_size_of_a_range_runs(ranged: intarsia.Artifact, tmp_path: Path) -> None:
    path = ranged.save(tmp_path / "m.intarsia")
    assert path.stat().st_size < 1.5 * W.nbytes + 4 * 20_000  # the weights once, code four times
    with intarsia.load(path, threads=1) as executable:
        assert isinstance(executable, SizesExecutor)
        assert executable.inputs == (ValueSpec("x", "float32", ("N", 256)),)
        assert executable.outputs == (ValueSpec("r", "float32", ("N", 64)),)
        for size in range(1, 9):
            found = np.asarray(executable.run({"x": X[:size]})["r"])
            np.testing.assert_allclose(found, reference(X[:size]), rtol=1e-4, atol=1e-4)
            into = np.empty((size, 64), np.float32)
            executable.run_into([X[:size]], [into])
            np.testing.assert_array_equal(into, found)


def test_what_does_not_run_is_said_with_what_does(ranged: intarsia.Artifact) -> None:
    with ranged.load(threads=1) as executable:
        for given, message in (
            (X[:0], "no program for N = 0"),
            (X, "no program for N = 9"),
            (X[:2, :5], r"input 'x' must be float32 \(N, 256\), got float32 \(2, 5\)"),
            (X[0], r"must be float32 \(N, 256\), got float32 \(256,\)"),
            (X[:2].astype(np.float64), r"must be float32 \(N, 256\), got float64 \(2, 256\)"),
        ):
            with pytest.raises(ModelError, match=message) as caught:
                executable.run({"x": given})
            assert "N from 1 to 8" in caught.value.hint
        with pytest.raises(ModelError, match="the model has no input 'z'"):
            executable.run({"z": X})
        with pytest.raises(ModelError, match="cannot be read as an array"):
            executable.run([[[1.0], [2.0, 3.0]]])
        assert isinstance(executable, SizesExecutor)
        executable.prepare()
    with pytest.raises(ModelError, match="was closed"):
        executable.run({"x": X[:1]})


def test_a_list_runs_what_is_in_it_and_needs_no_proof() -> None:
    norm = helper.make_node("Softmax", ["r"], ["y"], axis=0)  # mixes the rows
    shapes = {"x": (SizeValues((2, 5)), 256)}
    with intarsia.build(model(norm), "llvm", shapes=shapes).load(threads=1) as executable:
        for size in (2, 5):
            r = reference(X[:size])
            wanted = np.exp(r - r.max(0)) / np.exp(r - r.max(0)).sum(0)
            found = np.asarray(executable.run([X[:size]])["y"])
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)
        with pytest.raises(ModelError, match="no program for N = 3") as caught:
            executable.run([X[:3]])
        assert caught.value.hint == "the artifact was compiled for N of 2 or 5"
    with pytest.raises(UnsupportedError, match=r"'nn\.softmax' may mix the positions"):
        intarsia.build(model(norm), "llvm", shapes={"x": (SizeValues.of_range(1, 8), 256)})


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


def test_any_size_runs_in_chunks() -> None:
    """Who names a chunk gets two programs, and chunks of their sizes."""
    made = intarsia.build(model(), "llvm", shapes={"x": (SizeValues.at_least(1, 4), 256)})
    assert made.passport.sizes == (SizeChoice("N", (1, 4), 1, is_open=True),)
    with made.load(threads=1) as executable:
        assert isinstance(executable, SizesExecutor)
        for size in (1, 7, 8, 9):
            x = np.asfortranarray(X[:size])
            found = np.asarray(executable.run({"x": x})["r"])
            np.testing.assert_allclose(found, reference(x), rtol=1e-4, atol=1e-4)
            into = np.empty((size, 64), np.float32)
            executable.run_into([x], [into])
            np.testing.assert_array_equal(into, found)
            with pytest.raises(ModelError, match="output 'r'"):
                executable.run_into([x], [np.empty((size + 1, 64), np.float32)])
        program, arrays = executable.fitted([X])
        assert [array.shape for array in arrays.values()] == [(4, 256)]
        np.testing.assert_array_equal(
            np.asarray(program.run(arrays)["r"]), np.asarray(executable.run([X])["r"])[:4]
        )
        assert np.asarray(executable.run([X[:0]])["r"]).shape == (0, 64)


def test_two_open_sizes_make_tiles() -> None:
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
        np.testing.assert_array_equal(np.asarray(found["k"]), [3])  # the same in every tile


def test_values_of_rank_0_go_into_every_chunk() -> None:
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
    """Its steps multiply the rows of all examples at once, which lie between those of others."""
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


def numbers_only() -> CompositeTarget:
    """A target whose backend, as that of another plugin may, takes no open sizes."""
    target = read_target(Host(), "llvm", None)
    kind = dataclasses.replace(target.fallback.kind, open_sizes=False)
    fallback = dataclasses.replace(target.fallback, kind=kind)
    return dataclasses.replace(target, fallback=fallback)


def test_what_depends_on_a_size_as_a_whole_must_be_given_one() -> None:
    norm = helper.make_node("Softmax", ["r"], ["y"], axis=0)
    with pytest.raises(UnsupportedError, match="the size of input 'x' is not known") as caught:
        intarsia.build(model(norm), numbers_only())
    assert "cannot be any: inputs cannot be run piece by piece along size 'N': 'nn.softmax'" in str(
        caught.value
    )
    assert caught.value.hint.startswith("for example --shape x:1,256; or")
    rows = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    with pytest.raises(UnsupportedError) as caught:
        intarsia.build(single(rows, ("N", "S")), numbers_only())
    assert caught.value.hint.startswith("for example --shape x:1..,128; or")
    shapes = {"x": (SizeValues.at_least(1), 128)}
    assert intarsia.build(single(rows, ("N", "S")), "llvm", shapes=shapes).placement.nodes


def test_where_neither_some_sizes_nor_all_can_be_compiled_both_reasons_are_said() -> None:
    grid = numpy_helper.from_array(np.zeros((1, 3, 3, 2), np.float32), "grid")
    sampled = helper.make_node("GridSample", ["x", "grid"], ["y"])
    with pytest.raises(UnsupportedError, match="nor does one program take all sizes: ") as caught:
        intarsia.build(single(sampled, (1, 2, "S", "T"), grid), "llvm", executor="aot")
    assert "--shape" in caught.value.hint


def test_the_sizes_of_the_example_compile() -> None:
    """A window of 400 samples, as speech models have: 128 is too short for it."""
    long = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[400], strides=[400])
    sound = single(long, ("N", 1, "S"))
    with pytest.raises(UnsupportedError) as caught:
        intarsia.build(sound, numbers_only())
    found = re.match(r"for example --shape x:(\S+?);? ", caught.value.hint or "")
    assert found, caught.value.hint
    sizes = tuple(1 if size == "1.." else int(size) for size in found[1].split(","))
    assert sizes[2] >= 400
    assert intarsia.build(sound, "llvm", shapes={"x": sizes}).placement.nodes


def single(node: onnx.NodeProto, sizes: tuple[int | str, ...], *weights: onnx.TensorProto) -> bytes:
    """A model of one node with input ``x`` and output ``y``."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph([node], "g", [info("x", F, sizes)], [info("y", F, None)], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return made.SerializeToString()


def test_programs_are_specialized_too() -> None:
    """A program of pieces for each size, although open sizes would all run in NumPy."""
    top = helper.make_node("TopK", ["r", "k"], ["t", "i"])
    unique = helper.make_node("Unique", ["t"], ["y"], sorted=1)
    shapes = {"x": (SizeValues((2, 4)), 256)}
    made = intarsia.build(model(top, unique), "llvm", shapes=shapes)
    assert made.passport.executor["kind"] == "vm"
    assert {row.op for row in made.placement.host} <= {"TopK", "Unique"}
    assert sum(array.nbytes == W.nbytes for array in made.constants.values()) == 1
    with made.load(threads=1) as executable:
        assert isinstance(executable, SizesExecutor)
        assert executable.outputs[0].shape is None
        for size in (2, 4):
            best = -np.sort(-reference(X[:size]), axis=1)[:, :3]
            found = np.asarray(executable.run({"x": X[:size]})["y"])
            np.testing.assert_allclose(found, np.unique(best), rtol=1e-4)


def test_several_shapes_need_a_model_and_a_process() -> None:
    shapes = {"x": (SizeValues((1, 2)), 256)}
    with pytest.raises(UsageError, match="a module that is imported has its shapes"):
        intarsia.build(from_onnx(model()), "llvm", shapes=shapes)
    pytest.importorskip("intarsia_c")
    with pytest.raises(UnsupportedError, match="code for runtime 'c' has one shape"):
        intarsia.build(model(), "c", runtime=intarsia.Runtime("c"), shapes=shapes)
    with pytest.raises(UnsupportedError, match="the size of input 'x' is not known") as caught:
        intarsia.build(model(), "c", runtime=intarsia.Runtime("c"))
    assert caught.value.hint == "--shape x:1,256"


def test_damaged_sizes(ranged: intarsia.Artifact) -> None:
    passport = ranged.passport
    for sizes, parts, message in (
        (passport.sizes, passport.parts[1:], "not those of its sizes"),
        ((SizeChoice("M", passport.sizes[0].sizes),), passport.parts, "not those of its sizes"),
        ((SizeChoice("N", (1, 2, 3, 8)),), passport.parts, "not those of its sizes"),
    ):
        broken = dataclasses.replace(ranged, passport=replace(passport, sizes=sizes, parts=parts))
        with pytest.raises(ArtifactError, match=message):
            broken.load()
    outer = replace(passport, sizes=(SizeChoice("N", (7,)),), parts=())
    nested = join(outer, (), [Piece("inner", ranged, (7,))], ranged.placement)
    with nested.load() as executable, pytest.raises(ArtifactError, match="has sizes of its own"):
        executable.run([np.zeros((7, 256), np.float32)])


def test_equal_weights_are_stored_once_under_any_name(ranged: intarsia.Artifact) -> None:
    other = dataclasses.replace(ranged, constants=MappingProxyType({"v": W, "w": W + 1}))
    first = dataclasses.replace(ranged, constants=MappingProxyType({"w": W}))
    made = join(ranged.passport, (), [Piece("a", first), Piece("b", other)], ranged.placement)
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
    assert "sizes:        x.0 from 2 to 5" in inspected.stdout
    assert "input   x     float32  x.0x256" in inspected.stdout
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
    assert "no program for x.0 = 6" in refused.stderr
