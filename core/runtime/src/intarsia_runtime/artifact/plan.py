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
after the other. A slot begins where the last of those ends that :attr:`OpenSizes.behind` names.
``int32_t intarsia_plan_sizes(int64_t *frame)`` computes what stands behind the variables; it
returns 0, or the number, from 1, of the first guard that does not hold. Kernels take the size
variables that they name as ``int64_t`` behind their buffers. Regions get the sizes of the run in
the shapes of their tensors, and behind these the size variables that they name, as integers;
``intarsia_run_open_steps`` finds what belongs to them (see ``intarsia_runtime.loading``).

**Stages.** Some sizes are known only after steps have run, such as the number of elements that
``NonZero`` finds. A :class:`SizesStep` reads such variables from memory; its number, from 1, is the
*stage*. Sizes that depend on them are known from that stage on; sizes that depend only on inputs
are stage 0. In the frame, the variables of the stages follow those of the inputs; the bytes of a
workspace for each stage follow those of the first; and the last entry is the *status*. ``int32_t
intarsia_plan_sizes_<n>(int64_t *frame)`` checks and computes the sizes of stage ``n``. If it fails,
it returns -1 and the status has the reason: the number of a guard, from 1; or ``-1 - v`` if
variable ``v`` of the frame is not a valid size; or :data:`NO_ROOM` for a tensor of more than
:data:`MOST_BYTES` bytes. After the frame, ``context`` then has the function ``void *grow(void
*state, int32_t number, int64_t bytes)``; its ``state``; for each stage the address of its workspace
and how many bytes that has; and the addresses of all outputs. The code calls ``grow(state, n,
bytes)`` if the workspace of stage ``n`` is too small, and, for an output ``k`` whose sizes belong
to a stage, ``grow(state, stages + 1 + k, bytes)``; such an output is no argument of ``main``. If
``grow`` returns null, ``main`` fails.

**Control flow.** A step may contain blocks of steps: :class:`IfStep` executes one of two,
:class:`LoopStep` one block in each iteration. Blocks read and write the memory of the whole plan,
so a loop-carried value has one address that the body reads and writes.
In the context of a plan with loops, ``int32_t poll(void)`` follows the regions. Loops call it
every 64 iterations, and ``main`` ends with -1 if it returns 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from hashlib import sha256
from itertools import chain
from math import prod
from typing import TypeAlias

from msgspec import Struct, json

from ..dtype import DType
from ..size import Dim, Size

ALIGNMENT = 64
"""Alignment in bytes of the workspace, of every offset in it, and of every constant."""

MOST_BYTES = 1 << 62
"""Limit of a tensor's bytes; sizes that steps compute may be any number."""

NO_ROOM = -(1 << 62)
"""Status of a run that needs more memory than there is."""

THREADS = "<threads>"
"""The size variable that is how many threads the run has; its source is no input."""

