# SPDX-License-Identifier: Apache-2.0
"""Draws what commands print on a terminal, for the docs.

Run it: ``python -m tests.architecture.terminal_images``. Each picture is what the command really
printed on a terminal of 96 columns; a test runs them again and compares the words.
"""

from __future__ import annotations

import fcntl
import html
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

from .source_tree import ROOT

IMAGES = ROOT / "docs" / "images"
COLUMNS = 96
COMMANDS = {
    "targets-list": ("targets", "list"),
    "targets-show": ("targets", "show", "dnnl"),
    "hardware-list": ("hardware", "list", "--vendor", "raspberrypi"),
}
# The default template of rich loads fonts from the network; pages of the docs load nothing.
PICTURE = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: Consolas, Menlo, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g>
</svg>
"""


def printed(arguments: tuple[str, ...]) -> str:
    """What ``intarsia ARGUMENTS`` prints on a terminal, escape sequences and all.

    Args:
        arguments: The words behind ``intarsia``.

    Returns:
        Lines that end in one newline each.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        [sys.executable, "-m", "intarsia", *arguments], stdout=theirs, env=environment
    ) as process:
        os.close(theirs)
        read = bytearray()
        with os.fdopen(ours, "rb", buffering=0) as terminal:
            while chunk := _chunk(terminal):
                read += chunk
        if process.wait():
            raise RuntimeError(f"intarsia {' '.join(arguments)} ended with {process.returncode}")
    lines = read.decode().replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip() for line in lines).strip("\n") + "\n"


def _chunk(terminal: io.FileIO) -> bytes:
    try:
        return terminal.read(65536)
    except OSError:  # Linux says so when the other end of a terminal is closed
        return b""


def draw(name: str) -> str:
    """Return the picture called NAME, as SVG."""
    arguments = COMMANDS[name]
    text = printed(arguments)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text))
    title = f"intarsia {' '.join(arguments)}"
    return console.export_svg(title=title, code_format=PICTURE, unique_id=name)


def words(picture: str) -> list[str]:
    """The words that stand in a picture, in order."""
    shown = re.findall(r"<text[^>]*-matrix[^>]*>(.*?)</text>|<text[^>]*>(.*?)</text>", picture)
    joined = " ".join(html.unescape("".join(pair)) for pair in shown)
    return joined.replace("\N{NO-BREAK SPACE}", " ").split()


def file_of(name: str) -> Path:
    """Where the picture called NAME is kept."""
    return IMAGES / f"{name}.svg"


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for each in COMMANDS:
        file_of(each).write_text(draw(each), encoding="utf-8")
