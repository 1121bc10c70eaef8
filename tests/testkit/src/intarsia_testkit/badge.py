# SPDX-License-Identifier: Apache-2.0
"""A badge: a small SVG with a label and a value, no fonts or network needed."""

from __future__ import annotations

from html import escape

_TEMPLATE = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{title}">
<title>{title}</title>
<rect width="{width}" height="20" rx="3" fill="#444"/>
<path d="M{left} 0h{cut}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3H{left}z" fill="{colour}"/>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="{label_at}" y="14">{label}</text>
<text x="{value_at}" y="14">{value}</text>
</g>
</svg>
"""


def badge(label: str, value: str, colour: str) -> str:
    """Return an SVG of a label in grey and a value in ``colour``."""
    left, right = _width(label), _width(value)
    return _TEMPLATE.format(
        width=left + right,
        left=left,
        cut=right - 3,
        title=escape(f"{label}: {value}", quote=True),
        label=escape(label),
        value=escape(value),
        colour=escape(colour, quote=True),
        label_at=left / 2,
        value_at=left + right / 2,
    )


def _width(text: str) -> int:
    """Pixels that a text needs at 11 pixels, with room on both sides."""
    return round(6.8 * len(text)) + 10
