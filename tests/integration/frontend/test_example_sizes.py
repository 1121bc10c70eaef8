# SPDX-License-Identifier: Apache-2.0
"""Sizes of made-up inputs meet the guards of an artifact."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from tests.unit.frontend.onnx_models import model, node

import intarsia
from intarsia.cli.model_options import parse_shape
from intarsia.driver.arrays import random_inputs
from intarsia_ir.example_sizes import example_sizes
from intarsia_runtime.artifact.size_bounds import bounds_of
from intarsia_runtime.errors import ModelError

WEIGHT = {"w": np.ones((2, 3, 7, 7), np.float32)}


def strided() -> onnx.ModelProto:
    """A pool behind a convolution: no bound of ``H`` alone says what both need."""
    nodes = [
        node("Conv", "x w", "a", strides=[2, 2]),
        node("MaxPool", "a", "y", kernel_shape=[3, 3], strides=[2, 2]),
    ]
    return model(nodes, {"x": ("N", 3, "H", "W")}, weights=WEIGHT)


def halved() -> onnx.ModelProto:
    """Half of the pixels, doubled, go with the others only if the sides are even."""
    weights = {"w": np.ones((3, 3, 2, 2), np.float32), "v": np.ones((3, 3, 2, 2), np.float32)}
    nodes = [
        node("Conv", "x w", "a", strides=[2, 2]),
        node("Conv", "a w", "b", strides=[2, 2]),
        node("ConvTranspose", "b v", "c", strides=[2, 2]),
        node("Add", "c a", "d"),
        node("ConvTranspose", "d v", "e", strides=[2, 2]),
        node("Add", "e x", "y"),
    ]
    return model(nodes, {"x": ("N", 3, "H", "W")}, weights=weights)


@pytest.mark.parametrize(("proto", "sizes"), [(strided(), (12, 12)), (halved(), (4, 4))])
def test_made_up_inputs_have_sizes_that_run(proto: onnx.ModelProto, sizes: tuple[int, int]) -> None:
    made = intarsia.build(proto, "llvm")
    found = example_sizes(made.passport)
    assert found == {"N": 1, "H": sizes[0], "W": sizes[1]}
    with made.load(threads=1) as executable:
        assert executable.run(random_inputs(executable.inputs, 0, found))["y"].size


def test_sizes_that_the_run_computes_are_not_made_up() -> None:
    """The number of elements that are not zero is bounded, and no input has it."""
    proto = model([node("NonZero", "x", "i"), node("Transpose", "i", "y")], {"x": ("N", 3)})
    assert example_sizes(intarsia.build(proto, "llvm").passport) == {"N": 1}


def test_a_given_size_stays() -> None:
    made = intarsia.build(strided(), "llvm")
    assert example_sizes(made.passport, {"H": 40, "N": 2}) == {"N": 2, "H": 40, "W": 12}
    found = example_sizes(made.passport, {"H": 7})
    assert found == {"N": 1, "H": 7, "W": 12}
    with made.load() as executable, pytest.raises(ModelError, match="window must fit"):
        executable.run(random_inputs(executable.inputs, 0, found))


def test_the_limit_of_a_size_is_no_size_that_anybody_has() -> None:
    """TensorFlow's exporter slices up to 10**9, which is then the largest size of a batch."""
    weights = {"b": np.zeros(1, np.int64), "e": np.full(1, 10**9), "a": np.zeros(1, np.int64)}
    proto = model([node("Slice", "x b e a", "y")], {"x": ("N", 3)}, weights=weights)
    made = intarsia.build(proto, "llvm")
    assert bounds_of(made.passport.plan)["N"].high == 10**9
    assert example_sizes(made.passport) == {"N": 1}


def test_the_end_of_a_small_range_is_taken() -> None:
    made = intarsia.build(
        strided(), "llvm", shapes={"x": parse_shape("x:1..8,3,12..64,12..2000")[1]}
    )
    assert example_sizes(made.passport) == {"N": 8, "H": 64, "W": 12}
