# SPDX-License-Identifier: Apache-2.0
"""What commands that compile have in common on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.budget import limited, parse_memory
from intarsia_ir.given_values import parse_value
from intarsia_ir.partition.cost import Plan
from intarsia_ir.partition.rules import parse_place_rule
from intarsia_ir.size_values import Size, parse_size
from intarsia_runtime.errors import UsageError

from ..driver.config import Executor, Runtime, find_kind
from ..driver.configured import Configured, Setting
from ..host.host import Host
from ..target.kind_table import GIVEN_NAME
from ..target.options import Value
from .kind_option import set_options
from .session import Session
from .target_options import (
    Decorator,
    NameType,
    TargetChoice,
    choose_target,
    decorated,
    plain_target_options,
    section_option,
)

if TYPE_CHECKING:
    from ..driver.request import BuildRequest

F = TypeVar("F", bound=Callable[..., Any])
OptionValue: TypeAlias = Any
"""What click made of an option, or what :func:`intarsia.build` takes for it."""
OptionRow: TypeAlias = tuple[str, str, dict[str, Any], str]
"""An option: its section, its flag, what click is told of it, and its help."""


class BuildSettings(Struct, frozen=True):
    """What one command line says about compiling.

    Attributes:
        host: The plugins.
        target: The target, not read yet.
        executor: How the model is driven.
        is_executor_given: Whether the user chose it.
        runtime: Where the model runs.
        use_cache: Whether the cache may be asked.
        options: Options of :func:`intarsia.build`.
    """

    host: Host
    target: TargetChoice
    executor: Executor
    is_executor_given: bool
    runtime: Runtime
    use_cache: bool
    options: Mapping[str, OptionValue]

    @property
    def shapes(self) -> Mapping[str, tuple[Size, ...]]:
        """Shapes of inputs by name."""
        return self.options["shapes"]

    def with_shapes(self, shapes: Mapping[str, Sequence[Size]]) -> BuildSettings:
        """Return the same with these shapes for inputs that have none."""
        return replace(self, options={**self.options, "shapes": {**shapes, **self.shapes}})

    def request(self, model: Path) -> BuildRequest:
        """Return the request to build a model by these settings.

        Raises:
            TargetError: The target is missing or wrong.
            UsageError: Executor and runtime do not go together.
            UnsupportedError: The target makes no code for the runtime.
        """
        from ..driver.build import request_build  # help does without the compiler

        return request_build(
            model,
            self.target.read(self.host),
            executor=self.executor if self.is_executor_given else None,
            runtime=self.runtime,
            mod_name=model.stem,
            host=self.host,
            mapped=True,
            **self.options,
        )


def keep_model(model: Path, output: Path | None) -> None:
    """Refuse to write a result over the model that it is made of.

    Raises:
        UsageError: They are one file.
    """
    with suppress(OSError):  # one of them is not there
        if output is not None and output.samefile(model):
            raise UsageError(f"'{output}' is the model itself", hint="name another output file")


def parse_shape(text: str) -> tuple[str, tuple[Size, ...]]:
    """Parse ``input:1,3,224,224``; ``input:`` is a scalar, and a size may have several values.

    ``1..32`` is a range of sizes that one program runs, and ``1..`` is every size; ``1|4|16`` is a
    list of the sizes that run, each with a program of its own.

    Raises:
        UsageError: It is not of this form.
    """
    name, colon, rest = text.rpartition(":")
    sizes = [parse_size(size) for size in rest.split(",")] if rest else []
    if not colon or not name or None in sizes:
        raise UsageError(
            f"'{text}' is not a shape",
            hint="for example --shape input:1,3,224,224, or input:1..32,3,224,224",
        )
    return name, tuple(size for size in sizes if size is not None)


def build_options() -> Callable[[F], F]:
    """Decorate a :class:`ComposedCommand`: adds the options, and hands ``settings`` on."""

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **values: Any) -> Any:
            settings = _settings(click.get_current_context(), values)
            kept = {key: value for key, value in values.items() if not key.startswith("build_")}
            limits = settings.options["time_limit"], settings.options["memory_limit"]
            with limited(*limits, host_seconds=inf):
                return function(*args, settings=settings, **kept)

        return decorated(call, [*plain_target_options(), *_build_options()])

    return decorate


def _build_options() -> list[Decorator]:
    path = click.Path(path_type=Path, file_okay=False)
    plans = click.Choice([plan.value for plan in Plan])
    percent = click.FloatRange(0, 100)
    model, driver, cut = "Model", "Executor and runtime", "Placement"
    rows: list[OptionRow] = [
        (driver, "--executor", {"metavar": "EXECUTOR", "type": NameType("executor")},
         "How the model is executed, e.g. aot.  [env: INTARSIA_EXECUTOR]"),
        (driver, "--runtime", {"metavar": "RUNTIME", "type": NameType("runtime")},
         "Where the model runs, e.g. cpp.  [env: INTARSIA_RUNTIME]"),
        (model, "--shape", {"multiple": True, "metavar": "NAME:N,N,..."},
         "Shape of an input; repeat it for each. N may be 1.. (open), 1..32 or 1|4|16."),
        (model, "--value", {"multiple": True, "metavar": "NAME=VALUE"},
         "Make an input a constant, e.g. sr=16000; repeat it for each."),
        (cut, "--plan", {"type": plans, "default": Plan.COST.value, "show_default": True},
         "How to choose regions: first accelerator that takes a node, or lowest cost."),
        (cut, "--place", {"multiple": True, "metavar": "NODES=KIND"},
         "Place matching NODES on KIND at any cost; NODES!=KIND forbids it."),
        (cut, "--require-offload", {"type": percent, "metavar": "PCT"},
         "Fail if less than PCT percent of the nodes are offloaded."),
        (cut, "--max-regions", {"type": click.IntRange(0), "metavar": "N"},
         "Fail if there are more than N regions."),
        (cut, "--measure", {"is_flag": True},
         "Measure the time of each claim once; --plan cost uses it."),
        (model, "--records", {"metavar": "FILE"},
         "Tuning records, or 'none'; default: those of intarsia tune.  [env: INTARSIA_RECORDS]"),
        (model, "--allow-overflow", {"is_flag": True},
         "Warn instead of failing if the model does not fit into the device's memory."),
        (model, "--no-cache", {"is_flag": True},
         "Neither read nor fill the cache.  [env: INTARSIA_CACHE_SIZE=0]"),
        (model, "--dump-ir", {"type": path, "metavar": "DIR"},
         "Write the result of each stage as text into DIR."),
    ]  # fmt: skip
    return [
        section_option(section, flag, f"build_{flag[2:].replace('-', '_')}", help=text, **named)
        for section, flag, named, text in (*rows, *_limit_options())
    ]


def _limit_options() -> Iterable[OptionRow]:
    yield (
        "Limits", "--time-limit", {"type": TIME, "metavar": "SECONDS"},
        "Limit of the whole command (exit code 8). Default: a limit of the host's own work.",
    )  # fmt: skip
    yield (
        "Limits", "--memory-limit", {"type": MEMORY, "metavar": "SIZE"},
        "Limit of memory, e.g. 512M or 2G (exit code 8). Default: the machine's memory.",
    )  # fmt: skip


class _MemorySize(click.ParamType[int]):
    """A size such as ``2G``, as a number of bytes."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return the bytes."""
        return value if isinstance(value, int) else parse_memory(str(value))


