# SPDX-License-Identifier: Apache-2.0
"""Weights stored in the library's layout: described in full, used in place, unpacked elsewhere."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import convert
from msgspec.structs import replace

from intarsia_dnnl.codegen import compile_region
from intarsia_dnnl.loader import load
from intarsia_dnnl.packed import PackedLayout, PackedWeight
from intarsia_dnnl.program import FILE, parse_program, print_program
from intarsia_dnnl.region import LoadedPrimitives
from intarsia_dnnl.target import DnnlOptions
from intarsia_ir.graph.expr import Call, Constant, Expr
from intarsia_ir.graph.walk import post_order, substitute
from intarsia_runtime.errors import ArtifactError
from intarsia_testkit.expressions import apply, expected, fresh, function_of, var, weight

from .regions import Made, check, lacks_avx512, make, region_of

needs_packed_products = pytest.mark.skipif(
    lacks_avx512(), reason="without AVX-512 the library reads a product's weights row by row"
)
ATTRS = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}


def convolution() -> Call:
    return apply("nn.conv", var("x", 1, 20, 9, 9), weight(24, 20, 3, 3), **ATTRS)


def product() -> Call:
    return apply("matmul", var("x", 64, 96), weight(96, 72))


def turned_product() -> Call:
    turned = apply("transpose", weight(72, 96), axes=(1, 0))
    return apply("matmul", var("x", 64, 96), turned)


def grouped() -> Call:
    kernel = weight(32, 8, 3, 3)
    return apply("nn.conv", var("x", 1, 16, 9, 9), kernel, **ATTRS, groups=2)


PRODUCT = pytest.param(product, marks=needs_packed_products)
BODIES = [convolution, PRODUCT, turned_product, grouped]


def stored_elsewhere(made: Made) -> LoadedPrimitives:
    """Load the region with weights stored as no library wants them: with rows turned round."""
    constants, packed = dict(made.unit.constants), dict(made.program.packed)
    for value, weight_ in made.program.packed.items():
        name = made.program.constants[value]
        plain = weight_.unpack(np.asarray(constants[name]))
        seen = weight_.view.read(plain)
        constants[name] = np.ascontiguousarray(seen.T).reshape(-1)
        shape = weight_.view.shape
        steps = [1]
        for size in shape[:-1]:
            steps.append(steps[-1] * size)
        packed[value] = PackedWeight(weight_.view, PackedLayout(shape, tuple(steps), shape))
    program = replace(made.program, packed=packed)
    request = dataclasses.replace(
        made.request, constants=constants, files={FILE: print_program(program)}
    )
    return LoadedPrimitives(program, request)


@pytest.mark.parametrize("body", BODIES)
def test_a_packed_weight_is_used_where_it_lies(body: Any) -> None:
    made = check(body())
    assert len(made.program.packed) == 1
    assert made.region.reordered_bytes == 0


@pytest.mark.parametrize("body", BODIES)
def test_a_weight_in_another_layout_is_reordered(body: Any) -> None:
    made = make(body())
    region = stored_elsewhere(made)
    assert region.reordered_bytes > 0
    data = [fresh(*made.request.inputs[0].shape)]
    found = np.empty(made.request.outputs[0].shape, np.float32)
    region.run(*data, found)
    wanted = expected(made.function, data)[0]
    np.testing.assert_allclose(found, wanted, rtol=3e-5, atol=3e-5)


_CHILD = """
import sys
import numpy as np
from intarsia_runtime.loading import LoadRequest
from intarsia_dnnl.codegen import compile_region
from intarsia_dnnl.region import LoadedPrimitives
from intarsia_dnnl.program import FILE, parse_program
data = np.load(sys.argv[1])
program = parse_program(data["program"].tobytes())
constants = {name: data[name] for name in program.constants.values()}
region = LoadedPrimitives(program, LoadRequest("r", {}, constants, (), (), 1, 0))
found = np.empty(program.shapes[program.outputs[0]], np.float32)
region.run(data["x"], found)
np.save(sys.argv[1] + ".npy", found)
print(region.reordered_bytes)
"""


@pytest.mark.parametrize("body", [convolution, PRODUCT])
@pytest.mark.skipif(platform.machine() != "x86_64", reason="narrows the library to SSE4.1 of x86")
def test_an_older_processor_gives_the_same_results(body: Any, tmp_path: Path) -> None:
    made = make(body())
    x = fresh(*made.request.inputs[0].shape)
    saved = tmp_path / "region.npz"
    program = np.frombuffer(made.unit.files[FILE], np.uint8)
    np.savez(saved, program=program, x=x, **made.unit.constants)
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, str(saved)],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "SSE41"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(child.stdout) > 0
    found = np.load(f"{saved}.npy")
    np.testing.assert_allclose(found, expected(made.function, [x])[0], rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("body", [convolution, product, turned_product])
def test_a_weight_at_an_odd_address_is_packed_the_same(body: Any) -> None:
    function = function_of(body())
    constants = [node for node in post_order(function.body) if isinstance(node, Constant)]
    moved: dict[Expr, Expr] = {
        n: dataclasses.replace(n, content=_displaced(n.data)) for n in constants
    }
    elsewhere = dataclasses.replace(function, body=substitute(function.body, moved))
    found, wanted = (
        compile_region(region_of(each), DnnlOptions()) for each in (elsewhere, function)
    )
    assert {k: v.tobytes() for k, v in found.constants.items()} == {
        k: v.tobytes() for k, v in wanted.constants.items()
    }


def _displaced(array: np.ndarray) -> np.ndarray:
    block = np.zeros(array.nbytes + 8, np.uint8)
    start = 1 - block.ctypes.data % 4 + 4
    place = block[start : start + array.nbytes]
    place[:] = array.reshape(-1).view(np.uint8)
    displaced = place.view(array.dtype).reshape(array.shape)
    assert not displaced.flags.aligned
    return displaced


def test_the_user_may_keep_weights_as_the_model_has_them() -> None:
    made = check(convolution(), prepack=False)
    assert made.program.packed == {}
    assert [data.shape for data in made.unit.constants.values()] == [(24, 20, 3, 3)]


def test_narrow_products_read_weights_as_the_model_has_them() -> None:
    assert make(convolution(), fpmath_mode="bf16").program.packed == {}


def test_without_a_library_weights_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intarsia_dnnl.sdk._distribution_files", list)
    monkeypatch.setattr("ctypes.util.find_library", lambda _name: None)
    unit = compile_region(region_of(function_of(convolution())), DnnlOptions())
    assert parse_program(unit.files[FILE]).packed == {}


def test_a_weight_of_another_size_is_refused() -> None:
    made = make(convolution())
    (name,) = made.unit.constants
    request = dataclasses.replace(made.request, constants={name: np.zeros(5, np.float32)})
    with pytest.raises(ArtifactError, match=r"is float32\[5\], not float32\[\d+\]"):
        load(request)


def test_a_layout_that_reads_elsewhere_is_refused() -> None:
    made = make(convolution())
    body = json.loads(made.unit.files[FILE])
    (packed,) = body["packed"].values()
    packed["layout"]["strides"] = [2 * step for step in packed["layout"]["strides"]]
    with pytest.raises(ArtifactError, match="reads outside of its memory"):
        parse_program(json.dumps(body).encode())


patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Other work shares the machine: what takes long is no fault of a test."""


