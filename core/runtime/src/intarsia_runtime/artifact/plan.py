# SPDX-License-Identifier: Apache-2.0
"""The call plan: which function runs when, on which memory. Executed by native code.

Every piece of memory is known before anything runs: arguments live in the caller's arrays, in the
mapped constants, or at a fixed offset of one workspace.

The backend that compiles a plan exports three kinds of symbols:

* ``__tvm_ffi_main(context, inputs..., outputs...)``: carries out the plan. ``context`` is an
  integer, the address of an array of pointers: the workspace; then one for each constant; then for
  each region its function and its handle (both called as ``function(handle, args, n, result) ->
  int``, the tvm-ffi calling convention, inputs before outputs).
* ``__tvm_ffi_<kernel>(buffers...)``: one kernel alone, for profiles and tests.
* ``intarsia_run_steps``: see ``intarsia_runtime.loading``.

The sizes and offsets of the plan are in the code too. So the code also exports the constant
``uint64_t intarsia_plan_stamp`` (:func:`plan_stamp`): the runtime refuses a plan whose workspace,
weights or steps are not those that the code was compiled for.

**Open sizes.** A plan whose :attr:`CallPlan.open` is given is for inputs of many shapes: shapes are
expressions over size variables (:mod:`intarsia_runtime.size`), and temporaries lie in slots. The
last entry of ``context`` is then the address of the *frame*, an array of ``int64_t``: the size
variables; the bytes of the workspace; the offset of each slot; the sizes of the outputs, one output
after the other. ``int32_t intarsia_plan_sizes(int64_t *frame)`` computes what stands behind the
variables; it returns 0, or the number, from 1, of the first guard that does not hold. Kernels take
the size variables that they name as ``int64_t`` behind their buffers. Regions get the sizes of the
run in the shapes of their tensors, and behind these the size variables that they name, as integers;
``intarsia_run_open_steps`` finds what belongs to them (see ``intarsia_runtime.loading``).
"""

from __future__ import annotations

from enum import Enum
from hashlib import sha256
from math import prod
from typing import TypeAlias

from msgspec import Struct, json

from ..dtype import DType
from ..size import Size

ALIGNMENT = 64
"""Alignment in bytes of the workspace, of every offset in it, and of every constant."""


