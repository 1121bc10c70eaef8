# SPDX-License-Identifier: Apache-2.0
"""The hooks and the manifest."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import onnx
import pytest
from msgspec.structs import replace
from onnx import TensorProto, helper

from intarsia.cli.main import main
from intarsia.plugin import Region, Role, Target, TargetKind
from intarsia.target.options import option_rows
from intarsia_dnnl import isa, plugin
from intarsia_dnnl.environment import environment_version
from intarsia_dnnl.program import FILE
from intarsia_dnnl.target import DNNL, DnnlOptions
from intarsia_ir.capabilities import WINOGRAD, ReducedConvolution
from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.walk import calls
from intarsia_runtime.cpu import this_machine
from intarsia_testkit.expressions import apply, function_of, var, weight

from .regions import region_of

pytestmark = pytest.mark.usefixtures("shown_tiles")


def target(**options: object) -> Target:
    return Target(DNNL, DnnlOptions(**options))


def fallback(*, reduced: ReducedConvolution | None = WINOGRAD) -> Target:
    """A backend that computes some convolutions with fewer multiplications, or does not."""
    kind = TargetKind("any", Role.BACKEND, DnnlOptions, "any", reduced_convolution=reduced)
    return Target(kind, DnnlOptions())


def kept_of(
    regions: Sequence[Region], wanted: Target, behind: Target | None = None
) -> tuple[Region, ...]:
    """The regions that are not given back; why one is must be said."""
    answer = plugin.partition(regions, wanted, behind or fallback(), None)
    assert len(answer) == len(regions)
    return tuple(region for region in answer if not region.why)


def regions() -> list[Region]:
    x = var("x", 2, 3)
    bodies = [apply("nn.relu", x), apply("matmul", x, weight(3, 5))]
    return [region_of(function_of(body)) for body in bodies]


def test_the_manifest_declares_what_is_registered() -> None:
    text = resources.files("intarsia_dnnl").joinpath("plugin.toml").read_text()
    manifest = tomllib.loads(text)
    (kind,) = plugin.register_target_kind()
    assert [row["name"] for row in manifest["target-kind"]] == [kind.name]
    assert manifest["target-kind"][0]["role"] == kind.role.value
    assert manifest["hooks"] == plugin.__name__
    assert manifest["alias"] == [{"name": "onednn", "target": "dnnl, llvm"}]


def test_options_are_documented() -> None:
    flags = {row.flag: row.default for row in option_rows(DnnlOptions)}
    assert flags == {
        "num-threads": 0,
        "fpmath-mode": "strict",
        "int8": "auto",
        "special": "library",
        "library": "",
        "prepack": True,
        "min-flops": 1,
        "min-gain": 2,
        "min-reuse": 200,
        "max-windows": 20,
        "min-grain": 10_000_000,
    }


def test_regions_of_elementwise_work_are_left_to_the_fallback() -> None:
    light, heavy = regions()
    assert kept_of([light, heavy], target()) == (heavy,)
    assert kept_of([light, heavy], target(min_flops=0)) == (light, heavy)
    assert kept_of([light, heavy], target(min_flops=61)) == ()


@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "size", "kept"),
    [
        (64, 64, 3, 56, False),  # 144 operations for a byte: the reorders cost more than is gained
        (64, 256, 1, 56, False),
        (256, 256, 3, 56, True),  # 576
        (3, 256, 7, 28, False),  # only the result is reordered: colours are read as they come
        (3, 16, 3, 32, True),  # 64 KiB: too little to ask
    ],
)
def test_a_convolution_that_does_not_pay_for_its_reorders_is_left_to_the_fallback(
    inputs: int, outputs: int, kernel: int, size: int, kept: bool
) -> None:
    x, pad = var("x", 1, inputs, size, size), kernel // 2
    attrs = {"strides": (1, 1), "padding": ((pad, pad), (pad, pad)), "dilation": (1, 1)}
    weights = weight(outputs, inputs, kernel, kernel)
    region = region_of(function_of(apply("nn.conv", x, weights, groups=1, **attrs)))
    assert kept_of([region], target(max_windows=100)) == ((region,) if kept else ())
    assert kept_of([region], target(max_windows=100, min_reuse=0)) == (region,)


@pytest.mark.parametrize(
    ("channels", "size", "strides", "kept"),
    [(32, 5, 1, False), (31, 12, 1, True), (32, 4, 1, True), (32, 24, 2, True)],
    ids=["suits", "few channels", "few places", "strides"],
)
def test_windows_that_winograd_suits_are_left_to_the_fallback(
    channels: int, size: int, strides: int, kept: bool
) -> None:
    x = var("x", 1, channels, size, size)
    attrs = {"strides": (strides, strides), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    body = apply("nn.conv", x, weight(channels, channels, 3, 3), groups=1, **attrs)
    region = region_of(function_of(body))
    assert kept_of([region], target()) == ((region,) if kept else ())
    assert kept_of([region], target(max_windows=100)) == (region,)
    assert kept_of([region], target(fpmath_mode="bf16")) == (region,)
    assert kept_of([region], target(), fallback(reduced=None)) == (region,)


@pytest.mark.parametrize(
    ("layers", "rows", "kept"),
    [(6, 2, False), (5, 2, True), (5, 1, False), (6, 2560, True)],
    ids=["many", "few", "few of a row each", "many large ones"],
)
def test_many_small_operators_are_left_to_the_fallback(layers: int, rows: int, kept: bool) -> None:
    body: Expr = var("x", rows, 64)
    for _ in range(layers):
        body = apply("nn.relu", apply("matmul", body, weight(64, 64)))
    region = region_of(function_of(body))
    assert kept_of([region], target()) == ((region,) if kept else ())
    assert kept_of([region], target(min_grain=0)) == (region,)


def pretend(monkeypatch: pytest.MonkeyPatch, feature: str) -> None:
    """Have the machine this feature alone."""
    machine = replace(this_machine(), cpu_features=frozenset({feature}))
    monkeypatch.setattr(isa, "this_machine", lambda: machine)


@pytest.mark.parametrize(("feature", "kept"), [("amx_bf16", True), ("avx512_bf16", False)])
def test_a_matrix_unit_is_worth_a_call_sooner(
    monkeypatch: pytest.MonkeyPatch, feature: str, kept: bool
) -> None:
    pretend(monkeypatch, feature)
    body: Expr = var("x", 1500, 64)  # six million operations an operator
    for _ in range(6):
        body = apply("nn.relu", apply("matmul", body, weight(64, 64)))
    region = region_of(function_of(body))
    assert kept_of([region], target(fpmath_mode="bf16")) == ((region,) if kept else ())
    assert kept_of([region], target()) == ()


@pytest.mark.parametrize(("feature", "kept"), [("amx_bf16", True), ("avx512_bf16", False)])
def test_a_large_product_for_a_matrix_unit_is_kept_without_the_rest(
    monkeypatch: pytest.MonkeyPatch, feature: str, kept: bool
) -> None:
    pretend(monkeypatch, feature)
    product = apply("matmul", var("x", 2560, 64), weight(64, 64))
    dense = apply(
        "nn.gelu", apply("add", apply("reshape", product, shape=(40, 4096)), weight(4096))
    )
    rest = apply("nn.relu", apply("multiply", dense, dense))
    for _ in range(12):
        rest = apply("multiply", rest, rest)
    region = region_of(function_of(rest))
    region = dataclasses.replace(region, origins={call: call for call in calls(region.function)})
    (answer,) = plugin.partition([region], target(fpmath_mode="bf16"), fallback(), None)
    names = ["matmul", "reshape", "add", "nn.gelu"] if kept else []
    assert [call.name for call in answer.origins] == names
    assert "less than -min-grain" in answer.why
    (answer,) = plugin.partition(
        [region], target(fpmath_mode="bf16", min_flops=10**12), fallback(), None
    )
    assert not answer.origins  # who asks for more work gets all or nothing


def test_codegen_gives_a_unit_for_the_loader() -> None:
    unit = plugin.relay_codegen(regions()[1], target(fpmath_mode="tf32"))
    assert (unit.name, unit.loader, set(unit.files)) == ("dnnl_0", "dnnl", {FILE})
    assert b'"fpmath_mode":"tf32"' in unit.files[FILE]
    assert list(unit.constants) == ["dnnl_0.0"]


def test_annotate_offers_larger_patterns_first() -> None:
    names = [row.name for row in plugin.annotate(target()).rows]
    assert names.index("gelu_erf_divide_0") < names.index("multiply")


def test_probe_says_which_library_there_is_or_why_not() -> None:
    found = plugin.probe(target())
    assert found.usable
    assert found.sdk.startswith("oneDNN 3.")
    missing = plugin.probe(target(library="/nowhere/libdnnl.so.3"))
    assert not missing.usable
    assert "/nowhere/libdnnl.so.3" in missing.detail


@pytest.mark.parametrize("hidden", [False, True])
def test_probe_says_if_the_matrix_unit_is_not_used(
    monkeypatch: pytest.MonkeyPatch, hidden: bool
) -> None:
    monkeypatch.setattr(isa, "hides_tiles", lambda: hidden)
    monkeypatch.setattr("intarsia_dnnl.sdk.keep_from_hidden_tiles", lambda _: None)
    assert ("without AMX" in plugin.probe(target()).detail) is hidden


def test_the_build_depends_on_what_chooses_the_layouts_of_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = environment_version()
    assert here.startswith("program 3, onednn-cpu-gomp 2023.")

    monkeypatch.setattr("intarsia_dnnl.environment.installed_version", lambda name: None)
    assert environment_version().startswith("program 3, onednn-cpu-gomp none, ")


def test_what_loses_nan_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Softmax", ["r"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 64])],
    )
    model = str(tmp_path / "m.onnx")
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), model)
    out = str(tmp_path / "m.intarsia")
    said = "NaN becomes 0 (-special=exact keeps it)"
    greedy = ["--target", "dnnl, llvm", "--plan", "greedy"]
    for _ in range(2):  # the second is from the cache
        assert main(["compile", model, *greedy, "-o", out]) == 0
        assert f"note: 'dnnl', 1 node: {said}" in capsys.readouterr().err
    assert main(["explain", model, *greedy]) == 0
    assert f"nn.relu; {said}" in capsys.readouterr().out
    exact = "dnnl -special=exact, llvm"
    assert main(["compile", model, "--target", exact, "--plan", "greedy", "-o", out]) == 0
    assert "NaN" not in capsys.readouterr().err
