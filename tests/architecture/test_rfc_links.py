# SPDX-License-Identifier: Apache-2.0
"""Every sentence of the proposals names a test, and that test exists."""

from __future__ import annotations

import re

import pytest

from .source_tree import ROOT

PAGE = ROOT / "docs" / "reference" / "rfcs.md"
LINK = re.compile(r"`((?:tests|plugins)/[\w./-]+\.py)::(\w+)`")


def rows() -> list[str]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("| ") and "| shown by |" not in line]


def test_all_three_proposals_have_rows() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for section, fewest in (
        ("## Composite target", 10),
        ("## Target and attributes", 30),
        ("## Executor and runtime on the module", 12),
    ):
        part = text.partition(section)[2].partition("\n## ")[0]
        assert part.count("\n| ") - 1 >= fewest, section
    for label in (*(f"R{n}" for n in range(6)), *(f"A{n}" for n in range(5)), "B0", "B1", "S0"):
        assert re.search(rf"\| {label}[:,]", text), label


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[2:50])
def test_every_row_names_tests_that_exist(row: str) -> None:
    links = LINK.findall(row)
    assert links, "no test shows it"
    for path, name in links:
        source = ROOT / path
        assert source.is_file(), path
        assert re.search(rf"^def {name}\(", source.read_text(encoding="utf-8"), re.MULTILINE), name
