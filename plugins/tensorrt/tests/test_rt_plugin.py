# SPDX-License-Identifier: Apache-2.0
"""The hooks, the options, the cache, and whole models."""

from __future__ import annotations

import hashlib
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata, resources
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import intarsia
from intarsia.host.host import Host
from intarsia.plugin import Region, Target
from intarsia_ir.graph.expr import Expr, get_item
from intarsia_ir.graph.walk import calls
from intarsia_ir.partition.cost import Plan
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError, TargetError, ToolchainError, WorkerLost
from intarsia_tensorrt import cache, plugin
from intarsia_tensorrt.codegen import compile_region
from intarsia_tensorrt.device import Gpu
from intarsia_tensorrt.environment import environment_version
from intarsia_tensorrt.plan import device_identity, keep_times, open_times
from intarsia_tensorrt.sdk import (
    Library,
    Messages,
    builds_on_the_gpu,
    find_library,
    installed_versions,
)
from intarsia_tensorrt.signature import FILE, PLAN_FILE, parse_signature
from intarsia_tensorrt.support import TABLE, support_table
from intarsia_tensorrt.target import TENSORRT, TensorrtOptions
from intarsia_testkit.expressions import apply, function_of, var, verdicts_of, weight

from .host_gpu import HostDriver
from .regions import library, region_of
from .test_rt_quantized import matmul

README = Path(__file__).parents[1] / "README.md"
FOLDER = cache.plan_folder
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Not by the variable: a host would try every plugin anew in a folder that remembers nothing.
    folder = tmp_path / "cache" / "tensorrt"
    monkeypatch.setattr(cache, "plan_folder", lambda: folder)
    return folder


def target(**options: object) -> Target:
    return Target(TENSORRT, TensorrtOptions(**options))


def kept_of(regions: Sequence[Region], wanted: Target) -> tuple[Region, ...]:
    """The regions that are not given back; why one is must be said."""
    answer = plugin.partition(regions, wanted)
    assert len(answer) == len(regions)
    return tuple(region for region in answer if not region.why)


def small(value: float = 0.1) -> Region:
    return region_of(function_of(apply("nn.leaky_relu", var("x", 2, 3), alpha=value)))


def test_the_manifest_declares_what_is_registered() -> None:
    text = resources.files("intarsia_tensorrt").joinpath("plugin.toml").read_text()
    manifest = tomllib.loads(text)
    (kind,) = plugin.register_target_kind()
    assert [row["name"] for row in manifest["target-kind"]] == [kind.name]
    assert manifest["hooks"] == plugin.__name__
    assert manifest["alias"] == [{"name": "trt", "target": "tensorrt, cuda"}]


def test_trt_falls_back_to_cuda_with_an_llvm_host() -> None:
    parsed = Host().target("trt")
    assert [part.kind.name for part in parsed.accelerators] == ["tensorrt"]
    assert (parsed.fallback.kind.name, parsed.host.kind.name) == ("cuda", "llvm")
    assert parsed == Host().target("tensorrt, cuda")


def test_engines_are_for_the_gpu_of_the_backend_behind() -> None:
    (part,) = Host().target("tensorrt, cuda -arch=sm_89").accelerators
    assert (part.options.arch, str(part)) == ("sm_89", "tensorrt -arch=sm_89")
    (alone,) = Host().target("tensorrt, llvm").accelerators
    assert (alone.options.arch, alone.options.capability) == ("auto", "sm_80")
    with pytest.raises(TargetError, match=r"-arch=sm_86' is for another device: 'cuda' behind it"):
        Host().target("tensorrt -arch=sm_86, cuda -arch=sm_89")
    with pytest.raises(
        TargetError, match="does not compile for this device: 'cuda' behind it is for -arch=sm_7"
    ):
        Host().target("tensorrt, cuda -arch=sm_70")


