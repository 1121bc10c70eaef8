# SPDX-License-Identifier: Apache-2.0
"""Random numbers in compiled code: their distribution, what a seed and a state fix."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import intarsia
from intarsia.cli.main import cli
from intarsia_onnx import from_onnx
from intarsia_runtime.artifact.random_state import RANDOM_STATE
from intarsia_runtime.errors import ModelError

X = np.zeros((100, 500), np.float32)
TARGETS = ("llvm", "c")


def model(
    op: str, x: np.ndarray | None = None, *more: np.ndarray, outputs: int = 1, **attrs: object
) -> bytes:
    info, names = helper.make_tensor_value_info, [f"w{n}" for n in range(len(more))]
    kind = 0 if x is None else helper.np_dtype_to_tensor_dtype(x.dtype)
    inputs = [] if x is None else [info("x", kind, ["n", *x.shape[1:]])]
    results = [f"y{n}" for n in range(outputs)]
    node = helper.make_node(op, [*(i.name for i in inputs), *names], results, **attrs)
    weights = [numpy_helper.from_array(w, n) for w, n in zip(more, names, strict=True)]
    made = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph([node], "g", inputs, made, weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    return proto.SerializeToString()


def runs(data: bytes, feeds: dict, target: str, count: int = 2) -> list[list[np.ndarray]]:
    artifact = intarsia.build(data, target)
    assert artifact.passport.executor["kind"] == "aot"
    assert not artifact.placement.host
    with artifact.load(threads=1) as executable:
        assert [spec.name for spec in executable.inputs] == [*feeds]
        return [[*executable.run(feeds).values()] for _ in range(count)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_a_normal_distribution(target: str, dtype: int) -> None:
    data = model("RandomNormal", shape=[100, 500], mean=1.0, scale=3.0, dtype=dtype)
    (first,), (second,) = runs(data, {}, target)
    assert first.dtype == helper.tensor_dtype_to_np_dtype(dtype)
    wide = first.astype(np.float64)
    assert (abs(wide.mean() - 1) < 0.06, abs(wide.std() - 3) < 0.05) == (True, True)
    assert abs(np.mean(np.abs(wide - 1) < 3) - 0.6827) < 0.01
    assert abs(np.corrcoef(wide.ravel(), second.astype(np.float64).ravel())[0, 1]) < 0.02


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_a_uniform_distribution(target: str, dtype: int) -> None:
    data = model("RandomUniformLike", X, low=-2.0, high=5.0, dtype=dtype)
    ((found,), _) = runs(data, {"x": X}, target)
    assert (found.min() >= -2, found.max() < 5) == (True, True)
    counts, _ = np.histogram(found, 7, (-2, 5))
    assert np.abs(counts / found.size - 1 / 7).max() < 0.01


@pytest.mark.parametrize("target", TARGETS)
def test_draws_of_classes_and_bits(target: str) -> None:
    rows = np.log(np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 1e-9]], np.float32))
    ((found,), _) = runs(model("Multinomial", rows, sample_size=8000), {"x": rows}, target)
    assert found.dtype == np.int32
    shares = [np.bincount(row, minlength=3) / 8000 for row in found]
    np.testing.assert_allclose(shares, np.exp(rows), atol=0.03)
    parts = np.full((100, 500), 0.3, np.float32)
    parts[0], parts[1] = 0, 1
    ((bits,), _) = runs(model("Bernoulli", parts), {"x": parts}, target)
    assert (bits[0].max(), bits[1].min()) == (0, 1)
    assert abs(bits[2:].mean() - 0.3) < 0.01


@pytest.mark.parametrize("target", TARGETS)
def test_dropout_in_training(target: str) -> None:
    x = np.ones((100, 500), np.float32)
    data = model("Dropout", x, np.array(0.25, np.float32), np.array(True), outputs=2, seed=3)
    ((found, mask), _) = runs(data, {"x": x}, target)
    np.testing.assert_array_equal(found, np.where(mask, np.float32(1 / 0.75), 0))
    assert abs(mask.mean() - 0.75) < 0.01


@pytest.mark.parametrize("target", TARGETS)
def test_a_seed_of_dropout_is_one_of_numpy(target: str) -> None:
    """That of the first run; each run after it has the next one. The run says whether it trains."""
    text = """<ir_version: 9, opset_import: ["" : 21]>
        g (float[n, 40] x, float r, bool t) => (float[n, 40] y, bool[n, 40] kept) {
          y, kept = Dropout <seed = 7> (x, r, t) }"""
    data = onnx.parser.parse_model(text).SerializeToString()
    x = np.random.default_rng(1).standard_normal((20, 40)).astype(np.float32)
    feeds = {"x": x, "r": np.float32(0.3), "t": np.array(True)}
    trained = runs(data, feeds, target)
    for run, (found, kept) in enumerate(trained):
        drawn = np.random.RandomState(7 + run).uniform(size=x.shape)
        np.testing.assert_array_equal(kept, drawn >= np.float32(0.3))
        np.testing.assert_allclose(found, np.where(kept, x / np.float32(0.7), 0), rtol=1e-6)
    ((found, kept), _) = runs(data, {**feeds, "t": np.array(False)}, target)
    np.testing.assert_array_equal(found, x)
    assert kept.all()


def test_a_seed_begins_anew_at_each_load_and_goes_on_with_each_run() -> None:
    data = model("RandomNormal", shape=[8], seed=3.0)
    one, other = runs(data, {}, "llvm"), runs(data, {}, "c")
    np.testing.assert_allclose(one, other, rtol=1e-5)
    assert (one[0][0] != one[1][0]).all()


def test_no_two_loads_draw_the_same_without_a_seed() -> None:
    data = model("RandomNormal", shape=[8])
    assert (runs(data, {}, "llvm")[0][0] != runs(data, {}, "llvm")[0][0]).all()


@pytest.mark.parametrize("feeds", [{}, {"x": X}])
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_a_caller_may_give_the_state(feeds: dict, executor: str) -> None:
    data = model("RandomNormalLike", X) if feeds else model("RandomNormal", shape=[8])
    state = np.array([12, 34])
    with intarsia.build(data, "llvm").load(threads=1, executor=executor) as executable:
        given = {**feeds, RANDOM_STATE: state}
        first = executable.run(given)["y0"]
        executable.run(feeds)
        listed = executable.run([*feeds.values(), state])["y0"]
        assert (executable.run([*feeds.values()])["y0"] != first).any()
        np.testing.assert_array_equal(executable.run(given)["y0"], first)
        np.testing.assert_array_equal(listed, first)
        with pytest.raises(ModelError):
            executable.run([*feeds.values(), state, state])


def test_draws_of_one_model_are_independent_and_bodies_of_branches_draw() -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]>
        g (float[n] x, bool c) => (float[n] a, float[n] b) {
          a = RandomNormalLike (x)
          b = If (c) <then_branch = t () => (float[n] p) { p = RandomNormalLike (x) },
                      else_branch = e () => (float[n] q) { q = Identity (x) }> }"""
    data = onnx.parser.parse_model(text).SerializeToString()
    x = np.zeros(4000, np.float32)
    with intarsia.build(data, "llvm").load(threads=1) as executable:
        one, other = executable.run({"x": x, "c": np.array(True)}).values()
        assert not executable.run({"x": x, "c": np.array(False)})["b"].any()
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.06


