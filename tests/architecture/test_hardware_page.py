# SPDX-License-Identifier: Apache-2.0
"""The page of devices lists what the plugins describe, and its examples are true."""

from __future__ import annotations

import re

import pytest

from intarsia.cli.main import main

from .hardware_page import PAGE, updated


def test_the_page_lists_what_there_is() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == updated(text), "python -m tests.architecture.hardware_page writes it"


def test_its_examples_print_what_they_show(capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    examples = re.findall(r"\$ intarsia (.+)\n((?:.+\n)+)```", text)
    assert len(examples) >= 2
    for command, shown in examples:
        words = [word.strip("'") for word in re.findall(r"'[^']*'|\S+", command)]
        assert main(words) == 0
        assert capsys.readouterr().out == shown
