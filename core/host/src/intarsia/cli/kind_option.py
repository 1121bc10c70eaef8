# SPDX-License-Identifier: Apache-2.0
"""Options of kinds of targets, executors and runtimes: read, described, and kept for who asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from intarsia_runtime.errors import UsageError

from ..target.options import OptionRow, Value, parse_value, print_value

PLAIN = "Options"
"""Section of options that name no other."""

_SET = "intarsia.set"


class SectionOption(click.Option):
    """An option that ``--help`` lists in a section of its own.

    Args:
        section: Title of the section.
        words: What :class:`click.Option` takes.
    """

    def __init__(self, *words: Any, section: str = PLAIN, **named: Any) -> None:
        super().__init__(*words, **named)
        self.section = section


class _RowType(click.ParamType[Value]):
    """Reads the value of an option as target strings do."""

    def __init__(self, row: OptionRow) -> None:
        self.row = row
        self.name = row.type

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Value:
        try:
            return parse_value(self.row, str(value))
        except UsageError as error:
            where = param.opts[0] if param is not None else ""
            raise UsageError(error.message, hint=error.hint, where=where) from None

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        known = ("true", "false") if self.row.type == "bool" else self.row.choices
        return [CompletionItem(str(v)) for v in known if str(v).startswith(incomplete)]


class KindOption(SectionOption):
    """An option of a kind of target, executor or runtime.

    Args:
        family: ``target``, ``executor`` or ``runtime``.
        kind: Name of the kind.
        row: The option.
    """

    def __init__(self, family: str, kind: str, row: OptionRow) -> None:
        flags = dict.fromkeys(
            f"--{family}-{name}-{row.flag}" for name in (kind.replace("_", "-"), kind)
        )
        self.family, self.kind, self.row = family, kind, row
        super().__init__(
            [*flags, f"{family}_{kind}_{row.field}".replace("-", "_")],
            section=f"Options of {family} {kind}",
            type=_RowType(row),
            metavar=_metavar(row),
            help=_help(row),
            expose_value=False,
            callback=_keep,
        )


def set_options(ctx: click.Context, family: str) -> Mapping[str, Mapping[str, Value]]:
    """Return kind to flag to value of the options of a family on the command line."""
    found: Mapping[str, Mapping[str, Value]] = ctx.meta.get(_SET, {}).get(family, {})
    return found


def _keep(ctx: click.Context, param: click.Parameter, value: Value | None) -> None:
    if value is not None and isinstance(param, KindOption):
        kinds = ctx.meta.setdefault(_SET, {}).setdefault(param.family, {})
        kinds.setdefault(param.kind, {})[param.row.flag] = value


def _metavar(row: OptionRow) -> str:
    if row.choices:
        return f"[{'|'.join(str(choice) for choice in row.choices)}]"
    names = {"str": "TEXT", "int": "N", "float": "X", "bool": "[true|false]"}
    return names.get(row.type, {"list of int": "N,..."}.get(row.type, "TEXT,..."))


def _help(row: OptionRow) -> str:
    bounds = [
        f"{word} {bound:g}"
        for word, bound in (("at least", row.minimum), ("at most", row.maximum))
        if bound is not None
    ]
    default = print_value(row.default) if row.default != "" else "''"
    notes = [*bounds, f"default: {default}"]
    if row.deprecated:
        notes.append(f"deprecated: {row.deprecated}")
    return f"{row.doc[:1].upper()}{row.doc[1:]}  [{'; '.join(notes)}]"
