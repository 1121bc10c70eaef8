# SPDX-License-Identifier: Apache-2.0
"""Operator calls by name, whole functions as regions, and their results on the real library."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intarsia.artifact.plan import TensorSpec
from intarsia.artifact.unit import CompiledUnit
from intarsia.dtype import DType
from intarsia.ir.expr import Call, Constant, Expr, Function, Var, call, constant
from intarsia.ir.types import TensorType
from intarsia.ir.walk import post_order
from intarsia.ops import OPERATORS
from intarsia.partition.annotate import annotate
from intarsia.partition.region import Region
from intarsia.partition.support import Support
from intarsia.runtime.loading import LoadRequest, NativeCall
from intarsia_dnnl.codegen import compile_region
from intarsia_dnnl.loader import LoadedRegion, load
from intarsia_dnnl.program import FILE, Program, parse_program
from intarsia_dnnl.support import support_table
from intarsia_dnnl.target import DnnlOptions


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
    program: Program
    region: LoadedRegion
    request: LoadRequest

    def outputs(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Run the region."""
        results = [_unset(spec) for spec in self.request.outputs]
        self.region.run(*arrays, *results)
        return results


def _unset(spec: TensorSpec) -> np.ndarray:
    kind = np.dtype(spec.dtype.value)
    return np.full(spec.shape, np.nan if kind.kind == "f" else 77, kind)


def fresh(*shape: int, positive: bool = False, seed: float = 0) -> np.ndarray:
    """Return random numbers that depend on shape and seed only."""
    data = (
        np.random.default_rng([int(seed * 1e6), *shape]).standard_normal(shape).astype(np.float32)
    )
    return np.abs(data) + np.float32(0.1) if positive else data


def var(name: str, *shape: int) -> Var:
    """Return an fp32 parameter."""
    return Var(name, TensorType(shape, DType.FLOAT32))


def weight(*shape: int, positive: bool = False, seed: float = 1) -> Constant:
    """Return a random constant."""
    return constant(fresh(*shape, positive=positive, seed=seed))


def number(value: float) -> Constant:
    """Return a scalar constant."""
    return constant(np.array(value, np.float32))


def apply(name: str, *args: Expr, **attrs: object) -> Call:
    """Call an operator by name."""
    op = OPERATORS[name]
    return call(op, *args, attrs=op.Attrs(**attrs))


def function_of(body: Expr) -> Function:
    """Return a function with the variables below ``body`` as parameters, in order of first use."""
    return Function(tuple(node for node in post_order(body) if isinstance(node, Var)), body)


def verdicts(body: Expr) -> dict[str, Support]:
    """Return what the plugin says of every operator below ``body``."""
    annotated = annotate(function_of(body), [("dnnl", support_table())])
    return {node.name: said[0] for node, said in annotated.verdicts.items()}


def region_of(function: Function) -> Region:
    """Return the whole function as a region; every call must be taken."""
    annotated = annotate(function, [("dnnl", support_table())])
    refused = {
        node.name: said[0].detail for node, said in annotated.verdicts.items() if not said[0]
    }
    assert refused == {}
    rows = {node: placed.row for node, placed in annotated.placed.items()}
    return Region("dnnl_0", "dnnl", function, rows, ())


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


def expected(function: Function, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Return what the operators' NumPy definitions give."""
    values: dict[Expr, np.ndarray] = dict(zip(function.params, arrays, strict=True))
    for node in post_order(*function.outputs):
        if isinstance(node, Constant):
            values[node] = node.data
        elif isinstance(node, Call):
            values[node] = node.op.reference(node.attrs, *(values[arg] for arg in node.args))
    return [values[output] for output in function.outputs]


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
