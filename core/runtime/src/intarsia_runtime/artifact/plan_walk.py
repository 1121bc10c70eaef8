# SPDX-License-Identifier: Apache-2.0
"""Walks over the steps of a plan, those inside of steps included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from ..size import Size
from .plan import (
    Argument,
    Block,
    CallPlan,
    CopyStep,
    GuardStep,
    IfStep,
    LoopStep,
    RunSize,
    SizeGuard,
    SizesStep,
    Step,
    all_steps,
)

SHORT = 1024
"""Iterations of a loop that nobody needs to end."""


def may_take_long(step: LoopStep) -> bool:
    """Whether somebody may want to end a loop."""
    return not (isinstance(step.most, int) and step.most <= SHORT)


def step_arguments(step: Step) -> tuple[Argument, ...]:
    """Return the tensors of any kind of step; not those of steps inside it."""
    match step:
        case CopyStep(source=source, destination=destination):
            return (source, destination)
        case GuardStep():
            return ()
        case IfStep(condition=condition):
            return (condition,)
        case LoopStep(trip=trip, condition=condition, iteration=iteration):
            return tuple(one for one in (trip, condition, iteration) if one is not None)
        case SizesStep(sizes=sizes):
            return tuple(one.argument for one in sizes)
        case _:
            return step.args


def all_arguments(steps: Iterable[Step]) -> Iterator[Argument]:
    """Yield the tensors of every step, at any depth."""
    for step in all_steps(steps):
        yield from step_arguments(step)


def map_step(
    step: Step, argument: Callable[[Argument], Argument], size: Callable[[Size], Size]
) -> Step:
    """Return a step with other tensors and sizes, at any depth."""

    def block(given: Block) -> Block:
        return Block(tuple([map_step(inner, argument, size) for inner in given.steps]))

    def optional(given: Argument | None) -> Argument | None:
        return None if given is None else argument(given)

    match step:
        case CopyStep(source=source, destination=destination):
            return CopyStep(argument(source), argument(destination))
        case GuardStep():
            return step  # the names of its sizes are for messages
        case IfStep(condition=condition, then=then, orelse=orelse):
            chosen = argument(condition)
            return replace(step, condition=chosen, then=block(then), orelse=block(orelse))
        case LoopStep(body=body, most=most):
            return replace(
                step,
                body=block(body),
                most=None if most is None else size(most),
                trip=optional(step.trip),
                condition=optional(step.condition),
                iteration=optional(step.iteration),
            )
        case SizesStep(sizes=sizes):
            read = [RunSize(one.name, argument(one.argument)) for one in sizes]
            return replace(step, sizes=tuple(read))
        case _:
            return replace(step, args=tuple([argument(one) for one in step.args]))


def add_guards(plan: CallPlan, guards: Iterable[SizeGuard]) -> CallPlan:
    """Return a plan of open sizes that checks guards as soon as their sizes are known.

    Sizes that a loop changes are known when it has ended: a step behind it checks these guards.
    """
    assert plan.open is not None  # only such a plan has guards
    changing = {
        step.stage
        for step in all_steps(plan.steps)
        if isinstance(step, SizesStep) and not step.is_final
    }
    early: list[SizeGuard] = []
    late: dict[int, list[Step]] = {}
    for guard in guards:
        stage = plan.open.stage(guard.left, guard.right)
        if stage in changing:
            late.setdefault(stage, []).append(GuardStep(guard))
        else:
            early.append(guard)

    def with_late(steps: Iterable[Step]) -> tuple[Step, ...]:
        found: list[Step] = []
        for step in steps:
            match step:
                case IfStep(then=then, orelse=orelse):
                    blocks = Block(with_late(then.steps)), Block(with_late(orelse.steps))
                    found.append(replace(step, then=blocks[0], orelse=blocks[1]))
                case LoopStep(body=body):
                    found.append(replace(step, body=Block(with_late(body.steps))))
                case SizesStep(stage=stage, is_final=True):
                    found += [step, *late.get(stage, ())]
                case _:
                    found.append(step)
        return tuple(found)

    steps = with_late(plan.steps) if late else plan.steps
    return replace(plan, steps=steps, open=replace(plan.open, guards=tuple(early)))


def guards_of_steps(plan: CallPlan) -> list[SizeGuard]:
    """Return the guards among the steps of a plan, in the order of their numbers."""
    return [step.guard for step in all_steps(plan.steps) if isinstance(step, GuardStep)]
