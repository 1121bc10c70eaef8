# SPDX-License-Identifier: Apache-2.0
"""The matrix of primitives, post-operations and layouts: nothing the library takes is wrong.

A sample of it runs always; ``-m exhaustive`` runs fifty times as much.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from intarsia_dnnl import faults
from intarsia_dnnl.faults import FAULTS
from intarsia_dnnl.isa import EXACT, VARIABLES, exact_feature, usable_features
from intarsia_ir.graph.expr import Expr
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply, expected, fresh, var, weight

from . import matrix_quantized
from .matrix import BASES, Case, run, sampled
from .regions import make, verdicts

SEED = int(os.environ.get("MATRIX_SEED", "0"))
PARTS = int(os.environ.get("MATRIX_PARTS", "1"))
"""One of so many cases is run."""


def wrong_of(cases: list[Case], **options: str) -> list[str]:
    """Return what is wrong with each case that is."""
    found: list[str] = []
    ran = 0
    for case in cases:
        result = run(case, **options)
        if result is not None:
            ran += 1
            if result.wrong:
                kernels = ", ".join(result.implementations)
                found.append(
                    f"{case.id} ({kernels}): {result.wrong} of {result.of}, {result.detail}"
                )
    assert ran > len(cases) // 2, "most cases were not taken: the test tests little"
    return found


@pytest.mark.parametrize("mode", ["strict", "bf16"])
def test_every_primitive_with_every_post_operation(mode: str) -> None:
    cases = list(sampled(1, seed=SEED, mode=mode))
    if mode == "bf16":
        cases = [case for case in cases if case.post not in _STEEP][::4]
    assert wrong_of(cases[::PARTS]) == []


@pytest.mark.parametrize("special", ["nan", "inf", "zero"])
def test_special_values_come_out_as_defined_if_they_have_to(special: str) -> None:
    cases = [case for case in sampled(1, seed=SEED) if case.post in _SPECIAL]
    assert wrong_of(cases[::PARTS], special=special) == []


_STEEP = ("round", "square", "exp", "square add plus")
"""Functions that make much of the difference between float32 and bfloat16."""
_SPECIAL = ("", "nn.relu", "tanh", "sigmoid", "elu", "plus", "nn.silu", "add full", "mul channels")


@pytest.mark.parametrize("isa", ["SSE41", "AVX2"])
def test_older_processors(isa: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, __file__, "-k", "every or special"],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": isa, "MATRIX_PARTS": "8", "MATRIX_SEED": isa[-1]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout


@pytest.mark.skipif(
    not exact_feature(), reason=f"this processor has none of {', '.join(EXACT)}: sums saturate"
)
def test_every_operator_of_bytes_with_what_follows() -> None:
    wrong = [case.wrong() for case in matrix_quantized.sampled(2, seed=SEED)]
    assert wrong.count("") > len(wrong) // 2
    assert [said for said in wrong if said] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("base", BASES)
def test_more_of_every_primitive(base: str) -> None:
    cases = [case for case in sampled(50, seed=1) if case.base == base]
    assert wrong_of(cases) == []


def conv(x: Expr, outputs: int, seed: float) -> Expr:
    attrs = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    return apply("nn.conv", x, weight(outputs, x.type.static_shape[1], 1, 1, seed=seed), **attrs)


def twice(x: Expr, mode: str, coordinates: str) -> Expr:
    shape = x.type.static_shape
    sizes = (*shape[:2], *(2 * size for size in shape[2:]))
    attrs = {"mode": mode, "coordinate_mode": coordinates, "nearest_mode": "floor"}
    return apply("nn.resize", x, sizes=sizes, **attrs)


def pyramid() -> Expr:
    small, large = conv(var("x", 1, 3, 5, 5), 8, 1), conv(var("y", 1, 3, 10, 10), 8, 2)
    return apply("add", twice(small, "nearest", "asymmetric"), large)


def gate() -> Expr:
    data = apply("nn.relu", conv(var("x", 1, 16, 16, 16), 16, 1))
    return apply("multiply", twice(data, "linear", "half_pixel"), var("y", 1, 16, 32, 32))


@pytest.mark.parametrize("body", [pyramid, gate])
def test_a_resized_value_is_added_and_multiplied_whatever_its_layout(body) -> None:
    """What detectors do: it was wrong in 798 of 800, and in 16356 of 16384 elements."""
    made = make(body())
    arrays = [fresh(*spec.shape, seed=i) for i, spec in enumerate(made.request.inputs)]
    (found,), (wanted,) = made.outputs(arrays), expected(made.function, arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert not any(name.startswith(("ref", "simple")) for name in made.region.implementations)


@pytest.mark.parametrize("shape", [(2, 5), (3, 4, 6), (1, 8, 4, 4)], ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_softmax_of_a_row_with_nan_is_nan(shape: tuple[int, ...], bad: float) -> None:
    for axis in range(len(shape)):
        if shape[axis] == 1:
            continue
        made = make(apply("nn.softmax", var("x", *shape), axis=axis))
        x = fresh(*shape)
        x.flat[3] = bad
        (found,), (wanted,) = made.outputs([x]), expected(made.function, [x])
        assert np.isnan(wanted).any()
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["exp", "nn.log_softmax"])
def test_what_makes_infinity_of_nan_is_refused(name: str) -> None:
    attrs = {"axis": 1} if name == "nn.log_softmax" else {}
    verdict = verdicts(apply(name, var("x", 2, 5), **attrs))[name]
    assert not verdict
    assert "NaN" in verdict.detail


def test_logarithms_of_little_accuracy_are_refused() -> None:
    verdict = verdicts(apply("log", var("x", 2, 5)))["log"]
    assert not verdict
    assert "2e-4 near 1" in verdict.detail


EXAMPLES = [
    (Case("multiply", "div channels", (2, 16, 1, 1), ("plain", "plain")), ""),
    (Case("multiply", "add image", (5, 7), ("swapped", "plain")), ""),
    (Case("nearest2", "add full", (1, 16, 16, 16), ("channels-last", "plain")), ""),
    (Case("prelu_full", "", (1, 3, 11), ("blocked8", "plain")), ""),
    (Case("deconv3", "sigmoid", (1, 64, 64), ("blocked16", "plain")), "nan"),
]
"""For each fault, a case that is wrong if it is taken off the list, and its special values."""


@pytest.mark.skipif(
    "avx512bw" not in usable_features() or any(name in os.environ for name in VARIABLES),
    reason="the faults are those of implementations for AVX-512",
)
@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_every_fault_is_one(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    case, special = EXAMPLES[number]
    assert wrong_of([case], special=special) == []
    monkeypatch.setattr(faults, "FAULTS", (*FAULTS[:number], *FAULTS[number + 1 :]))
    monkeypatch.setattr(faults, "SLOW", ())
    assert wrong_of([case], special=special)


def test_an_axis_of_one_element_has_no_stride_of_its_own() -> None:
    """The concatenation put the two channels apart, and the images, of which there is one."""
    case = Case("concat", "add image mul channels", (1, 1, 5, 7), ("plain", "channels-last"))
    assert wrong_of([case]) == []


@pytest.mark.skipif("amx_int8" not in usable_features(), reason="this processor has no AMX")
@pytest.mark.parametrize("pixels", [(6, 6), (3, 16), (1, 33)])
@pytest.mark.parametrize("outputs", [16, 128])
def test_a_product_of_bytes_for_each_of_33_to_48_pixels(
    monkeypatch: pytest.MonkeyPatch, outputs: int, pixels: tuple[int, int]
) -> None:
    """The library's first choice wrote behind its buffer, and ended the process later."""
    monkeypatch.setitem(matrix_quantized.BASES, "product", matrix_quantized._conv(outputs, 1, 0))
    layouts = ("channels-last", "channels-last")
    case = matrix_quantized.Case("product", "", (1, 64, *pixels), layouts, DType.UINT8)
    assert case.wrong() == ""
