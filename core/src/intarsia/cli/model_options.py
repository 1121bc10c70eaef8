# SPDX-License-Identifier: Apache-2.0
"""What commands that compile have in common on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click
from click.shell_completion import CompletionItem

from ..build.config import Executor, Runtime, find_kind
from ..build.stages import read_target
from ..errors import UsageError
from ..host.host import Host
from ..partition.cost import Plan
from ..partition.rules import PlaceRule, parse_place_rule
from ..target.kinds import GIVEN_NAME, Origin
from ..target.options import Value
from ..target.target import CompositeTarget
from .composed import SectionOption, help_all_option, set_options
from .configured import Configured, Setting
from .session import Session

Decorator: TypeAlias = Callable[[Any], Any]
F = TypeVar("F", bound=Callable[..., Any])

_SHAPE = re.compile(r"(?P<name>.+):(?P<sizes>\d*(,\d+)*)")


@dataclass(frozen=True, slots=True)
class TargetChoice:
    """The target as the command line, the environment or a file gives it.

    Attributes:
        text: As written; ``None`` if nobody gives one.
        origin: Who gives it, and what is set besides.
        target_host: The same for the host.
    """

    text: str | None
    origin: Origin
    target_host: str | None = None

    @property
    def is_given(self) -> bool:
        """Whether it, or an option of it, stands on the command line."""
        stands = self.text is not None and self.origin.name == GIVEN_NAME
        return stands or bool(self.origin.overrides) or self.target_host is not None

    def read(self, host: Host) -> CompositeTarget:
        """Return the canonical target.

        Raises:
            TargetError: It is missing or wrong; a target from a file or the environment is named
                with its place.
        """
        try:
            return read_target(host, self.text, self.target_host, self.origin)
        except UsageError as error:
            if self.text is None or self.origin.name == GIVEN_NAME:
                raise
            where = f"{self.origin.name}, {error.where}".removesuffix(", ")
            raise type(error)(error.message, hint=error.hint, where=where) from None


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What one command line says about compiling; see :func:`intarsia.build`."""

    host: Host
    target: TargetChoice
    shapes: dict[str, tuple[int, ...]]
    executor: Executor
    runtime: Runtime
    plan: Plan
    rules: tuple[PlaceRule, ...]
    require_offload: float | None
    max_regions: int | None
    dump_ir: Path | None


