# SPDX-License-Identifier: Apache-2.0
"""The glossary is true, and the rooms converted to it keep to the field's words."""

from __future__ import annotations

import ast
import re

import pytest

from .source_tree import ALL_SOURCES, ROOT, Source

ROW = re.compile(r"^\| ([^|]+) \| [^|]+ \| [^|]+ \| `([\w.]+)(?::(\w+))?` \|$", re.MULTILINE)

CONVERTED = (
    "intarsia_loops/",
    "intarsia_llvm/",
    "intarsia_c/",
    "intarsia_cuda/",
)
"""Rooms whose identifiers have been converted; a room joins when it is."""

GIVEN_UP = frozenset(
    {
        *("picture", "pictures", "volume", "volumes"),
        *("quad", "quads", "dear", "worth", "wish", "wishes", "crew"),
        *("ahead", "beside", "finish", "finished"),
    }
)
"""Words of identifiers that the field has other words for (STYLE, section 1)."""

GIVEN_UP_NAMES = frozenset({"SumUp", "Shape", "Pairs", "every_second", "turn", "sum_up"})
"""Whole identifiers."""

BRITISH = re.compile(
    r"(quant|vector|normal|canonical|optim|initial|recogn|serial|special|general|parallel|"
    r"summar|synchron|minim|maxim|util|real|material|linear|factor|token|final|organ)is(e|ed|es|ing|er|ation)$"
)

ALLOWED = {
    ("intarsia_loops/fuse.py", "Shape"): "the shape of a tensor",
}
"""File and identifier, with the reason."""


def glossary() -> list[tuple[str, str, str | None]]:
    """Each word, the module that defines it, and the name there."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    return [(word, module, name or None) for word, module, name in ROW.findall(text)]


def test_every_row_of_the_glossary_is_read() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    heads = [line for line in rows if line.startswith("| word ")]
    assert len(glossary()) == len(rows) - len(heads)
    assert len(glossary()) >= 60


def test_a_word_has_one_meaning() -> None:
    words = [word for row, _, _ in glossary() for word in row.split(", ")]
    assert sorted(set(words)) == sorted(words)


@pytest.mark.parametrize(("word", "module", "name"), glossary())
def test_a_word_is_defined_where_the_glossary_says(
    word: str, module: str, name: str | None
) -> None:
    path = module.replace(".", "/")
    files = [s for s in ALL_SOURCES if s.module in (f"{path}.py", f"{path}/__init__.py")]
    assert files, f"'{word}': no module {module}"
    if name is not None:
        assert name in defined(files[0]), f"'{word}': no {name} in {module}"


def defined(source: Source) -> set[str]:
    """The names that a module defines at its top level."""
    names: set[str] = set()
    for node in source.tree.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
            case _:
                pass
    return names


def identifiers(source: Source) -> set[str]:
    """Every name that a module gives: definitions, parameters, variables, attributes of its own."""
    names: set[str] = set()
    for node in ast.walk(source.tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.add(name)
            case ast.arg(arg=name) | ast.Name(id=name) | ast.keyword(arg=str(name)):
                names.add(name)
            case _:
                pass
    return names


def words_of(identifier: str) -> set[str]:
    """The words of a name in snake or camel case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)}


@pytest.mark.parametrize(
    "source",
    [source for source in ALL_SOURCES if source.module.startswith(CONVERTED)],
    ids=lambda source: source.name,
)
def test_converted_rooms_speak_the_fields_language(source: Source) -> None:
    bad = {
        name
        for name in identifiers(source)
        if (source.module, name) not in ALLOWED
        and (
            words_of(name) & GIVEN_UP
            or name in GIVEN_UP_NAMES
            or any(BRITISH.search(word) for word in words_of(name))
        )
    }
    assert bad == set()
    assert not words_of(source.path.stem) & GIVEN_UP
