# SPDX-License-Identifier: Apache-2.0
"""What the probes of a plugin found on this machine, in the words of all commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..host.examine import PluginFinding


def probe_lines(finding: PluginFinding) -> list[str]:
    """One line for each kind of target whose plugin can be asked."""
    lines: list[str] = []
    for kind, answer in finding.probes.items():
        if "error" in answer:
            lines.append(f"{kind}: its probe failed: {answer['error']}")
            continue
        facts = [str(answer[key]) for key in ("sdk", "device", "detail") if answer.get(key)]
        usable = "usable" if answer.get("usable") else "not usable here"
        lines.append(": ".join([kind, ", ".join([usable, *facts])]))
    return lines
