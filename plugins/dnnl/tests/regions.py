# SPDX-License-Identifier: Apache-2.0
"""Operator calls by name, whole functions as regions, and their results on the real library."""

from __future__ import annotations

import platform
from dataclasses import dataclass

import numpy as np

from intarsia_dnnl.codegen import compile_region
from intarsia_dnnl.isa import usable_features
from intarsia_dnnl.loader import load
from intarsia_dnnl.program import FILE, PrimitiveProgram, parse_program
from intarsia_dnnl.region import LoadedPrimitives
from intarsia_dnnl.support import support_table
from intarsia_dnnl.target import DnnlOptions
from intarsia_ir.graph.expr import Expr, Function
from intarsia_ir.graph.types import TensorType
from intarsia_ir.regions.region import Region
from intarsia_ir.regions.support import Support
from intarsia_runtime.artifact.plan import TensorSpec
from intarsia_runtime.artifact.unit import CompiledUnit
from intarsia_runtime.loading import LoadRequest, NativeCall
from intarsia_testkit.expressions import expected, fresh, function_of, verdicts_of, whole_region


def lacks_avx512() -> bool:
    """Whether this is an x86 processor on which the library may not use AVX-512."""
    return platform.machine() == "x86_64" and "avx512bw" not in usable_features()


@dataclass(frozen=True)
class Made:
    """A function compiled as one region.

    Attributes:
        function: What was compiled.
        unit: What codegen left.
        program: The same, parsed.
        region: The loaded primitives.
        request: What they were loaded from.
    """

    function: Function
    unit: CompiledUnit
    program: PrimitiveProgram
    region: LoadedPrimitives
    request: LoadRequest

    def outputs(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Run the region."""
        results = [_unset(spec) for spec in self.request.outputs]
        self.region.run(*arrays, *results)
        return results


def _unset(spec: TensorSpec) -> np.ndarray:
    kind = np.dtype(spec.dtype.value)
    return np.full(spec.shape, np.nan if kind.kind == "f" else 77, kind)


def verdicts(body: Expr, *, exact: bool = False) -> dict[str, Support]:
    """Return what the plugin says of every operator below ``body``."""
    return verdicts_of(body, "dnnl", support_table(exact=exact))


def region_of(function: Function) -> Region:
    """Return the whole function as a region; every call must be taken."""
    return whole_region(function, "dnnl", support_table())


def make(body: Expr, *, threads: int = 1, **options: object) -> Made:
    """Compile and load ``body`` as one region."""
    function = function_of(body)
    unit = compile_region(region_of(function), DnnlOptions(**options))
    request = request_for(function, unit, threads=threads)
    run = load(request)
    assert not isinstance(run, NativeCall)
    return Made(function, unit, parse_program(unit.files[FILE]), run.__self__, request)


def request_for(
    function: Function, unit: CompiledUnit, *, threads: int = 1, run_steps: int = 0
) -> LoadRequest:
    """Return what the runtime would ask the loader."""
    inputs = tuple(_spec(param.name, param) for param in function.params)
    outputs = tuple(_spec(f"o{i}", value) for i, value in enumerate(function.outputs))
    return LoadRequest(unit.name, unit.files, unit.constants, inputs, outputs, threads, run_steps)


def _spec(name: str, value: Expr) -> TensorSpec:
    assert isinstance(value.type, TensorType)
    return TensorSpec(name, value.type.static_shape, value.type.dtype)


def check(
    body: Expr, *, positive: bool = False, tolerance: float = 3e-5, **options: object
) -> Made:
    """Compare a region with the operators' definitions, and return it."""
    made = make(body, **options)
    shapes = [spec.shape for spec in made.request.inputs]
    arrays = [fresh(*shape, positive=positive, seed=i) for i, shape in enumerate(shapes)]
    for round_ in range(2):  # the second finds what the first left in the arena
        wanted = expected(made.function, arrays)
        for found, right in zip(made.outputs(arrays), wanted, strict=True):
            np.testing.assert_allclose(found, right, rtol=tolerance, atol=tolerance)
        arrays = [array + np.float32(0.25) * (round_ + 1) for array in arrays]
    return made
