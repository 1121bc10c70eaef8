# SPDX-License-Identifier: Apache-2.0
"""Regions of open sizes: primitives for each size met, kept for the next run; clear refusals."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import json
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import intarsia
from intarsia_dnnl.codegen import compile_region
from intarsia_dnnl.loader import load as load_region
from intarsia_dnnl.open_region import OpenRegion
from intarsia_dnnl.profitable import Strengths, keep_profitable
from intarsia_dnnl.program import (
    FILE,
    OPEN_SCHEMA,
    PrimitiveProgram,
    RegionSizes,
    parse_program,
    print_program,
)
from intarsia_dnnl.specialize import Specializer, without_empty
from intarsia_dnnl.target import DnnlOptions
from intarsia_ir.graph.expr import Call, Expr, Function, Var, make_tuple
from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.graph.typical import typical_values
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.partition.cost import Plan
from intarsia_runtime.artifact.plan import TensorSpec
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError, PluginError, UnsupportedError
from intarsia_runtime.executors.open import OpenExecutor
from intarsia_runtime.load import load
from intarsia_runtime.loading import LoadRequest, NativeCall
from intarsia_runtime.size import Size
from intarsia_testkit.expressions import apply, fresh, function_of, weight

from .regions import region_of

N, S, H, W = (variable(name) for name in "NSHW")
TOKENS = [(1, 1), (2, 3), (1, 16), (3, 37), (2, 3), (1, 130)]
PICTURES = [(1, 8, 8), (2, 9, 13), (1, 31, 7), (3, 16, 16), (2, 9, 13), (1, 1, 1)]
WINDOW = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}


def x(name: str, *shape: Size) -> Var:
    return Var(name, TensorType(shape, DType.FLOAT32))


def attention() -> Function:
    tokens = x("tokens", N, S, 32)
    q, k, v = (apply("matmul", tokens, weight(32, 32)) for _ in range(3))
    scores = apply("nn.softmax", apply("matmul", q, k, transpose_b=True), axis=2)
    summed = apply("add", tokens, apply("matmul", scores, v))
    normed = apply("nn.layer_norm", summed, weight(32), weight(32), axis=2)
    grown = apply("nn.gelu", apply("add", apply("matmul", normed, weight(32, 70)), weight(70)))
    result = apply("add", apply("matmul", grown, weight(70, 32)), normed)
    pooled = apply("mean", result, axes=(1,))
    cut = apply("strided_slice", result, begin=(0, 1, 0), end=(N, S, 32), strides=(1, 1, 1))
    return Function((tokens,), make_tuple((result, pooled, cut)), ("result", "pooled", "cut"))


def convolution(data: Expr, outputs: int, *, stride: int = 1) -> Call:
    channels = data.type.shape[1]  # type: ignore[union-attr]
    window = {**WINDOW, "strides": (stride, stride)}
    return apply("nn.conv", data, weight(outputs, channels, 3, 3), weight(outputs), **window)


def picture_net() -> Function:
    """Convolutions, pools by windows and over everything, and a concatenation."""
    image = x("image", N, 3, H, W)
    first = apply("nn.relu", convolution(image, 8))
    half = apply("nn.max_pool", first, kernel=(2, 2), **{**WINDOW, "strides": (2, 2)})
    less = apply("nn.relu", convolution(half, 12, stride=2))
    pooled = apply("mean", less, axes=(2, 3))
    both = apply("concatenate", first, image, axis=1)
    body = make_tuple((apply("matmul", pooled, weight(12, 5)), both))
    return Function((image,), body, ("classes", "both"))


def built(function: Function, folder: Path) -> Path:
    path = folder / "model.intarsia"
    module = IRModule.from_function(function)
    made = intarsia.build(module, "dnnl, llvm", plan=Plan.GREEDY)
    assert made.placement.regions
    made.save(path)
    return path


def regions_in(executable: object) -> list[OpenRegion]:
    assert isinstance(executable, OpenExecutor)
    found = [region.keep_alive for region in executable._program.regions]
    return [region for region in found if isinstance(region, OpenRegion)]


def check(executable: object, function: Function, given: np.ndarray) -> None:
    assert isinstance(executable, OpenExecutor)
    got = executable.run([given])
    want = evaluate(function, {function.params[0].name: given})
    for mine, theirs in zip(got.values(), want, strict=True):
        scale = float(np.abs(theirs).max(initial=1.0))
        np.testing.assert_allclose(mine, theirs, rtol=3e-4, atol=1e-5 * scale)


@pytest.fixture(scope="module")
def tokens_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(attention(), tmp_path_factory.mktemp("tokens"))


def given_tokens(size: tuple[int, int]) -> np.ndarray:
    return fresh(*size, 32, seed=sum(size))


def test_products_run_at_every_size(tokens_model: Path) -> None:
    with load(tokens_model, threads=1) as executable:
        regions = regions_in(executable)
        assert regions
        for size in TOKENS:
            for _ in range(2):  # the second finds what the first left in the workspace
                check(executable, attention(), given_tokens(size))
        assert [region.built for region in regions] == [len(set(TOKENS))] * len(regions)


@pytest.mark.parametrize("threads", [1, 2])
def test_convolutions_run_at_every_size(tmp_path: Path, threads: int) -> None:
    with load(built(picture_net(), tmp_path), threads=threads) as executable:
        for n, h, w in PICTURES:
            check(executable, picture_net(), fresh(n, 3, h, w, seed=h))


def test_the_walk_of_a_plan_gives_the_same(tokens_model: Path) -> None:
    with load(tokens_model, threads=1) as executable:
        assert isinstance(executable, OpenExecutor)
        given = given_tokens((2, 5))
        seen: list[str] = []
        walked = executable.walk_regions([given], lambda name, *_: seen.append(name))
        for name, array in executable.run([given]).items():
            np.testing.assert_array_equal(walked[name], array)
        assert seen == [region.name for region in executable.passport.units[1:]]
        rows = executable.profile([given])
        assert any(row.label.startswith("dnnl:") for row in rows)


def test_weights_are_reordered_once_for_each_layout(tokens_model: Path) -> None:
    with load(tokens_model, threads=1) as executable:
        for size in ((1, 64), (1, 63), (1, 62)):
            check(executable, attention(), given_tokens(size))
        before = [region.reordered_bytes for region in regions_in(executable)]
        for size in ((1, 61), (1, 60), (1, 59)):
            check(executable, attention(), given_tokens(size))
        assert [region.reordered_bytes for region in regions_in(executable)] == before


def test_only_the_last_sizes_are_kept(tokens_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenRegion.__init__, "__defaults__", (2,))
    with load(tokens_model, threads=1) as executable:
        regions = regions_in(executable)
        built_before: list[int] = []
        for size in ((1, 4), (1, 5), (1, 4), (1, 6), (1, 4), (1, 5)):
            check(executable, attention(), given_tokens(size))
            built_before.append(regions[0].built)
            assert regions[0].tables.count <= 2
        # 6 takes the place of 5, which was not used for longest; 5 then that of 6.
        assert built_before == [1, 2, 2, 3, 3, 4]


def test_nothing_is_left_behind(tokens_model: Path) -> None:
    executable = load(tokens_model, threads=1)
    check(executable, attention(), given_tokens((1, 4)))
    references = [weakref.ref(region) for region in regions_in(executable)]
    executable.close()
    del executable
    gc.collect()
    assert all(reference() is None for reference in references)


# One region, alone ------------------------------------------------------------------------------


def rows_function() -> Function:
    rows = x("x", N, 16)
    return Function((rows,), apply("nn.relu", apply("matmul", rows, weight(16, 24))))


def request_of(function: Function, *, open_steps: int = 1, **changes: object) -> LoadRequest:
    region = region_of(function)
    unit = compile_region(region, DnnlOptions())
    assert unit.format == OPEN_SCHEMA
    rows: list[tuple[TensorSpec, ...]] = []
    for values in (function.params, function.outputs):
        kinds = [value.type for value in values]
        assert all(isinstance(kind, TensorType) for kind in kinds)
        rows.append(tuple(TensorSpec("t", kind.shape, kind.dtype) for kind in kinds))  # type: ignore[union-attr,arg-type]
    fields = {"sizes": region.sizes, "run_open_steps": open_steps, **changes}
    return LoadRequest(unit.name, unit.files, unit.constants, *rows, 1, 1, **fields)  # type: ignore[arg-type]


def program_of(request: LoadRequest) -> PrimitiveProgram:
    return parse_program(request.files[FILE])


def test_a_region_is_native() -> None:
    request = request_of(rows_function(), open_steps=1234)
    call = load_region(request)
    assert isinstance(call, NativeCall)
    assert call.function == 1234
    region = call.keep_alive
    assert isinstance(region, OpenRegion)
    assert call.handle == ctypes.addressof(region.tables)
    assert (region.tables.tensors, region.tables.sizes, region.tables.count) == (2, 1, 0)
    assert region.describe_failure() == ""


def added(region: OpenRegion, *sizes: int) -> int:
    """Have a region add a table, called as native code does: tensors, then sizes."""
    tensors = int(region.tables.tensors)
    words = (ctypes.c_int64 * (2 * (tensors + len(sizes))))()
    for number, size in enumerate(sizes, start=tensors):
        words[2 * number], words[2 * number + 1] = 1, size
    return region.add(ctypes.addressof(words), tensors + len(sizes))


def test_sizes_that_cannot_be_are_told() -> None:
    request = request_of(rows_function())
    region = OpenRegion(program_of(request), request)
    assert added(region, 3) == 0
    assert added(region, -1) == -1
    assert "a size of [-1, 16] is negative" in region.describe_failure()
    assert added(region, 1 << 62) == -1
    assert "oneDNN builds no primitives for these sizes" in region.describe_failure()
    assert region.describe_failure() == ""  # told once


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_what_is_no_fault_of_the_sizes_is_raised(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_of(rows_function())
    region = OpenRegion(program_of(request), request)

    def fails(*_: object) -> int:
        raise error

    monkeypatch.setattr(region, "_added", fails)
    assert added(region, 3) == -1
    with pytest.raises(error):
        region.describe_failure()


def test_a_failure_reaches_the_user(tokens_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> PrimitiveProgram:
        raise UnsupportedError("no kernel")

    with load(tokens_model, threads=1) as executable:
        check(executable, attention(), given_tokens((1, 4)))
        monkeypatch.setattr(Specializer, "at", fails)
        with pytest.raises(PluginError, match=r"builds no primitives for these sizes: no kernel"):
            executable.run([given_tokens((1, 5))])
        check(executable, attention(), given_tokens((1, 4)))  # known sizes still run


def test_a_region_that_is_called_with_other_sizes_is_refused() -> None:
    with pytest.raises(ArtifactError, match=r"takes the sizes \['N'\] and is called with \['M'\]"):
        load_region(request_of(rows_function(), sizes=("M",)))
    with pytest.raises(ArtifactError, match="open sizes, which the code of the model does not"):
        load_region(request_of(rows_function(), open_steps=0))
    request = request_of(rows_function())
    other = TensorSpec("t", (variable("M"), 16), DType.FLOAT32)  # type: ignore[arg-type]
    with pytest.raises(ArtifactError, match="was compiled for the inputs"):
        load_region(dataclasses.replace(request, inputs=(other,)))


def damaged() -> Iterator[tuple[RegionSizes, str]]:
    yield RegionSizes(("N",), {0: ("N", 16, 1)}, {}), "value 0 has another rank"
    yield RegionSizes(("N",), {99: ("N", 16)}, {}), "value 99 has another rank"
    yield RegionSizes(("N",), {}, {0: {"begin": ("N",)}}), "node 0 has no such attributes: begin"
    yield RegionSizes(("N",), {}, {9: {}}), "node 9 has no such attributes"
    yield RegionSizes(("M",), {0: ("N", 16)}, {}), "nothing says what size N is"
    yield RegionSizes(("N",), {0: ("N +", 16)}, {}), "'N \\+' is no size"


@pytest.mark.parametrize(("sizes", "words"), list(damaged()))
def test_a_damaged_unit_is_refused(sizes: RegionSizes, words: str) -> None:
    request = request_of(rows_function())
    body = json.loads(request.files[FILE])
    body["open"] = {
        "variables": sizes.variables,
        "shapes": {str(value): shape for value, shape in sizes.shapes.items()},
        "attrs": {str(number): dict(attrs) for number, attrs in sizes.attrs.items()},
    }
    files = {FILE: json.dumps(body).encode()}
    with pytest.raises(ArtifactError, match=words):
        load_region(dataclasses.replace(request, files=files))


def test_constants_have_no_open_size() -> None:
    program = program_of(request_of(rows_function()))
    assert program.open is not None
    (constant,) = program.constants
    shapes = {**program.open.shapes, constant: ("N", 24)}
    wrong = replace(program, open=replace(program.open, shapes=shapes))
    with pytest.raises(ArtifactError, match="is a constant and has an open size"):
        parse_program(print_program(wrong))


def test_a_program_has_typical_numbers_and_its_expressions() -> None:
    program = program_of(request_of(rows_function()))
    assert program.open is not None
    assert program.open.variables == ("N",)
    assert program.shapes[program.inputs[0]] == (64, 16)
    closed = Specializer(program).at([7])
    assert closed.shapes[program.inputs[0]] == (7, 16)
    assert closed.shapes[program.outputs[0]] == (7, 24)


def test_typical_sizes_need_not_be_possible() -> None:
    """A guard asks for twice as many columns as rows, which typical sizes do not have."""
    rows = x("rows", N, S)
    with collecting_guards():
        flat = apply("reshape", rows, shape=(2 * N, N))
        turned = apply("transpose", rows, axes=(1, 0))
        both = make_tuple((apply("nn.relu", flat), apply("matmul", turned, rows)))
        request = request_of(Function((rows,), both))
    region = load_region(request)
    assert isinstance(region, NativeCall)
    assert isinstance(region.keep_alive, OpenRegion)
    assert added(region.keep_alive, 3, 6) == 0
    assert added(region.keep_alive, 3, 7) == -1  # native code checks the guard before it asks
    assert "reshape" in region.keep_alive.describe_failure()


def test_one_token_attends_to_itself(tmp_path: Path) -> None:
    """The step from row to row of a product that heads read lies anywhere if there is one row."""
    tokens = x("tokens", N, S, 32)
    product = apply("add", weight(96), apply("matmul", tokens, weight(32, 96)))
    heads = apply(
        "transpose", apply("reshape", product, shape=(N, S, 3, 2, 16)), axes=(2, 0, 3, 1, 4)
    )
    q, k, v = (
        apply(
            "reshape",
            apply(
                "strided_slice",
                heads,
                begin=(number, 0, 0, 0, 0),
                end=(number + 1, N, 2, S, 16),
                strides=(1, 1, 1, 1, 1),
            ),
            shape=(N, 2, S, 16),
        )
        for number in range(3)
    )
    scores = apply("nn.softmax", apply("matmul", q, k, transpose_b=True), axis=3)
    mixed = apply("transpose", apply("matmul", scores, v), axes=(0, 2, 1, 3))
    function = Function((tokens,), apply("reshape", mixed, shape=(N, S, 32)))
    with load(built(function, tmp_path), threads=1) as executable:
        for size in ((1, 1), (2, 1), (1, 5)):
            check(executable, function, given_tokens(size))


def test_a_softmax_over_no_elements_has_no_maxima() -> None:
    scores = x("x", 3, N)
    function = Function((scores,), apply("nn.softmax", scores, axis=1))
    program = program_of(request_of(function))
    assert without_empty(Specializer(program).at([0])).nodes == ()


def test_empty_tensors_are_left_out() -> None:
    one, two = x("one", N, 4), x("two", S, 4)
    function = Function((one, two), apply("nn.relu", apply("concatenate", one, two, axis=0)))
    program = program_of(request_of(function))
    specializer = Specializer(program)
    (concat,) = [n for n in without_empty(specializer.at([0, 3])).nodes if n.kind == "concat"]
    assert len(concat.args) == 1
    assert without_empty(specializer.at([0, 0])).nodes == ()
    image = x("image", N, 3, H, 8)
    window = {**WINDOW, "kernel": (3, 3), "padding": ((2, 2), (1, 1))}
    around = Function((image,), apply("nn.max_pool", image, **window))
    specializer = Specializer(program_of(request_of(around)))
    none = [2 if name == "N" else 0 for name in specializer.variables]
    with pytest.raises(UnsupportedError, match="does not reduce an axis without elements"):
        without_empty(specializer.at(none))


@pytest.mark.parametrize("padding", [(2, 2), (3, 0), (0, 4)])
def test_a_convolution_of_an_empty_image_sees_its_padding(
    padding: tuple[int, int], tmp_path: Path
) -> None:
    image, bias = x("image", N, 3, H, S), weight(4, 1, 1)
    window = {**WINDOW, "padding": (padding, (1, 1))}
    body = apply(
        "nn.relu", apply("add", apply("nn.conv", image, weight(4, 3, 3, 3), **window), bias)
    )
    function = Function((image,), body)
    with load(built(function, tmp_path), threads=1) as executable:
        for size in ((2, 3, 0, 5), (2, 3, 4, 5), (0, 3, 0, 5)):
            given = {"image": fresh(*size)}
            (got,), want = executable.run(given).values(), evaluate(function, given)
            assert got.shape == want[0].shape
            np.testing.assert_allclose(got, want[0], rtol=1e-5, atol=1e-5)
        assert regions_in(executable)


def product(data: Var) -> Function:
    weights = x("weights", S, 5)
    body = apply("nn.relu", apply("add", apply("matmul", data, weights), weight(5)))
    return Function((data, weights), body)


def pooled(data: Var) -> Function:
    picture = apply("reshape", data, shape=(N, 1, S, 1))
    return Function((data,), apply("mean", picture, axes=(2, 3)))


@pytest.mark.parametrize(
    "function",
    [
        product(x("data", N, S)),
        function_of(apply("exp", apply("sum", x("data", N, S), axes=(1,)))),
        function_of(
            apply("add", apply("prod", x("data", N, S), axes=(1,), keepdims=True), weight(1))
        ),
        function_of(apply("mean", x("data", N, S), axes=(1,))),
        pooled(x("data", N, S)),
    ],
    ids=["product", "sum", "of factors", "mean", "pool"],
)
@pytest.mark.filterwarnings("ignore:(Mean of empty slice|invalid value)")
def test_a_reduction_of_no_elements_is_that_of_a_neutral_one(
    function: Function, tmp_path: Path
) -> None:
    with load(built(function, tmp_path), threads=1) as executable:
        for size in ((3, 0), (3, 2), (0, 0)):
            given = {"data": fresh(*size), "weights": fresh(size[1], 5)}
            given = {param.name: given[param.name] for param in function.params}
            (got,), want = executable.run(given).values(), evaluate(function, given)
            np.testing.assert_allclose(got, want[0], rtol=1e-5, atol=1e-6)
        assert regions_in(executable)


def test_a_reduction_of_single_elements_is_a_copy() -> None:
    param = x("x", N, 4)
    summed = Function((param,), apply("sum", param, axes=(0,), keepdims=True))
    program = program_of(request_of(summed))
    kinds = [node.kind for node in without_empty(Specializer(program).at([1])).nodes]
    assert "reduction" not in kinds
    assert "reduction" in [node.kind for node in Specializer(program).at([2]).nodes]


# What is worth a region -------------------------------------------------------------------------


def image_of(channels: int) -> Var:
    return x("image", N, channels, H, W)


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (apply("matmul", x("x", N, S, 384), weight(384, 384)), False),
        (apply("matmul", x("x", N, S, 1024), weight(1024, 1024)), True),
        (convolution(image_of(32), 32), True),
        (
            apply("matmul", Var("x", TensorType((1, 64, 384), DType.FLOAT32)), weight(384, 384)),
            True,
        ),
    ],
    ids=["small product", "large product", "window", "small product of fixed size"],
)
def test_products_of_open_sizes_have_to_be_large(body: Call, kept: bool) -> None:
    function = function_of(body)
    region = region_of(function)
    region = dataclasses.replace(
        region,
        origins={call: call for call in region.calls()},
        typical=typical_values(function.params),
    )
    made = keep_profitable(region, DnnlOptions(min_reuse=0), Strengths())
    assert bool(made.origins) == kept, made.why
