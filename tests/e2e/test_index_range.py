# SPDX-License-Identifier: Apache-2.0
"""Indices that only the run knows: one that names no element is an error, never another element."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import intarsia
from intarsia.cli.main import main
from intarsia_runtime.artifact.plan import IfStep, all_steps
from intarsia_runtime.errors import ModelError

from .control_models import ControlModel

READS = {
    "gather": ("g (int64[2,3] i) => (float[2,3,16] o) { o = Gather (T, i) }", (2, 3), 50),
    "gather of open length": (
        "g (int64[1,s] i) => (float[1,s,16] o) { o = Gather (T, i) }",
        (1, 5),
        50,
    ),
    "gather along an axis": (
        "g (int32[3] i) => (float[50,3] o) { o = Gather <axis = 1> (T, i) }",
        (3,),
        16,
    ),
    "gather of a dimension of the run": (
        "g (int64[3] i, float[n, 4] x) => (float[3,4] o) { o = Gather (x, i) }",
        (3,),
        7,
    ),
    "gather elements": (
        "g (int64[50,2] i) => (float[50,2] o) { o = GatherElements <axis = 1> (T, i) }",
        (50, 2),
        16,
    ),
    "gather nd": ("g (int64[4,1] i) => (float[4,16] o) { o = GatherND (T, i) }", (4, 1), 50),
    "gather nd of two dimensions": (
        "g (int64[4,2] i) => (float[4] o) { o = GatherND (T, i) }",
        (4, 2),
        16,
    ),
    "scatter elements": (
        "g (int64[1,16] i) => (float[50,16] o) { o = ScatterElements (T, i, U) }",
        (1, 16),
        50,
    ),
    "scatter nd": ("g (int64[1,1] i) => (float[50,16] o) { o = ScatterND (T, i, U) }", (1, 1), 50),
    "positions that are counted": (
        """g (int64[1,3] i) => (float[1,3,16] o) {
             one = Constant <value = int64 {1}> ()
             p = Sub (i, one) q = Add (p, one) e = Gather (T, q) o = Relu (e)
           }""",
        (1, 3),
        50,
    ),
    "in a loop": (
        """g (int64[3] i) => (float[16] o) {
             n = Constant <value = int64 {400}> () first = Gather (T, zero)
             o = Loop (n, , first) <body = b
                 (int64 k, bool go, float[16] s) => (bool more, float[16] t) {
               more = Identity (go) c = Mod (k, three) j = Gather (i, c) r = Gather (T, j)
               h = Mul (s, half) t = Add (h, r)
             }>
           }""",
        (3,),
        50,
    ),
    "in a branch": (
        """g (int64[3] i) => (float[3,16] o) {
             at = Gather (i, zero) c = Less (at, three)
             o = If (c) <
               then_branch = p () => (float[3,16] v) { v = Gather (T, i) },
               else_branch = q () => (float[3,16] w) { e = Gather (T, i) w = Exp (e) }
             >
           }""",
        (3,),
        50,
    ),
}
WEIGHTS = {
    "T": (50, 16),
    "U": (1, 16),
    "zero": np.array(0),
    "three": np.array(3),
    "half": np.array(0.5, np.float32),
}
KNOWN = {
    "the largest": """g (float[2,50] x) => (float[2,1,16] o) {
        i = ArgMax <axis = 1> (x) o = Gather (T, i)
    }""",
    "the largest three": """g (float[2,50] x) => (float[2,3,16] o) {
        k = Constant <value = int64[1] {3}> () v, i = TopK (x, k) o = Gather (T, i)
    }""",
    "places": """g (float[50] x) => (float[k,16] o) {
        n = NonZero (x) i = Squeeze (n) o = Gather (T, i)
    }""",
}


def proto(text: str) -> onnx.ModelProto:
    used = {
        name: value for name, value in WEIGHTS.items() if f" {name}" in text or f"({name}" in text
    }
    return ControlModel(text, (), used).proto()


def fed(model: onnx.ModelProto, indices: np.ndarray) -> dict[str, np.ndarray]:
    of_32_bits = model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.INT32
    feeds = {"i": indices.astype(np.int32 if of_32_bits else np.int64)}
    if len(model.graph.input) > 1:
        feeds["x"] = np.random.default_rng(1).random((7, 4), np.float32)
    return feeds


@pytest.mark.parametrize("target", ["llvm", "c", "dnnl, llvm"])
@pytest.mark.parametrize("name", READS)
def test_an_index_out_of_range_ends_the_run(name: str, target: str) -> None:
    text, shape, size = READS[name]
    model = proto(text)
    artifact = intarsia.build(model.SerializeToString(), target)
    good = np.random.default_rng(3).integers(0, min(size, 3), shape)
    for value in (size - 1, -size):
        good.flat[-1] = value
    peer = onnxruntime.InferenceSession(model.SerializeToString())
    with artifact.load(threads=1) as executable:
        (wanted,) = peer.run(None, fed(model, good))
        (found,) = executable.run(fed(model, good)).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        for value in (size, -size - 1, (1 << 31) - 1, -(1 << 31)):
            bad = good.copy()
            bad.flat[-1] = value
            with pytest.raises(ModelError, match="an index is outside of"):
                executable.run(fed(model, bad))
        (found,) = executable.run(fed(model, good)).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("executor", ["graph", "vm"])
def test_other_executors_say_so_too(executor: str) -> None:
    artifact = intarsia.build(
        proto(READS["gather"][0]).SerializeToString(), "llvm", executor=executor
    )
    refused = pytest.raises(ModelError, match="outside of the 50 elements")
    with artifact.load(threads=1) as executable, refused:
        executable.run({"i": np.full((2, 3), 50)})


@pytest.mark.parametrize("name", KNOWN)
def test_indices_that_cannot_be_out_of_range_are_not_checked(name: str) -> None:
    plan = intarsia.build(proto(KNOWN[name]).SerializeToString(), "llvm").passport.plan
    assert not [step for step in all_steps(plan.steps) if isinstance(step, IfStep)]


def test_positions_behind_the_table_of_an_open_model_are_refused() -> None:
    text = """g (int64[1,s] i) => (float[1,s,16] o) {
        one = Constant <value = int64 {1}> () axis = Constant <value = int64 {1}> ()
        m = Add (zero, i) c = CumSum (m, axis) o = Gather (T, c)
    }"""
    model = proto(text)
    with intarsia.build(model.SerializeToString(), "llvm").load(threads=1) as executable:
        assert executable.run({"i": np.ones((1, 49), np.int64)})["o"].shape == (1, 49, 16)
        with pytest.raises(ModelError, match="outside of the 50 elements"):
            executable.run({"i": np.ones((1, 50), np.int64)})


def test_the_command_ends_with_the_code_of_wrong_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(proto(READS["gather"][0]), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", i=np.full((2, 3), 99))
    assert (
        main(
            [
                "run",
                str(tmp_path / "m.onnx"),
                "--target",
                "llvm",
                "--inputs",
                str(tmp_path / "x.npz"),
            ]
        )
        == 3
    )
    assert "o (Gather): an index is outside of the 50 elements" in capsys.readouterr().err


def test_the_header_of_a_program_says_what_a_run_returns(tmp_path: Path) -> None:
    path = tmp_path / "reader.intarsia"
    intarsia.build(proto(READS["gather"][0]).SerializeToString(), "c", runtime="c").save(path)
    with zipfile.ZipFile(path) as archive:
        headers = [name for name in archive.namelist() if name.endswith(".h")]
        text = "".join(archive.read(name).decode() for name in headers)
    assert "1: o (Gather): an index is outside of the 50 elements of its dimension" in text
