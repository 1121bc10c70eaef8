# SPDX-License-Identifier: Apache-2.0
"""What the tests of the PyTorch front end have in common."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache

import pytest


@pytest.fixture(scope="session")
def quick_export() -> Iterator[None]:
    """Let torch.onnx read its table of operators once, and not at every export (0.4 s each)."""
    registration = importlib.import_module("torch.onnx._internal.exporter._registration")
    registry = registration.ONNXRegistry
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "from_torchlib", staticmethod(cache(registry.from_torchlib)))
        yield
