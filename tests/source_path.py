# SPDX-License-Identifier: Apache-2.0
"""Where Intarsia's own packages lie, for processes that tests start with a path of their own."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [*sorted((ROOT / "core").glob("*/src")), *sorted((ROOT / "plugins").glob("onnx/src"))]
CORE = os.pathsep.join(map(str, SOURCES))
"""For ``PYTHONPATH``: host, IR, loop compiler, runtime, and the importer of ONNX models."""
