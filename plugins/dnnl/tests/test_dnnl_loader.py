# SPDX-License-Identifier: Apache-2.0
"""Loading: native tables, damaged units, missing libraries, threads."""

from __future__ import annotations

import ctypes.util
import dataclasses
import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from intarsia_dnnl import sdk
from intarsia_dnnl.arena import Lifetime, Pool, plan_arena
from intarsia_dnnl.codegen import compile_region
from intarsia_dnnl.loader import load
from intarsia_dnnl.profitable import count_flops
from intarsia_dnnl.program import FILE, PrimitiveNode, parse_program, print_program
from intarsia_dnnl.region import LoadedPrimitives
from intarsia_dnnl.sdk import Dnnl
from intarsia_dnnl.steps import PlannedStep
from intarsia_dnnl.target import DnnlOptions
from intarsia_ir.graph.expr import Call
from intarsia_runtime.artifact.plan import TensorSpec
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError, PluginError, ResourceError, UnsupportedError
from intarsia_runtime.loading import NativeCall
from intarsia_testkit.expressions import apply, expected, fresh, function_of, var, weight

from .regions import make, region_of, request_for


def small_network() -> Call:
    x = var("x", 1, 4, 8, 8)
    attrs = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    x = apply("nn.relu", apply("nn.conv", x, weight(8, 4, 3, 3), weight(8), **attrs))
    return apply("nn.softmax", apply("reshape", x, shape=(8, 64)), axis=1)


def test_runs_natively(walker: Callable[[int, list[np.ndarray]], int]) -> None:
    function = function_of(small_network())
    unit = compile_region(region_of(function), DnnlOptions())
    call = load(request_for(function, unit, run_steps=1))
    assert isinstance(call, NativeCall)
    for seed in range(3):  # other arrays at other addresses each time
        arrays = [fresh(1, 4, 8, 8, seed=seed)]
        result = np.empty((8, 64), np.float32)
        assert walker(call.handle, [*arrays, result]) == 0
        np.testing.assert_allclose(result, expected(function, arrays)[0], rtol=1e-4, atol=1e-6)


def test_a_failing_step_is_named() -> None:
    made = make(small_network())
    region = made.region
    region.table.failed_step = region.table.steps_count - 1
    region.table.status = 5
    said = region.describe_failure()
    assert said.startswith("oneDNN failed in ")
    assert said.endswith("runtime error")
    assert region.describe_failure() == ""  # told once: another region may be the next to fail
    region.table.failed_step = 0
    region.table.status = 77
    assert region.describe_failure() == "oneDNN failed in an argument: status 77"


def test_a_failing_step_raises_when_run_from_python() -> None:
    made = make(small_network())
    # An execution without its arguments is refused by the library.
    steps = made.region.table.steps_count
    last = (PlannedStep * steps).from_address(made.region.table.steps)[steps - 1]
    last.c, last.a = 0, None
    with pytest.raises(PluginError, match="oneDNN failed in"):
        made.outputs([fresh(1, 4, 8, 8)])


def test_equal_regions_give_equal_bytes() -> None:
    units = [
        compile_region(region_of(function_of(small_network())), DnnlOptions()) for _ in range(2)
    ]
    assert units[0].files == units[1].files
    assert list(units[0].constants) == list(units[1].constants)
    program = parse_program(units[0].files[FILE])
    assert print_program(program) == units[0].files[FILE]


def test_options_reach_the_program() -> None:
    options = DnnlOptions(num_threads=3, fpmath_mode="bf16", library="/x/libdnnl.so.3")
    unit = compile_region(region_of(function_of(small_network())), options)
    program = parse_program(unit.files[FILE])
    assert (program.threads, program.fpmath_mode) == (3, "bf16")
    assert program.library == "/x/libdnnl.so.3"


def test_reduced_precision_is_only_on_request() -> None:
    body = apply("matmul", var("x", 64, 256), weight(256, 64))
    strict, loose = make(body), make(body, fpmath_mode="bf16")
    data = [fresh(64, 256)]
    right = expected(strict.function, data)[0]
    assert np.abs(strict.outputs(data)[0] - right).max() < 1e-4
    assert np.abs(loose.outputs(data)[0] - right).max() < 0.5


@pytest.mark.parametrize("threads", [1, 2])
def test_thread_count(threads: int) -> None:
    made = make(small_network(), threads=threads)
    data = [fresh(1, 4, 8, 8)]
    found = made.outputs(data)[0]
    np.testing.assert_allclose(found, expected(made.function, data)[0], rtol=1e-4, atol=1e-6)


def test_regions_come_and_go() -> None:
    for _ in range(20):
        make(small_network())
    gc.collect()
    made = make(small_network())
    made.region.close()
    made.region.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"files": {}}, "has no region.json"),
        ({"files": {FILE: b"{"}}, "region.json is damaged"),
        ({"files": {FILE: b"[]"}}, "region.json is damaged"),
        ({"files": {FILE: b'{"schema": 99}'}}, "has schema 99, this plugin reads schema 3"),
        ({"constants": {}}, "the constant 'dnnl_0.0' is missing"),
        ({"constants": {"dnnl_0.0": np.zeros(3, np.float32)}}, r"is float32\[3\], not"),
        ({"inputs": (TensorSpec("x", (1, 4, 9, 9), DType.FLOAT32),)}, "was compiled for"),
    ],
    ids=str,
)
def test_damaged_units(change: dict[str, object], message: str) -> None:
    function = function_of(small_network())
    unit = compile_region(region_of(function), DnnlOptions())
    request = request_for(function, unit)
    with pytest.raises(ArtifactError, match=message):
        load(dataclasses.replace(request, **change))


