# SPDX-License-Identifier: Apache-2.0
"""Operator calls by name, whole functions as regions, and their networks on the real library."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.expr import (
    Expr,
    Function,
    tensor_type,
)
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_ir.regions.region import Region
from intarsia_ir.regions.support import Support
from intarsia_runtime.artifact.plan import TensorSpec
from intarsia_runtime.errors import ToolchainError
from intarsia_tensorrt.codegen import write_network
from intarsia_tensorrt.sdk import Library, find_library
from intarsia_tensorrt.support import support_table
from intarsia_testkit.expressions import fresh, function_of, verdicts_of, whole_region


def library() -> Library:
    """Return the edition that builds without a GPU, or skip the test."""
    try:
        return find_library("tensorrt-rtx")
    except ToolchainError as error:
        pytest.skip(str(error))


def verdicts(body: Expr) -> dict[str, Support]:
    """Return what the plugin says of every operator below ``body``."""
    return verdicts_of(body, "tensorrt", support_table())


def region_of(function: Function) -> Region:
    """Return the whole function as a region; every call must be taken."""
    return whole_region(function, "tensorrt", support_table())


def inputs_of(function: Function, *, seed: int = 0) -> list[np.ndarray]:
    """Return random arrays for the parameters."""
    found: list[np.ndarray] = []
    for number, param in enumerate(function.params):
        type_ = tensor_type(param)
        data = fresh(*type_.static_shape, seed=seed + number) * 2
        found.append(data.astype(numpy_dtype(type_.dtype)))
    return found


def spec(name: str, value: Expr) -> TensorSpec:
    """Return a tensor as the runtime describes it."""
    type_ = tensor_type(value)
    return TensorSpec(name, type_.static_shape, type_.dtype)


def network_of(body: Expr, *, half: bool = False):
    """Return the network of a whole function, and the function."""
    function = function_of(body)
    return write_network(region_of(function), library(), half=half), function
