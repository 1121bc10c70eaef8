# SPDX-License-Identifier: Apache-2.0
"""What an older ``onnx`` does not know cannot be tested with it: such tests skip and say so."""

from __future__ import annotations

from typing import Any

import pytest

NEWEST = 28
"""The newest operator set of which a test makes a model."""


@pytest.fixture(autouse=True)
def operator_sets_of_this_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip a test that makes a model of an operator set newer than the ``onnx`` package."""
    helper = pytest.importorskip("onnx.helper")
    defs = pytest.importorskip("onnx.defs")
    known = defs.onnx_opset_version()
    if known >= NEWEST:
        return
    make = helper.make_opsetid

    def checked(domain: str, version: int) -> Any:
        if domain == "" and known < version <= NEWEST:
            pytest.skip(f"this version of onnx has operator sets 1 to {known}, not {version}")
        return make(domain, version)

    monkeypatch.setattr(helper, "make_opsetid", checked)
