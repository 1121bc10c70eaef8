# SPDX-License-Identifier: Apache-2.0
"""Options, refusals with their reasons, the toolchain, and what the loader refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intarsia.host.host import Host
from intarsia.plugin import Probe, Var
from intarsia_arm_acl import validate
from intarsia_arm_acl.codegen import compile_region, write_region
from intarsia_arm_acl.draft import AclDraft, real
from intarsia_arm_acl.operators import elementwise
from intarsia_arm_acl.support import TABLE
from intarsia_arm_acl.target import ArmAclOptions
from intarsia_arm_acl.toolchain import Toolchain, compile_unit, find_toolchain
from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.match import match_pattern
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.graph.walk import count_uses
from intarsia_ir.regions.region import Region
from intarsia_ir.regions.support import Code
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import PluginError, ResourceError, ToolchainError
from intarsia_testkit.expressions import apply, function_of, var, weight

from .emulation import missing
from .regions import region_of, verdicts

README = Path(__file__).parents[1] / "README.md"
CONV = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
POOL = {"kernel": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
IMAGE = var("x", 1, 4, 8, 8)


def conv(**attrs: object) -> Expr:
    groups: Any = attrs.get("groups", 1)
    return apply("nn.conv", IMAGE, weight(4, 4 // groups, 3, 3), **(CONV | attrs))


def transposed(shape: tuple[int, ...] = (4, 2, 3, 3), **attrs: object) -> Expr:
    return apply("nn.conv_transpose", IMAGE, weight(*shape), **(CONV | attrs))


def resize(sizes: tuple[int, ...], **attrs: object) -> Expr:
    return apply("nn.resize", IMAGE, sizes=sizes, **attrs)


REFUSALS: list[tuple[Expr, Code, str]] = [
    (apply("erf", IMAGE), Code.UNSUPPORTED_OP, ""),
    (
        apply("nn.relu", var("x", 2, dtype=DType.INT32)),
        Code.UNSUPPORTED_DTYPE,
        "int32 is not taken, only float32",
    ),
    (
        apply("nn.relu", Var("x", TensorType((variable("n"), 2), DType.FLOAT32))),
        Code.UNSUPPORTED_SHAPE,
        "the open size n, and needs a number",
    ),
    (apply("nn.relu", var("x", 0, 2)), Code.UNSUPPORTED_SHAPE, "no elements"),
    (apply("nn.relu", var("x", *(1,) * 7)), Code.UNSUPPORTED_SHAPE, "rank 7 is more than 6"),
    (
        apply("nn.conv", IMAGE, var("w", 2, 4, 3, 3), **CONV),
        Code.UNSUPPORTED_ATTRIBUTE,
        "argument 1 of nn.conv must be known at compile time",
    ),
    (conv(groups=2), Code.UNSUPPORTED_ATTRIBUTE, "2 groups of several channels"),
    (transposed(output_padding=(1, 0)), Code.UNSUPPORTED_ATTRIBUTE, "output_padding (1, 0)"),
    (transposed(dilation=(2, 2)), Code.UNSUPPORTED_ATTRIBUTE, "dilation (2, 2)"),
    (transposed(groups=2), Code.UNSUPPORTED_ATTRIBUTE, "2 groups"),
    (transposed((4, 2, 3, 2)), Code.UNSUPPORTED_SHAPE, "a kernel of 3 x 2"),
    (transposed((4, 2, 1, 1)), Code.UNSUPPORTED_ATTRIBUTE, "reaches as far as the kernel"),
    (
        apply("nn.max_pool", IMAGE, **(POOL | {"dilation": (2, 2)})),
        Code.UNSUPPORTED_ATTRIBUTE,
        "dilation (2, 2)",
    ),
    (
        apply("nn.avg_pool", IMAGE, **POOL, ceil_mode=True, count_include_pad=True),
        Code.UNSUPPORTED_ATTRIBUTE,
        "count_include_pad with ceil_mode",
    ),
    (
        apply("nn.max_pool", IMAGE, **(POOL | {"padding": ((2, 2), (2, 2))})),
        Code.UNSUPPORTED_ATTRIBUTE,
        "reaches as far as the kernel (2, 2)",
    ),
    (apply("log", IMAGE), Code.UNSUPPORTED_OP, "gives finite numbers where the logarithm"),
    (apply("max", IMAGE, axes=(1,)), Code.UNSUPPORTED_OP, "max of infinities is a finite number"),
    (
        apply("nn.depth_to_space", var("x", 1, 4, 2, 3), block=2, mode="CRD"),
        Code.UNSUPPORTED_ATTRIBUTE,
        "mode CRD",
    ),
    (
        apply("nn.space_to_depth", IMAGE, block=1),
        Code.UNSUPPORTED_ATTRIBUTE,
        "blocks of 2 and more",
    ),
    (apply("power", IMAGE, var("e", 1)), Code.UNSUPPORTED_ATTRIBUTE, "the exponent is not 2"),
    (apply("nn.softmax", IMAGE, axis=1), Code.UNSUPPORTED_ATTRIBUTE, "axis 1 is not the innermost"),
    (apply("nn.lrn", IMAGE, size=2), Code.UNSUPPORTED_ATTRIBUTE, "size 2 is even"),
    (apply("sum", IMAGE, axes=()), Code.UNSUPPORTED_ATTRIBUTE, "nothing is reduced"),
    (
        apply("matmul", var("a", 1, 3, 4), var("b", 2, 4, 5)),
        Code.UNSUPPORTED_SHAPE,
        "batches [1] and [2] differ",
    ),
    (
        apply("nn.pad", IMAGE, widths=((0, 0),) * 3 + ((1, 1),), mode="edge"),
        Code.UNSUPPORTED_ATTRIBUTE,
        "mode edge, only constant is taken",
    ),
    (resize((1, 4, 16, 16), mode="cubic"), Code.UNSUPPORTED_ATTRIBUTE, "mode cubic"),
    (
        resize((1, 4, 9, 16), mode="nearest", coordinate_mode="asymmetric", nearest_mode="floor"),
        Code.UNSUPPORTED_ATTRIBUTE,
        "nearest, asymmetric, floor from [1, 4, 8, 8] to [1, 4, 9, 16]",
    ),
]


@pytest.mark.parametrize(("body", "code", "words"), REFUSALS, ids=[r[2] for r in REFUSALS])
def test_refuses_with_a_code_and_words(body: Expr, code: Code, words: str) -> None:
    (verdict,) = verdicts(body).values()
    assert verdict.code is code
    assert words in verdict.detail
    assert verdict.detail


def test_the_readme_shows_the_table() -> None:
    assert TABLE.markdown() in README.read_text()


def test_rows_have_names_of_their_own() -> None:
    names = [row.name for row in TABLE.rows]
    assert len(names) == len(set(names))


def test_the_alias_is_the_composite() -> None:
    host = Host()
    assert host.target("acl") == host.target("arm_acl, llvm -mtriple=aarch64-linux-gnu")


def test_a_region_is_one_unit() -> None:
    x = apply("nn.relu", conv())
    x = apply("nn.relu", apply("nn.max_pool", apply("add", x, IMAGE), **POOL))
    source = write_region(region_of(function_of(x)))
    assert [step.function for step in source.draft.steps] == [
        "NEConvolutionLayer",
        "NEArithmeticAddition",
        "NEPoolingLayer",
        "NEActivationLayer",
    ]
    assert source.text.count("struct Region") == 1
    # What lies between functions is in the memory group; the result is the caller's.
    assert source.text.count("group.manage(") == len(source.draft.steps) - 1
    assert "ActivationFunction::RELU)" in source.text.split("f0.configure")[1].split(";")[0]


def test_an_unknown_row_is_the_plugins_error() -> None:
    function = function_of(apply("nn.relu", IMAGE))
    with pytest.raises(PluginError, match=r"has a nn\.relu that no row"):
        write_region(Region("arm_acl_0", "arm_acl", function, {}, ()))


def test_results_that_are_inputs_or_constants_are_copied() -> None:
    x = var("x", 2, 3)
    same = apply("reshape", x, shape=(2, 3))
    function = function_of(apply("nn.relu", x), same, same)
    source = write_region(region_of(function))
    assert [step.function for step in source.draft.steps].count("NEReshapeLayer") == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.10000000149011612f"),
        (1e30, "1.0000000150474662e+30f"),
        (-2, "-2.0f"),
        (1e300, "std::numeric_limits<float>::infinity()"),
        (-np.inf, "-std::numeric_limits<float>::infinity()"),
    ],
)
def test_numbers_in_cpp(value: float, text: str) -> None:
    assert real(value) == text


def test_says_what_of_the_toolchain_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"no C\+\+ compiler for AArch64: no-such-compiler"):
        find_toolchain(compiler="no-such-compiler")
    with pytest.raises(ToolchainError, match="no headers of Arm Compute Library below"):
        find_toolchain(str(tmp_path), "true")
    header = tmp_path / "include" / "arm_compute" / "core" / "Types.h"
    header.parent.mkdir(parents=True)
    header.touch()
    with pytest.raises(ToolchainError, match=r"no libarm_compute\.so below"):
        find_toolchain(str(tmp_path), "true")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libarm_compute.so").touch()
    tools = find_toolchain(str(tmp_path), "true")
    assert (tools.include, tools.libraries) == (tmp_path / "include", tmp_path / "lib")
    assert tools.version == "unversioned"


def test_a_compiler_that_fails_is_quoted(tmp_path: Path) -> None:
    compiler = tmp_path / "failing"
    compiler.write_text("#!/bin/sh\necho 'unit.cpp:1: error: nonsense' >&2\nexit 3\n")
    compiler.chmod(0o755)
    tools = Toolchain(str(compiler), tmp_path, tmp_path, "0")
    with pytest.raises(ToolchainError, match=r"failed \(status 3\): unit.cpp:1: error: nonsense"):
        compile_unit("", tools, opt_level=0, seconds=60, validate=nothing)
    gone = Toolchain(str(tmp_path / "gone"), tmp_path, tmp_path, "0")
    with pytest.raises(ToolchainError, match="did not run"):
        compile_unit("", gone, opt_level=0, seconds=60, validate=nothing)


def nothing(_folder: Path, _library: str) -> None:
    """Validate nothing."""


def test_a_compiler_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    compiler = tmp_path / "sleeping"
    compiler.write_text("#!/bin/sh\nexec sleep 60\n")
    compiler.chmod(0o755)
    options = ArmAclOptions(compiler=str(compiler), compile_timeout=1)
    if missing():
        pytest.skip(missing())
    with pytest.raises(ResourceError, match="takes longer than 1 s") as caught:
        compile_region(region_of(function_of(apply("nn.relu", IMAGE))), options)
    assert "-compile-timeout" in (caught.value.hint or "")


def test_what_the_library_refuses_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function with an activation that it cannot end in, as a wrong support table would write."""
    if missing():
        pytest.skip(missing())
    relu = "ActivationLayerInfo(ActivationLayerInfo::ActivationFunction::RELU)"
    wrong = ("NEArithmeticAddition", ("ConvertPolicy::SATURATE", relu))
    monkeypatch.setitem(elementwise._BINARY, "add", wrong)
    region = region_of(function_of(apply("add", IMAGE, IMAGE)))
    with pytest.raises(PluginError, match="refuses what was compiled for it: NEArithmeticAddition"):
        compile_region(region, ArmAclOptions())


def test_without_an_emulator_the_table_alone_decides(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(validate.platform, "machine", lambda: "x86_64")
    monkeypatch.setenv("PATH", str(tmp_path))
    tools = Toolchain("true", tmp_path, tmp_path, "0")
    assert validate.emulator() is None
    assert not validate.validate_unit(tmp_path, "lib.so", "region", tools)


def test_what_is_refused_is_never_lowered() -> None:
    (row,) = (row for row in TABLE.rows if row.name == "log")
    body = apply("log", IMAGE)
    match = match_pattern(row.pattern, body, count_uses((body,)))
    assert match is not None
    with pytest.raises(PluginError, match="finite numbers"):
        row.lower(AclDraft("region"), match)


def test_the_probe_says_what_is_there() -> None:
    host = Host()
    answer = host.call("probe", kind="arm_acl", target=host.target("acl").accelerators[0])
    assert isinstance(answer, Probe)
    assert answer.usable is (not missing()) or "qemu" in missing()
