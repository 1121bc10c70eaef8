# SPDX-License-Identifier: Apache-2.0
"""The commands compile, run, inspect and bench, with whichever backend can be imported here."""

from __future__ import annotations

import functools
import importlib
import importlib.resources
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia.cli.main import main
from intarsia.cli.model_options import parse_shape
from intarsia.cli.session import Session
from intarsia.host.host import Host
from intarsia.host.manager import LocalPlugin
from intarsia.host.manifest import parse_manifest
from intarsia_runtime.errors import ModelError, UsageError, WorkerLost
from intarsia_runtime.executors.aot import AotExecutor
from intarsia_tools import contestant, peers
from intarsia_tools.bench import balanced_orders, compare, interleave
from intarsia_tools.bench_row import BenchRow
from intarsia_tools.contestant import Contestant

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process; return exit code, stdout and stderr."""
    pytest.importorskip("llvmlite", reason="needs a backend that generates code")
    local: list[LocalPlugin] = []
    for name in ("llvm", "tools"):
        package = importlib.resources.files(f"intarsia_{name}")
        manifest = parse_manifest(package.joinpath("plugin.toml").read_text(encoding="utf-8"))
        hooks = importlib.import_module(manifest.hooks)
        local.append(LocalPlugin(manifest, hooks, f"intarsia-{name}"))

    def host(_: Session) -> Host:
        return Host(env={}, path=[os.devnull], local=local)

    monkeypatch.setattr(Session, "host", host)

    def call(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weight = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3) - 5, "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Relu", ["a"], ["y"], name="act"),
        helper.make_node("Add", ["y", "y"], ["twice"], name="sum"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 3]) for n in ("twice", "y")],
        [weight],
    )
    opset = helper.make_opsetid("", 18)
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=10), path)
    return path


COMPILE = ("--target", "llvm", "--shape", "x:2,4")


@pytest.fixture
def artifact(run: Run, model: Path) -> Path:
    path = model.with_suffix(".intarsia")
    code, out, err = run("compile", model, *COMPILE, "-o", path)
    assert code == 0, err
    assert out.startswith("0/3 nodes offloaded (0 %), 0 regions, 0 B across borders\nwrote ")
    return path


def test_compile_then_run_keeps_names_and_order(run: Run, artifact: Path, tmp_path: Path) -> None:
    x = np.array([[1, 2, 3, 4], [-1, 0, 1, 0]], np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    outputs = tmp_path / "y.npz"
    code, out, err = run(
        *("run", artifact, "--inputs", tmp_path / "x.npz", "--outputs", outputs),
        *("--json", "--repeat", 3, "--threads", 1),
    )
    assert code == 0, err
    said = json.loads(out)
    assert said["schema"] == 1
    assert [row["name"] for row in said["outputs"]] == ["twice", "y"]
    assert said["outputs"][0] == {"name": "twice", "shape": [2, 3], "dtype": "float32"}
    assert said["runs"] == 3
    assert said["min_ms"] <= said["median_ms"]
    expected = np.maximum(x @ (np.arange(12, dtype=np.float32).reshape(4, 3) - 5), 0)
    with np.load(outputs) as file:
        assert list(file.files) == ["twice", "y"]
        np.testing.assert_allclose(file["y"], expected, rtol=1e-6)
        np.testing.assert_allclose(file["twice"], 2 * expected, rtol=1e-6)


def test_runs_that_warm_up_are_not_timed(
    run: Run, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[object] = []
    execute = AotExecutor.run

    def counted(self: AotExecutor, inputs: object) -> object:
        runs.append(inputs)
        return execute(self, inputs)

    monkeypatch.setattr(AotExecutor, "run", counted)
    code, out, err = run("run", artifact, "--warmup", 3, "--repeat", 2, "--json")
    assert (code, json.loads(out)["runs"], len(runs)) == (0, 2, 5), err


def test_runs_are_timed_until_the_duration_has_passed(run: Run, artifact: Path) -> None:
    start = time.monotonic()
    code, out, err = run("run", artifact, "--duration", 1, "--repeat", 2, "--json")
    assert (code, json.loads(out)["runs"] > 2) == (0, True), err
    assert time.monotonic() - start >= 1


def test_a_duration_of_zero_leaves_the_number_of_runs(run: Run, artifact: Path) -> None:
    code, out, err = run("run", artifact, "--duration", 0, "--repeat", 3, "--json")
    assert (code, json.loads(out)["runs"]) == (0, 3), err


def test_the_inputs_say_what_a_model_leaves_open(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "in.npz", x=np.ones((5, 4), np.float32))
    given = ("--inputs", tmp_path / "in.npz", "--json")
    reads = Counter[str]()

    def counted(source: str, *, allow_pickle: bool) -> object:
        reads[source] += 1
        return read(source, allow_pickle=allow_pickle)

    read = np.load
    monkeypatch.setattr(np, "load", counted)
    code, out, err = run("run", model, "--target", "llvm", *given)
    assert code == 0, err
    assert reads[str(tmp_path / "in.npz")] == 1
    assert [row["shape"] for row in json.loads(out)["outputs"]] == [[5, 3], [5, 3]]
    code, _, err = run("run", model, *COMPILE, *given)
    assert (code, "shape (5, 4)" in err or "(5, 4)" in err) == (3, True)
    code, out, err = run("run", model, "--target", "llvm", "--json")
    assert code == 0, err
    assert [row["shape"] for row in json.loads(out)["outputs"]] == [[1, 3], [1, 3]]  # any size runs
    assert run("explain", model, "--target", "llvm")[0] == 0
    code, out, err = run("bench", model, "--target", "llvm", "--rounds", "1", "--json")
    assert code == 0, err
    assert json.loads(out)["rows"][0]["median_ms"] > 0


def test_a_model_is_compiled_and_verified(run: Run, model: Path) -> None:
    code, out, err = run("run", model, *COMPILE, "--verify", "--profile")
    assert code == 0, err
    assert "nodes offloaded" in err
    assert "verify twice: ok" in out
    assert "verify y: ok" in out
    assert "product" in out


def test_the_executor_vm_is_verified(run: Run, model: Path) -> None:
    code, out, err = run("run", model, *COMPILE, "--executor", "vm", "--verify")
    assert code == 0, err
    assert "verify twice: ok" in out
    assert "verify y: ok" in out


def test_an_artifact_is_verified_against_its_model(run: Run, artifact: Path, model: Path) -> None:
    code, out, err = run(
        "run", artifact, "--verify", "--model", model, "--shape", "x:2,4", "--json"
    )
    assert code == 0, err
    assert [check["ok"] for check in json.loads(out)["verify"]] == [True, True]
    code, _, err = run("run", artifact, "--verify")
    assert code == 2
    assert "--model FILE.onnx" in err


def test_the_command_verify_compares_an_artifact_with_its_model(
    run: Run, artifact: Path, model: Path
) -> None:
    code, out, err = run("verify", artifact, model, "--json")
    assert code == 0, err
    said = json.loads(out)
    assert [row["ok"] for row in said["verify"]] == [True, True]
    assert said["regions"] == []
    code, out, err = run("verify", artifact, model)
    assert (code, out.count("  ok  ")) == (0, 2), err


def test_another_model_fails_the_check(run: Run, artifact: Path, model: Path) -> None:
    proto = onnx.load(model)
    proto.graph.node[1].op_type = "Neg"
    other = model.with_name("other.onnx")
    onnx.save(proto, other)
    code, _, err = run("run", artifact, "--verify", "--model", other, "--shape", "x:2,4")
    assert code == 10
    assert "2 of 2 outputs differ from the reference: 'twice', 'y'" in err
    del proto.graph.output[1]
    onnx.save(proto, other)
    code, _, err = run("run", artifact, "--verify", "--model", other, "--shape", "x:2,4")
    assert code == 3
    assert "has 1 outputs, 2 were computed" in err


def test_inspect_says_what_it_is(run: Run, artifact: Path) -> None:
    code, out, _ = run("inspect", artifact)
    assert code == 0
    assert "target:       llvm" in out
    assert "intarsia-llvm" in out
    code, out, _ = run("inspect", artifact, "--json")
    passport = json.loads(out)["passport"]
    assert passport["name"] == "net"
    assert [spec["name"] for spec in passport["plan"]["outputs"]] == ["twice", "y"]
    assert set(passport["members"]) == {"units/main/lib.so", "params.safetensors"}


def test_compile_as_json(run: Run, model: Path, tmp_path: Path) -> None:
    dump = tmp_path / "ir"
    code, out, err = run(
        *("compile", model, *COMPILE, "-o", tmp_path / "a.intarsia", "--json"),
        *("--executor", "graph", "--dump-ir", dump),
    )
    assert code == 0, err
    said = json.loads(out)
    assert said["executor"] == {"kind": "graph"}
    assert said["placement"]["offloaded"] == 0
    assert said["bytes"] == (tmp_path / "a.intarsia").stat().st_size
    assert len(list(dump.iterdir())) >= 4


def test_compile_says_what_a_quantized_model_computes_in_float32(run: Run, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"], name="real"),
        helper.make_node("LogSoftmax", ["a"], ["b"], name="logs"),
        helper.make_node("QuantizeLinear", ["b", "s", "z"], ["y"], name="stored"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, [2, 4])],
        [
            numpy_helper.from_array(np.float32(0.05), "s"),
            numpy_helper.from_array(np.uint8(200), "z"),
        ],
    )
    path = tmp_path / "quantized.onnx"
    opset = helper.make_opsetid("", 18)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=10), path)
    words = ("compile", path, "--target", "llvm", "-o", tmp_path / "q.intarsia")
    code, out, err = run(*words)
    assert code == 0, err
    assert (
        "1 node has quantized operands and no form on integers, so float32: nn.log_softmax" in out
    )
    code, out, err = run(*words, "--json")
    assert code == 0, err
    assert json.loads(out)["placement"]["in_float"] == ["nn.log_softmax"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--shape", "x"), 2, "'x' is not a shape"),
        (("--shape", "y:1,4"), 2, "which is no input"),
        (("--shape", "x:1,4", "--require-offload", "50"), 10, "50 % required"),
        (("--shape", "x:1,4", "--executor", "graph", "--executor-aot-unpacked-api", "true"), 2,
         "--executor-aot-unpacked-api is set, but the executor is 'graph'"),
        (("--shape", "x:1,4", "--executor-aot-unpacked-api", "true"), 2, "freestanding runtime"),
        (("--shape", "x:1,4", "--runtime", "c"), 4, "has plain functions only, no packed ones"),
        (("--shape", "x:1,4", "--executor-aot-workspace-byte-alignment", "3"), 2, "cannot be 3"),
        (("--shape", "x:1,4", "--executor-aot-interface-api", "rust"), 2, "rust"),
        (("--shape", "x:1,4", "--place", "nonsense"), 2, "nonsense"),
    ],
)  # fmt: skip
def test_a_compile_that_fails_writes_nothing(
    run: Run, model: Path, tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    path = tmp_path / "out.intarsia"
    got, _, err = run("compile", model, "--target", "llvm", "-o", path, *words)
    assert got == code, err
    assert message in err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net.onnx"]


@pytest.mark.parametrize(
    "words", [("compile", "-o"), ("explain", "--netron"), ("explain", "--dot")]
)
def test_a_model_is_not_written_over(run: Run, model: Path, words: tuple[str, str]) -> None:
    before = model.read_bytes()
    again = model.parent / ".." / model.parent.name / model.name
    code, _, err = run(words[0], model, "--target", "llvm", words[1], again)
    assert (code, model.read_bytes() == before) == (2, True)
    assert "is the model itself" in err
    assert "name another output file" in err


def test_run_says_what_is_missing(run: Run, model: Path, artifact: Path, tmp_path: Path) -> None:
    text = tmp_path / "page.md"
    text.write_text("# No model\n")
    for words, code, message in (
        (("run", model), 2, "is no artifact, and a model needs a target"),
        (("run", text), 2, "page.md' is no artifact, and a model needs a target"),
        (("run", artifact, "--target", "llvm"), 2, "an artifact has its own target"),
        (("run", tmp_path / "absent.intarsia"), 3, "there is no file"),
        (("run", artifact, "--inputs", model), 3, "cannot read inputs"),
        (("inspect", model), 7, "not an artifact"),
    ):
        got, _, err = run(*words)
        assert (got, message in err) == (code, True), err


def test_bench_measures_each_against_each(run: Run, model: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the other runtime")
    code, out, err = run(
        *(
            "bench",
            model,
            *COMPILE,
            "--vs",
            "onnxruntime",
            "--rounds",
            2,
            "--threads",
            "1,2",
            "--json",
        ),
    )
    assert code == 0, err
    rows = json.loads(out)["rows"]
    assert [(row["peer"], row["threads"]) for row in rows] == [
        ("onnxruntime", 1),
        ("onnxruntime", 2),
    ]
    assert all(row["ratio_low"] <= row["ratio"] <= row["ratio_high"] for row in rows)
    code, out, err = run("bench", model, *COMPILE, "--rounds", 1)
    assert code == 0, err
    assert "net" in out
    assert run("bench", model, *COMPILE, "--threads", "one")[0] == 2


@pytest.mark.parametrize("command", ["run", "verify", "bench", "bisect", "tune"])
@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_a_seed_out_of_range_is_an_option_out_of_range(run, command: str, seed: int) -> None:
    code, _, err = run(command, "m.onnx", "--seed", seed)
    assert code == 2
    assert "Invalid value for '--seed'" in err


def test_a_row_without_a_peer_has_no_ratio() -> None:
    row = BenchRow("m", "t", "", 1, 2.5).to_json()
    assert row["median_ms"] == 2.5
    assert row["peer"] is row["ratio"] is row["ratio_low"] is row["ratio_high"] is None
    one = compare("m", "t", "p", 1, [2.0], [1.0])
    assert (one.ratio, one.ratio_low, one.ratio_high) == (2, 2, 2)
    many = compare("m", "t", "p", 1, [1.0, 2.0, 3.0], [1.0, 1.0, 1.0])
    assert (many.ratio_low, many.ratio, many.ratio_high) == (1.5, 2, 2.5)


def test_rounds_are_interleaved() -> None:
    order: list[tuple[str, int]] = []

    class Slow:
        def __init__(self, name: str) -> None:
            self.name = name

        def seconds(self, runs: int) -> float:
            order.append((self.name, runs))
            return 0.02

    times = interleave({("ours", "a"): Slow("a"), ("peer", "b"): Slow("b")}, 2)
    assert order == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("b", 2), ("a", 2)]
    assert times == {("ours", "a"): [0.02, 0.02], ("peer", "b"): [0.02, 0.02]}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8])
def test_everybody_comes_after_everybody_else_equally_often(count: int) -> None:
    orders = balanced_orders(count)
    assert all(sorted(order) == list(range(count)) for order in orders)
    begins = Counter(order[0] for order in orders)
    follows = Counter(pair for order in orders for pair in pairwise(order))
    assert len(begins) == count
    assert len(follows) == count * (count - 1)
    assert len({*begins.values()}) == 1
    assert len({*follows.values()}) <= 1


def test_a_contestant_runs_in_a_process_of_its_own() -> None:
    with Contestant("steady", functools.partial(functools.partial, list)) as steady:
        assert 0 < steady.seconds(100) < 1
    absent = functools.partial(contestant.ours, Path("absent.intarsia"), Path("x.npz"), 1)
    with pytest.raises(ModelError, match="there is no file"):
        Contestant("absent", absent)
    with pytest.raises(WorkerLost, match="'fatal' ended with exit code 3"):
        Contestant("fatal", functools.partial(os._exit, 3))


def test_a_peer_that_cannot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(model: Path, threads: int) -> peers.Run:
        raise ImportError("no such package")

    def broken(model: Path, threads: int) -> peers.Run:
        raise RuntimeError("bad graph")

    monkeypatch.setattr(peers, "PEERS", {"absent": absent, "broken": broken})
    with pytest.raises(UsageError, match="'absent' is not installed"):
        peers.open_peer("absent", tmp_path, 1)
    with pytest.raises(ModelError, match=r"'broken' does not take.*bad graph"):
        peers.open_peer("broken", tmp_path, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x:1,2", ("x", (1, 2))),
        ("a:b:3", ("a:b", (3,))),
        ("s:", ("s", ())),
        ("/x.1:0", ("/x.1", (0,))),
    ],
)
def test_shapes(text: str, expected: tuple[str, tuple[int, ...]]) -> None:
    assert parse_shape(text) == expected


@pytest.mark.parametrize("text", ["", "x", ":1", "x:a", "x:-1", "x:1,,2", "x:1,"])
def test_what_is_no_shape(text: str) -> None:
    with pytest.raises(UsageError, match="is not a shape"):
        parse_shape(text)


def test_an_interrupt_before_the_first_import_has_its_exit_code() -> None:
    code = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'intarsia.cli.main': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from intarsia.__main__ import run\n"
        "sys.exit(run())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")


def test_made_up_inputs_of_an_artifact_have_the_shapes_that_are_asked_for(
    run: Run, tmp_path: Path
) -> None:
    text = '<ir_version: 9, opset_import: ["" : 18]> g (float[n, 4, m] x) => (float[n, 4, m] y)'
    onnx.save(onnx.parser.parse_model(f"{text} {{ y = Relu (x) }}"), tmp_path / "m.onnx")
    artifact = tmp_path / "m.intarsia"
    assert run("compile", tmp_path / "m.onnx", "--target", "llvm", "-o", artifact)[0] == 0
    code, out, err = run("run", artifact, "--shape", "x:3,4,5", "--json")
    assert (code, json.loads(out)["outputs"][0]["shape"]) == (0, [3, 4, 5])
    assert "m = 5, n = 3" in err
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 4, 2), np.float32))
    for words, why in (
        (["--shape", "x:3,5,5"], "takes no shape (3, 5, 5)"),
        (["--shape", "x:3,4"], "takes no shape (3, 4)"),
        (["--shape", "y:3,4,5"], "has no input 'y'"),
        (["--shape", "x:2,4,2", "--inputs", tmp_path / "x.npz"], "--shape has no meaning"),
    ):
        code, _, err = run("run", artifact, *words)
        assert code == 2, words
        assert why in err