@pytest.mark.parametrize(
    ("arch", "half", "detail"),
    [
        ("sm_75", False, "no products in float32 for sm_75"),
        ("sm_75", True, ""),
        ("sm_80", False, ""),
        ("sm_90", False, "TensorRT-RTX builds for sm_75, "),
    ],
)
def test_a_verdict_is_for_the_gpu(arch: str, half: bool, detail: str) -> None:
    """What is placed is built: of the same product, on the same GPU."""
    body = apply("matmul", var("x", 2, 3), weight(3, 4))
    table = plugin.annotate(target(library="tensorrt-rtx", arch=arch, fp16=half))
    (said,) = verdicts_of(body, "tensorrt", table).values()
    assert detail in said.detail if detail else said
    assert bool(said) is not bool(detail)
    if said:
        options = TensorrtOptions(library=library().edition, arch=arch, fp16=half)
        assert compile_region(region_of(function_of(body)), options).files


def test_turing_has_neither_bfloat16_nor_products_of_bytes() -> None:
    table = plugin.annotate(target(library="tensorrt-rtx", arch="sm_75"))
    short = apply("exp", var("x", 3, dtype=DType.BFLOAT16))
    (said,) = verdicts_of(short, "tensorrt", table).values()
    assert said.detail == "sm_75 has no bfloat16"
    (said,) = verdicts_of(matmul(), "tensorrt", table).values()
    assert said.detail == "no products of 8 bits for sm_75"


def test_the_edition_for_the_gpu_here_is_known_without_importing_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert builds_on_the_gpu("tensorrt")
    assert not builds_on_the_gpu("tensorrt-rtx")
    monkeypatch.setattr("intarsia_tensorrt.sdk.installed_versions", lambda: "tensorrt 10.9")
    assert builds_on_the_gpu("auto")