def _with_nodes(*nodes: PrimitiveNode) -> LoadedPrimitives:
    function = function_of(apply("nn.relu", var("x", 2, 3)))
    unit = compile_region(region_of(function), DnnlOptions())
    request = request_for(function, unit)
    return LoadedPrimitives(replace(parse_program(unit.files[FILE]), nodes=nodes), request)


def test_unknown_nodes_are_refused() -> None:
    with pytest.raises(ArtifactError, match="uses 'teleport', which this plugin does not know"):
        _with_nodes(PrimitiveNode("teleport", (0,), 1))
    with pytest.raises(ArtifactError, match="a malformed slice"):
        _with_nodes(PrimitiveNode("slice", (0,), 1, {"begin": (5, 5)}))
    function = function_of(apply("reshape", var("x", 2, 3), shape=(6,)))
    unit = compile_region(region_of(function), DnnlOptions())
    program = parse_program(unit.files[FILE])
    wrong = replace(
        program, shapes=((2, 3), (6,), (7,)), nodes=(PrimitiveNode("reshape", (0,), 2),)
    )
    with pytest.raises(ArtifactError, match="a malformed reshape"):
        LoadedPrimitives(wrong, request_for(function, unit))


def test_what_the_library_lacks_is_named() -> None:
    attrs = {"algorithm": "max", "kernel": (9,), "strides": (1,), "dilation": (1,)}
    with pytest.raises(UnsupportedError, match=r"oneDNN 3\.\d+\.\d+ has no kernel for pool"):
        _with_nodes(
            PrimitiveNode("pool", (0,), 1, {**attrs, "padding_low": (0,), "padding_high": (0,)})
        )


def test_what_this_machine_lacks_is_no_fault_of_the_plugin(monkeypatch) -> None:
    function = function_of(apply("nn.relu", var("x", 2, 3)))
    unit = compile_region(region_of(function), DnnlOptions(library="/nowhere/libdnnl.so.3"))
    with pytest.raises(ArtifactError, match="no oneDNN library at '/nowhere/libdnn") as raised:
        load(request_for(function, unit))
    assert raised.value.exit_code == 7
    assert "compile again without" in raised.value.hint
    unit = compile_region(region_of(function), DnnlOptions())
    monkeypatch.setattr(sdk.Dnnl, "try_make", without_descriptors(sdk.Dnnl.try_make))
    with pytest.raises(
        ArtifactError, match=r"has no kernel for eltwise .* on this machine"
    ) as none:
        load(request_for(function, unit))
    assert none.value.exit_code == 7
    assert "compile the model again on this machine" in none.value.hint


def without_descriptors(try_make):
    """A library that has no kernels; what it makes of layouts and engines stays."""
    return lambda self, name, *given: (
        None if name.endswith("primitive_desc_create") else try_make(self, name, *given)
    )


def test_a_library_given_by_a_wrong_path() -> None:
    with pytest.raises(
        PluginError, match=r"there is no oneDNN library at '/nowhere/libdnnl\.so\.3'"
    ):
        Dnnl("/nowhere/libdnnl.so.3")


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    file = tmp_path / "libdnnl.so.3"
    file.write_bytes(b"not an ELF file")
    with pytest.raises(PluginError, match=r"does not load as oneDNN"):
        Dnnl(str(file))


def test_a_library_that_is_not_onednn() -> None:
    file = subprocess.run(
        ["cc", "-print-file-name=libm.so.6"], capture_output=True, text=True, check=True
    ).stdout.strip()
    with pytest.raises(PluginError, match=r"does not load as oneDNN"):
        Dnnl(file)


def test_a_library_of_another_major_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "_version", lambda _library: (2, 6, 3))
    with pytest.raises(PluginError, match=r"is oneDNN 2\.6\.3") as raised:
        Dnnl()
    assert "oneDNN >= 3.0, < 4" in raised.value.hint


OLD = """
static int version[8] = {2, 6, 3};
void *dnnl_version(void) { return version; }
"""


@pytest.mark.parametrize("prepack", [True, False])
def test_compiling_refuses_the_library_that_running_refuses(tmp_path: Path, prepack: bool) -> None:
    source, file = tmp_path / "old.c", tmp_path / "libdnnl.so.2"
    source.write_text(OLD)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(file), str(source)], check=True)
    region = region_of(function_of(apply("nn.relu", var("x", 2, 3))))
    with pytest.raises(PluginError, match=r"is oneDNN 2\.6\.3") as compiling:
        compile_region(region, DnnlOptions(library=str(file), prepack=prepack))
    with pytest.raises(PluginError) as running:
        Dnnl(str(file))
    assert (str(compiling.value), compiling.value.hint) == (
        str(running.value),
        running.value.hint,
    )


