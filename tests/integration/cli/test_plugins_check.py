# SPDX-License-Identifier: Apache-2.0
"""``plugins check``: what becomes of each ending of the process that runs the kit."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from intarsia.cli.main import main
from intarsia.host.host import Host
from intarsia_tools.commands import plugins_check

RESULT = {
    "schema": 1,
    "distribution": "acme-one 1.0",
    "counts": {"passed": 1, "failed": 1, "declined": 0},
    "tiers": {"1": "failed"},
    "checks": [
        {"tier": 1, "outcome": "passed", "check": "imports", "seconds": 0.1, "detail": ""},
        {"tier": 1, "outcome": "failed", "check": "prints", "seconds": 0.2, "detail": "it does"},
    ],
}


@pytest.fixture
def kit_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Let a script stand for the process of the kit, and a plugin be installed."""
    monkeypatch.setattr(plugins_check, "KIT", "json")
    monkeypatch.setattr(Host, "plugin", _installed)
    script = tmp_path / "python"
    others = f"if '--pyargs' not in sys.argv: os.execv({sys.executable!r}, sys.argv)"

    def ends(body: str) -> None:
        script.write_text(f"#!{sys.executable}\nimport os, sys, time\n{others}\n{body}\n")
        script.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(script))

    return ends


def _installed(_host: Host, _name: str) -> tuple[()]:
    return ()


WRITE = """
(place,) = (word.split("=", 1)[1] for word in sys.argv if word.startswith("--intarsia-json="))
open(place, "w").write(%r)
"""


def test_a_failed_check_is_a_failed_gate(
    kit_ends: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    kit_ends(WRITE % json.dumps(RESULT))
    assert main(["plugins", "check", "one"]) == 10
    out, err = capsys.readouterr()
    assert "error: 'one' fails 1 of 2 checks" in err
    assert "prints: it does" in out
    assert "acme-one 1.0: 1 passed, 1 failed; tier 1 failed" in out


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("print('no such option'); sys.exit(4)", 2, "no such"),
        ("sys.exit(7)", 5, "the checks ended with exit code 7"),
        ("sys.exit(0)", 5, "the checks ended with exit code 0"),
        ("time.sleep(60)", 8, "the checks took more than 1 s"),
    ],
)
def test_an_end_without_a_result(
    kit_ends: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
    body: str,
    code: int,
    message: str,
) -> None:
    kit_ends(body)
    assert main(["plugins", "check", "one", "--time-limit", "1"]) == code
    assert message in capsys.readouterr().err


def test_without_the_kit(
    kit_ends: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(plugins_check, "KIT", "no_such_kit")
    assert main(["plugins", "check", "one"]) == 2
    assert "pip install intarsia-testkit" in capsys.readouterr().err


def test_what_can_only_be_compiled_is_said_to_the_kit(
    kit_ends: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    told = [{**RESULT["checks"][0], "outcome": "exempt", "detail": "compiled, not run: far"}]
    result = {**RESULT, "counts": {"exempt": 1, "failed": 0}, "tiers": {"1": "compiled"}}
    kit_ends(
        "assert '--intarsia-compile-only=far' in sys.argv"
        + WRITE % json.dumps({**result, "checks": told})
    )
    assert main(["plugins", "check", "one", "--compile-only", "far"]) == 0
    out, _ = capsys.readouterr()
    assert "compiled, not run: far" in out
    assert "1 exempt; tier 1 compiled" in out