NARROW = frozenset(
    {
        *("float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
        *("float8_e8m0fnu", "int2", "int4", "uint2", "uint4"),
    }
)
"""Element types of ml_dtypes that compiled code has as bytes, one element in each."""


class TensorSpec(Struct, frozen=True):
    """Name, static shape and element type of an input or output.

    ``stored`` is NumPy's name of the element type of the caller's arrays, if it differs from
    ``dtype`` and compiled code reads the same bytes; empty otherwise. ``only`` has the permitted
    values of the tensor, in row-major order, if the model was compiled for few values.
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


class ArgumentSource(Enum):
    """Where an argument of a step lives."""

    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"
    WORKSPACE = "workspace"


class Argument(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """A tensor argument of a step.

    Attributes:
        place: Where it lives.
        index: Number of the input, output or constant; byte offset in the workspace.
        shape: Static shape as the callee sees it.
        dtype: Element type.
        loop: For a tensor that has one row for each iteration of a loop: the nesting depth of that
            loop. The row of iteration ``t`` lies ``t`` times its bytes after the place. ``None``
            for a whole tensor.
    """

    place: ArgumentSource
    index: int
    shape: tuple[int, ...]
    dtype: DType
    loop: int | None = None

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


class SizeGuard(Struct, frozen=True):
    """Two sizes that must be equal, and the sentence that says why."""

    left: Size
    right: Size
    why: str


class GuardStep(Struct, frozen=True):
    """Go on only if two sizes are equal.

    Of a plan's guards inside branches, ``main`` returns the number, from 1, of the one that does
    not hold.
    """

    guard: SizeGuard


class RunSize(Struct, frozen=True):
    """A size variable, and the int64 tensor of one element that has its value."""

    name: str
    argument: Argument


class SizesStep(Struct, frozen=True):
    """Read size variables from memory, and lay out what depends on them.

    Attributes:
        stage: Its number, from 1.
        sizes: The variables, in the order of ``OpenSizes.stages``.
        is_final: Whether outputs of these sizes get their memory; not while a loop changes them.
    """

    stage: int
    sizes: tuple[RunSize, ...]
    is_final: bool = True


class Block(Struct, frozen=True):
    """Steps inside a step."""

    steps: tuple[Step, ...]


class IfStep(Struct, frozen=True):
    """Carry out one of two blocks.

    Attributes:
        condition: One bool.
        then: Carried out if it is true.
        orelse: Carried out if it is false.
        label: What it is, for profiles.
        nodes: Names of the model's nodes that it is.
    """

    condition: Argument
    then: Block
    orelse: Block
    label: str = ""
    nodes: tuple[str, ...] = ()


class LoopStep(Struct, frozen=True):
    """Carry out a block iteration after iteration, while all that is given of the following allows
    it.

    Attributes:
        body: One iteration.
        most: No more iterations than this; arguments that are rows have so many.
        trip: One int64: no more iterations than it says. Read before the first iteration.
        condition: One bool, which must be true for an iteration to begin. The body writes it.
        iteration: One int64, which becomes the number of the iteration, from 0, before the
        iteration begins.
        label: What it is, for profiles.
        nodes: Names of the model's nodes that it is.
    """

    body: Block
    most: Size | None = None
    trip: Argument | None = None
    condition: Argument | None = None
    iteration: Argument | None = None
    label: str = ""
    nodes: tuple[str, ...] = ()


Step: TypeAlias = KernelStep | RegionStep | CopyStep | SizesStep | GuardStep | IfStep | LoopStep


class SizeSource(Struct, frozen=True):
    """Where a size variable is read: axis ``axis`` of input number ``input``."""

    name: str
    input: int
    axis: int


class OpenSizes(Struct, frozen=True):
    """What a plan for inputs of many shapes knows of their sizes.

    Attributes:
        variables: Size variables, in the order of the frame.
        guards: What must hold.
        slots: Bytes of each part of the workspace; arguments in it have a slot's number as index.
        stages: Names of the size variables that are known from stage 1, 2, ... on.
        behind: For each slot, those before it in its stage that end where it begins, or earlier;
            if empty, slots of a stage lie one behind the other.
    """

    variables: tuple[SizeSource, ...]
    guards: tuple[SizeGuard, ...]
    slots: tuple[Size, ...]
    stages: tuple[tuple[str, ...], ...] = ()
    behind: tuple[tuple[int, ...], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all size variables, in the order of the frame."""
        return (*(source.name for source in self.variables), *chain.from_iterable(self.stages))

    def stage(self, *sizes: Size) -> int:
        """Return the stage from which on sizes are known."""
        if not self.stages:
            return 0
        names = {name for size in sizes if isinstance(size, Dim) for name in size.variables()}
        numbered = enumerate(self.stages, start=1)
        return max([n for n, stage in numbered if not names.isdisjoint(stage)], default=0)


class CallPlan(Struct, frozen=True):
    """The steps of one run, and the memory that they use.

    Attributes:
        inputs: The model's inputs, in its order.
        outputs: The model's outputs, in its order.
        constants: Names in ``params.safetensors`` of the constants that steps read.
        regions: Names of the external units, in the order of ``RegionStep.region``.
        workspace_bytes: Size of the workspace; for open sizes its upper bound, 0 if unknown.
        steps: The steps, in the order of execution.
        open: The symbolic dimensions; ``None`` if all sizes are numbers.
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
    sizes = plan.open
    if sizes is None:
        return 0
    outputs = sum(len(spec.shape) for spec in plan.outputs)
    stages = len(sizes.stages)
    return len(sizes.names) + 1 + stages + len(sizes.slots) + outputs + bool(stages)


def passed_outputs(plan: CallPlan, before: int | None = None) -> tuple[TensorSpec, ...]:
    """Return the outputs that are arguments of ``main``: not those whose sizes steps compute.

    Args:
        plan: The plan.
        before: Only those before the output of this number.
    """
    outputs = plan.outputs[:before]
    if plan.open is None or not plan.open.stages:
        return outputs
    return tuple(spec for spec in outputs if plan.open.stage(*spec.shape) == 0)


def blocks_of(step: Step) -> tuple[Block, ...]:
    """Return the blocks inside a step."""
    match step:
        case IfStep(then=then, orelse=orelse):
            return then, orelse
        case LoopStep(body=body):
            return (body,)
        case _:
            return ()


def all_steps(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield every step, and behind it those inside it."""
    for step in steps:
        yield step
        for block in blocks_of(step):
            yield from all_steps(block.steps)


def calls_open_regions(plan: CallPlan) -> bool:
    """Whether a region that the plan calls takes size variables."""
    return bool(_region_sizes(plan))


def _region_sizes(plan: CallPlan) -> list[tuple[str, ...]]:
    """Return the size variables of every call of a region that takes some."""
    return [s.sizes for s in all_steps(plan.steps) if isinstance(s, RegionStep) and s.sizes]


def has_loops(plan: CallPlan) -> bool:
    """Whether a plan has a loop, so that its context has ``poll``."""
    return any(isinstance(step, LoopStep) for step in all_steps(plan.steps))


def poll_entry(plan: CallPlan) -> int:
    """Return the number of the entry behind the regions: ``poll`` of a plan with loops."""
    return 1 + len(plan.constants) + 2 * len(plan.regions)


def frame_entry(plan: CallPlan) -> int:
    """Return the number of the entry of the context that has the frame of an open plan."""
    return poll_entry(plan) + has_loops(plan)


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
    given = _region_sizes(plan)
    guards = [(str(guard.left), str(guard.right)) for guard in plan.open.guards]
    stages = (plan.open.stages,) if plan.open.stages else ()
    opened = (*opened, given) if given else opened
    behind = (plan.open.behind,) if plan.open.behind else ()
    return stamp_of((repr(specs), counts, repr(steps), opened, guards, *stages, *behind))


def stamp_of(value: object) -> int:
    """Return 64 bits of a digest of a value of plain data; never 0.

    Code that depends on data which it cannot check exports a stamp of that data, and its loader
    compares both.
    """
    text = value if isinstance(value, bytes) else json.encode(value)
    return int.from_bytes(sha256(text).digest()[:8], "little") or 1


def _callee(step: Step) -> tuple[object, ...]:
    match step:
        case KernelStep(function=function, args=args):
            return function, args
        case RegionStep(region=region, args=args):
            return region, args
        case CopyStep(source=source, destination=destination):
            return "", (source, destination)
        case GuardStep(guard=guard):
            return "guard", str(guard.left), str(guard.right)
        case SizesStep(stage=stage, sizes=sizes):
            names = " ".join(size.name for size in sizes)
            key = f"{stage} {names}" if step.is_final else f"{stage} {names} again"
            return key, tuple(size.argument for size in sizes)
        case IfStep(condition=condition, then=then, orelse=orelse):
            return "if", condition, _callees(then), _callees(orelse)
        case LoopStep(body=body, trip=trip, condition=condition, iteration=iteration):
            return "loop", str(step.most), trip, condition, iteration, _callees(body)


def _callees(block: Block) -> list[tuple[object, ...]]:
    return [_callee(step) for step in block.steps]
