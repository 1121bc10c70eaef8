# SPDX-License-Identifier: Apache-2.0
"""The source tree as parsed files, for the tests of its shape."""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOST = ROOT / "core" / "host" / "src" / "intarsia"
FRONTENDS = ("onnx", "torch")
CORE = [
    *sorted((ROOT / "core").glob("*/src/*")),
    *(ROOT / "plugins" / name / "src" / f"intarsia_{name}" for name in FRONTENDS),
]
"""The packages of Intarsia itself: core's distributions and the frontends."""

LIMITS = tomllib.loads((Path(__file__).parent / "limits.toml").read_text())


@dataclass(frozen=True)
class Source:
    """One Python file."""

    path: Path

    @property
    def name(self) -> str:
        """Path from the root of the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def module(self) -> str:
        """Path within its source folder: ``intarsia_ir/graph/expr.py``."""
        return self.name.partition("/src/")[2]

    @cached_property
    def text(self) -> str:
        """Its content."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        """Number of lines."""
        return self.text.count("\n")

    @property
    def code_lines(self) -> int:
        """Number of lines without empty ones, comments and docstrings."""
        lines = self.text.splitlines()
        code = {n for n, line in enumerate(lines, 1) if line.strip() and line.strip()[0] != "#"}
        for node in ast.walk(self.tree):
            value = node.value if isinstance(node, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                code -= set(range(value.lineno, (value.end_lineno or value.lineno) + 1))
        return len(code)

    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every function and method, nested ones too."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return [node for node in ast.walk(self.tree) if isinstance(node, kinds)]


def sources(*folders: Path) -> list[Source]:
    """Return the Python files below the folders, sorted."""
    return [Source(path) for folder in folders for path in sorted(folder.rglob("*.py"))]


def plugin_folders() -> list[Path]:
    """Return the source folder of every backend and accelerator."""
    found = sorted(path for path in (ROOT / "plugins").glob("*/src") if path.is_dir())
    return [path for path in found if path.parent.name not in FRONTENDS]


CORE_SOURCES = sources(*CORE)
ALL_SOURCES = CORE_SOURCES + sources(*plugin_folders())
