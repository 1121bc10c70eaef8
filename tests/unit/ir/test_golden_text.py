# SPDX-License-Identifier: Apache-2.0
"""Every golden file of graph IR parses, is well-formed, and prints back as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from intarsia_ir.graph.text import parse_module, print_module
from intarsia_ir.graph.verify import verify
from intarsia_ir.ops import OPERATORS

GOLDEN = Path(__file__).parents[2] / "golden"
FILES = sorted(GOLDEN.rglob("*.ir"))


def test_there_are_golden_files():
    assert len(FILES) >= 5


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_file_prints_back(path):
    text = path.read_text()
    module = parse_module(text, operators=OPERATORS)
    verify(module)
    assert print_module(module) == text