def test_a_library_of_the_machine_that_runs_is_not_looked_for_when_compiling() -> None:
    region = region_of(function_of(apply("nn.relu", var("x", 2, 3))))
    assert compile_region(region, DnnlOptions(library="/nowhere/libdnnl.so.3")).files


def test_no_library_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_name: str) -> str | None:
        return None

    monkeypatch.setattr(sdk, "DISTRIBUTION", "no-such-distribution")
    monkeypatch.setattr(ctypes.util, "find_library", nothing)
    with pytest.raises(PluginError, match=r"no oneDNN >= 3\.0, < 4 was found") as raised:
        Dnnl()
    assert "pip install" in raised.value.hint


def test_a_library_of_the_system_is_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    def somewhere(_name: str) -> str | None:
        return "libdnnl.so.3"

    monkeypatch.setattr(sdk, "DISTRIBUTION", "no-such-distribution")
    monkeypatch.setattr(ctypes.util, "find_library", somewhere)
    assert sdk.find_library() == Path("libdnnl.so.3")


def test_out_of_memory_is_a_resource_error(monkeypatch: pytest.MonkeyPatch) -> None:
    dnnl = Dnnl()

    def no_memory(*_args: object) -> int:
        return 1

    def broken(*_args: object) -> int:
        return 5

    monkeypatch.setitem(dnnl._functions, "post_ops_create", no_memory)
    with pytest.raises(ResourceError, match="ran out of memory in dnnl_post_ops_create"):
        dnnl.call("post_ops_create", None)
    with pytest.raises(ResourceError, match="ran out of memory in dnnl_post_ops_create"):
        dnnl.make("post_ops_create")
    monkeypatch.setitem(dnnl._functions, "post_ops_create", broken)
    with pytest.raises(sdk.ToolchainError, match="dnnl_post_ops_create: runtime error"):
        dnnl.make("post_ops_create")
    dnnl.close()


def test_refusals_of_the_library_become_errors() -> None:
    dnnl = Dnnl()
    with pytest.raises(sdk.ToolchainError, match="invalid arguments"):
        dnnl.call("primitive_attr_set_fpmath_mode", None, 0)
    with pytest.raises(sdk.ToolchainError, match="refused its arguments"):
        dnnl.strided((2, -3), (3, 1))
    dnnl.close()


def test_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    Dnnl().close()
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    Dnnl().close()
    assert os.environ["GOMP_SPINCOUNT"] == "7"


def test_the_loader_imports_no_compiler() -> None:
    code = """
        import sys
        import intarsia_dnnl.loader
        layers = ("ir", "tir", "ops", "passes", "partition", "target", "frontend", "host", "plugin")
        found = [name for name in sys.modules if name.startswith("intarsia.")
                 and name.split(".")[1] in layers]
        own = [name for name in sys.modules if name.startswith("intarsia_dnnl.")
               and name.split(".")[1] in ("plugin", "codegen", "support", "operators", "target")]
        print(found + own)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


def test_the_arena_shares_memory_over_time() -> None:
    lives = {1: Lifetime(100, 0, 1), 2: Lifetime(100, 1, 2), 3: Lifetime(64, 2, 3)}
    plan = plan_arena(lives)
    assert plan.bytes == 256
    assert plan.offsets[1] != plan.offsets[2] != plan.offsets[3]
    assert all(offset % 64 == 0 for offset in plan.offsets.values())
    gaps = {1: Lifetime(256, 0, 9), 2: Lifetime(64, 0, 0), 3: Lifetime(64, 1, 1)}
    assert plan_arena(gaps).bytes == 320


def test_the_pool_is_aligned_and_takes_what_is_larger_than_a_piece() -> None:
    pool = Pool()
    places = [pool.allocate(size) for size in (3, 100, 40 << 20, 5)]
    assert all(place % 64 == 0 for place in places)
    assert places[3] - places[1] == 128
    assert len(pool.blocks) == 2


def test_flops_count_no_elementwise_work() -> None:
    region = region_of(function_of(apply("nn.relu", var("x", 2, 3))))
    assert count_flops(region) == 0
    region = region_of(function_of(apply("matmul", var("x", 2, 3), weight(3, 5))))
    assert count_flops(region) == 2 * 2 * 3 * 5
    attrs = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    x, kernel = var("x", 1, 4, 5, 5), weight(4, 6, 3, 3)
    region = region_of(function_of(apply("nn.conv_transpose", x, kernel, **attrs)))
    assert count_flops(region) == 2 * 4 * 25 * 6 * 9
    region = region_of(function_of(apply("nn.softmax", x, axis=1)))
    assert count_flops(region) == 100


def test_a_region_with_a_foreign_call_is_refused() -> None:
    region = region_of(function_of(apply("nn.relu", var("x", 2, 3))))
    with pytest.raises(PluginError, match=r"has a nn\.relu that no row of the support table takes"):
        compile_region(dataclasses.replace(region, rows={}), DnnlOptions())
