# SPDX-License-Identifier: Apache-2.0
"""A variable whose value cannot be used is named in an error or a note, from the outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "environment.md"
DIGITS = ROOT / "tests" / "e2e" / "models" / "digits" / "digits.onnx"
PARSE = ("targets", "parse", "llvm")
COMPILE = ("compile", str(DIGITS), "--target", "llvm", "-o", "{tmp}/out")
FILES = ("{tmp}/none", "{tmp}/folder", "{tmp}/garbage")

ERRORS = [
    *(("INTARSIA_HARDWARE", value, 3, PARSE) for value in FILES),
    ("INTARSIA_HARDWARE", "{tmp}/good.toml" + os.pathsep + "{tmp}/none", 3, ("plugins", "list")),
    ("INTARSIA_RECORDS", "{tmp}/folder", 3, COMPILE),
    ("INTARSIA_CACHE_SIZE", "-1", 2, COMPILE),
    ("INTARSIA_CACHE_SIZE", "many", 2, COMPILE),
    ("INTARSIA_PLUGIN_TIMEOUT", "0", 2, PARSE),
    ("INTARSIA_PLUGIN_TIMEOUT", "nan", 2, PARSE),
    ("INTARSIA_NO_PROBE", "yes", 2, PARSE),
    ("INTARSIA_TARGET", "nobody", 2, ("targets", "parse")),
    ("INTARSIA_TARGET_HOST", "llvm -nothing", 2, COMPILE),
    ("INTARSIA_EXECUTOR", "nobody", 2, COMPILE),
    ("INTARSIA_RUNTIME", "/", 2, COMPILE),
    ("INTARSIA_TORCH_PYTHON", "{tmp}/none", 2, ("bench", str(DIGITS), "--target", "llvm",
     "--vs", "inductor")),
]  # fmt: skip

NOTES = [
    ("INTARSIA_RECORDS", "{tmp}/none", COMPILE),
    ("INTARSIA_CACHE_DIR", "{tmp}/garbage", COMPILE),
    ("INTARSIA_DISABLE_PLUGINS", "nobody", PARSE),
]


def call(
    tmp_path: Path, variable: str, value: str, words: tuple[str, ...]
) -> subprocess.CompletedProcess[str]:
    """Run a command with one variable set, and none of ours besides."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "garbage").write_bytes(b"\x89garbage")
    (tmp_path / "good.toml").write_text("schema = 1\n")
    env = {name: text for name, text in os.environ.items() if not name.startswith("INTARSIA_")}
    env |= {"INTARSIA_CACHE_DIR": str(tmp_path / "cache")}
    env |= {variable: value.replace("{tmp}", str(tmp_path))}
    return subprocess.run(
        [sys.executable, "-m", "intarsia", *(w.replace("{tmp}", str(tmp_path)) for w in words)],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )


@pytest.mark.parametrize("variable, value, code, words", ERRORS)
def test_a_value_that_cannot_be_meant_is_an_error(
    tmp_path: Path, variable: str, value: str, code: int, words: tuple[str, ...]
) -> None:
    run = call(tmp_path, variable, value, words)
    assert run.returncode == code, run.stderr
    assert variable in run.stderr
    last = value.rpartition("/")[2] or value
    assert last.split(" ")[-1] in run.stderr
    assert run.stderr.startswith("error: ")


@pytest.mark.parametrize("variable, value, words", NOTES)
def test_a_value_that_work_goes_on_without_is_a_note(
    tmp_path: Path, variable: str, value: str, words: tuple[str, ...]
) -> None:
    run = call(tmp_path, variable, value, words)
    assert run.returncode == 0, run.stderr
    notes = [line for line in run.stderr.splitlines() if line.startswith("warning: ")]
    assert len(notes) == 1
    assert variable in notes[0]
    assert value.rpartition("/")[2] in notes[0]


def test_empty_variables_are_unset_ones(tmp_path: Path) -> None:
    names = {name for name, *_ in [*ERRORS, *NOTES]} - {"INTARSIA_TARGET", "INTARSIA_CACHE_DIR"}
    empty = dict.fromkeys(names, "")
    command = [sys.executable, "-m", "intarsia", *COMPILE[:-1], str(tmp_path / "out")]
    env = {**os.environ, **empty, "INTARSIA_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0
    assert "warning" not in run.stderr


def test_the_page_has_every_variable_that_sources_name() -> None:
    page = PAGE.read_text()
    pattern = re.compile(r"[\"' (=]((?:INTARSIA|ETHOSN|ONEDNN|DNNL)_[A-Z_]*[A-Z])[\"' )=;,]")
    known_elsewhere = {"INTARSIA_EMULATE_H", "INTARSIA_DEVICE_H", "INTARSIA_PACKED_H"}
    sources = [*ROOT.glob("core/*/src/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]
    named = {
        name
        for source in sources
        for line in source.read_text().splitlines()
        if "environ" in line or "VARIABLE" in line or " = " in line
        for name in pattern.findall(line)
    } - known_elsewhere
    assert {"INTARSIA_HARDWARE", "INTARSIA_RECORDS", "ETHOSN_ROOT", "DNNL_MAX_CPU_ISA"} <= named
    assert sorted(name for name in named if f"`{name}`" not in page) == []
