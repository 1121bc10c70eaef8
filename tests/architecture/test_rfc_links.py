# SPDX-License-Identifier: Apache-2.0
"""Every sentence of the proposals and every promise names a test, and that test exists."""

from __future__ import annotations

import re
import shlex

import pytest

from .source_tree import ROOT

PROPOSALS = ROOT / "docs" / "reference" / "rfcs.md"
COMMANDS = ROOT / "docs" / "reference" / "cli.md"
PROMISES = ROOT / "docs" / "reference" / "promises.md"
LINK = re.compile(r"`((?:tests|plugins)/[\w./-]+\.py)::(\w+)`")
COMMAND = re.compile(r"`(?:\w+=\S+ )?(?:intarsia|python) [^`]+`")


def rows(*pages: str) -> list[str]:
    """The rows of all tables of pages, without their heads."""
    lines = [line for page in pages for line in page.splitlines()]
    return [line for line in lines if line.startswith("| ") and "| shown by |" not in line]


ROWS = rows(*(page.read_text(encoding="utf-8") for page in (PROPOSALS, PROMISES)))


def sections(text: str) -> dict[str, int]:
    """How many rows each section of a page has."""
    parts = text.split("\n## ")[1:]
    return {part.partition("\n")[0]: len(rows(part)) for part in parts}


def test_all_three_proposals_have_rows() -> None:
    text = PROPOSALS.read_text(encoding="utf-8")
    found = sections(text)
    assert found["Composite target"] >= 10
    assert found["Target and attributes"] >= 30
    assert found["Executor and runtime on the module"] >= 12
    for label in (*(f"R{n}" for n in range(6)), *(f"A{n}" for n in range(5)), "B0", "B1", "S0"):
        assert re.search(rf"\| {label}[:,]", text), label


def test_every_promise_has_a_command() -> None:
    text = PROMISES.read_text(encoding="utf-8")
    found = sections(text)
    assert len(found) == 9
    assert min(found.values()) >= 6, found
    for row in rows(text):
        promise, command, _shown = row.strip("| ").split(" | ")
        assert promise.endswith("."), promise
        assert COMMAND.search(command), promise


def test_commands_of_promises_exist_with_their_options() -> None:
    """As the page of commands has them; options of kinds (``--executor-aot-...``) are left out."""
    known: dict[str, str] = {}
    for part in COMMANDS.read_text(encoding="utf-8").split("\n## `intarsia ")[1:]:
        words = part.partition("`")[0].split()
        known[" ".join(word for word in words if word.islower())] = part
    told = 0
    for line in re.findall(
        r"`(?:\w+=\S+ )?intarsia ([^`]+)`", PROMISES.read_text(encoding="utf-8")
    ):
        words = shlex.split(line)
        options = [word for word in words if word.startswith("--")]
        words = [word for word in words if word != "--trace-plugins"]  # of every command
        two = " ".join(words[:2])
        page = known.get(two) or known.get(words[0], "")
        assert page, line
        for option in options:
            mine = re.search(rf"`{option}[ `]", page) or option == "--trace-plugins"
            assert mine or re.match("--(executor|runtime)-", option), line
            told += 1
    assert told > 50


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:50])
def test_every_row_names_tests_that_exist(row: str) -> None:
    links = LINK.findall(row)
    assert links, "no test shows it"
    for path, name in links:
        source = ROOT / path
        assert source.is_file(), path
        assert re.search(rf"^def {name}\(", source.read_text(encoding="utf-8"), re.MULTILINE), name
