# SPDX-License-Identifier: Apache-2.0
"""Models of which a part is only known at run time: a compiled piece and a program of nodes."""

from __future__ import annotations

from .loader import load, run_reference
from .plan import plan_onnx, plan_read
from .program import DynamicModel, Program

__all__ = ["DynamicModel", "Program", "load", "plan_onnx", "plan_read", "run_reference"]