class NameType(click.ParamType):
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
        host = Host()
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


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Parse ``input:1,3,224,224``; ``input:`` is a scalar.

    Raises:
        UsageError: It is not of this form.
    """
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise UsageError(f"'{text}' is no shape", hint="for example --shape input:1,3,224,224")
    sizes = found["sizes"]
    return found["name"], tuple(int(size) for size in sizes.split(",")) if sizes else ()


def target_options() -> Callable[[F], F]:
    """Decorate a :class:`ComposedCommand`: adds ``--target`` and hands ``target`` on."""

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **values: Any) -> Any:
            ctx = click.get_current_context()
            session: Session = ctx.obj
            choice = _target(ctx, session.configured(), values)
            kept = {key: value for key, value in values.items() if not key.startswith("build_")}
            return function(*args, target=choice, **kept)

        return _decorated(call, _target_options())

    return decorate


def build_options() -> Callable[[F], F]:
    """Decorate a :class:`ComposedCommand`: adds the options, and hands ``settings`` on."""

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **values: Any) -> Any:
            settings = _settings(click.get_current_context(), values)
            kept = {key: value for key, value in values.items() if not key.startswith("build_")}
            return function(*args, settings=settings, **kept)

        return _decorated(call, [*_target_options(), *_build_options()])

    return decorate


def _decorated(function: Any, options: list[Decorator]) -> Any:
    for option in reversed([*options, help_all_option()]):
        function = option(function)
    return function


def _option(section: str, *words: str, **named: Any) -> Decorator:
    return click.option(*words, cls=SectionOption, section=section, **named)


def _target_options() -> list[Decorator]:
    title = "Target"
    return [
        _option(title, "--target", "build_target", metavar="TARGET", type=NameType("target"),
                help="What to compile for: accelerators in order, then a backend; a string, JSON, "
                "a .json file.  [env: INTARSIA_TARGET]"),
        _option(title, "--target-host", "build_target_host", metavar="TARGET",
                type=NameType("target"),
                help="The backend that drives the target.  [env: INTARSIA_TARGET_HOST]"),
    ]  # fmt: skip


def _build_options() -> list[Decorator]:
    path = click.Path(path_type=Path, file_okay=False)
    plans = click.Choice([plan.value for plan in Plan])
    model, driver, cut = "Model", "Executor and runtime", "Placement"
    return [
        _option(driver, "--executor", "build_executor", metavar="EXECUTOR",
                type=NameType("executor"),
                help="What drives the model, e.g. aot.  [env: INTARSIA_EXECUTOR]"),
        _option(driver, "--runtime", "build_runtime", metavar="RUNTIME", type=NameType("runtime"),
                help="Where the model runs, e.g. cpp.  [env: INTARSIA_RUNTIME]"),
        _option(model, "--shape", "build_shape", multiple=True, metavar="NAME:N,N,...",
                help="Shape of an input; once for each."),
        _option(cut, "--plan", "build_plan", type=plans, default=Plan.COST.value,
                show_default=True, help="How regions are chosen."),
        _option(cut, "--place", "build_place", multiple=True, metavar="NODES=KIND",
                help="Nodes that go to KIND or nowhere; NODES!=KIND forbids it."),
        _option(cut, "--require-offload", "build_require_offload", type=click.FloatRange(0, 100),
                metavar="PCT", help="Fail if fewer nodes are offloaded."),
        _option(cut, "--max-regions", "build_max_regions", type=click.IntRange(0), metavar="N",
                help="Fail if there are more regions."),
        _option(model, "--dump-ir", "build_dump_ir", type=path, metavar="DIR",
                help="Write each stage's result as text."),
    ]  # fmt: skip


def _target(ctx: click.Context, configured: Configured, values: Mapping[str, Any]) -> TargetChoice:
    given = configured.choose("target", values["build_target"])
    host = configured.choose("target-host", values["build_target_host"])
    origin = Origin(
        name=given.origin or GIVEN_NAME,
        overrides=set_options(ctx, "target"),
        defaults=configured.options,
        default_setter=configured.origin,
    )
    return TargetChoice(given.value, origin, host.value)


def _settings(ctx: click.Context, values: Mapping[str, Any]) -> BuildSettings:
    session: Session = ctx.obj
    host, configured = session.host(), session.configured()
    dump: Path | None = values["build_dump_ir"]
    return BuildSettings(
        host=host,
        target=_target(ctx, configured, values),
        shapes=dict(parse_shape(text) for text in values["build_shape"]),
        executor=Executor(*_config(ctx, "executor", configured, values, host), host=host),
        runtime=Runtime(*_config(ctx, "runtime", configured, values, host), host=host),
        plan=Plan(values["build_plan"]),
        rules=tuple(parse_place_rule(text) for text in values["build_place"]),
        require_offload=values["build_require_offload"],
        max_regions=values["build_max_regions"],
        dump_ir=dump,
    )


def _config(
    ctx: click.Context, what: str, configured: Configured, values: Mapping[str, Any], host: Host
) -> tuple[str | None, Mapping[str, Value]]:
    """Return the chosen executor or runtime as text, and its options on the command line.

    Raises:
        UsageError: An option of another kind is set.
    """
    chosen: Setting = configured.choose(what, values[f"build_{what}"])
    kind = (Executor if what == "executor" else Runtime)(chosen.value, host=host).kind
    found = set_options(ctx, what)
    for other, options in found.items():
        if find_kind(what, other, host).name != kind:
            flag = next(iter(options))
            raise UsageError(
                f"--{what}-{other}-{flag} is set, but the {what} is '{kind}'",
                hint=f"--{what} {other}",
            )
    return chosen.value, found.get(kind, {})
