# SPDX-License-Identifier: Apache-2.0
"""Artifacts whose metadata were changed, with digests made anew: refused by name, or run well.

Every format of unit that this machine loads is mutated. ``-m exhaustive`` runs 5 000 mutations of
each, a sample of which runs always.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from intarsia_testkit.hostile import fuzz, mutate, read_members, write_members
from intarsia_testkit.qdq_models import channelled_residual_net, residual_net
from onnx import ModelProto, TensorProto, helper, numpy_helper

import intarsia
from intarsia.errors import ArtifactError
from intarsia.runtime.load import load

SAMPLE, WHOLE = 40, 5000
REFUSED = {0, 3, 4, 5, 7, 8}
"""How a mutation may end. 3 and 4: a program says what no operator does. 5: a library says no."""

MODELS = Path(__file__).parents[1] / "e2e" / "models"


def float_model() -> ModelProto:
    """Every kind of primitive that dnnl has in float32, and what surrounds them."""
    dice = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(dice.normal(size=shape).astype(np.float32), name)

    make = helper.make_node
    nodes = [
        make("Conv", ["x", "w1", "b1"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        make("LRN", ["c"], ["l"], size=3),
        make("PRelu", ["l", "slope"], ["r"]),
        make("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        make("Conv", ["p", "w2"], ["d"], kernel_shape=[1, 1]),
        make("Add", ["d", "p"], ["s"]),
        make("ConvTranspose", ["s", "w4"], ["t"], kernel_shape=[2, 2], strides=[2, 2]),
        make("AveragePool", ["t"], ["a"], kernel_shape=[3, 3], strides=[2, 2]),
        make("Split", ["a"], ["a1", "a2"], axis=1, num_outputs=2),
        make("Concat", ["a2", "a1"], ["k"], axis=1),
        make("Transpose", ["k"], ["n"], perm=[0, 2, 3, 1]),
        make("LayerNormalization", ["n", "g1", "g2"], ["o"]),
        make("ReduceMean", ["o", "axes"], ["q"], keepdims=0),
        make("Gemm", ["q", "w3", "b3"], ["m"]),
        make("Softmax", ["m"], ["y"]),
    ]
    weights = [
        *(weight("w1", 16, 8, 3, 3), weight("b1", 16), weight("slope", 16, 1, 1)),
        *(weight("w2", 16, 16, 1, 1), weight("w4", 16, 16, 2, 2), weight("w3", 16, 10)),
        *(weight("b3", 10), weight("g1", 16), weight("g2", 16)),
        numpy_helper.from_array(np.array([1, 2], np.int64), "axes"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def open_model() -> ModelProto:
    """A model of which a part is known at run time only: a program for the ``vm`` executor."""
    make = helper.make_node
    nodes = [
        make("NonZero", ["x"], ["i"]),
        make("Transpose", ["i"], ["j"], perm=[1, 0]),
        make("GatherND", ["x", "j"], ["k"]),
        make("Relu", ["k"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph(nodes, "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


Format = tuple[Callable[[], object], str, str]
FORMATS: dict[str, Format] = {
    "shared-library": (float_model, "llvm", ""),
    "c": (float_model, "c", ""),
    "dnnl": (float_model, "dnnl, llvm", "dnnl"),
    "dnnl-int8": (residual_net, "dnnl, llvm", "dnnl"),
    "ethos-u": (channelled_residual_net, "ethos-u -simulate, llvm", "ethos-u-simulator"),
    "ethos-n": (
        lambda: channelled_residual_net("uint8"),
        "ethos-n -simulate, llvm",
        "ethos-n-simulator",
    ),
    "onnx-program": (open_model, "llvm", "onnx-program"),
    "cuda-emulated": (float_model, "cuda -emulate", "cuda"),
}
"""Kind of unit to a model, a target, and the loader that one of its units must have."""


@pytest.fixture(scope="session", params=FORMATS)
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good artifact with units of one format."""
    model, target, loader = FORMATS[request.param]
    if target != "llvm" and shutil.which("cc") is None and "llvm" not in target:
        pytest.skip("needs a C compiler")
    path = tmp_path_factory.mktemp("hostile") / f"{request.param}.intarsia"
    built = intarsia.build(model(), target=target, plan="greedy")
    built.save(path)
    made = {unit.loader for unit in built.passport.units}
    assert not loader or loader in made, f"{target} gave {made}"
    return path


