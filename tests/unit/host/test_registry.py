# SPDX-License-Identifier: Apache-2.0
"""A registry refuses doubles and names both owners."""

from __future__ import annotations

import pytest

from intarsia.host.registry import Registry
from intarsia_runtime.errors import DuplicateName, UsageError


def test_names_have_one_owner() -> None:
    kinds: Registry[int] = Registry("target kind")
    kinds.add("npu", 1, owner="intarsia-npu")
    assert (kinds.get("npu"), kinds.owner("npu"), "npu" in kinds, list(kinds), len(kinds)) == (
        (1, "intarsia-npu", True, ["npu"], 1)
    )
    with pytest.raises(DuplicateName, match="by both 'intarsia-npu' and 'acme-npu'") as caught:
        kinds.add("npu", 2, owner="acme-npu")
    assert "INTARSIA_DISABLE_PLUGINS=acme-npu" in caught.value.hint
    assert kinds.get("npu") == 1


def test_an_unknown_name_gets_the_nearest() -> None:
    kinds: Registry[int] = Registry("executor")
    with pytest.raises(UsageError, match="no executor is called 'graph'") as caught:
        kinds.get("graph")
    assert caught.value.hint == "known: none"
    kinds.add("graph", 1, owner="x")
    with pytest.raises(UsageError) as caught:
        kinds.owner("grap")
    assert caught.value.hint == "did you mean 'graph'?"
