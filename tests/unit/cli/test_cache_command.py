# SPDX-License-Identifier: Apache-2.0
"""Builds of the command line that come from the cache, and what makes them anew."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia.cli.cache import differences
from intarsia.cli.main import main
from intarsia.driver import fetch_build as cached
from intarsia_ir.tir.records import Record
from intarsia_onnx.reader import model_digests
from intarsia_tools.append import append_record

Run = Callable[..., tuple[int, str, str]]
TARGET = ("--target", "llvm -mcpu=x86-64-v3")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    pytest.importorskip("intarsia_llvm", reason="needs a backend that generates code")
    tried = Path(os.environ["INTARSIA_CACHE_DIR"], "plugins")
    tried.mkdir(exist_ok=True)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "plugins").symlink_to(tried)  # a trial in a child takes half a second
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))

    def call(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def save(path: Path, value: float, *, external: str = "") -> Path:
    weight = numpy_helper.from_array(np.full((4, 300), value, np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 300])
    graph = helper.make_graph(nodes, "net", [given], [result], [weight])
    opset = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10)
    outside = {"save_as_external_data": True, "location": external} if external else {}
    onnx.save(model, path, **outside)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(tmp_path / "net.onnx", 1.0)


def why(run: Run, *words: object) -> dict:
    code, out, _ = run("cache", "why", *words, "--json")
    assert code == 0
    return json.loads(out)


@pytest.mark.slow
def test_the_second_build_is_the_first_ones_bytes(run: Run, model: Path, tmp_path: Path) -> None:
    first, second, third = (tmp_path / f"{n}.intarsia" for n in range(3))
    code, said, _ = run("compile", model, *TARGET, "-o", first)
    assert code == 0
    assert why(run, model, *TARGET)["hit"] is True
    assert run("compile", model, *TARGET, "-o", second)[1] == said.replace("0.int", "1.int")
    assert run("compile", model, *TARGET, "--no-cache", "-o", third)[0] == 0
    assert first.read_bytes() == second.read_bytes() == third.read_bytes()
    code, out, _ = run("cache", "list", "--json")
    (entry,) = json.loads(out)["entries"]
    assert (entry["model"], entry["bytes"]) == ("net", first.stat().st_size)
    assert "net" in run("cache", "list")[1]
    assert "entries: 1" in run("cache", "info")[1]
    assert json.loads(run("cache", "info", "--json")[1])["entries"] == 1


def test_warnings_about_the_model_are_repeated_from_the_cache(run: Run, tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["v1"], ["y"]), helper.make_node("Neg", ["x"], ["v1"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    opset = [helper.make_opsetid("", 18)]
    graph = helper.make_graph(nodes, "net", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), tmp_path / "m.onnx")
    for _ in range(3):
        code, _, err = run("compile", tmp_path / "m.onnx", *TARGET, "-o", tmp_path / "m.intarsia")
        assert code == 0
        assert err.count("its nodes are not in order, and were sorted") == 1
    assert len(json.loads(run("cache", "list", "--json")[1])["entries"]) == 1
    assert why(run, tmp_path / "m.onnx", *TARGET)["hit"] is True


def test_running_a_model_takes_it_from_the_cache(run: Run, model: Path, tmp_path: Path) -> None:
    outputs = tmp_path / "y.npz"
    for _ in range(2):
        code, out, err = run("run", model, *TARGET, "--outputs", outputs, "--profile")
        assert code == 0
        assert "nodes offloaded" in err
        assert "cpu.dense" in out
        assert np.load(outputs)["y"].shape == (2, 300)
    assert json.loads(run("cache", "info", "--json")[1])["entries"] == 1
    assert run("cache", "clear")[1] == "removed 1 artifact\n"
    assert json.loads(run("cache", "clear", "--json")[1])["removed"] == 0


@pytest.mark.parametrize(
    "words, differs",
    [
        (("--target", "llvm -mcpu=x86-64-v2"), ["target"]),
        ((*TARGET, "--plan", "greedy"), ["placement"]),
        ((*TARGET, "--executor", "graph"), ["executor"]),
    ],
)
def test_what_decides_is_in_the_key(
    run: Run, model: Path, tmp_path: Path, words: tuple[str, ...], differs: list[str]
) -> None:
    run("compile", model, *TARGET, "-o", tmp_path / "a.intarsia")
    found = why(run, model, *words)
    assert (found["hit"], found["differs"]) == (False, differs)
    code, out, _ = run("cache", "why", model, *words)
    assert code == 0
    assert out.startswith("miss: the nearest build is ")
    assert out.endswith(f"differs in: {differs[0]}\n")


def test_another_model_and_other_records_are_another_build(
    run: Run, model: Path, tmp_path: Path
) -> None:
    run("compile", model, *TARGET, "-o", tmp_path / "a.intarsia")
    records = tmp_path / "records.jsonl"
    row = Record(machine="m", operator="o", space=1, signature="s", threads=1)
    append_record(records, row)
    assert why(run, model, *TARGET, "--records", records)["differs"] == ["records"]
    save(model, 2.0)
    assert why(run, model, *TARGET)["differs"] == ["model"]


def test_weights_in_a_file_of_their_own_are_in_the_key(run: Run, tmp_path: Path) -> None:
    path = save(tmp_path / "net.onnx", 1.0, external="net.bin")
    assert sorted(model_digests(path)) == ["", "net.bin"]
    first, second = tmp_path / "a.npz", tmp_path / "b.npz"
    run("run", path, *TARGET, "--outputs", first)
    data = (tmp_path / "net.bin").read_bytes()
    (tmp_path / "net.bin").write_bytes(np.full(len(data) // 4, 2.0, np.float32).tobytes())
    assert why(run, path, *TARGET)["differs"] == ["model.net.bin"]
    run("run", path, *TARGET, "--outputs", second)
    np.testing.assert_allclose(np.load(second)["y"], 2 * np.load(first)["y"], rtol=1e-5)


def test_a_model_is_hashed_again_after_the_build_only_if_it_may_have_changed(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[Path] = []

    def digests(path: Path) -> dict[str, str]:
        hashed.append(path)
        return model_digests(path)

    monkeypatch.setattr(cached, "source_digests", digests)
    run("compile", model, *TARGET, "-o", tmp_path / "a.intarsia")
    assert len(hashed) == 2  # it was written just now
    monkeypatch.setattr(cached, "_CLOCKS", -(10**12))
    save(model, 2.0)
    run("compile", model, *TARGET, "-o", tmp_path / "b.intarsia")
    assert len(hashed) == 3
    assert not cached.untouched([tmp_path / "none"], time.time_ns())


def test_weights_outside_the_folder_are_refused_before_they_are_read(
    run: Run, tmp_path: Path
) -> None:
    path = save(tmp_path / "net.onnx", 1.0, external="net.bin")
    message = onnx.load(path, load_external_data=False)
    for entry in message.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../../etc/passwd"
    path.write_bytes(message.SerializeToString())
    code, _, err = run("compile", path, *TARGET, "-o", tmp_path / "a.intarsia")
    assert code == 3
    assert "not a path inside the model's folder" in err


def test_a_damaged_entry_is_a_warning_and_a_build(run: Run, model: Path, tmp_path: Path) -> None:
    run("compile", model, *TARGET, "-o", tmp_path / "a.intarsia")
    (kept,) = (tmp_path / "cache" / "builds").glob("*.intarsia")
    kept.write_bytes(kept.read_bytes()[:-100])
    code, _, err = run("compile", model, *TARGET, "-o", tmp_path / "b.intarsia")
    assert code == 0
    assert "warning: a cached build is damaged" in err
    assert (tmp_path / "a.intarsia").read_bytes() == (tmp_path / "b.intarsia").read_bytes()


def test_without_a_cache_everything_is_built(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no earlier build" in why(run, model, *TARGET)["reason"]
    monkeypatch.setenv("INTARSIA_CACHE_SIZE", "0")
    assert run("compile", model, *TARGET, "-o", tmp_path / "a.intarsia")[0] == 0
    assert "is off" in why(run, model, *TARGET)["reason"]
    code, _, err = run("cache", "info")
    assert (code, "the cache is off, or its folder" in err) == (2, True)
    dumped = ("--dump-ir", tmp_path / "ir")
    monkeypatch.delenv("INTARSIA_CACHE_SIZE")
    assert run("compile", model, *TARGET, *dumped, "-o", tmp_path / "b.intarsia")[0] == 0
    assert (tmp_path / "ir").is_dir()
    assert json.loads(run("cache", "info", "--json")[1])["entries"] == 0


def test_parts_of_keys_that_differ_are_named() -> None:
    old = {"a": 1, "b": {"x": 1, "y": 2, "": 3}, "c": 0}
    assert differences(old, dict(old)) == []
    new = {"a": 2, "b": {"x": 1, "y": 3, "": 4}, "d": 0}
    assert differences(old, new) == ["a", "b.y", "b", "c", "d"]