def test_a_sample_of_mutations_ends_well(artifact: Path) -> None:
    outcome = fuzz(artifact, SAMPLE, batch=SAMPLE)
    assert outcome.faults == []
    assert outcome.total == SAMPLE
    assert set(outcome.exits) <= REFUSED, outcome.words
    assert outcome.exits[7] > SAMPLE // 4, outcome.exits


@pytest.mark.exhaustive
def test_thousands_of_mutations_end_well(artifact: Path) -> None:
    outcome = fuzz(artifact, WHOLE, seed=1000)
    assert outcome.faults == []
    assert outcome.total == WHOLE
    assert set(outcome.exits) <= REFUSED, outcome.words


def test_a_smaller_workspace_is_refused(float_artifact: Path, tmp_path: Path) -> None:
    members = read_members(float_artifact)
    passport = json.loads(members["passport.json"])
    plan = passport["plan"]
    used = [a for step in plan["steps"] for a in step["args"] if a["place"] == "workspace"]
    assert used
    for argument in used:
        argument["index"] = 0
    plan["workspace_bytes"] //= 2
    for argument in used:
        argument["shape"] = [1]
    members["passport.json"] = json.dumps(passport).encode()
    write_members(members, tmp_path / "small.intarsia")
    with pytest.raises(ArtifactError, match="'main' was compiled for another plan") as caught:
        load(tmp_path / "small.intarsia")
    assert caught.value.exit_code == 7


@pytest.mark.parametrize("part", [0.0, 1 / 64, 1 / 4, 1 / 2, 63 / 64, 1.0])
def test_a_library_cut_short_is_refused(float_artifact: Path, tmp_path: Path, part: float) -> None:
    members = read_members(float_artifact)
    code = members["units/main/lib.so"]
    members["units/main/lib.so"] = code[: int((len(code) - 1) * part)]
    write_members(members, tmp_path / "cut.intarsia")
    with pytest.raises(ArtifactError, match="the code of 'main'"):
        load(tmp_path / "cut.intarsia")


@pytest.fixture(scope="module")
def float_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("float") / "m.intarsia"
    intarsia.build(float_model(), target="llvm").save(path)
    return path


def test_a_format_that_no_loader_here_reads_is_refused(
    float_artifact: Path, tmp_path: Path
) -> None:
    members = read_members(float_artifact)
    passport = json.loads(members["passport.json"])
    assert passport["units"][0]["format"] == 1
    passport["units"][0]["format"] = 99
    members["passport.json"] = json.dumps(passport).encode()
    write_members(members, tmp_path / "later.intarsia")
    with pytest.raises(ArtifactError, match=r"unit 'main' has format 99 .* reads 0, 1"):
        load(tmp_path / "later.intarsia")


def test_half_a_character_is_refused(float_artifact: Path, tmp_path: Path) -> None:
    members = read_members(float_artifact)
    passport = json.loads(members["passport.json"])
    passport["plan"]["steps"][0]["kernel"] = "\udc80"
    members["passport.json"] = json.dumps(passport).encode()
    write_members(members, tmp_path / "half.intarsia")
    with pytest.raises(ArtifactError, match="surrogates not allowed"):
        load(tmp_path / "half.intarsia")


def test_mutations_are_the_same_for_the_same_seed(float_artifact: Path) -> None:
    members = read_members(float_artifact)
    changed = [mutate(members, seed) for seed in range(50)]
    assert changed == [mutate(members, seed) for seed in range(50)]
    assert len({says for says, _ in changed}) > 40
