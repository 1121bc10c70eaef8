# SPDX-License-Identifier: Apache-2.0
"""Branches and loops of the run are compiled into the plan: results as ONNX Runtime's."""

from __future__ import annotations

import ctypes
import dataclasses
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import intarsia
from intarsia_ir.graph.control import bodies_of
from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.graph.text import collect_params, parse_module, print_module
from intarsia_ir.graph.verify import verify
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.control import CONTROL
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.partition.cost import Plan
from intarsia_ir.passes.prepare import PREPARE
from intarsia_onnx import from_onnx
from intarsia_runtime.artifact.plan import IfStep, all_steps
from intarsia_runtime.artifact.plan_json import plan_from_json, plan_to_json
from intarsia_runtime.errors import ModelError

from .control_models import MODELS, ControlModel, values


def session(model: ControlModel) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.proto().SerializeToString(), options)


def same(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
def test_control_flow_runs_in_compiled_code(name: str) -> None:
    model = MODELS[name]
    artifact = intarsia.build(model.proto().SerializeToString(), "llvm")
    assert artifact.passport.executor["kind"] == "aot"
    plan = artifact.passport.plan
    steps = [s for s in all_steps(plan.steps) if not (isinstance(s, IfStep) and s.label == "room")]
    kinds = [type(step).__name__ for step in steps]
    assert tuple(kind for kind in kinds if kind in ("IfStep", "LoopStep")) == model.steps
    assert plan_from_json(plan_to_json(plan)) == plan
    peer = session(model)
    with artifact.load(threads=1) as executable:
        for seed, feed in enumerate(model.feeds):
            given = values(feed, seed)
            same([*executable.run(given).values()], peer.run(None, given))


@pytest.mark.parametrize("name", MODELS)
def test_a_walk_from_python_gives_the_same_and_counts_iterations(name: str) -> None:
    model = MODELS[name]
    artifact = intarsia.build(model.proto().SerializeToString(), "llvm")
    peer = session(model)
    with artifact.load(threads=1, executor="graph") as executable:
        for seed, feed in enumerate(model.feeds):
            given = values(feed, seed)
            found = executable.walk_regions(given, lambda *_: None)
            same([*found.values()], peer.run(None, given))
        rows = executable.profile(given)
    assert len(rows) == len(list(all_steps(artifact.passport.plan.steps)))
    loops = [row.count for row in rows if row.label == "loop"]
    if "n" in given and loops and "until" not in name and "greedy" not in name:
        assert loops[0] == int(given["n"])


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_of_a_module_agrees_before_and_after_passes(name: str) -> None:
    model = MODELS[name]
    peer = session(model)
    with collecting_guards():
        module = from_onnx(model.proto(), control_flow=True)
        verify(module)
        prepared = PREPARE.run(module, check=True)
    assert len(bodies_of(prepared.functions)) == len(prepared.functions) - 1
    text = print_module(prepared)
    operators = {**OPERATORS, **CONTROL}
    with collecting_guards():
        again = parse_module(text, operators=operators, params=collect_params(prepared))
    assert print_module(again) == text
    for seed, feed in enumerate(model.feeds):
        given = values(feed, seed)
        wanted = peer.run(None, given)
        for one in (module, prepared, again):
            same(list(evaluate(one.main, given, one)), wanted)


def test_what_a_loop_appends_to_is_copied_only_where_it_has_no_room() -> None:
    model = MODELS["values collected until a value ends the loop"]
    proto = model.proto()
    artifact = intarsia.build(proto.SerializeToString(), "llvm")
    plan = artifact.passport.plan
    rows = list(all_steps(plan.steps))
    (room,) = [n for n, row in enumerate(rows) if isinstance(row, IfStep) and row.label == "room"]
    given = {"x": np.full(3, -500, np.float32), "n": np.array(100)}
    with artifact.load(threads=1, executor="graph") as executable:
        counts = [row.count for row in executable.profile(given, repeat=1)]
    assert counts[room] == 100  # whether there is room is asked each time
    assert counts[room + 1] == 4  # for 10, 38, 150 rows: twice as many and 8 more


def test_accelerators_take_what_is_inside_bodies() -> None:
    model = MODELS["a loop in a branch in a loop"]
    artifact = intarsia.build(
        model.proto().SerializeToString(), "dnnl, llvm", plan=Plan.GREEDY, require_offload=40
    )
    assert len(artifact.passport.plan.regions) == 2
    peer = session(model)
    with artifact.load(threads=1) as executable:
        for seed, feed in enumerate(model.feeds):
            given = values(feed, seed)
            same([*executable.run(given).values()], peer.run(None, given))


def test_a_value_that_the_user_gives_decides_a_branch() -> None:
    model = MODELS["branches with weights and a value around"]
    text = model.text.replace("x) => (", "x, bool c) => (", 1).replace(
        "s = ReduceSum <keepdims = 0> (x) c = Greater (s, zero)", ""
    )
    proto = dataclasses.replace(model, text=text).proto()
    artifact = intarsia.build(proto.SerializeToString(), "llvm", values={"c": False})
    assert not any(type(s).__name__ == "IfStep" for s in all_steps(artifact.passport.plan.steps))
    assert [spec.name for spec in artifact.passport.plan.inputs] == ["x"]


def test_a_size_that_no_branch_fits_is_refused() -> None:
    model = MODELS["a squeeze that depends on a size"]
    artifact = intarsia.build(model.proto().SerializeToString(), "llvm")
    refused = pytest.raises(ModelError, match=r"must be float32 \(r, 4, 1\)")
    with artifact.load(threads=1) as executable, refused:
        executable.run({"x": np.zeros((3, 4, 2), np.float32)})


def test_what_a_loop_must_have_put_together_is_checked_behind_it() -> None:
    model = MODELS["the last of rows put together"]
    artifact = intarsia.build(model.proto().SerializeToString(), "llvm")
    refused = pytest.raises(ModelError, match="must have elements")
    with artifact.load(threads=1) as executable, refused:
        executable.run({"x": np.zeros(3, np.float32), "n": np.array(0)})


SILERO = find_spec("silero_vad")
VARIANTS = ("silero_vad", "silero_vad_16k_op15", "silero_vad_half", "silero_vad_op18_ifless")


@pytest.mark.skipif(SILERO is None, reason="silero-vad is not installed")
@pytest.mark.parametrize("name", VARIANTS)
def test_a_voice_detector_is_one_program(name: str) -> None:
    assert SILERO is not None
    assert SILERO.origin is not None
    path = Path(SILERO.origin).parent / "data" / f"{name}.onnx"
    peer = onnxruntime.InferenceSession(str(path))
    artifact = intarsia.build(path, "llvm")
    assert artifact.passport.executor["kind"] == "aot"
    names = {info.name for info in peer.get_inputs()}
    rng = np.random.default_rng(0)
    with artifact.load(threads=1) as executable:
        for rate, count in ((16000, 576), (8000, 288), (16000, 512), (8000, 256), (16000, 576)):
            given = {
                "input": rng.standard_normal((1, count)).astype(np.float32) * np.float32(0.1),
                "state": rng.standard_normal((2, 1, 128)).astype(np.float32),
                "sr": np.array(rate),
            }
            given = {name: array for name, array in given.items() if name in names}
            same([*executable.run(given).values()], peer.run(None, given))


STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")


@pytest.mark.parametrize("name", MODELS)
def test_sources_branch_and_loop(name: str) -> None:
    model = MODELS[name]
    artifact = intarsia.build(model.proto().SerializeToString(), "c")
    peer = session(model)
    for executor in ("aot", "graph"):
        with artifact.load(threads=1, executor=executor) as executable:
            for seed, feed in enumerate(model.feeds):
                given = values(feed, seed)
                same([*executable.run(given).values()], peer.run(None, given))


@pytest.mark.skipif(shutil.which("cc") is None, reason="no cc to link with")
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_program_branches_and_loops(target: str, tmp_path: Path) -> None:
    """Runtime ``c``: one function with no process around it."""
    model = MODELS["a loop in a branch in a loop"]
    plain = {"interface-api": "c", "unpacked-api": True}
    made = intarsia.build(
        model.proto().SerializeToString(),
        target,
        executor=intarsia.Executor("aot", plain),
        runtime=intarsia.Runtime("c", {"link-params": True}),
        mod_name="net",
    )
    folder = made.save(f"{tmp_path}/net/")
    sources = [str(path) for path in folder.rglob("*.c")] or ["lib/net.o"]
    flags = STRICT if target == "c" else ()
    command = ["cc", "-shared", "-fPIC", *flags, "-Iinclude", "-o", "net.so", *sources, "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    run = ctypes.CDLL(str(folder / "net.so")).net_run
    workspace = np.zeros(made.passport.plan.workspace_bytes + 64, np.int8)
    peer = session(model)
    for seed, feed in enumerate(model.feeds):
        given = values(feed, seed)
        inputs = [np.ascontiguousarray(given[spec.name]) for spec in made.passport.plan.inputs]
        found = np.zeros((2, 8), np.float32)
        starts = (ctypes.c_void_p * 2)(*(array.ctypes.data for array in inputs))
        ends = (ctypes.c_void_p * 1)(found.ctypes.data)
        assert run(starts, ends, ctypes.c_void_p(workspace.ctypes.data)) == 0
        same([found], peer.run(None, given))
