# SPDX-License-Identifier: Apache-2.0
"""The glossary is true, and code and docs keep to the field's words (STYLE, section 1)."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

from .source_tree import ALL_SOURCES, ROOT, Source, sources

SOURCES = ALL_SOURCES + sources(ROOT / "tests" / "testkit" / "src")

ROW = re.compile(r"^\| ([^|]+) \| [^|]+ \| [^|]+ \| `([\w.]+)(?::(\w+))?` \|$", re.MULTILINE)

GIVEN_UP = frozenset(
    {
        *("picture", "pictures", "volume", "volumes"),
        *("quad", "quads", "dear", "worth", "wish", "wishes", "crew"),
        *("ahead", "beside", "finish", "finished"),
    }
)
"""Words of identifiers that the field has other words for (STYLE, section 1)."""

GIVEN_UP_NAMES = frozenset(
    {"SumUp", "Pairs", "every_second", "turn", "sum_up", "said", "placed", "Cut", "Delivery"}
)
"""Whole identifiers."""

GIVEN_UP_TEXT = re.compile(
    r"\b(pictures?|volumes?|quads?|dear(er|est)?|crews?|wish(es)?|sums? up|summ(ed|ing) up|"
    r"every second|worth|what is left|any size|what only the run knows)\b",
    re.IGNORECASE,
)
"""Words of sentences, in docstrings, comments and pages."""

SPELLINGS = (
    ("neighbour", "neighbor"), ("behavior", "behaviour"), ("colour", "color"), ("favor", "favour"),
    ("centre", "center"), ("analyze", "analyse"), ("artifact", "artefact"), ("license", "licence"),
    ("labelled", "labeled"), ("modelling", "modeling"), ("cancelled", "canceled"),
)  # fmt: skip
"""The spelling of a word, and the one that is not ours."""

BRITISH = re.compile(
    r"(quant|vector|normal|canonical|optim|initial|recogn|serial|special|general|parallel|"
    r"summar|synchron|minim|maxim|util|real|material|linear|factor|token|final|organ)is(e|ed|es|ing|er|ation)$"
)

ALLOWED = {
    ("intarsia_ethos_u/target.py", "optimise"): "Vela's own name of its option",
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


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_identifiers_speak_the_fields_language(source: Source) -> None:
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


def sentences(source: Source) -> list[tuple[int, str]]:
    """Docstrings and comments, each with its line."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(source.tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text)), lineno=line):
                found.append((line, text))
            case _:
                pass
    tokens = tokenize.generate_tokens(io.StringIO(source.text).readline)
    found += [(t.start[0], t.string) for t in tokens if t.type == tokenize.COMMENT]
    return found


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_sentences_speak_the_fields_language(source: Source) -> None:
    bad = [
        f"{source.name}:{line}: {match[0]}"
        for line, text in sentences(source)
        for match in (*GIVEN_UP_TEXT.finditer(text), *_british(text))
    ]
    assert bad == []


PAGES = [
    page
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("[cp]*/*/README.md"))
    if not {"changes", "_build"} & set(page.parts) and page.name != "changelog.md"
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_speak_the_fields_language(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    bad = [match[0] for match in (*GIVEN_UP_TEXT.finditer(text), *_british(text))]
    assert bad == []


def _british(text: str) -> list[re.Match[str]]:
    """Words in -ise that have -ize here; those of a vendor's option are left out."""
    words = re.finditer(r"(?<![-\w])[a-z]+", text, re.IGNORECASE)
    return [word for word in words if BRITISH.search(word[0].lower())]


@cache
def all_texts() -> dict[str, str]:
    """Sentences of each file, and each page."""
    texts = {s.name: "\n".join(text for _, text in sentences(s)) for s in SOURCES}
    return texts | {page.name: page.read_text(encoding="utf-8") for page in PAGES}


@pytest.mark.parametrize(("ours", "other"), SPELLINGS)
def test_a_word_has_one_spelling(ours: str, other: str) -> None:
    pattern = re.compile(rf"\b{other}(s|ed|ing)?\b", re.IGNORECASE)
    assert [name for name, text in all_texts().items() if pattern.search(text)] == []


def test_a_class_is_defined_in_one_module() -> None:
    """Operators are called as the field calls them: ``nn.conv`` and ``qnn.conv`` are both Conv."""
    modules: dict[str, list[str]] = {}
    for source in SOURCES:
        for node in source.tree.body:
            is_operator = source.module.startswith("intarsia_ir/ops/")
            if isinstance(node, ast.ClassDef) and not is_operator:
                modules.setdefault(node.name, []).append(source.module)
    several = {name: found for name, found in modules.items() if len(found) > 1}
    assert {name: found for name, found in several.items() if name not in FACES} == {}


FACES = {"Target": "`intarsia.Target` makes targets of the class that plugins get"}


def test_no_file_is_called_as_the_plural_of_another() -> None:
    """In one distribution; commands are called as users write them."""
    stems: dict[str, set[str]] = {}
    for source in SOURCES:
        if not {"cli", "commands"} & set(source.path.parts):
            stems.setdefault(source.module.split("/")[0], set()).add(source.path.stem)
    twins = [
        (package, one, many)
        for package, names in stems.items()
        for one in names
        for many in (f"{one}s", f"{one}es", re.sub("y$", "ies", one))
        if many != one and many in names
    ]
    assert twins == []
