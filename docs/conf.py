# SPDX-License-Identifier: Apache-2.0
"""Sphinx settings."""

from __future__ import annotations

project = "Intarsia"
copyright = "the Intarsia contributors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "changes"]
html_theme = "furo"
html_title = "Intarsia"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
suppress_warnings = ["ref.python"]  # `bytes` in a docstring is Python's type, not one of ours
