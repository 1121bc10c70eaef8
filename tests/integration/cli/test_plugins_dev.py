# SPDX-License-Identifier: Apache-2.0
"""`plugins dev`: a save is seen, and the nodes that it moves are named."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from intarsia.cli.main import main
from intarsia.host.host import Host
from intarsia_runtime.errors import UsageError
from intarsia_tools.commands.plugins_dev import default_target, source_folder
from intarsia_tools.scaffold.scaffold import new_plugin

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "tests" / "e2e" / "models" / "digits" / "digits.onnx"


def test_a_plugin_that_is_not_there_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "dev", "nobody", str(DIGITS)]) == 2
    assert "no plugin is called 'nobody'" in capsys.readouterr().err


def test_a_backend_is_its_own_target() -> None:
    assert default_target(Host(), "llvm") == "llvm"
    assert source_folder("llvm").name == "intarsia_llvm"


def test_a_plugin_without_a_kind_needs_a_target() -> None:
    with pytest.raises(UsageError, match="has no target kind"):
        default_target(Host(), "nobody")


def test_an_accelerator_needs_a_backend_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "backends", lambda self: ())
    with pytest.raises(UsageError, match="no backend is installed"):
        default_target(Host(), "dnnl")


def test_files_inside_a_wheel_cannot_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    from intarsia.host.discovery import Found
    from intarsia_tools.commands import plugins_dev

    found = [Found("packed", "acme-packed", "1.0", folder=Path("/nowhere/acme.whl/acme"))]
    monkeypatch.setattr(plugins_dev, "find_plugins", lambda: found)
    with pytest.raises(UsageError, match="cannot be watched"):
        source_folder("packed")


def test_a_save_shows_what_moved(tmp_path: Path) -> None:
    project = new_plugin("npu", "accelerator", tmp_path)
    source = project / "src"
    support = source / "intarsia_npu" / "support.py"
    _install(source, tmp_path / "site")
    path = os.pathsep.join([str(tmp_path / "site"), str(source), *filter(None, sys.path)])
    command = [sys.executable, "-m", "intarsia", "plugins", "dev", "npu", str(DIGITS)]
    command += ["--target", "npu, llvm", "--every", "0.05", "--times", "3"]
    env = {**os.environ, "PYTHONPATH": path, "INTARSIA_NO_PROBE": "1", "COLUMNS": "300"}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as process:  # fmt: skip
        lines = _reader(process)
        assert "watching" in lines.get(timeout=60)
        assert "nodes offloaded" in lines.get(timeout=60)
        text = support.read_text()
        support.write_text(text.replace("    return Support.yes()", "    return Support."))
        assert _until(lines, "support.py")
        assert "SyntaxError" in _until(lines, "SyntaxError")
        support.write_text(
            text.replace('        Row("nn.softmax", op("nn.softmax"), doc="along any axis"),\n', "")
        )
        assert _until(lines, "nodes offloaded")
        moved = _until(lines, "(fallback)")
        assert "'npu' said yes, says" in moved
        assert process.wait(timeout=60) == 0


def _install(source: Path, site: Path) -> None:
    """What pip leaves of an installed package: metadata beside the files."""
    facts = site / "intarsia_npu-0.1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: intarsia-npu\nVersion: 0.1.0\n")
    (facts / "entry_points.txt").write_text(
        "[intarsia.plugins]\nnpu = intarsia_npu:plugin.toml\n"
        "[intarsia.loaders]\nnpu = intarsia_npu.loader:load\n"
    )


def _reader(process: subprocess.Popen[str]) -> queue.Queue[str]:
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        with contextlib.suppress(ValueError):  # closed by the test
            for line in process.stdout:
                lines.put(line.strip())

    threading.Thread(target=read, daemon=True).start()
    return lines


def _until(lines: queue.Queue[str], words: str) -> str:
    """The next line that has some words."""
    while words not in (line := lines.get(timeout=60)):
        pass
    return line


def test_without_the_tools_a_message_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert main(["--no-plugin", "tools", "plugins", "new", "npu"]) == 2
    assert "pip install intarsia-tools" in capsys.readouterr().err
    assert main(["--no-plugin", "tools", "plugins", "newer", "npu"]) == 2
    assert main(["--no-plugin", "tools", "diff", "a", "b"]) == 2
    assert "pip install intarsia-tools" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "intarsia_tools.drawing.placed_graph", None)
    image = ["--html", str(tmp_path / "page.html")]
    assert main(["explain", str(DIGITS), "--target", "dnnl, llvm", *image]) == 2
    assert "a drawing needs the package 'intarsia-tools'" in capsys.readouterr().err


def test_help_lists_the_commands_that_plugins_add(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "--help"]) == 0
    assert "Write a package for a plugin" in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert "plugins new" not in capsys.readouterr().out