NARROW = frozenset(
    {
        *("float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
        *("float8_e8m0fnu", "int2", "int4", "uint2", "uint4"),
    }
)
"""Element types of ml_dtypes that compiled code has as bytes, one element in each."""


class TensorSpec(Struct, frozen=True):
    """Name, static shape and element type of an input or output.

    ``stored`` is NumPy's name of the element type of the caller's arrays, if compiled code has the
    same bytes as ``dtype``; empty if that is their type. ``only`` has the elements that the tensor
    may have, in row-major order, if the model was compiled for few values of it.
    """

    name: str
    shape: tuple[int, ...]  # of an open plan with Dims, which do the same arithmetic
    dtype: DType
    stored: str = ""
    only: tuple[tuple[int, ...], ...] = ()

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return prod(self.shape) * self.dtype.bytes


class Place(Enum):
    """Where an argument of a step lives."""

    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"
    WORKSPACE = "workspace"


class Argument(Struct, frozen=True):
    """A tensor argument of a step.

    Attributes:
        place: Where it lives.
        index: Number of the input, output or constant; byte offset in the workspace.
        shape: Static shape as the callee sees it.
        dtype: Element type.
    """

    place: Place
    index: int
    shape: tuple[int, ...]
    dtype: DType

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return prod(self.shape) * self.dtype.bytes


class KernelStep(Struct, frozen=True):
    """Call a compiled kernel: inputs, then outputs, then scratch.

    Attributes:
        function: Symbol of the kernel.
        args: Its buffers, in the order of its parameters.
        label: Operators in it, for profiles, e.g. ``nn.conv+add+nn.relu``.
        nodes: Names of the model's nodes in it.
        sizes: Size variables that it takes behind the buffers.
    """

    function: str
    args: tuple[Argument, ...]
    label: str = ""
    nodes: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()


class RegionStep(Struct, frozen=True):
    """Call an accelerator's region: inputs, then outputs.

    Attributes:
        region: Number of the region, an index into ``CallPlan.regions``.
        args: Its tensors.
        label: Kind of the accelerator and name of the region, for profiles.
        nodes: Names of the model's nodes in it.
        sizes: Size variables that it takes behind the tensors, as integers.
    """

    region: int
    args: tuple[Argument, ...]
    label: str = ""
    nodes: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()


class CopyStep(Struct, frozen=True):
    """Copy all bytes of one argument to another: for outputs that are inputs, constants, views."""

    source: Argument
    destination: Argument


Step: TypeAlias = KernelStep | RegionStep | CopyStep


class SizeSource(Struct, frozen=True):
    """Where a size variable is read: axis ``axis`` of input number ``input``."""

    name: str
    input: int
    axis: int


class SizeGuard(Struct, frozen=True):
    """Two sizes that must be equal, and the sentence that says why."""

    left: Size
    right: Size
    why: str


class OpenSizes(Struct, frozen=True):
    """What a plan for inputs of many shapes knows of their sizes.

    Attributes:
        variables: Size variables, in the order of the frame.
        guards: What must hold.
        slots: Bytes of each part of the workspace; arguments in it have a slot's number as index.
    """

    variables: tuple[SizeSource, ...]
    guards: tuple[SizeGuard, ...]
    slots: tuple[Size, ...]


class CallPlan(Struct, frozen=True):
    """What one run does.

    Attributes:
        inputs: The model's inputs, in its order.
        outputs: The model's outputs, in its order.
        constants: Names in ``params.safetensors`` of the constants that steps read.
        regions: Names of the external units, in the order of ``RegionStep.region``.
        workspace_bytes: Size of the workspace.
        steps: In the order they run.
        open: The sizes that only the run knows; ``None`` if all are numbers.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    constants: tuple[str, ...]
    regions: tuple[str, ...]
    workspace_bytes: int
    steps: tuple[Step, ...]
    open: OpenSizes | None = None


def frame_entries(plan: CallPlan) -> int:
    """Return how many numbers the frame of a plan has."""
    if plan.open is None:
        return 0
    outputs = sum(len(spec.shape) for spec in plan.outputs)
    return len(plan.open.variables) + 1 + len(plan.open.slots) + outputs


def calls_open_regions(plan: CallPlan) -> bool:
    """Whether a region that the plan calls takes size variables."""
    return any(isinstance(step, RegionStep) and step.sizes for step in plan.steps)


PLAN_STAMP = "intarsia_plan_stamp"
"""Symbol of the stamp of the plan that code was compiled for."""


def plan_stamp(plan: CallPlan) -> int:
    """Return 64 bits of a digest of everything in a plan that code relies on; never 0.

    Names and labels are left out.
    """
    specs = [[(spec.shape, spec.dtype) for spec in side] for side in (plan.inputs, plan.outputs)]
    counts = (len(plan.constants), len(plan.regions), plan.workspace_bytes)
    steps = [_callee(step) for step in plan.steps]
    if plan.open is None:
        return stamp_of((specs, counts, steps))
    opened = (plan.open.variables, [str(size) for size in plan.open.slots])
    given = [step.sizes for step in plan.steps if isinstance(step, RegionStep) and step.sizes]
    guards = [(str(guard.left), str(guard.right)) for guard in plan.open.guards]
    opened = (*opened, given) if given else opened
    return stamp_of((repr(specs), counts, repr(steps), opened, guards))


def stamp_of(value: object) -> int:
    """Return 64 bits of a digest of a value of plain data; never 0.

    Code that is steered by what it cannot check itself exports such a stamp of it, and its loader
    compares.
    """
    text = value if isinstance(value, bytes) else json.encode(value)
    return int.from_bytes(sha256(text).digest()[:8], "little") or 1


def _callee(step: Step) -> tuple[str | int, tuple[Argument, ...]]:
    match step:
        case KernelStep(function=function, args=args):
            return function, args
        case RegionStep(region=region, args=args):
            return region, args
        case CopyStep(source=source, destination=destination):
            return "", (source, destination)