@st.composite
def layouts(draw: st.DrawFn) -> PackedLayout:
    """Dense layouts of up to four axes, with up to three inner blocks."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    axes = st.integers(0, len(shape) - 1)
    blocks = tuple(draw(st.lists(st.tuples(axes, st.sampled_from([2, 4])), max_size=3)))
    whole = [1] * len(shape)
    for axis, size in blocks:
        whole[axis] *= size
    padded = tuple(-(-size // unit) * unit for size, unit in zip(shape, whole, strict=True))
    order = draw(st.permutations(range(len(shape))))
    strides, step = [0] * len(shape), int(np.prod([size for _, size in blocks]))
    for axis in order:
        strides[axis] = step
        step *= padded[axis] // whole[axis]
    return PackedLayout(shape, tuple(strides), padded, blocks)


def offset(layout: PackedLayout, index: tuple[int, ...]) -> int:
    """Where oneDNN's guide to blocked layouts says that an element lies."""
    rest, place, step = list(index), 0, 1
    for axis, size in reversed(layout.blocks):
        place += rest[axis] % size * step
        rest[axis] //= size
        step *= size
    return place + sum(number * stride for number, stride in zip(rest, layout.strides, strict=True))


@patient
@given(layouts())
def test_layouts_read_every_element_where_it_lies(layout: PackedLayout) -> None:
    memory = np.arange(layout.elements, dtype=np.float32)
    read = layout.read(memory)
    assert read.shape == layout.shape
    assert all(read[index] == offset(layout, index) for index in np.ndindex(layout.shape))


@patient
@given(layouts())
def test_layouts_survive_json(layout: PackedLayout) -> None:
    stored = PackedWeight(layout, layout)
    assert convert(json.loads(json.dumps(stored.to_json())), PackedWeight) == stored
