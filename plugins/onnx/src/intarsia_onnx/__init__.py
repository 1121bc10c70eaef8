# SPDX-License-Identifier: Apache-2.0
"""ONNX models as :class:`~intarsia_ir.graph.module.IRModule`."""

from __future__ import annotations

from .api import from_onnx

__all__ = ["from_onnx"]
