# SPDX-License-Identifier: Apache-2.0
"""The options of every command that compiles, with those of all executors and runtimes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click

from ..build.config import ConfigOption, Executor, OptionValue, Runtime, config_kinds
from ..errors import UsageError
from ..partition.cost import Plan
from ..partition.rules import PlaceRule, parse_place_rule

Decorator: TypeAlias = Callable[[Any], Any]
Values: TypeAlias = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])

_SHAPE = re.compile(r"(?P<name>.+):(?P<sizes>\d*(,\d+)*)")


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What the options of one command line say about compiling; see :func:`intarsia.build`."""

    target: str | None
    target_host: str | None
    shapes: dict[str, tuple[int, ...]]
    executor: Executor
    runtime: Runtime
    plan: Plan
    rules: tuple[PlaceRule, ...]
    require_offload: float | None
    max_regions: int | None
    dump_ir: Path | None


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


def build_options(*, target_required: bool) -> Callable[[F], F]:
    """Decorate a command: adds the options, and hands their values on as ``settings``."""

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **values: Any) -> Any:
            settings = _settings(values)
            kept = {key: value for key, value in values.items() if not key.startswith("build_")}
            return function(*args, settings=settings, **kept)

        decorated: Any = call
        for option in reversed([*_plain_options(target_required), *_config_options()]):
            decorated = option(decorated)
        return decorated

    return decorate


def _plain_options(target_required: bool) -> list[Decorator]:
    path = click.Path(path_type=Path, file_okay=False)
    executors = click.Choice([row.name for row in config_kinds("executor")])
    runtimes = click.Choice([row.name for row in config_kinds("runtime")])
    plans = click.Choice([plan.value for plan in Plan])
    return [
        click.option("--target", "build_target", required=target_required, metavar="TARGET",
                     help="What to compile for: accelerators in order, then a backend."),
        click.option("--target-host", "build_target_host", metavar="TARGET",
                     help="The backend that drives the target."),
        click.option("--shape", "build_shape", multiple=True, metavar="NAME:N,N,...",
                     help="Shape of an input; once for each."),
        click.option("--executor", "build_executor", type=executors, help="What drives the model."),
        click.option("--runtime", "build_runtime", type=runtimes, help="Where the model runs."),
        click.option("--plan", "build_plan", type=plans, default=Plan.COST.value,
                     show_default=True, help="How regions are chosen."),
        click.option("--place", "build_place", multiple=True, metavar="NODES=KIND",
                     help="Nodes that go to KIND or nowhere; NODES!=KIND forbids it."),
        click.option("--require-offload", "build_require_offload", type=click.FloatRange(0, 100),
                     metavar="PCT", help="Fail if fewer nodes are offloaded."),
        click.option("--max-regions", "build_max_regions", type=click.IntRange(0), metavar="N",
                     help="Fail if there are more regions."),
        click.option("--dump-ir", "build_dump_ir", type=path, metavar="DIR",
                     help="Write each stage's result as text."),
    ]  # fmt: skip


def _config_options() -> list[Decorator]:
    """One option for each option of each kind: ``--executor-aot-unpacked-api``."""
    made: list[Decorator] = []
    for what in ("executor", "runtime"):
        for row in config_kinds(what):
            for option in row.options:
                flag = f"--{what}-{row.name}-{option.name}"
                name = _config_name(what, row.name, option)
                made.append(click.option(flag, name, type=_click_type(option), help=option.doc))
    return made


def _config_name(what: str, kind: str, option: ConfigOption) -> str:
    return f"build_{what}_{kind}_{option.name.replace('-', '_')}"


def _click_type(option: ConfigOption) -> Any:
    choices = [choice for choice in option.choices if isinstance(choice, str)]
    return click.Choice(choices) if choices else type(option.default)


def _settings(values: Values) -> BuildSettings:
    dump: Path | None = values["build_dump_ir"]
    return BuildSettings(
        target=values["build_target"],
        target_host=values["build_target_host"],
        shapes=dict(parse_shape(text) for text in values["build_shape"]),
        executor=Executor(*_config(values, "executor")),
        runtime=Runtime(*_config(values, "runtime")),
        plan=Plan(values["build_plan"]),
        rules=tuple(parse_place_rule(text) for text in values["build_place"]),
        require_offload=values["build_require_offload"],
        max_regions=values["build_max_regions"],
        dump_ir=dump,
    )


def _config(values: Values, what: str) -> tuple[str, dict[str, OptionValue]]:
    """Return the chosen kind of executor or runtime, and what was set of its options.

    Raises:
        UsageError: An option of another kind is set.
    """
    rows = config_kinds(what)
    chosen: str = values[f"build_{what}"] or rows[0].name
    found: dict[str, OptionValue] = {}
    for row in rows:
        for option in row.options:
            value: OptionValue | None = values[_config_name(what, row.name, option)]
            if value is None:
                continue
            if row.name != chosen:
                raise UsageError(
                    f"--{what}-{row.name}-{option.name} is set, but the {what} is '{chosen}'",
                    hint=f"--{what} {row.name}",
                )
            found[option.name] = value
    return chosen, found
