# SPDX-License-Identifier: Apache-2.0
"""Plans branches and loops: blocks of steps that share the memory of the whole plan.

A temporary from before a loop that is used inside is live until the loop ends, because the next
iteration uses it again. A temporary from inside is live within an iteration. Both branches of an
``if`` are numbered one after the other, so their temporaries share memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.graph.control import control_of
from intarsia_ir.graph.expr import Call, Constant, Var
from intarsia_ir.ops import control
from intarsia_runtime.artifact.plan import (
    Argument,
    ArgumentSource,
    Block,
    GuardStep,
    IfStep,
    LoopStep,
    RunSize,
    SizeGuard,
    SizesStep,
    Step,
)
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import VerifyError

from .append_rows import appends_rows
from .fuse import ControlCall, Item, KernelCall, SizesRead
from .step_planner import FusedFunction, Spot, StepPlanner, names_of, tensor_bytes
from .typical import extents
from .values import NodeResult


class ControlPlanner(StepPlanner):
    """Places of values while steps are planned, those inside of branches and loops included."""

    def _control(self, item: ControlCall, fused: FusedFunction) -> list[Step]:
        before = dict(self.spots)
        steps = self._if(item) if item.call.op is control.If else self._loop(item, fused)
        results = {value: self.spots[value] for value in item.outputs}
        self.spots = {**before, **results}
        return steps

    def _inside(self, name: str, given: Sequence[Spot], ends: _Ends) -> tuple[Step, ...]:
        """Plan a function that control flow carries out.

        Args:
            name: Its name.
            given: Places of its parameters.
            ends: Where its results must lie.
        """
        fused = self.callees.functions[name]
        for param, spot in zip(fused.function.params, given, strict=True):
            self.spots[NodeResult(param)] = spot
        pairs = list(zip(fused.fusion.outputs, ends.spots, strict=True))
        early = [pair for n, pair in enumerate(pairs) if not ends.is_late(n)]
        late = [pair for n, pair in enumerate(pairs) if ends.is_late(n)]
        steps, copied = self.computed_steps(fused, early)
        appends = {item.outputs[0]: item for item in fused.fusion.items if appends_rows(item)}
        grown = [(appends[value], spot) for value, spot in late if value in appends]
        late = [pair for pair in late if pair[0] not in appends]
        steps += self._appended(grown, ends)
        return (*steps, *self.copies(copied), *self._late_ends(late, ends))

    def _appended(self, grown: Sequence[tuple[Item, Spot]], ends: _Ends) -> list[Step]:
        """Append rows to values in their places, and before that make room where it is missing.

        All places move when one grows: their values are kept apart meanwhile.
        """
        if not grown:
            return []
        condition = self.argument(grown[0][0].args[1], (1,))
        self.clock += 1
        saves: list[Step] = []
        restores: list[tuple[Argument, Spot]] = []
        for item, spot in grown:
            type_ = item.args[0].type
            kept, shape = self.temporary(tensor_bytes(type_)), extents(type_)
            saves.append(self._copy(self._at(spot, shape, type_.dtype), kept))
            restores.append((self._at(kept, shape, type_.dtype), spot))
        sizes = self._set_sizes(ends.room_stage, ends.rooms, is_final=False)
        block = Block((*saves, *sizes, *(self._copy(*pair) for pair in restores)))
        steps: list[Step] = [IfStep(condition, block, Block(()), "room")]
        for item, spot in grown:
            assert isinstance(item, KernelCall)  # those that append are
            self.spots[item.outputs[0]] = spot
            steps.append(self._kernel(item))
        return steps

    def _late_ends(self, late: Sequence[tuple[NodeResult, Spot]], ends: _Ends) -> list[Step]:
        """Copy results whose places have a size only now; what lies there before is gone."""
        steps: list[Step] = []
        sources: list[Argument] = []
        places = {spot for _, spot in late}
        kept: list[Spot] = []
        for value, _ in late:
            root = self.root(value)
            if self.spots.get(root) in places:
                kept.append(self.temporary(tensor_bytes(value.type)))
                steps.append(self.copy_value(value, kept[-1]))
            elif isinstance(root.node, Constant) or root in self.spots:
                self.argument(value, ())
                kept.append(self.spots[root])
            else:
                raise VerifyError("a result is made by nobody", where=str(root.node.span))
        steps += self._set_sizes(ends.stage, ends.sizes, is_final=ends.is_final)
        for (value, spot), source in zip(late, kept, strict=True):
            shape = extents(value.type)
            sources.append(self._at(source, shape, value.type.dtype))
            steps.append(self._copy(sources[-1], spot))
        return steps

    def _spot_of(self, value: NodeResult) -> Spot:
        """Return where a value that exists lies."""
        self.argument(value, ())
        return self.spots[self.root(value)]

    def _if(self, item: ControlCall) -> list[Step]:
        attrs = cast("control.If.Attrs", item.call.attrs)
        condition = self.argument(item.args[0], ())
        captured = [self._spot_of(value) for value in item.args[1:]]
        self.clock += 1
        moved = self._moved(item)
        results = [self._placed(value) for value in item.outputs]
        stage = self._new_stage(control.If.defined(attrs))
        ends = _Ends(0, tuple(results), item.outputs, stage)
        then = self._inside(attrs.then, captured, ends)
        orelse = self._inside(attrs.orelse, captured, ends)
        blocks = _guarded(attrs.then_guards, then), _guarded(attrs.else_guards, orelse)
        return [IfStep(condition, *blocks, "if", _nodes(item)), *self._move(moved)]

    def _moved(self, item: ControlCall) -> list[tuple[NodeResult, Spot]]:
        """Take results away from places that have no size before they are made.

        Returns:
            Where they must be copied when they are there.
        """
        moved: list[tuple[NodeResult, Spot]] = []
        for value in item.outputs:
            if value in self.spots and _is_sized_by(item, value):
                moved.append((value, self.spots.pop(value)))
        return moved

    def _move(self, moved: Sequence[tuple[NodeResult, Spot]]) -> list[Step]:
        return [self.copy_value(value, spot) for value, spot in moved]

    def _new_stage(self, names: Sequence[str]) -> int:
        """Return the number of a stage whose size variables these are; 0 if there are none."""
        if not names:
            return 0
        self.stages.append(tuple(names))
        return len(self.stages)

    def _set_sizes(self, stage: int, spots: Sequence[Spot], *, is_final: bool = True) -> list[Step]:
        """Return the step that reads the size variables of a stage."""
        if not stage:
            return []
        pairs = zip(self.stages[stage - 1], spots, strict=False)
        read = [RunSize(name, self._at(spot, (1,), DType.INT64)) for name, spot in pairs]
        self.clock += 1
        return [SizesStep(stage, tuple(read), is_final)]

    def _placed(self, value: NodeResult) -> Spot:
        """Return where a result of control flow goes; a new temporary if nobody says."""
        if value not in self.spots:
            self.spots[value] = self.temporary(tensor_bytes(value.type))
        return self.spots[value]

    def _loop(self, item: ControlCall, fused: FusedFunction) -> list[Step]:
        attrs = cast("control.Loop.Attrs", item.call.attrs)
        heads = attrs.has_trip + attrs.has_condition
        rest = item.args[heads + attrs.carried :]
        steps: list[Step] = []
        flag = self.temporary(1) if attrs.has_condition else None
        if flag is not None:
            steps.append(self.copy_value(item.args[heads - 1], flag))
        moved = self._moved(item)
        stages, carried = self._started(item, fused, steps)
        sliced = [self._sliced(value, steps) for value in rest[: attrs.sliced]]
        collected, rows = self._collected(item.outputs[attrs.carried :])
        captured = [self._spot_of(value) for value in rest[attrs.sliced :]]
        iteration = [self.temporary(8)] if attrs.takes_iteration else []
        depth, first = len(self.loops), len(self.live_ranges)
        self.loops.append(set())
        trip = self.argument(item.args[0], ()) if attrs.has_trip else None
        condition = None if flag is None else self._at(flag, (), DType.BOOL)
        number = self._at(iteration[0], (), DType.INT64) if iteration else None
        self.clock += 1
        given = [*iteration, *carried, *(spot._replace(loop=depth) for spot in sliced), *captured]
        head = [] if flag is None else [flag]
        places = (*head, *carried, *(spot._replace(loop=depth) for spot in collected))
        ends = _Ends(len(head), places, item.outputs, *stages, is_final=False)
        inner = self._set_sizes(self._new_stage(control.Loop.inner(attrs)), ends.sizes)
        body = _guarded(attrs.guards, (*inner, *self._inside(attrs.body, given, ends)))
        self._outlive(self.loops.pop(), first)
        most = None if attrs.most == -1 else attrs.most
        steps.append(LoopStep(body, most, trip, condition, number, "loop", _nodes(item)))
        steps += self._set_sizes(ends.stage, ends.sizes)
        for value, source in rows:
            made = self._at(source, extents(value.type), value.type.dtype)
            steps.append(self._copy(made, self.spots[value]))
        return [*steps, *self._move(moved)]

    def _started(
        self, item: ControlCall, fused: FusedFunction, steps: list[Step]
    ) -> tuple[tuple[int, int, int], list[Spot]]:
        """Place what iterations hand on, with the first values, which the first iteration finds
        there.

        Returns:
            The stage of the sizes that change from iteration to iteration, 0 if none does; that of
            the rooms, and how many sizes come before these; and the places.
        """
        attrs = cast("control.Loop.Attrs", item.call.attrs)
        heads, defined = attrs.has_trip + attrs.has_condition, control.Loop.defined(attrs)
        pairs = [*zip(item.outputs, item.args[heads : heads + attrs.carried], strict=False)]
        found = [self._start(*pair, fused, steps) for pair in pairs[: len(defined)]]
        exact = len(defined) - attrs.rooms
        stage, room_stage = self._new_stage(defined[:exact]), self._new_stage(defined[exact:])
        steps += self._set_sizes(stage, found, is_final=False)
        steps += self._set_sizes(room_stage, found[exact:], is_final=False)
        for result, value in pairs[len(defined) :]:
            if _is_sized_by(item, result):
                found.append(self._placed(result))
                steps.append(self.copy_value(value, found[-1]))
            else:
                found.append(self._start(result, value, fused, steps))
        return (stage, room_stage, exact), found

    def _outlive(self, touched: set[int], first: int) -> None:
        """Let what was made before a loop, and is touched inside, live until its last step."""
        last = self.clock - 1
        for number in touched:
            life = self.live_ranges[number]
            if number < first:
                self.live_ranges[number] = replace(life, last=max(life.last, last))

    def _start(
        self, result: NodeResult, value: NodeResult, fused: FusedFunction, steps: list[Step]
    ) -> Spot:
        """Return where a carried value lies; its first value is there.

        That is the memory of the first value itself if nothing else reads it.
        """
        root = self.root(value)
        spot = self.spots.get(root)
        own = spot is not None and spot.place is ArgumentSource.WORKSPACE and spot.loop is None
        is_last = not isinstance(root.node, Var) and self._uses(fused)[root] == 1
        if result not in self.spots and own and is_last and spot is not None:
            self.spots[result] = self._spot_of(value)
            return spot
        new_spot = self._placed(result)
        steps.append(self.copy_value(value, new_spot))
        return new_spot

    def _uses(self, fused: FusedFunction) -> Counter[NodeResult]:
        """Count how often each value is read, as an operand or result of a function."""
        if fused not in self.reads:
            reads = Counter(self.root(arg) for item in fused.fusion.items for arg in item.args)
            reads.update(self.root(value) for value in fused.fusion.outputs)
            self.reads[fused] = reads
        return self.reads[fused]

    def _sliced(self, value: NodeResult, steps: list[Step]) -> Spot:
        """Return where a tensor lies of which each iteration reads a slice."""
        spot = self._spot_of(value)
        if spot.loop is None and spot.place is not ArgumentSource.CONSTANT:
            return spot
        copied = self.temporary(tensor_bytes(value.type))
        steps.append(self.copy_value(value, copied))
        return copied

    def _collected(
        self, results: Sequence[NodeResult]
    ) -> tuple[list[Spot], list[tuple[NodeResult, Spot]]]:
        """Return where iterations collect values, and which of these must be moved afterwards."""
        spots: list[Spot] = []
        moved: list[tuple[NodeResult, Spot]] = []
        for value in results:
            spot = self._placed(value)
            if spot.loop is not None:  # a row of a loop around has no rows of its own
                spot = self.temporary(tensor_bytes(value.type))
                moved.append((value, spot))
            spots.append(spot)
        return spots, moved


class _Ends(Struct, frozen=True):
    """Where the results of a function that control flow carries out must lie.

    Attributes:
        heads: How many results come before those of the call.
        spots: The places.
        results: Results of the call.
        stage: Of the sizes that the call defines; the first results are their values.
        room_stage: Of the room of values that iterations append to.
        exact: How many sizes come before the rooms.
        is_final: Whether these sizes do not change any more.
    """

    heads: int
    spots: tuple[Spot, ...]
    results: tuple[NodeResult, ...]
    stage: int
    room_stage: int = 0
    exact: int = 0
    is_final: bool = True

    @property
    def sizes(self) -> tuple[Spot, ...]:
        """Where the values of the sizes lie, and other results behind them."""
        return self.spots[self.heads :]

    @property
    def rooms(self) -> tuple[Spot, ...]:
        """Where the values of the rooms lie, and other results behind them."""
        return self.sizes[self.exact :]

    def is_late(self, number: int) -> bool:
        """Whether the place of a result has a size only when the function has made it."""
        if not self.stage or number < self.heads:
            return False
        value = self.results[number - self.heads]
        call = value.node
        operator = control_of(call)
        defined = operator.defined(call.attrs) if isinstance(call, Call) and operator else ()
        return not names_of(value.type).isdisjoint(defined)


def _is_sized_by(item: ControlCall, value: NodeResult) -> bool:
    """Whether the type of a result has a size variable that the call defines."""
    operator = control_of(item.call)
    defined = () if operator is None else operator.defined(item.call.attrs)
    return not names_of(value.type).isdisjoint(defined)


def _guarded(flat: Sequence[object], steps: Sequence[Step]) -> Block:
    """Return steps inside control flow behind their guards; none behind one that never holds."""
    guards = [SizeGuard(guard.left, guard.right, guard.why) for guard in control.guards_of(flat)]
    ends = any(
        isinstance(guard.left, int) and isinstance(guard.right, int) and guard.left != guard.right
        for guard in guards
    )
    return Block((*map(GuardStep, guards), *(() if ends else steps)))


def _nodes(item: ControlCall) -> tuple[str, ...]:
    return (item.call.span.name,) if item.call.span.name else ()


def computed_sizes(functions: Iterable[FusedFunction]) -> frozenset[str]:
    """Return the names of the sizes that steps of functions read."""
    names: set[str] = set()
    for item in (item for one in functions for item in one.fusion.items):
        if isinstance(item, SizesRead):
            names.update(item.sizes)
        operator = control_of(item.call) if isinstance(item, ControlCall) else None
        if operator is not None and isinstance(item, ControlCall):
            names.update(operator.defined(item.call.attrs), operator.inner(item.call.attrs))
    return frozenset(names)
