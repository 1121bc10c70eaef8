# SPDX-License-Identifier: Apache-2.0
"""What a pass is, and how passes run one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TypeAlias

from msgspec import Struct, field

from intarsia_runtime.errors import IntarsiaError

from ..budget import budget
from ..diagnostics import NO_SPAN, Remark, Span
from ..graph.expr import Call, Expr, Function
from ..graph.guards import guards_apart
from ..graph.module import IRModule
from ..graph.op import Op
from ..graph.verify import verify
from ..graph.walk import RewriteRule, rewrite_function


class Remarks(Struct):
    """What passes have to say to a user; filled while they run.

    Attributes:
        found: Every remark, in order.
    """

    found: list[Remark] = field(default_factory=list[Remark])

    def add(self, stage: str, message: str, span: Span = NO_SPAN) -> None:
        """Note one decision of ``stage`` at one place."""
        self.found.append(Remark(stage, message, span))


PassFunction: TypeAlias = Callable[[IRModule, Remarks], IRModule]
Observer: TypeAlias = Callable[[str, IRModule], None]


class Pass(Struct, frozen=True):
    """A named step from module to module.

    Attributes:
        name: Verb phrase in kebab case, e.g. ``fold-constants``.
        run: The step; returns the same module if it changes nothing, and is linear in its size.
    """

    name: str
    run: PassFunction


class Pipeline(Struct, frozen=True):
    """Passes in order.

    Attributes:
        name: What the pipeline is for.
        passes: Each works on the result of the one before.
    """

    name: str
    passes: tuple[Pass, ...]

    def run(
        self,
        module: IRModule,
        *,
        remarks: Remarks | None = None,
        check: bool = False,
        observe: Observer | None = None,
    ) -> IRModule:
        """Run every pass.

        Args:
            module: A well-formed module.
            remarks: Where passes say what they decided.
            check: Verify the module after each pass, and name the pass that broke it.
            observe: Called with each pass's name and result, e.g. to dump it.

        Raises:
            VerifyError: ``check`` is set and a pass broke a rule of the IR; ``where`` names the
                pass.
            ResourceError: The time or memory of the build is over.
        """
        notes = Remarks() if remarks is None else remarks
        limits = budget()
        before = limits.stage
        for step in self.passes:
            limits.stage = f"the pass {step.name}"
            # What functions require of sizes is known, and need hold only where they run.
            with guards_apart() if len(module.functions) > 1 else nullcontext():
                module = step.run(module, notes)
            limits.check()
            if check:
                _check(step, module)
            if observe is not None:
                observe(step.name, module)
        limits.stage = before
        return module


def _check(step: Pass, module: IRModule) -> None:
    try:
        verify(module)
    except IntarsiaError as error:
        error.where = f"after {step.name}, {error.where}" if error.where else f"after {step.name}"
        raise


def rewrite(module: IRModule, rule: RewriteRule) -> IRModule:
    """Rewrite every function bottom-up, each node once; the same object if nothing changed."""
    return map_functions(module, lambda function: rewrite_function(function, rule))


def map_functions(module: IRModule, change: Callable[[Function], Function]) -> IRModule:
    """Apply ``change`` to every function; the same object if nothing changed."""
    new = {name: change(function) for name, function in module.functions.items()}
    if all(new[name] is function for name, function in module.functions.items()):
        return module
    return module.with_functions(new)


def first_rule(
    rules_of: Callable[[type[Op]], Sequence[RewriteRule]], *, rounds: int = 8
) -> RewriteRule:
    """Return one rule that applies, to each call, the rules of its operator until none fires.

    Args:
        rules_of: Returns the rules of an operator, which are tried in order.
        rounds: How often a node may be replaced, so that rules that undo each other end.
    """

    rules: dict[type[Op], Sequence[RewriteRule]] = {}

    def apply(expr: Expr) -> Expr | None:
        start = expr
        for _ in range(rounds):
            if not isinstance(expr, Call):
                break
            if expr.op not in rules:
                rules[expr.op] = rules_of(expr.op)
            fired = None
            for rule in rules[expr.op]:
                fired = rule(expr)
                if fired is not None:
                    break
            if fired is None or fired is expr:
                break
            expr = fired
        return None if expr is start else expr

    return apply
