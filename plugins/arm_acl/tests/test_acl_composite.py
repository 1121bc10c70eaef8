# SPDX-License-Identifier: Apache-2.0
"""Whole artifacts for AArch64: built here, refused here, run by the runtime under emulation."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia_ir.graph.expr import Call
from intarsia_ir.graph.module import IRModule
from intarsia_runtime.artifact.archive import open_artifact
from intarsia_runtime.errors import ArtifactError
from intarsia_testkit.expressions import apply, expected, fresh, function_of, var, weight

from .aarch64_python import Unavailable, make_python
from .emulation import ROOT, missing

TARGET = "arm_acl, llvm -mtriple=aarch64-linux-gnu"
RUN = """
import sys
import numpy as np
from intarsia_runtime.load import load
executable = load(sys.argv[1])
for name in sys.argv[2].split(","):
    inputs = dict(np.load(name))
    outputs = executable.run(inputs)
    np.savez(name + ".out", *outputs.values())
executable.close()
"""


def network() -> Call:
    """Return operators of both: convolutions and pooling for one, the error function between."""
    x = var("x", 1, 3, 12, 12)
    window = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    x = apply("nn.relu", apply("nn.conv", x, weight(8, 3, 3, 3), weight(8), **window))
    pool = {"kernel": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    x = apply("erf", apply("nn.max_pool", x, **pool))
    x = apply("nn.relu", apply("nn.conv", x, weight(8, 1, 3, 3), groups=8, **window))
    x = apply("reshape", x, shape=(1, 288))
    return apply("nn.softmax", apply("add", apply("matmul", x, weight(288, 5)), weight(5)), axis=1)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    reason = missing()
    if reason:
        pytest.skip(reason)
    if ROOT:
        pytest.skip("tests of the system's release of the library; ROOT names another")
    path = tmp_path_factory.mktemp("composite") / "model.intarsia"
    module = IRModule.from_function(function_of(network()))
    intarsia.build(module, target=TARGET).save(path)
    return path


def test_the_passport_names_the_machine(artifact: Path) -> None:
    passport = open_artifact(artifact).passport
    assert (passport.os, passport.arch) == ("linux", "aarch64")
    regions = [unit for unit in passport.units if unit.loader == "arm_acl"]
    assert len(regions) == 2  # the error function stands between them
    assert all(set(unit.files) == {"lib.so", "unit.cpp"} for unit in regions)
    assert "arm-compute-library" in passport.versions


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the artifact would run here")
def test_another_machine_refuses_it(artifact: Path) -> None:
    with pytest.raises(ArtifactError, match=r"is for linux/aarch64, this machine is linux/x86_64"):
        intarsia.load(artifact)


def test_equal_input_gives_equal_bytes(artifact: Path, tmp_path: Path) -> None:
    module = IRModule.from_function(function_of(network()))
    intarsia.build(module, target="acl").save(tmp_path / "again.intarsia")
    assert (tmp_path / "again.intarsia").read_bytes() == artifact.read_bytes()


@pytest.mark.slow
def test_the_runtime_runs_it(artifact: Path, tmp_path: Path) -> None:
    try:
        python = make_python(tmp_path / "root")
    except Unavailable as reason:
        pytest.skip(str(reason))
    function = function_of(network())
    rounds = [fresh(1, 3, 12, 12, seed=seed) for seed in range(2)]
    names = [str(tmp_path / f"round{n}.npz") for n in range(len(rounds))]
    for name, data in zip(names, rounds, strict=True):
        np.savez(name, x=data)
    python.run("-c", RUN, str(artifact), ",".join(names))
    for name, data in zip(names, rounds, strict=True):
        (result,) = np.load(name + ".out.npz").values()
        np.testing.assert_allclose(result, expected(function, [data])[0], rtol=1e-4, atol=1e-6)


def test_a_build_is_told_of(artifact: Path) -> None:
    placement = open_artifact(artifact).passport.placement
    assert json.dumps(dict(placement)).count("arm_acl") >= 2
