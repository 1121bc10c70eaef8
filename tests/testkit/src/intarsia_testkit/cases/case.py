# SPDX-License-Identifier: Apache-2.0
"""One call of an operator with operands, and how its result is compared with the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

import intarsia
from intarsia_ir.graph.expr import Expr, Function, Var, call, constant, get_item, make_tuple
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.op import OpKind
from intarsia_ir.graph.types import TensorType, TupleType
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_ir.partition.cost import Plan
from intarsia_runtime.dtype import DType, parse_dtype
from intarsia_runtime.errors import UnsupportedError

RELATIVE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-5, "float64": 1e-11}
SMALLEST = {"float16": 1e-6, "bfloat16": 1e-6, "float32": 1e-6, "float64": 1e-12}
NO_TOLERANCES: Mapping[str, float] = {}
ROUNDED = (
    *("qnn.quantize", "qnn.requantize", "qnn.conv", "qnn.matmul", "qnn.mean", "qnn.avg_pool"),
    *("qnn.add", "qnn.subtract", "qnn.multiply"),
    *("qnn.conv_transpose", "qnn.softmax", "qnn.layer_norm"),
)
"""Operators whose last step rounds to an integer: a tie of the exact numbers may go either way."""
COMPUTED = ("nn.resize", "arange")  # injective, but with arithmetic on the elements


@dataclass(frozen=True, eq=False)
class Case:
    """``operator(*operands, **attrs)``.

    Attributes:
        name: The operator.
        operands: Arrays, which the compiled function gets as inputs.
        attrs: The operator's attributes.
        weights: Which operands are constants of the module instead, such as trained weights.
    """

    name: str
    operands: tuple[np.ndarray, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    weights: tuple[int, ...] = ()

    def __str__(self) -> str:
        operands = ", ".join(f"{x.dtype.name}{list(x.shape)}" for x in self.operands)
        attrs = "".join(f", {key}={value}" for key, value in self.attrs.items())
        weights = f", weights {list(self.weights)}" if self.weights else ""
        return f"{self.name}({operands}{attrs}{weights})"

    def call(self, *args: Expr) -> list[Expr]:
        """Apply the operator; its results, those of a tuple one by one."""
        op = OPERATORS[self.name]
        made = call(op, *args, attrs=op.Attrs(**self.attrs))
        if isinstance(made.type, TupleType):
            return [get_item(made, index) for index in range(len(made.type.fields))]
        return [made]

    def reference(self) -> list[np.ndarray]:
        """The results as NumPy defines them."""
        op = OPERATORS[self.name]
        with np.errstate(all="ignore"):
            found = op.reference(op.Attrs(**self.attrs), *self.operands)
        results = cast("tuple[object, ...]", found) if isinstance(found, tuple) else (found,)
        return [np.asarray(one) for one in results]

    def differs(
        self, found: Sequence[np.ndarray], tolerances: Mapping[str, float] = NO_TOLERANCES
    ) -> str:
        """What is wrong with results, or an empty string.

        Args:
            found: The results in order.
            tolerances: Element type to relative error, where it is not that of ``RELATIVE``.
        """
        kind = OPERATORS[self.name].kind
        exact = kind is OpKind.INJECTIVE and self.name not in COMPUTED
        sums = kind not in (OpKind.ELEMWISE, OpKind.INJECTIVE)
        for mine, wanted in zip(found, self.reference(), strict=True):
            own = tolerances.get(wanted.dtype.name)
            slack = 1.0 if own is None else own / RELATIVE[wanted.dtype.name]
            apart = int(self.name in ROUNDED)
            message = difference(mine, wanted, exact=exact, sums=sums, slack=slack, apart=apart)
            if message:
                return f"{self}: {message}"
        return ""


def difference(
    found: np.ndarray,
    wanted: np.ndarray,
    *,
    exact: bool = False,
    sums: bool = False,
    slack: float = 1.0,
    apart: int = 0,
) -> str:
    """Compare arrays; what is wrong, or an empty string.

    Args:
        found: The result.
        wanted: The reference.
        exact: Signs of zeros count, and nothing is rounded.
        sums: Errors are measured against the largest element, as terms may cancel.
        slack: Factor on the error allowed.
        apart: How far apart integers may be.
    """
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"is {found.dtype}{found.shape}, not {wanted.dtype}{wanted.shape}"
    if not parse_dtype(wanted.dtype.name).is_float:
        if apart == 0 or wanted.dtype == bool:
            return _first(found != wanted, found, wanted)
        return _first(np.abs(found.astype(float) - wanted.astype(float)) > apart, found, wanted)
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    if exact:
        same = (a == b) & (np.signbit(a) == np.signbit(b)) | np.isnan(a) & np.isnan(b)
        return _first(~same, found, wanted)
    finite = np.abs(b[np.isfinite(b)])
    relative = slack * RELATIVE[wanted.dtype.name]
    scale = max(1.0, finite.max(initial=0.0)) if sums else 0.0
    absolute = SMALLEST[wanted.dtype.name] + relative * scale
    with np.errstate(all="ignore"):
        close = np.isclose(a, b, rtol=relative, atol=absolute, equal_nan=True)
    return _first(~close, found, wanted)


def _first(wrong: np.ndarray, found: np.ndarray, wanted: np.ndarray) -> str:
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    count = int(wrong.sum())
    return f"{count} of {wrong.size} elements, first {list(at)}: {found[at]}, not {wanted[at]}"


def run_cases(cases: Sequence[Case], target: str) -> list[list[np.ndarray] | UnsupportedError]:
    """Compile calls into one module, run it, and return each call's results.

    Raises:
        IntarsiaError: The build failed, but for a refusal, which is returned for its call.
    """
    try:
        return list(_run_together(cases, target))
    except UnsupportedError as error:
        if len(cases) == 1:
            return [error]
    half = len(cases) // 2
    return run_cases(cases[:half], target) + run_cases(cases[half:], target)


def graph_of(cases: Sequence[Case]) -> tuple[list[Var], list[list[Expr]], dict[str, np.ndarray]]:
    """Parameters, each call's results, and the arrays for the parameters."""
    params: list[Var] = []
    inputs: dict[str, np.ndarray] = {}
    results: list[list[Expr]] = []
    for case in cases:
        args: list[Expr] = []
        for number, operand in enumerate(case.operands):
            if number in case.weights:
                args.append(constant(operand))
                continue
            kind = TensorType(operand.shape, DType(operand.dtype.name))
            params.append(Var(f"x{len(params)}", kind))
            inputs[params[-1].name] = operand
            args.append(params[-1])
        results.append(case.call(*args))
    return params, results, inputs


