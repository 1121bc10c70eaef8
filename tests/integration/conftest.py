# SPDX-License-Identifier: Apache-2.0
"""Small models and commands run as users run them; with an older ``onnx`` as unit tests do."""

from __future__ import annotations

from tests.unit.conftest import operator_sets_of_this_onnx

__all__ = ["operator_sets_of_this_onnx"]
