# SPDX-License-Identifier: Apache-2.0
"""8-bit convolutions and products: four bytes at a time, exactly the integers of the reference."""

from __future__ import annotations

import numpy as np
import pytest

import intarsia

from .calling import STRICT
from .mcu.tiny_nets import save_net


@pytest.mark.parametrize("name", ["keywords_int8", "anomalies_int8"])
def test_all_compilers_flags_give_the_same_integers(tmp_path, name):
    """What vectors compute is what one number after the other gives."""
    path, x = save_net(tmp_path, name)
    flags = ",".join((*STRICT, "-ffp-contract=off"))
    results = [
        intarsia.build(path, target=f"c -opt-level={level} -cflags={more}{flags}")
        .load()
        .run({"x": x})
        for level, more in ((1, ""), (3, "-march=native,"))
    ]
    for first, second in zip(*(r.values() for r in results), strict=True):
        np.testing.assert_array_max_ulp(first, second, 8 if "keywords" in name else 0)
