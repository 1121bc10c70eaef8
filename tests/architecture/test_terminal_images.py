# SPDX-License-Identifier: Apache-2.0
"""The pictures of terminals in the docs show what the commands print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .source_tree import ROOT
from .terminal_images import COMMANDS, draw, file_of, words


@pytest.mark.parametrize("name", COMMANDS)
def test_a_picture_shows_what_the_command_prints(name: str) -> None:
    kept = words(file_of(name).read_text(encoding="utf-8"))
    assert len(kept) > 20
    assert kept == words(draw(name)), "python -m tests.architecture.terminal_images draws it"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_picture_loads_nothing_and_stands_on_a_page(name: str) -> None:
    picture = file_of(name).read_text(encoding="utf-8")
    assert re.findall(r"https?://(?!www\.w3\.org)", picture) == []
    pages: list[Path] = list((ROOT / "docs").rglob("*.md"))
    assert any(f"images/{name}.svg" in page.read_text(encoding="utf-8") for page in pages)
