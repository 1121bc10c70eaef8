# SPDX-License-Identifier: Apache-2.0
"""``--target`` and what stands for it: options of kinds, the environment, a file of settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeAlias, TypeVar

import click
from click.shell_completion import CompletionItem

from intarsia_runtime.errors import TargetError

from ..driver.configured import Configured, TargetChoice
from ..target.kind_table import GIVEN_NAME, Origin
from ..target.target import CompositeTarget
from .composed import help_all_option
from .kind_option import SectionOption, set_options
from .session import Session, host_of

Decorator: TypeAlias = Callable[[Any], Any]
F = TypeVar("F", bound=Callable[..., Any])


class NameType(click.ParamType[str]):
    """A text that may begin with the name of a kind, which is completed from manifests.

    Args:
        family: ``target``, ``executor`` or ``runtime``.
    """

    def __init__(self, family: str) -> None:
        self.name = family

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names of kinds and aliases that begin like the last target written."""
        host = host_of(ctx)
        front, comma, last = incomplete.rpartition(",")
        if self.name == "target":
            known = {kind.name: kind.summary for kind in host.kinds()} | dict(host.aliases())
        else:
            known = dict(host.config_names(self.name))
        begun = last.strip()
        return [
            CompletionItem(f"{front}{comma}{name}", help=text)
            for name, text in known.items()
            if name.startswith(begun)
        ]


def target_options() -> Callable[[F], F]:
    """Decorate a :class:`ComposedCommand`: adds ``--target`` and hands ``target`` on."""

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **values: Any) -> Any:
            ctx = click.get_current_context()
            session: Session = ctx.obj
            choice = choose_target(ctx, session.configured(), values)
            kept = {key: value for key, value in values.items() if not key.startswith("build_")}
            return function(*args, target=choice, **kept)

        return decorated(call, plain_target_options())

    return decorate


def decorated(function: Any, options: list[Decorator]) -> Any:
    """Decorate a function with options, and ``--help-all``."""
    for option in reversed([*options, help_all_option()]):
        function = option(function)
    return function


def section_option(section: str, *words: str, **named: Any) -> Decorator:
    """An option in a section of ``--help``."""
    return click.option(*words, cls=SectionOption, section=section, **named)


def plain_target_options() -> list[Decorator]:
    """``--target`` and ``--target-host``."""
    kind = NameType("target")
    what = "What to compile for: accelerators in order, then a backend; also JSON or a .json file."
    driver = "The backend that drives the target."
    return [
        section_option(
            "Target", flag, name, metavar="TARGET", type=kind, help=f"{text}  [env: {env}]"
        )
        for flag, name, text, env in (
            ("--target", "build_target", what, "INTARSIA_TARGET"),
            ("--target-host", "build_target_host", driver, "INTARSIA_TARGET_HOST"),
        )
    ]


def choose_target(
    ctx: click.Context, configured: Configured, values: Mapping[str, Any]
) -> TargetChoice:
    """The target of the command line, or else of the environment or a file."""
    given, driver = values["build_target"], values["build_target_host"]
    return configured.target(given, driver, set_options(ctx, "target"))


def read_targets(ctx: click.Context, texts: Sequence[str]) -> dict[str, CompositeTarget]:
    """Return several targets by their text; an option of a kind goes to all that have the kind.

    Raises:
        TargetError: One is wrong, or an option is set of a kind that none has.
    """
    session: Session = ctx.obj
    host, configured = session.host(), session.configured()
    options = set_options(ctx, "target")
    found: dict[str, CompositeTarget] = {}
    for text in texts:
        names = {target.kind.name for target in host.target(text).targets}
        origin = Origin(
            name=GIVEN_NAME,
            overrides={kind: values for kind, values in options.items() if kind in names},
            defaults=configured.options,
            default_setter=configured.origin,
        )
        found[text] = host.target(text, origin=origin)
    present = {target.kind.name for parts in found.values() for target in parts.targets}
    for kind, values in options.items():
        if kind not in present:
            raise TargetError(
                f"--target-{kind}-{next(iter(values))} is set, but no target has '{kind}'",
                hint=f"leave it out, or add '{kind}' to a target",
            )
    return found
