# SPDX-License-Identifier: Apache-2.0
"""Executes the blocks of a page: files, shell commands and Python, in order, in an empty folder.

A block below a line with a bold file name is that file. Of a ``console`` block each line behind
``$`` runs; what stands below it must be what it prints, where ``...`` is any text, and a target
whose accelerators get nothing must be shown. Python blocks
with nothing but words between them are one program. ``toml`` and ``json`` must parse. ``text`` is
for what only a user's machine can do.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement

_BLOCK = re.compile(r"(?:^\*\*`([^`\n]+)`\*\*\n\n)?^```(\w+)\n(.*?)^```$", re.M | re.S)
SHOWN = frozenset({"text", "html"})


@dataclass
class Shell:
    """An empty folder, and what was installed into it.

    Attributes:
        folder: Where the commands run.
        paths: Folders in front of ``sys.path``.
        ran: Commands and programs that were executed.
    """

    folder: Path
    paths: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)

    def run(self, line: str) -> str:
        """Run one command; returns what it prints.

        Raises:
            AssertionError: It fails.
        """
        words = shlex.split(line)
        if words[:2] == ["pip", "install"]:
            return self._install([word for word in words[2:] if word != "-e"])
        if words[0] != "python":
            words = ["-m", *words]
        else:
            del words[0]
        return self.python(line, words)

    def python(self, what: str, words: list[str], source: str = "") -> str:
        """Run Python; returns what it prints.

        Raises:
            AssertionError: It fails.
        """
        path = os.pathsep.join([*self.paths, *filter(None, sys.path)])
        environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}
        run = subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=environment, check=False,
            capture_output=True, text=True, timeout=300, input=source,
        )  # fmt: skip
        assert run.returncode == 0, f"{what}\n{run.stdout}\n{run.stderr}"
        self.ran.append(what)
        return run.stdout + run.stderr

    def _install(self, wanted: list[str]) -> str:
        """Install folders; of distributions by name, see that they are here."""
        for text in wanted:
            if (self.folder / text).is_dir():
                site = str(self.folder / "site")
                self.paths += [str(self.folder / text / "src"), site]
                options = ["--no-deps", "--no-build-isolation", "-q", "--target", site]
                self.python(text, ["-m", "pip", "install", *options, f"./{text}"])
            else:
                need = Requirement(text)
                facts = importlib.metadata.metadata(need.name)
                assert need.extras <= set(facts.get_all("Provides-Extra") or ()), text
        self.ran.append(f"pip install {' '.join(wanted)}")
        return ""


def execute(page: Path, folder: Path, *, may_idle: bool = False) -> list[str]:
    """Execute every block of a page; returns what ran.

    Args:
        page: The page.
        folder: An empty folder.
        may_idle: Whether the accelerators of a target may get nothing without a word in the page.

    Raises:
        AssertionError: A block fails, or a command prints something else than shown.
    """
    shell = Shell(folder)
    program = ""
    for name, language, content in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if program and (name or language != "python"):
            shell.python(program, ["-"], program)
            program = ""
        if name:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        elif language == "python":
            program += content
        elif language == "console":
            _console(shell, content, may_idle=may_idle)
        elif language == "toml":
            tomllib.loads(content)
        elif language == "json":
            json.loads(content)
        else:
            assert language in SHOWN, f"{page.name}: nobody executes a block of '{language}'"
    if program:
        shell.python(program, ["-"], program)
    return shell.ran


def _console(shell: Shell, content: str, *, may_idle: bool) -> None:
    for line, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", content, re.M):
        found = shell.run(line.partition("  #")[0])
        idle = None if may_idle else re.search(r"^0/\d+ nodes offloaded.*", found, re.M)
        several = re.search(r'(compile|run) .*--target "[^"]*,', line)
        assert not (idle and several) or idle[0] in shown, f"{line} offloads nothing: {found}"
        pattern = ".*".join(re.escape(part) for part in shown.strip().split("..."))
        if pattern:
            assert re.fullmatch(pattern, found.strip(), re.S), f"{line} prints\n{found}"
