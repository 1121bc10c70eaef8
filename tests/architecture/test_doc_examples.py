# SPDX-License-Identifier: Apache-2.0
"""Every code block of every page is executed, and the generated pages are as generated."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from intarsia.host.host import Host

from . import support_page
from .doc_examples import execute
from .reference_pages import pages
from .source_tree import ROOT

DOCS = ROOT / "docs"
DIGITS = ROOT / "tests" / "e2e" / "models" / "digits" / "digits.onnx"
ELSEWHERE = frozenset({"hardware.md", "write-a-backend.md"})
"""Pages whose blocks other tests of this folder execute."""
ELSEWHERE_ONLY = {"gpu-cuda.md": "its commands need NVRTC, and the last ones a GPU"}
NEEDED = {"pytorch.md": ("torch", "onnxscript")}
"""Packages without which the blocks of a page do not run."""
PAGES = [
    page
    for page in sorted((*DOCS.glob("*.md"), *DOCS.glob("tutorials/*.md")))
    if "```" in page.read_text(encoding="utf-8")
    and page.name not in ELSEWHERE | ELSEWHERE_ONLY.keys()
]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_blocks_run(page: Path, tmp_path: Path) -> None:
    for package in NEEDED.get(page.name, ()):
        pytest.importorskip(package, reason=f"{package} is not installed")
    (tmp_path / "model.onnx").write_bytes(DIGITS.read_bytes())
    image = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)
    np.savez(tmp_path / "x.npz", image=image)
    shown = {"text", "html", "toml", "json", "mermaid"}
    may_idle = page.parent.name != "tutorials"  # elsewhere small models stand for the reader's
    languages = set(re.findall(r"^```(\w+)", page.read_text(encoding="utf-8"), re.M))
    assert bool(execute(page, tmp_path, may_idle=may_idle)) or languages <= shown


@pytest.mark.parametrize(
    "page", sorted(set(pages()) - {support_page.PAGE}), ids=lambda path: path.stem
)
def test_generated_pages_are_current(page: Path) -> None:
    installed = {row.name for row in Host().plugins()}
    missing = {path.name for path in (ROOT / "plugins").iterdir()} - installed
    if missing and page.name in ("targets.md", "stability.md"):
        pytest.skip(f"it tells of every plugin, and these are not installed: {sorted(missing)}")
    assert page.read_text(encoding="utf-8") == pages()[page](), (
        "python -m tests.architecture.reference_pages writes it"
    )


@pytest.mark.parametrize("plugin", support_page.plugins())
def test_the_support_matrix_is_what_the_plugins_say(plugin: str) -> None:
    shown = support_page.shown_cells(support_page.PAGE.read_text(encoding="utf-8"), plugin)
    changed = support_page.changed_cells(shown, support_page.cells(plugin))
    assert not changed, "\n".join([*changed, "python -m tests.architecture.reference_pages"])


def test_a_changed_predicate_is_named_by_its_cell() -> None:
    before = {("add", "float32", 2): "yes", ("abs", "float32", 1): "some"}
    after = {**before, ("add", "float32", 2): "unsupported-dtype", ("exp", "float32", 1): "yes"}
    assert support_page.changed_cells(before, after) == [
        "add, float32, rank 2: was yes, is unsupported-dtype",
        "exp, float32, rank 1: was no, is yes",
    ]
