# SPDX-License-Identifier: Apache-2.0
"""Writes the table of devices in ``docs/hardware.md``.

Run it: ``python -m tests.architecture.hardware_page``.
"""

from __future__ import annotations

from itertools import groupby

from intarsia.host.host import Host
from intarsia_ir.hardware.tags import KINDS, HardwareTag

from .source_tree import ROOT

PAGE = ROOT / "docs" / "hardware.md"
BEGIN, END = "<!-- devices: begin -->", "<!-- devices: end -->"
TITLES = {
    "core": "Cores and microarchitectures",
    "cpu": "Processors",
    "soc": "Systems on chip",
    "mcu": "Microcontrollers",
    "board": "Boards",
    "machine": "Machines",
    "instance": "Cloud instances",
    "gpu": "GPUs",
    "accelerator": "Accelerators",
}


def render() -> str:
    """Return the tables, one for each kind of device, one row for each vendor."""
    tags = Host(env={}).hardware().tags
    parts = [f"{len(tags)} devices; sizes of cloud instances are not counted."]
    for kind in KINDS:
        chosen = [tag for tag in tags if tag.kind == kind]
        if chosen:
            rows = [
                f"| {vendor} | {', '.join(f'`{tag.device}`' for tag in group)} |"
                for vendor, group in groupby(chosen, vendor_of)
            ]
            parts.append(
                "\n".join([f"### {TITLES[kind]}\n", "| vendor | devices |", "|---|---|", *rows])
            )
    return "\n\n".join(parts)


def vendor_of(tag: HardwareTag) -> str:
    """The vendor of a tag."""
    return tag.vendor


def updated(text: str) -> str:
    """Return the page with the tables as they must be."""
    front, _, rest = text.partition(BEGIN)
    _, _, back = rest.partition(END)
    return f"{front}{BEGIN}\n\n{render()}\n\n{END}{back}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