TIME, MEMORY = click.FloatRange(0, min_open=True), _MemorySize()


def limit_options(function: F) -> F:
    """Decorate a command that takes its options one by one: adds those of :func:`limited`."""
    for _, flag, named, text in _limit_options():
        function = click.option(flag, help=text, **named)(function)
    return function


_READ: Mapping[str, Callable[[OptionValue], object]] = MappingProxyType(
    {
        "shapes": lambda texts: dict(parse_shape(text) for text in texts),
        "values": lambda texts: dict(parse_value(text) for text in texts),
        "plan": Plan,
        "rules": lambda texts: tuple(parse_place_rule(text) for text in texts),
    }
)
"""How the value of an option becomes that of :func:`intarsia.build`, where it is another one."""

_CALLED = MappingProxyType({"shape": "shapes", "value": "values", "place": "rules"})
"""What :func:`intarsia.build` calls an option, where its flag has another name."""

_OWN = ("target", "target_host", "executor", "runtime", "no_cache")


def _settings(ctx: click.Context, values: Mapping[str, OptionValue]) -> BuildSettings:
    session: Session = ctx.obj
    host, configured = session.host(), session.configured()
    driver = _config(ctx, "executor", configured, values, host)
    options: dict[str, object] = {}
    for key, value in values.items():
        flag = key.removeprefix("build_")
        if flag != key and flag not in _OWN:
            name = _CALLED.get(flag, flag)
            options[name] = _READ[name](value) if name in _READ else value
    return BuildSettings(
        host=host,
        target=choose_target(ctx, configured, values),
        executor=Executor(*driver, host=host),
        is_executor_given=driver != (None, {}),
        runtime=Runtime(*_config(ctx, "runtime", configured, values, host), host=host),
        use_cache=not (values["build_no_cache"] or session.trace),
        options=options,
    )


def _config(
    ctx: click.Context, what: str, configured: Configured, values: Mapping[str, Any], host: Host
) -> tuple[str | None, Mapping[str, Value]]:
    """Return the chosen executor or runtime as text, and its options on the command line.

    Raises:
        UsageError: An option of another kind is set.
    """
    chosen: Setting = configured.choose(what, values[f"build_{what}"])
    make = Executor if what == "executor" else Runtime
    try:
        kind = make(chosen.value, host=host).kind
    except UsageError as error:
        if chosen.origin in ("", GIVEN_NAME):
            raise
        raise error.at(f"{chosen.origin}, {error.where}".removesuffix(", ")) from None
    found = set_options(ctx, what)
    for other, options in found.items():
        if find_kind(what, other, host).name != kind:
            flag = next(iter(options))
            raise UsageError(
                f"--{what}-{other}-{flag} is set, but the {what} is '{kind}'",
                hint=f"--{what} {other}",
            )
    return chosen.value, found.get(kind, {})