def _run_together(cases: Sequence[Case], target: str) -> list[list[np.ndarray]]:
    params, results, inputs = graph_of(cases)
    found = iter(run_graph(params, [one for group in results for one in group], inputs, target))
    return [[next(found) for _ in group] for group in results]


def module_of(params: Sequence[Var], outputs: Sequence[Expr]) -> IRModule:
    """A module that computes ``outputs`` and calls them ``y0``, ``y1`` and so on."""
    names = tuple(f"y{number}" for number in range(len(outputs)))
    return IRModule.from_function(Function(tuple(params), make_tuple(outputs), names))


def run_graph(
    params: Sequence[Var],
    outputs: Sequence[Expr],
    inputs: Mapping[str, np.ndarray],
    target: str,
) -> list[np.ndarray]:
    """Compile a function, each accelerator taking all it can; run it; return its results."""
    artifact = intarsia.build(module_of(params, outputs), target=target, plan=Plan.GREEDY)
    executable = artifact.load(threads=2)
    try:
        found = executable.run(dict(inputs))
        return [np.array(found[f"y{number}"]) for number in range(len(outputs))]
    finally:
        executable.close()


def random_array(
    rng: np.random.Generator,
    shape: Sequence[int],
    dtype: str,
    low: float = -4.0,
    high: float = 4.0,
) -> np.ndarray:
    """Elements drawn evenly from ``low..high``, cut off to what an integer type holds."""
    kind = DType(dtype)
    if kind is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if kind.is_integer:
        limits = np.iinfo(dtype)
        first, last = max(int(low), limits.min), min(int(high), limits.max)
        return rng.integers(first, last, shape, endpoint=True).astype(dtype)
    return np.asarray(rng.uniform(low, high, shape)).astype(numpy_dtype(kind))
