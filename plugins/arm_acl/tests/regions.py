# SPDX-License-Identifier: Apache-2.0
"""Operator calls by name, whole functions as regions, and their results under emulation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intarsia_arm_acl.codegen import compile_region
from intarsia_arm_acl.support import support_table
from intarsia_arm_acl.target import ArmAclOptions
from intarsia_ir.graph.expr import Expr, Function
from intarsia_ir.graph.types import TensorType
from intarsia_ir.regions.region import Region
from intarsia_ir.regions.support import Support
from intarsia_runtime.artifact.unit import CompiledUnit
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import expected, fresh, function_of, verdicts_of, whole_region

from .emulation import ROOT, Emulated


def verdicts(body: Expr) -> dict[str, Support]:
    """Return what the plugin says of every operator below ``body``."""
    return verdicts_of(body, "arm_acl", support_table())


def region_of(function: Function) -> Region:
    """Return the whole function as a region; every call must be taken."""
    return whole_region(function, "arm_acl", support_table())


@dataclass(frozen=True)
class Bench:
    """Compiles functions as one unit each and compares them with their definitions."""

    emulated: Emulated
    folder: Path

    def check(self, *bodies: Expr, positive: bool = False, tolerance: float = 3e-5) -> CompiledUnit:
        """Compare the results of two runs; all bodies are outputs of one region."""
        function = function_of(*bodies)
        unit = compile_region(region_of(function), ArmAclOptions(opt_level=0, acl_root=ROOT))
        # The second run finds other data, and what the first left in memory.
        rounds = [
            [
                _data(_type(param), positive=positive, seed=n + 0.5 * again)
                for n, param in enumerate(function.params)
            ]
            for again in range(2)
        ]
        outputs = [
            (_type(out).static_shape, np.dtype(_type(out).dtype.value)) for out in function.outputs
        ]
        found = self.emulated.run(
            unit.files["lib.so"], list(unit.constants.values()), rounds, outputs, self.folder
        )
        for arrays, results in zip(rounds, found, strict=True):
            for number, (result, right) in enumerate(
                zip(results, expected(function, arrays), strict=True)
            ):
                if right.dtype.kind in "iu":
                    check_integers(result, right, f"output {number}")
                    continue
                np.testing.assert_allclose(
                    result, right, rtol=tolerance, atol=tolerance, err_msg=f"output {number}"
                )
        return unit


def check_integers(result: np.ndarray, right: np.ndarray, what: str) -> None:
    """Allow a difference of one unit, because the library rescales with fixed-point numbers."""
    apart = np.abs(result.astype(np.int64) - right.astype(np.int64))
    assert apart.max(initial=0) <= 1, f"{what}: {result} is not {right}"


def _data(type_: TensorType, *, positive: bool, seed: float) -> np.ndarray:
    shape = type_.static_shape
    if type_.dtype.is_float:
        return fresh(*shape, positive=positive, seed=seed).astype(type_.dtype.value)
    return integers(*shape, dtype=type_.dtype, seed=seed)


def integers(*shape: int, dtype: DType = DType.INT8, seed: float = 1) -> np.ndarray:
    """Return random integers of an 8-bit type that depend on shape and seed only."""
    rng = np.random.default_rng([int(seed * 1e6), *shape])
    low = -128 if dtype is DType.INT8 else 0
    return rng.integers(low, low + 256, shape).astype(dtype.value)


def _type(expr: Expr) -> TensorType:
    assert isinstance(expr.type, TensorType)
    return expr.type
