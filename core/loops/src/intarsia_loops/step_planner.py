# SPDX-License-Identifier: Apache-2.0
"""Plans the steps of a function and of the functions that it calls: order and memory.

Steps are numbered in the order of the plan; nested steps follow the step that contains them. A
temporary is live from the first to the last step that uses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from intarsia_ir.graph.expr import Constant, Function, Var
from intarsia_ir.graph.types import TensorType
from intarsia_ir.writing.deferred import Content, are_alike
from intarsia_runtime.artifact.plan import (
    Argument,
    ArgumentSource,
    CopyStep,
    KernelStep,
    RegionStep,
    RunSize,
    SizesStep,
    Step,
)
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import VerifyError
from intarsia_runtime.size import Dim

from .append_rows import appends_rows
from .fuse import ControlCall, Fusion, KernelCall, RegionCall, SizesRead
from .plan_memory import LiveRange
from .typical import extents
from .values import NodeResult

if TYPE_CHECKING:
    from intarsia_ir.tir.func import PrimFunc

    from .targets import OutlinedRegion


class Spot(NamedTuple):
    """Where a value lies: as :class:`~intarsia_runtime.artifact.plan.Argument` says it.

    In the workspace, ``number`` is that of a live range until offsets are known.
    """

    place: ArgumentSource
    number: int
    loop: int | None = None


class FusedFunction(Struct, frozen=True, eq=False):
    """A function, and its kernels, calls of regions and control flow in order."""

    function: Function
    fusion: Fusion


class Callees(Struct, frozen=True, eq=False):
    """What steps call.

    Attributes:
        kernels: Kernel of each call.
        regions: Outlined functions by name.
        functions: What control flow carries out, by name.
    """

    kernels: Mapping[KernelCall, PrimFunc]
    regions: Mapping[str, OutlinedRegion]
    functions: Mapping[str, FusedFunction]


class StepPlanner(Struct):
    """Places of values while steps are planned.

    Attributes:
        callees: What steps call.
        views: Values that are the memory of others.
        spots: Where values lie, by now.
        live_ranges: Of the temporaries.
        constants: What steps read of the model's weights.
        constant_kinds: Those of one shape and element type, each with its number.
        called: Numbers of the regions that are called.
        stages: Names of the sizes that each step reads which reads sizes.
        computed: All of them, from the beginning.
    """

    callees: Callees
    views: dict[NodeResult, NodeResult] = field(default_factory=dict[NodeResult, NodeResult])
    spots: dict[NodeResult, Spot] = field(default_factory=dict[NodeResult, Spot])
    live_ranges: list[LiveRange] = field(default_factory=list[LiveRange])
    constants: dict[str, Content] = field(default_factory=dict[str, Content])
    called: dict[str, int] = field(default_factory=dict[str, int])
    constant_numbers: dict[int, int] = field(default_factory=dict[int, int])
    constant_kinds: dict[tuple[tuple[int, ...], str], list[tuple[Content, int]]] = field(
        default_factory=dict[tuple[tuple[int, ...], str], list[tuple[Content, int]]]
    )
    loops: list[set[int]] = field(default_factory=list[set[int]])
    reads: dict[FusedFunction, Counter[NodeResult]] = field(
        default_factory=dict[FusedFunction, Counter[NodeResult]]
    )
    clock: int = 0
    stages: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    computed: frozenset[str] = frozenset()

    def root(self, value: NodeResult) -> NodeResult:
        """Return the value whose memory ``value`` is."""
        while value in self.views:
            value = self.views[value]
        return value

    def plan(
        self, fused: FusedFunction, wanted: Sequence[tuple[NodeResult, Spot]]
    ) -> tuple[Step, ...]:
        """Return the steps of a function whose parameters have places.

        Args:
            fused: The function.
            wanted: Results of it, and where they must lie at the end. No step before the one that
                makes a result touches its place, unless :meth:`_may_overwrite` says so.
        """
        steps, late = self.computed_steps(fused, wanted)
        return (*steps, *self.copies(late))

    def computed_steps(
        self, fused: FusedFunction, wanted: Sequence[tuple[NodeResult, Spot]]
    ) -> tuple[list[Step], list[tuple[NodeResult, Spot]]]:
        """Return the steps of :meth:`plan`, and the results that must be copied behind them."""
        self.views.update(fused.fusion.views)
        taken: set[Spot] = set()
        late: list[tuple[NodeResult, Spot]] = []
        for value, spot in wanted:
            root = self.root(value)
            is_made = not isinstance(root.node, Constant | Var) and root not in self.spots
            is_free = spot not in taken and not self._is_sized_later(value, root)
            if is_made and is_free and self._may_overwrite(fused, root, spot, wanted):
                self.spots[root] = spot
                taken.add(spot)
            else:
                late.append((value, spot))
        steps: list[Step] = []
        for item in fused.fusion.items:
            if isinstance(item, KernelCall) and appends_rows(item):
                continue  # when what it appends to has room
            if isinstance(item, KernelCall):
                steps.append(self._kernel(item))
            elif isinstance(item, RegionCall):
                steps.append(self._region(item))
            elif isinstance(item, SizesRead):
                steps.append(self._read_sizes(item))
            else:
                steps += self._control(item, fused)
        return steps, late

    def _is_sized_later(self, value: NodeResult, root: NodeResult) -> bool:
        """Whether the place of a value has a size that is computed after the value is made."""
        return not self.computed.isdisjoint(names_of(value.type) - names_of(root.type))

    def _may_overwrite(
        self,
        fused: FusedFunction,
        root: NodeResult,
        spot: Spot,
        wanted: Sequence[tuple[NodeResult, Spot]],
    ) -> bool:
        """Whether what lies at a place is read for the last time before ``root`` is made.

        Of what iterations of a loop hand on, the place has the value of the iteration before. Rows
        are appended behind all other items.
        """
        old = {
            NodeResult(p) for p in fused.function.params if self.spots.get(NodeResult(p)) == spot
        }
        if not old:
            return True
        if any(self.root(value) in old for value, _ in wanted):
            return False
        is_made = False
        for item in fused.fusion.items:
            reads = any(self.root(arg) in old for arg in item.args)
            is_made = is_made or root in item.outputs
            if reads and (is_made or appends_rows(item)):
                return False
        return is_made

    def _control(self, item: ControlCall, fused: FusedFunction) -> list[Step]:
        """Return the steps of a call of control flow."""
        raise NotImplementedError

    def argument(self, value: NodeResult, shape: tuple[int, ...]) -> Argument:
        """Return where the step that is planned now finds or puts a value."""
        root = self.root(value)
        if root not in self.spots:
            if not isinstance(root.node, Constant):
                raise VerifyError(
                    "a value is read before a step makes it", where=str(root.node.span)
                )
            self.spots[root] = Spot(ArgumentSource.CONSTANT, self._constant(root.node))
        return self._at(self.spots[root], shape, root.type.dtype)

    def _at(self, spot: Spot, shape: tuple[int, ...], dtype: DType) -> Argument:
        """Return a place as an argument of the step that is planned now."""
        if spot.place is ArgumentSource.WORKSPACE:
            life = self.live_ranges[spot.number]
            self.live_ranges[spot.number] = replace(life, last=max(life.last, self.clock))
            for touched in self.loops:
                touched.add(spot.number)
        return Argument(spot.place, spot.number, shape, dtype, spot.loop)

    def _made(self, value: NodeResult, shape: tuple[int, ...]) -> Argument:
        """Return where the step that is planned now puts a value."""
        if value not in self.spots:
            self.spots[value] = self.temporary(tensor_bytes(value.type))
        return self.argument(value, shape)

    def temporary(self, size: int) -> Spot:
        """Return the place of a new temporary."""
        self.live_ranges.append(LiveRange(size, self.clock, self.clock))
        return Spot(ArgumentSource.WORKSPACE, len(self.live_ranges) - 1)

    def _constant(self, node: Constant) -> int:
        key = id(node.content)
        if key not in self.constant_numbers:
            known = self._known_constant(node.content)
            self.constant_numbers[key] = self._new_constant(node) if known is None else known
        return self.constant_numbers[key]

    def _known_constant(self, content: Content) -> int | None:
        """Return the number of a weight with equal elements; ``None`` if there is none.

        Functions that control flow chooses from may have the same weights, each packed anew.
        """
        alike = self._alike(content) if self.callees.functions else []
        return next((number for known, number in alike if are_alike(known, content)), None)

    def _new_constant(self, node: Constant) -> int:
        number = len(self.constants)
        name = _unique(node.name or f"constant_{number}", self.constants)
        self.constants[name] = node.content
        self._alike(node.content).append((node.content, number))
        return number

    def _alike(self, content: Content) -> list[tuple[Content, int]]:
        """Return the constants by now that have the shape and element type of one."""
        return self.constant_kinds.setdefault((content.shape, content.dtype.str), [])

    def _kernel(self, item: KernelCall) -> KernelStep:
        kernel = self.callees.kernels[item]
        args = [
            self.argument(value, buffer.shape)
            for value, buffer in zip(item.args, kernel.input_params, strict=True)
        ]
        args += [
            self._made(value, buffer.shape)
            for value, buffer in zip(item.outputs, kernel.output_params, strict=True)
        ]
        args += [self._at(self.temporary(b.bytes), b.shape, b.dtype) for b in kernel.scratch_params]
        self.clock += 1
        sizes = tuple(size.name for size in kernel.sizes)
        return KernelStep(kernel.name, tuple(args), item.group.label, item.group.nodes, sizes)

    def _read_sizes(self, item: SizesRead) -> SizesStep:
        read = [
            RunSize(name, self.argument(value, extents(value.type)))
            for name, value in item.sizes.items()
        ]
        self.clock += 1
        self.stages.append(tuple(item.sizes))
        return SizesStep(len(self.stages), tuple(read))

    def _region(self, item: RegionCall) -> RegionStep:
        if item.name not in self.callees.regions:
            raise VerifyError(f"no region '{item.name}'")
        region = self.callees.regions[item.name]
        number = self.called.setdefault(item.name, len(self.called))
        args = [self.argument(value, extents(value.type)) for value in item.args]
        args += [self._made(value, extents(value.type)) for value in item.outputs]
        self.clock += 1
        label = f"{region.kind}:{region.name}"
        return RegionStep(number, tuple(args), label, region.nodes, region.sizes)

    def _copy(self, source: Argument, spot: Spot) -> CopyStep:
        step = CopyStep(source, self._at(spot, source.shape, source.dtype))
        self.clock += 1
        return step

    def copy_value(self, value: NodeResult, spot: Spot) -> CopyStep:
        """Return the step that copies a value to a place."""
        return self._copy(self.argument(value, extents(value.type)), spot)

    def copies(self, late: Sequence[tuple[NodeResult, Spot]]) -> list[Step]:
        """Copy results to their places; none is overwritten before it was read."""
        steps: list[Step] = []
        targets = {spot for _, spot in late}
        ready: list[tuple[NodeResult, Spot, Spot | None]] = []
        for value, spot in late:
            source = self.spots.get(self.root(value))
            if source == spot:
                continue
            apart = None
            if source in targets and len(late) > 1:  # another copy may come first
                apart = self.temporary(tensor_bytes(value.type))
                steps.append(self.copy_value(value, apart))
            ready.append((value, spot, apart))
        for value, spot, apart in ready:
            if apart is None:
                steps.append(self.copy_value(value, spot))
            else:
                source = self._at(apart, extents(value.type), value.type.dtype)
                steps.append(self._copy(source, spot))
        return steps


def _unique(name: str, taken: Mapping[str, object]) -> str:
    if name not in taken:
        return name
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


def names_of(kind: TensorType) -> set[str]:
    """Return the size variables of a type."""
    return {name for size in kind.shape if isinstance(size, Dim) for name in size.variables()}


def tensor_bytes(kind: TensorType) -> int:
    """Return the size in bytes, an expression where only the run knows it."""
    return prod(extents(kind)) * kind.dtype.bytes
