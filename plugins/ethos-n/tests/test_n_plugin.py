# SPDX-License-Identifier: Apache-2.0
"""The hooks, the options, the unit in the artifact, whole models."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import intarsia
from intarsia.plugin import Target
from intarsia_ethos_n import plugin
from intarsia_ethos_n.codegen import compile_region, emit
from intarsia_ethos_n.environment import environment_version
from intarsia_ethos_n.loader import load, simulate
from intarsia_ethos_n.network import (
    FILE,
    WEIGHTS_FILE,
    parse_network,
    parse_weights,
    print_network,
    print_weights,
)
from intarsia_ethos_n.target import ETHOS_N, EthosNOptions, canonicalize
from intarsia_ethos_n.variants import VARIANTS, library_name
from intarsia_ir.hardware.tag_file import read_hardware
from intarsia_ir.regions.region import Region
from intarsia_runtime.artifact.plan import TensorSpec
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError, TargetError, ToolchainError, WorkerLost
from intarsia_runtime.loading import LoadRequest
from intarsia_testkit.expressions import expected
from intarsia_testkit.qdq_models import residual_net
from intarsia_testkit.quantized_expressions import inputs_for

from .cases import chain, requantized, unsigned_conv
from .quantized import region_of


def target(**options: object) -> Target:
    return Target(ETHOS_N, EthosNOptions(**options))


def kept_of(regions: Sequence[Region], wanted: Target) -> tuple[Region, ...]:
    """The regions that are not given back; why one is must be said."""
    answer = plugin.partition(regions, wanted)
    assert len(answer) == len(regions)
    return tuple(region for region in answer if not region.why)


def test_the_manifest_declares_what_is_registered() -> None:
    text = resources.files("intarsia_ethos_n").joinpath("plugin.toml").read_text()
    manifest = tomllib.loads(text)
    (kind,) = plugin.register_target_kind()
    assert [row["name"] for row in manifest["target-kind"]] == [kind.name]
    assert manifest["hooks"] == plugin.__name__
    assert manifest["alias"] == [{"name": "ethosn", "target": "ethos-n, c"}]


def test_there_is_a_tag_for_each_variant() -> None:
    raw = resources.files("intarsia_ethos_n").joinpath("hardware.toml").read_bytes()
    tags = read_hardware(raw, file="hardware.toml")
    assert len(tags) == len(VARIANTS)
    for tag, (name, variant) in zip(tags, VARIANTS.items(), strict=True):
        assert f"-variant={name}" in tag.target
        assert [level.size for level in tag.memory] == [variant.sram]
        assert library_name(name).removeprefix("ETHOS_") in tag.aliases[0].upper().replace("-", "_")


def test_light_regions_are_left_to_the_fallback() -> None:
    heavy, light = region_of(chain()), region_of(requantized())
    assert kept_of([heavy, light], target()) == (heavy,)
    assert kept_of([heavy, light], target(min_macs=0)) == (heavy, light)


def test_the_memory_must_be_one_that_banks_can_have() -> None:
    options = EthosNOptions(variant="n78-4tops-4ple", sram_size=1024 * 1024)
    assert canonicalize(options) is options
    assert canonicalize(EthosNOptions()).memory == VARIANTS["n78-4tops-4ple"]
    for wrong in (1000, 2**30, 1024 * 1024 + 1):
        with pytest.raises(TargetError, match=f"-sram-size={wrong}"):
            canonicalize(EthosNOptions(sram_size=wrong))


def test_switches_are_words() -> None:
    words = EthosNOptions(strategy3=False, disable_winograd=True).switches()
    assert len(words) == 15
    assert {"strategy3=0", "strategy4=1", "disable-winograd=1", "block-config-16x16=1"} < set(words)


def test_the_build_depends_on_the_network_and_the_library() -> None:
    assert environment_version().startswith("network 1, ")


def test_every_row_is_offered() -> None:
    assert "qnn.conv" in [row.name for row in plugin.annotate(target()).rows]


def test_probe_says_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ETHOSN_ROOT", raising=False)
    found = plugin.probe(target())
    assert not found.usable
    assert "-simulate" in found.detail
    missing = plugin.probe(target(ethosn_root="/nowhere"))
    assert not missing.usable
    assert "/nowhere has no" in missing.detail


def test_printing_and_parsing_are_inverses() -> None:
    network, arrays = emit(region_of(chain()))
    assert parse_network(print_network(network)) == network
    found = parse_weights(network, print_weights(network, arrays))
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"schema":1,"constants":3}'])
def test_a_damaged_network(data: bytes) -> None:
    with pytest.raises(ArtifactError, match="damaged"):
        parse_network(data)


def test_a_network_of_another_schema() -> None:
    with pytest.raises(ArtifactError, match="schema 99"):
        parse_network(json.dumps({"schema": 99}).encode())


def test_weights_of_another_length() -> None:
    network, _ = emit(region_of(chain()))
    with pytest.raises(ArtifactError, match=r"weights\.bin has 3 bytes"):
        parse_weights(network, b"123")


def request(files: dict[str, bytes], shape: tuple[int, ...]) -> LoadRequest:
    inputs = (TensorSpec("x", shape, DType.UINT8),)
    outputs = (TensorSpec("y", (1, 4, 6, 6), DType.UINT8),)
    return LoadRequest("ethos_n_0", files, {}, inputs, outputs, 1, 0)


def test_the_simulator_gives_the_reference_result() -> None:
    region = region_of(unsigned_conv())
    network, arrays = emit(region)
    files = {FILE: print_network(network), WEIGHTS_FILE: print_weights(network, arrays)}
    inputs, output = inputs_for(region.function), np.zeros((1, 4, 6, 6), np.uint8)
    simulate(request(files, (1, 3, 6, 6)))(*inputs, output)
    (right,) = expected(region.function, inputs)
    assert np.abs(output.astype(int) - right).max() <= 1
    with pytest.raises(ArtifactError, match=r"called with \[\(1, 3, 7, 6\)"):
        simulate(request(files, (1, 3, 7, 6)))
    with pytest.raises(ArtifactError, match=r"has no weights\.bin"):
        simulate(request({FILE: files[FILE]}, (1, 3, 6, 6)))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_simulated_model_against_onnx_runtime(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ETHOSN_ROOT", raising=False)
    model = residual_net(dtype).SerializeToString()
    path = tmp_path / "model.intarsia"
    artifact = intarsia.build(model, "ethos-n -simulate, c", max_regions=1)
    artifact.save(path)
    placement = artifact.placement
    assert sum(len(row.nodes) for row in placement.regions) >= 0.75 * placement.nodes
    assert placement.offloaded == 0
    image = np.random.default_rng(3).normal(size=(1, 3, 28, 28)).astype(np.float32)
    # Without VNNI, its products of unsigned bytes saturate in 16 bits by default.
    exact = onnxruntime.SessionOptions()
    exact.add_session_config_entry("session.x64quantprecision", "1")
    (right,) = onnxruntime.InferenceSession(model, exact).run(None, {"image": image})
    found = np.asarray(intarsia.load(path).run({"image": image})["scores"])
    assert np.abs(found - right).max() <= 2 * 0.04 + 1e-6
    assert np.abs(right).max() > 20 * 0.04


def test_a_region_for_the_device_is_not_run_here() -> None:
    with pytest.raises(WorkerLost, match="no driver for it is here") as caught:
        load(request({}, (1, 3, 6, 6)))
    assert "-simulate" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "cannot compile region 'ethos_n_0' without Arm's Ethos-N Support Library"),
        ({"simulate": True, "performance": True}, "-performance asks for an estimate"),
    ],
)
def test_without_a_library_nothing_is_compiled(
    options: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ETHOSN_ROOT", raising=False)
    with pytest.raises(ToolchainError, match=message) as caught:
        compile_region(region_of(chain()), EthosNOptions(**options))
    assert "-simulate" in (caught.value.hint or "")


def test_compile_and_run_say_that_a_region_is_simulated(tmp_path: Path) -> None:
    model, artifact = tmp_path / "net.onnx", tmp_path / "net.intarsia"
    model.write_bytes(residual_net("int8").SerializeToString())
    program = [sys.executable, "-m", "intarsia"]

    def said(*words: str) -> str:
        done = subprocess.run([*program, *words], capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    target = "ethos-n -simulate, c"
    compiled = said("compile", str(model), "--target", target, "-o", str(artifact))
    assert re.search(r"^0/\d+ nodes offloaded .* SIMULATED: \d+ nodes of 'ethos-n'", compiled, re.M)
    assert "SIMULATED: the code of 'ethos-n' is run by NumPy" in said("run", str(artifact))
    assert "SIMULATED" in said("inspect", str(artifact))
