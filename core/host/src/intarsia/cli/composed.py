# SPDX-License-Identifier: Apache-2.0
"""Commands whose options come from registries: ``--target-KIND-OPTION`` and its like.

A plugin is imported only when an option of one of its kinds stands on the command line, when
``--help-all`` asks for all of them, or to complete one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import click
from click.decorators import FC
from click.shell_completion import CompletionItem

from intarsia_runtime.errors import IntarsiaError, UsageError, did_you_mean

from ..host.host import Host
from ..target.options import OptionRow
from ..target.universal import target_rows
from .kind_option import PLAIN, KindOption, SectionOption
from .output import echo
from .session import host_of

FAMILIES = ("target", "executor", "runtime")
"""What has options of its kinds on the command line."""

_GENERATED = "intarsia.generated"


class ComposedCommand(click.Command):
    """A command with an option for each option of each installed kind.

    Args:
        families: Whose kinds.
    """

    def __init__(self, *args: Any, families: Sequence[str] = FAMILIES, **named: Any) -> None:
        super().__init__(*args, **named)
        self.families = families

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Make the options that stand on the command line, then read it."""
        before = args[: args.index("--")] if "--" in args else args
        host = None
        if "--help-all" in before:
            host = host_of(ctx)
            ctx.meta[_GENERATED] = list(_all_options(host, self.families))
        else:
            own = {name for param in self.params for name in param.opts}
            flags = [arg.partition("=")[0] for arg in before if self._is_generated(arg, own)]
            if flags:
                host = host_of(ctx)
                ctx.meta[_GENERATED] = _options_for(host, flags, quiet=ctx.resilient_parsing)
        options = _generated(ctx)
        switches = {n for o in options if o.row.type == "bool" for n in o.opts}
        return super().parse_args(ctx, list(_with_truth(args, switches)))

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own parameters and the options made for this command line."""
        return [*super().get_params(ctx), *_generated(ctx)]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete also options of kinds, once their family is written."""
        if self._is_generated(incomplete, set()):
            with suppress(IntarsiaError):
                ctx.meta[_GENERATED] = list(_all_options(host_of(ctx), self.families))
        return super().shell_complete(ctx, incomplete)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in their sections, and the kinds that have more."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                title = param.section if isinstance(param, SectionOption) else PLAIN
                sections.setdefault(title, []).append(record)
        plain = sections.pop(PLAIN, [])
        for title, records in [*sections.items(), (PLAIN, plain)]:
            with formatter.section(title):
                formatter.write_dl(records)
        if not _generated(ctx):
            _write_kinds(host_of(ctx), formatter, self.families)

    def _is_generated(self, argument: str, own: set[str]) -> bool:
        name = argument.partition("=")[0]
        return name not in own and name.startswith(tuple(f"--{f}-" for f in self.families))


def help_all_option() -> Callable[[FC], FC]:
    """The option that shows also the options of all kinds."""

    def show(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            echo(ctx.get_help())
            ctx.exit()

    return click.option(
        "--help-all", is_flag=True, is_eager=True, expose_value=False, callback=show,
        help="Also show the options of every installed kind.",
    )  # fmt: skip


def _generated(ctx: click.Context) -> list[KindOption]:
    found: list[KindOption] = ctx.meta.get(_GENERATED, [])
    return found


def _names(host: Host, family: str) -> list[str]:
    if family == "target":
        return sorted(host.names())
    return list(host.config_names(family))


def _rows(host: Host, family: str, kind: str) -> tuple[OptionRow, ...]:
    if family == "target":
        return target_rows(host.kind(kind).options)
    return host.config_kind(family, kind).rows


def _all_options(host: Host, families: Sequence[str]) -> Iterator[KindOption]:
    """Every option of every kind; those of a plugin that is broken are left out."""
    for family in families:
        for kind in _names(host, family):
            with suppress(IntarsiaError):
                for row in _rows(host, family, kind):
                    yield KindOption(family, kind, row)


def _options_for(host: Host, flags: Sequence[str], *, quiet: bool) -> list[KindOption]:
    """The options of all kinds that the flags name.

    Raises:
        UsageError: A flag names no kind, or its kind has no such option.
    """
    found: dict[tuple[str, str], list[KindOption]] = {}
    for flag in flags:
        family, _, rest = flag.removeprefix("--").partition("-")
        wanted = rest.replace("_", "-")
        fitting = [
            kind for kind in _names(host, family) if wanted.startswith(f"{kind.replace('_', '-')}-")
        ]
        for kind in fitting:
            if (family, kind) not in found:
                rows = _rows(host, family, kind)
                found[family, kind] = [KindOption(family, kind, row) for row in rows]
        options = [option for kind in fitting for option in found[family, kind]]
        names = [name for option in options for name in option.opts]
        if not quiet and flag not in names:
            raise _unknown(host, flag, family, fitting, names)
    return [option for options in found.values() for option in options]


def _unknown(
    host: Host, flag: str, family: str, fitting: Sequence[str], names: Sequence[str]
) -> UsageError:
    known = _names(host, family)
    if not fitting:
        what = "target kind" if family == "target" else family
        listed = ", ".join(known) or "none"
        return UsageError(f"{flag} names no installed {what}", hint=f"installed: {listed}")
    kind = max(fitting, key=len)
    start = len(f"--{family}-{kind}-")
    near = did_you_mean(flag[start:], {name[start:] for name in names}, flag[:start])
    return UsageError(
        f"{family} '{kind}' has no option {flag}",
        hint=near or "--help-all lists them all",
    )


def _with_truth(args: Sequence[str], switches: set[str]) -> Iterator[str]:
    """Write a switch without a value as ``--switch=true``, so that it takes no other word."""
    words = list(args)
    for at, word in enumerate(words):
        if word == "--":
            yield from words[at:]
            return
        following = words[at + 1].lower() if at + 1 < len(words) else ""
        if word in switches and following not in ("true", "false", "0", "1"):
            yield f"{word}=true"
        else:
            yield word


def _write_kinds(host: Host, formatter: click.HelpFormatter, families: Sequence[str]) -> None:
    """Name the kinds whose options ``--help-all`` lists; reads manifests only."""
    rows = [
        (f"--{family}-KIND-OPTION", ", ".join(_names(host, family)) or "none is installed")
        for family in families
    ]
    with formatter.section("Options of kinds (--help-all lists them)"):
        formatter.write_dl(rows)