def test_tensorrt_is_in_no_list_of_dependencies() -> None:
    project = tomllib.loads((README.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    every = [*project["dependencies"], *(name for extra in extras for name in extra)]
    named = [name.split(">")[0].split("=")[0] for name in every]
    assert "tensorrt" not in named
    assert "tensorrt-rtx" in named


def test_the_readme_has_the_table_of_the_code() -> None:
    _, _, rest = README.read_text(encoding="utf-8").partition(f"{BEGIN}\n")
    assert rest.partition(END)[0] == TABLE.markdown()


def test_an_operator_has_one_row() -> None:
    names = [row.name for row in TABLE.rows]
    assert sorted(set(names)) == sorted(names)


def test_without_int8_quantized_operators_are_declined() -> None:
    table = support_table(int8=False)
    (row,) = (row for row in table.rows if row.name == "qnn.add")
    said = row.predicate(SimpleNamespace(root=None))
    assert not said
    assert "-int8=false" in said.detail
    assert plugin.annotate(target(int8=False)).rows[-1].predicate(None).code is said.code


def test_regions_without_heavy_arithmetic_are_given_back_if_asked() -> None:
    light = small()
    heavy = region_of(function_of(apply("matmul", var("x", 2, 3), weight(3, 4))))
    assert kept_of((light, heavy), target()) == (light, heavy)
    asked = target(remove_no_mac_regions=True)
    assert kept_of((light, heavy), asked) == (heavy,)


def test_the_unit_names_its_border_and_its_library() -> None:
    unit = compile_region(small(), TensorrtOptions(library=library().edition, arch="sm_86"))
    signature = parse_signature(unit.files[FILE])
    assert (signature.device, signature.edition) == ("sm_86", "tensorrt-rtx")
    assert [(b.name, b.dtype, b.shape) for b in signature.inputs] == [
        ("input_0", "float32", (2, 3))
    ]
    assert signature.outputs[0].name == "output_0"
    assert unit.versions == {"tensorrt-rtx": signature.version}
    assert len(unit.files[PLAN_FILE]) > 10_000


def test_an_engine_is_kept_and_a_damaged_one_built_again(own_cache: Path) -> None:
    options = TensorrtOptions(library=library().edition)
    first = compile_region(small(), options).files[PLAN_FILE]
    (entry,) = own_cache.iterdir()
    kept = entry.read_bytes()
    assert kept.endswith(first)
    entry.write_bytes(kept[:-7])
    assert len(compile_region(small(), options).files[PLAN_FILE]) == len(first)
    assert len(entry.read_bytes()) == len(kept)
    marked = kept[32:-1] + b"!"
    entry.write_bytes(hashlib.sha256(marked).digest() + marked)
    assert compile_region(small(), options).files[PLAN_FILE] == marked


def test_a_cache_that_cannot_be_written_is_no_error(own_cache: Path) -> None:
    own_cache.parent.write_text("a file where a folder would be")
    assert cache.cached_plan("key", bytes) == b""
    own_cache.parent.unlink()
    assert cache.cached_plan("key", lambda: b"plan") == b"plan"
    assert cache.cached_plan("key", bytes) == b"plan"


def test_the_folder_is_that_of_the_variable_or_of_the_user(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "mine"))
    assert FOLDER() == tmp_path / "mine" / "tensorrt"
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert FOLDER() == tmp_path / "home" / "intarsia" / "tensorrt"


def product(body_attrs: dict[str, object], *, seed: int = 1, batch: int = 2) -> Region:
    x = var("x", batch, 3)
    shaped = apply("matmul", x, weight(3, 3, seed=seed), **body_attrs)
    return region_of(function_of(shaped))


def test_the_key_holds_graph_weights_options_library_and_device() -> None:
    facts = ("tensorrt-rtx 1.7", "sm_80", "{}")
    base = cache.plan_key(product({}), facts)
    assert base == cache.plan_key(product({}), facts)
    others = [
        cache.plan_key(product({"transpose_b": True}), facts),
        cache.plan_key(product({}, seed=2), facts),
        cache.plan_key(product({}, batch=4), facts),
        *(cache.plan_key(product({}), (*facts[:at], "other", *facts[at + 1 :])) for at in range(3)),
    ]
    assert len({base, *others}) == 1 + len(others)


def test_the_key_tells_operands_and_results_apart() -> None:
    def key(body: Expr) -> str:
        return cache.region_digest(region_of(function_of(body)))

    a, b = var("a", 3), var("b", 3)
    assert key(apply("subtract", a, apply("nn.relu", b))) != key(
        apply("subtract", apply("nn.relu", a), b)
    )
    assert key(apply("add", a, a)) != key(apply("add", a, b))


def test_tensorrt_itself_builds_where_the_gpu_is() -> None:
    full = Library("tensorrt", None, "11.4")
    if gpu_capability():
        assert "driver" in device_identity(full, TensorrtOptions())
        return
    with pytest.raises((WorkerLost, ToolchainError)) as caught:
        device_identity(full, TensorrtOptions())
    assert "-library=tensorrt-rtx" in caught.value.hint or "cuda13" in caught.value.hint


def test_the_identity_of_a_gpu_is_model_capability_and_driver() -> None:
    gpu = Gpu(HostDriver())
    assert gpu.identity == "NVIDIA Test, sm_90, driver 13000"
    gpu.close()
    gpu.close()


def test_a_library_that_is_not_installed_is_an_error_with_the_next_step(monkeypatch) -> None:
    for name in ("tensorrt", "tensorrt_rtx", "tensorrt_rtx_bindings"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ToolchainError, match="tensorrt or tensorrt-rtx is not installed") as caught:
        find_library()
    assert "tensorrt-rtx" in caught.value.hint
    said = plugin.probe(target())
    assert not said.usable
    assert "not installed" in said.detail


def test_an_old_library_is_refused(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", SimpleNamespace(__version__="8.6.1"))
    with pytest.raises(ToolchainError, match=r"tensorrt 8\.6\.1 is too old: the plugin needs 10"):
        find_library("tensorrt")


def test_the_library_that_is_asked_for_is_taken(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", SimpleNamespace(__version__="10.3.0"))
    assert find_library().label == "tensorrt 10.3.0"
    assert not find_library("tensorrt").builds_without_gpu
    assert find_library(library().edition).builds_without_gpu


def test_versions_are_read_without_importing(monkeypatch) -> None:
    def version(name: str) -> str:
        if name != "tensorrt":
            raise metadata.PackageNotFoundError(name)
        return "11.4"

    monkeypatch.setattr(metadata, "version", version)
    assert installed_versions() == "tensorrt 11.4"
    assert "tensorrt 11.4" in environment_version()
    monkeypatch.setattr("intarsia_tensorrt.environment.Gpu", lambda: Gpu(HostDriver()))
    assert environment_version().endswith("tensorrt 11.4, NVIDIA Test, sm_90, driver 13000")


def test_messages_are_told_once_and_without_the_missing_gpu() -> None:
    messages = Messages(library().module)
    assert messages.text() == "it gave no reason"
    severity = library().module.ILogger.Severity
    for text in ("cudaError 35", "broken", "broken"):
        messages.logger.log(severity.ERROR, text)
    messages.logger.log(severity.WARNING, "beside the point")
    assert messages.text() == "broken"
    messages.clear()
    messages.logger.log(severity.ERROR, "cudaError 35")
    assert messages.text() == "cudaError 35"


class Times:
    def serialize(self) -> bytes:
        return b"measured"


class Config:
    """A builder's configuration that takes a timing cache."""

    def __init__(self, *, fits: bool = True) -> None:
        self.fits, self.given = fits, b"nothing"

    def create_timing_cache(self, content: bytes) -> Times:
        self.given = content
        return Times()

    def set_timing_cache(self, times: Times, mismatch: bool) -> bool:
        assert not mismatch
        return self.fits


def test_measured_times_are_kept_in_a_file(tmp_path: Path) -> None:
    draft = SimpleNamespace(
        library=Library("tensorrt", None, "11.4"), messages=SimpleNamespace(text=lambda: "why")
    )
    config, path = Config(), tmp_path / "times"
    assert open_times(draft, config, "") is None
    times = open_times(draft, config, str(path))
    assert config.given == b""
    keep_times(times, path)
    open_times(draft, config, str(path))
    assert config.given == b"measured"
    with pytest.raises(ToolchainError, match=r"does not take the timing cache .*: why"):
        open_times(draft, Config(fits=False), str(path))
    with pytest.raises(TargetError, match="cannot be read"):
        open_times(draft, config, str(tmp_path))
    with pytest.raises(TargetError, match="cannot be written"):
        keep_times(times, tmp_path / "no" / "folder")


def test_probe_names_the_library_and_says_what_is_missing(monkeypatch) -> None:
    edition = library().edition
    said = plugin.probe(target(library=edition))
    if not said.usable:
        assert said.sdk.startswith("tensorrt-rtx 1.")
        assert "compiles, but cannot run here" in said.detail
    monkeypatch.setattr("intarsia_tensorrt.device.Gpu", lambda: Gpu(HostDriver()))
    assert plugin.probe(target(library=edition)).device == "NVIDIA Test, sm_90, driver 13000"


def test_regions_of_equal_graphs_give_equal_digests() -> None:
    region = small()
    renamed = replace(region, name="tensorrt_9")
    assert cache.region_digest(region) == cache.region_digest(renamed)


@pytest.mark.parametrize("composite", ["tensorrt, cuda -emulate", "tensorrt, llvm"])
def test_an_artifact_is_built_without_a_gpu_and_running_says_what_next(composite: str) -> None:
    library()
    x = var("x", 2, 3)
    body = apply("matmul", apply("nn.relu", x), weight(3, 4))
    module = intarsia.IRModule.from_function(function_of(apply("cumsum", body, axis=0)))
    artifact = intarsia.build(module, composite, plan=Plan.GREEDY)
    assert [unit.loader for unit in artifact.units if unit.name.startswith("tensorrt")] == [
        "tensorrt"
    ]
    capability = gpu_capability()
    if capability == "sm_80":
        with artifact.load(threads=1) as executable:
            (found,) = executable.run({"x": np.ones((2, 3), np.float32)}).values()
        assert found.shape == (2, 4)
        return
    if capability:
        with pytest.raises(ArtifactError, match="does not take the engine"):
            artifact.load(threads=1)
        return
    with pytest.raises((WorkerLost, ToolchainError)) as caught:
        artifact.load(threads=1)
    assert "NVIDIA GPU" in caught.value.hint or "cuda13" in caught.value.hint


def gpu_capability() -> str:
    """Return that of the GPU here, as ``sm_80``; empty without one."""
    try:
        gpu = Gpu()
    except (WorkerLost, ToolchainError):
        return ""
    found = gpu.identity.split(", ")[1]
    gpu.close()
    return found


def test_steps_of_recurrent_layers_are_products() -> None:
    layer = apply("nn.lstm", var("x", 3, 2, 16), var("h", 2, 4), var("c", 2, 4), weight(4, 16))
    made = plugin.rewrite_relay(function_of(get_item(layer, 0)), target())
    names = [node.name for node in calls(made)]
    assert names.count("matmul") == 3
    assert "nn.lstm" not in names
