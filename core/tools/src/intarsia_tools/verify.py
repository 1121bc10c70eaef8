# SPDX-License-Identifier: Apache-2.0
"""Compares results with the reference: the NumPy definition of every operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from msgspec import Struct

from intarsia.driver.arrays import plain_arrays
from intarsia.driver.config import Executor
from intarsia.driver.dynamic import import_any, needs_program
from intarsia.driver.model_partition import prepare_module
from intarsia.driver.source import ModuleSource, source_of
from intarsia.driver.stages import read_target
from intarsia.host.host import Host
from intarsia_ir.given_values import Given
from intarsia_ir.graph.expr import Call, Expr, Function
from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import calls, post_order
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.partition.recorded import recorded_regions
from intarsia_ir.regions.region import Region
from intarsia_runtime.artifact.passport import Passport
from intarsia_runtime.artifact.random_state import RANDOM_STATE
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import GateFailed, ModelError
from intarsia_runtime.executors.graph import GraphExecutor
from intarsia_runtime.executors.open import OpenExecutor
from intarsia_runtime.executors.signature import Inputs
from intarsia_runtime.executors.variants import SizesExecutor
from intarsia_runtime.executors.vm import VmExecutor
from intarsia_runtime.load import VM, Executable, InProcess
from intarsia_runtime.loading import RunValue, StepSeen

if TYPE_CHECKING:
    from intarsia_onnx.dynamic import DynamicModel

RELATIVE = 1e-3
"""Error allowed for floats, relative to the value; a hundredth of it to the largest value."""

QUANTIZED = 0.05
"""Error allowed in models with 8-bit tensors, relative to the largest value: a few steps."""


class OutputCheck(Struct, frozen=True):
    """How far one output is from the reference.

    Attributes:
        name: Name of the output.
        ok: Whether every element is close enough.
        max_error: Largest absolute difference; infinite if one is not a number and the other is.
    """

    name: str
    ok: bool
    max_error: float

    def to_json(self) -> dict[str, object]:
        """Return the check as plain JSON; an infinite error becomes the text ``inf``."""
        error = self.max_error if np.isfinite(self.max_error) else "inf"
        return {"name": self.name, "ok": self.ok, "max_error": error}


class RegionCheck(Struct, frozen=True):
    """How far a region, or a piece of a program, is from the reference on what it was given.

    Attributes:
        name: Name of its unit in the artifact.
        nodes: Names of the model's nodes in it.
        ok: Whether every element of its outputs is close enough.
        max_error: Largest absolute difference.
    """

    name: str
    nodes: tuple[str, ...]
    ok: bool
    max_error: float

    def to_json(self) -> dict[str, object]:
        """Return the check as plain JSON; an infinite error becomes the text ``inf``."""
        error = self.max_error if np.isfinite(self.max_error) else "inf"
        return {"name": self.name, "nodes": list(self.nodes), "ok": self.ok, "max_error": error}


class Verification(Struct, frozen=True):
    """How far a run is from the reference.

    Attributes:
        outputs: Each output of the model.
        regions: Each region, in running order; empty if they cannot be run one by one.
        is_comparable: Whether the model has the regions that the artifact was built with.
    """

    outputs: tuple[OutputCheck, ...]
    regions: tuple[RegionCheck, ...] = ()
    is_comparable: bool = True

    def require_agreement(self) -> None:
        """Refuse results that differ from the reference.

        Raises:
            GateFailed: Something does; the first region that differs is named.
        """
        require_agreement(self.outputs, self.regions)


def verify_outputs(
    model: IRModule | DynamicModel,
    inputs: Mapping[str, np.ndarray],
    results: Mapping[str, np.ndarray],
) -> tuple[OutputCheck, ...]:
    """Run the reference on the same inputs and compare.

    Raises:
        ModelError: The model has other outputs than the results.
    """
    expected = _expected(model, inputs)
    names, steps = list(results), is_quantized(*_modules(model).values())
    if len(names) != len(expected):
        raise ModelError(
            f"the model has {len(expected)} outputs, {len(names)} were computed",
            hint="is it the model that the artifact was compiled from?",
        )
    return tuple(
        compare(name, results[name], np.asarray(reference), quantized=steps)
        for name, reference in zip(names, expected, strict=True)
    )


def verify_run(
    model: Path,
    passport: Passport,
    begin: Callable[[str], Executable],
    *,
    inputs: Mapping[str, np.ndarray],
    results: Mapping[str, np.ndarray],
    host: Host,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, Given] | None = None,
) -> Verification:
    """Compare a run with the reference: its outputs, and each region on what the region was given.

    The regions are those that the artifact was built with. The model is imported once for each set
    of shapes that is compared.

    Args:
        model: The model that the artifact was compiled from.
        passport: That of the artifact.
        begin: Loads the artifact for an executor, e.g. ``graph``.
        inputs: Inputs of the run by name.
        results: What it computed, by name.
        host: The plugins.
        shapes: Shapes of inputs that the model leaves open and the artifact does not.
        values: Values of inputs that the artifact has as constants.

    Raises:
        ModelError: The model has other outputs than the results.
        UnsupportedError: The model cannot be imported.
        PluginError: A plugin of the artifact's target failed.
    """
    target = read_target(host, passport.target, None)
    flows = target.fallback.kind.control_flow
    source = source_of(host, model, values=values, control_flow=flows)
    reference = _reference(source, passport, inputs, shapes)
    outputs = verify_outputs(reference, inputs, results)
    if not is_walked(passport) or passport.plan.open is not None:
        return Verification(outputs)
    with begin("graph") as executable:
        arrays, program = dict(inputs), executable
        if isinstance(executable, SizesExecutor):
            program, arrays = executable.fitted(inputs)
            reference = _reference(source, passport, arrays, shapes)
        prepared = {
            name: prepare_module(host, piece, target).module
            for name, piece in _modules(reference).items()
        }
        regions = built_regions(program, prepared)
        if regions is None:
            return Verification(outputs, is_comparable=False)
        return Verification(outputs, verify_regions(program, prepared, regions, arrays))


def is_walked(passport: Passport) -> bool:
    """Whether this process can run an artifact step by step, so that regions can be compared."""
    driven = passport.executor.get("kind") in ("aot", "graph", VM)
    return driven and passport.runtime.get("kind") in tuple(InProcess)


def _reference(
    source: ModuleSource,
    passport: Passport,
    inputs: Mapping[str, np.ndarray],
    shapes: Mapping[str, Sequence[int]] | None,
) -> IRModule | DynamicModel:
    """Import the model that a passport was made for, for the shapes of ``inputs`` if it is open."""
    executor = Executor(VM if passport.executor.get("kind") == VM else "aot")
    if passport.sizes or passport.plan.open is not None:
        shapes = {name: x.shape for name, x in inputs.items() if name != RANDOM_STATE}
    if any(part.passport.plan.open is not None for part in passport.parts):
        with collecting_guards():
            imported = source.program(shapes, hosted=_hosted(passport))
    elif passport.plan.open is not None:  # it may compute sizes, whatever those of its inputs are
        with collecting_guards():
            imported = source.module(shapes)
    else:
        imported = import_any(source, executor, None, shapes, keep=True)
    return needs_program(imported, executor) or imported


def _hosted(passport: Passport) -> dict[str, str]:
    """Return the nodes of a program that are in none of its pieces."""
    rows = cast("Sequence[Mapping[str, str]]", passport.placement.get("host", ()))
    return {row["node"]: "it runs on the host" for row in rows}


def built_regions(
    executable: Executable, prepared: Mapping[str, IRModule]
) -> dict[str, dict[str, Region]] | None:
    """Return the regions that an artifact was built with: by piece, ``main`` or of a program.

    Args:
        executable: The artifact, loaded for the ``graph`` executor.
        prepared: The prepared module of each piece.

    Returns:
        Name of a piece to its regions by name; ``None`` if the model is another one.
    """
    pieces: Mapping[str, Executable] = {"main": executable}
    if isinstance(executable, VmExecutor):
        pieces = executable.pieces
    found: dict[str, dict[str, Region]] = {}
    for name, piece in pieces.items():
        module = prepared.get(name)
        regions = None if module is None else recorded_regions(module, piece.passport.placement)
        if regions is None:
            return None
        found[name] = regions
    return found


def verify_regions(
    executable: Executable,
    prepared: Mapping[str, IRModule],
    regions: Mapping[str, Mapping[str, Region]],
    inputs: Mapping[str, np.ndarray],
) -> tuple[RegionCheck, ...]:
    """Compare every region, and every piece of a program, with the reference, in running order.

    Each is given to the reference with the operands it had, so what goes before it does not count.

    Args:
        executable: The artifact, loaded for the ``graph`` executor.
        prepared: The prepared module of each piece.
        regions: The regions of each piece that the artifact was built with.
        inputs: Inputs of the model.
    """
    found: list[RegionCheck] = []
    if isinstance(executable, GraphExecutor):
        _check_regions(executable, regions["main"], "", inputs, found)
    if isinstance(executable, VmExecutor):

        def see(step: StepSeen) -> None:
            piece = executable.pieces.get(step.label)
            if step.node or not isinstance(piece, GraphExecutor | OpenExecutor):
                return
            operands = tuple(np.asarray(value) for value in step.operands)
            several = f"{step.label}." if len(executable.pieces) > 1 else ""
            _check_regions(piece, regions[step.label], several, tuple(operands), found)
            module = prepared[step.label]
            nodes = tuple(dict.fromkeys(call.span.name for call in calls(module.main)))
            row = step.label, nodes, module.main, module
            found.append(_check(*row, operands, [np.asarray(v) for v in step.results]))

        executable.watch(inputs, see)
    return tuple(found)


def _check_regions(
    executable: GraphExecutor | OpenExecutor,
    regions: Mapping[str, Region],
    prefix: str,
    inputs: Inputs,
    found: list[RegionCheck],
) -> None:
    def see(name: str, taken: Sequence[np.ndarray], given: Sequence[np.ndarray]) -> None:
        region = regions[name]
        found.append(_check(prefix + name, region.nodes, region.function, None, taken, given))

    executable.walk_regions(inputs, see)


def _check(
    name: str,
    nodes: tuple[str, ...],
    function: Function,
    module: IRModule | None,
    taken: Sequence[np.ndarray],
    given: Sequence[np.ndarray],
) -> RegionCheck:
    named = {param.name: value for param, value in zip(function.params, taken, strict=True)}
    expected = evaluate(function, named, module)
    steps = any(_is_byte(node) for node in post_order(function.body))
    checks = [
        compare(name, value, reference, quantized=steps)
        for value, reference in zip(given, expected, strict=True)
    ]
    worst = max((check.max_error for check in checks), default=0.0)
    return RegionCheck(name, nodes, all(check.ok for check in checks), worst)


def _expected(
    model: IRModule | DynamicModel, inputs: Mapping[str, np.ndarray]
) -> Sequence[RunValue]:
    if isinstance(model, IRModule):
        return evaluate(model.main, inputs, model)
    from intarsia_onnx.dynamic import run_reference  # needs no importer if there is no program

    found = run_reference(model, [inputs[info.name] for info in model.program.inputs])
    names = model.program.outputs
    return list(plain_arrays(dict(zip(names, found, strict=True))).values())


def _modules(model: IRModule | DynamicModel) -> Mapping[str, IRModule]:
    return {"main": model} if isinstance(model, IRModule) else model.pieces


def is_quantized(*modules: IRModule) -> bool:
    """Say whether a model computes with 8-bit integers, where rounding differs by whole steps."""
    return any(
        _is_byte(node)
        for module in modules
        for function in module.functions.values()
        for node in post_order(function.body)
    )


def _is_byte(node: Expr) -> bool:
    bytes_ = (DType.INT8, DType.UINT8)
    return (
        isinstance(node, Call) and isinstance(node.type, TensorType) and node.type.dtype in bytes_
    )


def compare(
    name: str, found: np.ndarray, expected: np.ndarray, *, quantized: bool = False
) -> OutputCheck:
    """Compare one output: floats within :data:`RELATIVE`, the rest exactly.

    Args:
        name: Name of the output.
        found: What was computed.
        expected: What the reference says.
        quantized: Allow :data:`QUANTIZED`, and one step in integers.
    """
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return OutputCheck(name, False, float("inf"))
    if not found.size:
        return OutputCheck(name, True, 0.0)
    exact = found.dtype.kind in "biu"
    ours, theirs = found.astype(np.float64), expected.astype(np.float64)
    same = (found == expected) | (np.isnan(ours) & np.isnan(theirs))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(ours - theirs))
    error = np.where(np.isnan(error), np.inf, error)
    finite = np.abs(theirs[np.isfinite(theirs)])
    largest = float(finite.max()) if finite.size else 0.0
    magnitude = np.where(np.isfinite(theirs), np.abs(theirs), 0.0)
    allowed = 0.0 if exact else RELATIVE * (magnitude + largest / 100)
    if quantized:
        allowed = 1.0 if exact else QUANTIZED * largest
    return OutputCheck(name, bool((error <= allowed).all()), float(error.max()))


def require_agreement(checks: Sequence[OutputCheck], regions: Sequence[RegionCheck]) -> None:
    """Refuse results that differ from the reference, naming the first region that does.

    Raises:
        GateFailed: Something does.
    """
    bad = [check for check in checks if not check.ok]
    apart = next((region for region in regions if not region.ok), None)
    if apart is not None:
        named = ", ".join(f"'{node}'" for node in apart.nodes[:5])
        more = f" and {len(apart.nodes) - 5} more" if len(apart.nodes) > 5 else ""
        raise GateFailed(
            f"'{apart.name}' is the first to differ from the reference, by {apart.max_error:.3g}; "
            f"{len(bad)} of {len(checks)} outputs differ",
            hint=f"it has the nodes {named}{more}; --place gives them to another",
        )
    if bad:
        names = ", ".join(f"'{check.name}'" for check in bad[:5])
        where = "no region differs, so the fallback does; " if regions else ""
        raise GateFailed(
            f"{len(bad)} of {len(checks)} outputs differ from the reference: {names}",
            hint=f"{where}run --profile names the steps; explain tells who computes which node",
        )