@pytest.mark.parametrize("target", TARGETS)
def test_each_iteration_draws_for_itself(target: str) -> None:
    """In loops, in loops inside of these, and in scans; with a seed, the same in each load."""
    text = """<ir_version: 9, opset_import: ["" : 18]>
        g (float[64] x, int64 n, float[k, 64] rows)
        => (float[64] y, float[m, 64] z, float[k, 64] w) {
          y, z = Loop (n, , x) <body = b (int64 i, bool go, float[64] s)
            => (bool o, float[64] u, float[64] v) {
              o = Identity (go)
              t = Loop (n, , s) <body = c (int64 j, bool h, float[64] q) => (bool p, float[64] r) {
                p = Identity (h) a = RandomNormalLike (q) d = RandomUniformLike <seed = 5.0> (q)
                e = Add (q, a) r = Add (e, d) }>
              v = RandomNormalLike <seed = 7.0> (s)
              u = Add (t, v) }>
          w = Scan <num_scan_inputs = 1, body = f (float[64] l) => (float[64] k2) {
              k2 = RandomNormalLike (l) }> (rows)
        }"""
    data = onnx.parser.parse_model(text).SerializeToString()
    feeds = {"x": np.zeros(64, np.float32), "n": np.array(8)}
    feeds["rows"] = np.zeros((300, 64), np.float32)
    (_, z, w), (_, other, _) = runs(data, feeds, target)
    for rows in (np.concatenate([z, other]), w):
        assert len(np.unique(rows.round(5), axis=0)) == len(rows)
        assert np.abs(np.corrcoef(rows) - np.eye(len(rows))).max() < 0.7
    assert abs(w.std() - 1) < 0.02
    ((y, again, _), _) = runs(data, feeds, target)
    np.testing.assert_array_equal(again, z)
    assert y.any()


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(ModelError, match="rows of at least one class"):
        from_onnx(model("Multinomial", np.zeros((2, 0), np.float32)))
    with pytest.raises(ModelError, match="attribute 'shape' is missing"):
        from_onnx(model("RandomUniform"))


def test_a_run_by_the_command_line_is_compared_and_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(model("RandomNormalLike", X))

    def run(*words: str) -> Sequence[object]:
        words = ("run", str(tmp_path / "m.onnx"), "--target", "llvm", "--json", *words)
        made = CliRunner().invoke(cli, [*words, "--outputs", str(tmp_path / "y.npz")])
        assert made.exit_code == 0, made.output
        return json.loads(made.stdout)["verify"] if "--verify" in words else ()

    assert run("--verify", "--seed", "5")
    first = np.load(tmp_path / "y.npz")["y0"]
    run("--seed", "5")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["y0"], first)
