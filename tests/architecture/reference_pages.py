# SPDX-License-Identifier: Apache-2.0
"""Writes the generated pages of the docs: ``python -m tests.architecture.reference_pages``.

With ``--measure [PYTHON ...]`` the conformance kit runs on every plugin first, with each Python
(minutes); its results are kept in ``docs/reference/conformance.json`` for the table of
compatibility.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import NODEFAULT

import intarsia_ir.graph.text
import intarsia_ir.tir.text
from intarsia.cli.main import LazyGroup
from intarsia.cli.output import SCHEMA
from intarsia.host.host import Host
from intarsia.target.options import OptionRow, option_rows
from intarsia.target.universal import COMMON
from intarsia_ir.graph.op import attr_defaults
from intarsia_ir.ops import OPERATORS
from intarsia_runtime import errors
from intarsia_runtime.artifact import passport, plan
from intarsia_runtime.artifact.passport import Passport, UnitEntry

from . import accuracy_page, compatibility, nodes_page, support_page
from .source_tree import ROOT

REFERENCE = ROOT / "docs" / "reference"
STABILITY = ROOT / "docs" / "stability.md"
BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"


def pages() -> dict[Path, Callable[[], str]]:
    """Every generated page and what makes its content."""
    made: dict[str, Callable[[], str]] = {
        "operators.md": operators,
        "targets.md": targets,
        "cli.md": commands,
        "errors.md": error_classes,
        "artifact.md": artifact,
        "text-formats.md": text_formats,
        "support.md": support_page.render,
        "accelerators.md": support_page.render_rows,
        "intrinsics.md": accuracy_page.render,
        "onnx-nodes.md": nodes_page.render,
    }
    return {REFERENCE / name: make for name, make in made.items()} | {STABILITY: stability}


def stability() -> str:
    """The policy as it is, with the table of compatibility made anew."""
    head, _, rest = STABILITY.read_text(encoding="utf-8").partition(BEGIN)
    return f"{head}{BEGIN}\n{compatibility.table()}\n{END}{rest.partition(END)[2]}"


def operators() -> str:
    """Operators with their attributes."""
    lines = [
        "# Operators", "",
        f"The {len(OPERATORS)} canonical operators. Frontends express models in them. The kind "
        "decides which operators may be fused.", "",
        "| operator | kind | attributes | what it computes |", "|---|---|---|---|",
    ]  # fmt: skip
    for name, cls in sorted(OPERATORS.items()):
        fields = ", ".join(_field(*item) for item in attr_defaults(cls.Attrs).items())
        lines.append(
            f"| `{name}` | {cls.kind.value} | {fields} | {_cell(first_line(cls.__doc__))} |"
        )
    return "\n".join([*lines, ""])


def _field(name: str, default: Any) -> str:
    if default is NODEFAULT:
        return f"`{name}`"
    value = getattr(default, "value", default)
    return f"`{name}={value}`"


def targets() -> str:
    """Kinds of the installed plugins of this repository, with all options."""
    host = Host(env={})
    lines = [
        "# Target kinds",
        "",
        "The output of `intarsia targets show KIND` for the kinds of this project.",
        "",
        "![intarsia targets list, on a terminal](../images/targets-list.svg)",
        "",
        "![intarsia targets show, on a terminal](../images/targets-show.svg)",
        "",
    ]
    lines += ["## Every kind", "", *_option_table(COMMON), ""]
    for row in host.kinds():
        if not (ROOT / "plugins" / row.plugin).is_dir():
            continue
        lines += [
            f"## `{row.name}`",
            "",
            f"{row.summary} ({row.role}, from `{row.distribution}`).",
            "",
        ]
        lines += _option_table(option_rows(host.kind(row.name).options))
        lines.append("")
    return "\n".join(lines)


def _option_table(options: Sequence[OptionRow]) -> list[str]:
    lines = ["| option | type | default | values | meaning |", "|---|---|---|---|---|"]
    for option in options:
        cells = (
            f"`-{option.flag}`",
            option.type,
            _default(option.default),
            _values(option),
            option.doc,
        )
        lines.append("| " + " | ".join(_cell(str(cell)) for cell in cells) + " |")
    return lines


def _default(value: object) -> str:
    return (
        "" if value in ("", ()) else f"`{str(value).lower() if isinstance(value, bool) else value}`"
    )


def _values(option: Any) -> str:
    if option.choices:
        return ", ".join(f"`{choice}`" for choice in option.choices)
    low, high = option.minimum, option.maximum
    if low is None and high is None:
        return ""
    return f"{'' if low is None else low}..{'' if high is None else high}"


def commands() -> str:
    """Every command with its own options; those of installed kinds are left out."""
    lines = [
        "# Command line", "",
        f"Every `--json` prints one object whose `schema` is {SCHEMA}. Options of target "
        "kinds, executors and runtimes (`--target-KIND-OPTION`) come from the installed plugins; "
        "`--help-all` lists them.", "",
    ]  # fmt: skip
    group = LazyGroup("intarsia")
    context = click.Context(group, info_name="intarsia")
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        for path, one in _leaves(f"intarsia {name}", command):
            lines += _command(path, one)
    return "\n".join(lines)


def _leaves(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command, info_name=path)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None, name
        yield from _leaves(f"{path} {name}", inner)


def _command(path: str, command: click.Command) -> list[str]:
    arguments = [
        p.make_metavar(click.Context(command))
        for p in command.params
        if isinstance(p, click.Argument)
    ]
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    text = inspect.cleandoc((command.help or "").replace("\b", ""))
    lines = [f"## `{' '.join([path, *arguments])}`", "", text, ""]
    if options:
        lines += ["| option | meaning |", "|---|---|"]
        lines += [f"| {_names(option)} | {_cell(option.help or '')} |" for option in options]
        lines.append("")
    return lines


def _names(option: click.Option) -> str:
    metavar = "" if option.is_flag else " " + option.make_metavar(click.Context(click.Command("x")))
    return _cell(", ".join(f"`{name}{metavar}`" for name in (*option.opts, *option.secondary_opts)))


def error_classes() -> str:
    """The tree of errors and what each means."""
    lines = [
        "# Errors",
        "",
        "Only exit code 1 may show a traceback; it is a bug of Intarsia.",
        "",
        "```text",
    ]
    tree = (errors.__doc__ or "").partition("::")[2].strip("\n").splitlines()
    lines += [line.removeprefix("    ") for line in tree]
    lines += ["```", "", "| class | exit code | meaning |", "|---|---|---|"]
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, errors.IntarsiaError):
            lines.append(
                f"| `{value.__name__}` | {value.exit_code} | {_cell(first_line(value.__doc__))} |"
            )
    return "\n".join([*lines, ""])


def artifact() -> str:
    """The format of artifacts."""
    lines = [
        "# Artifact format", "",
        "An artifact is native code: loading it is like running a program. "
        "See [](../usage.md#who-made-an-artifact).", "",
        "An artifact is a zip archive. Its members are not compressed, so weights can be mapped in "
        "place.", "",
        "| member | content |", "|---|---|",
        "| `passport.json` | the description of the artifact, first in the file |",
        "| `units/<name>/...` | the files of a unit; the fallback compiled the unit `main` |",
        "| `params.safetensors` | weights, each at a multiple of 64 bytes |", "",
        f"The passport has `schema` {passport.SCHEMA}. Loading first compares size and SHA-256 of "
        "every member with it, and then maps weights and loads code.", "",
    ]  # fmt: skip
    for cls, title in (
        (Passport, "The passport"),
        (UnitEntry, "A unit"),
        (plan.CallPlan, "The call plan"),
    ):
        lines += [f"## {title}", "", "| field | meaning |", "|---|---|"]
        lines += [f"| `{name}` | {_cell(text)} |" for name, text in attributes(cls).items()]
        lines.append("")
    return "\n".join(lines)


def text_formats() -> str:
    """The text formats, as their modules tell them."""
    parts = [
        "# Text formats",
        "",
        "Printing and parsing are inverses; tests check this for every operator and golden file.",
        "",
    ]
    for title, module in (("Graph IR", intarsia_ir.graph.text), ("Loop IR", intarsia_ir.tir.text)):
        head, _, rest = (module.__doc__ or "").partition("\n")
        parts += [f"## {title}", "", head, *_fenced(rest), ""]
    return "\n".join(parts)


def _fenced(text: str) -> list[str]:
    """A docstring whose literal block becomes a fenced one."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        indented = line.startswith("    ") or (inside and not line.strip())
        if indented != inside:
            lines.append("```text" if indented else "```")
            inside = indented
        if line.strip() != "::":
            lines.append(line.removeprefix("    ") if inside else line.replace("::", ":"))
    return [*lines, *(["```"] if inside else [])]


def attributes(cls: type) -> dict[str, str]:
    """Name and words of each field, from the section ``Attributes`` of a docstring."""
    found: dict[str, str] = {}
    name = ""
    for line in (cls.__doc__ or "").partition("Attributes:")[2].splitlines():
        if line.startswith(" " * 8) and not line.startswith(" " * 9):
            name, _, text = line.strip().partition(": ")
            found[name] = text
        elif line.strip() and name:
            found[name] += f" {line.strip()}"
    return found


def first_line(doc: str | None) -> str:
    """First line of a docstring."""
    return (doc or "").strip().partition("\n")[0]


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|").replace("\n", " ").strip()


if __name__ == "__main__":
    if "--measure" in sys.argv:
        compatibility.measure(sys.argv[sys.argv.index("--measure") + 1 :])
    for page, make in pages().items():
        page.write_text(make(), encoding="utf-8")
