# SPDX-License-Identifier: Apache-2.0
"""Compile kernels for the CPU and load them."""

from __future__ import annotations

import pytest

from intarsia.target.target import Target
from intarsia_cuda.plugin import register_target_kind
from intarsia_cuda.target import CudaOptions, canonicalize


@pytest.fixture(scope="session")
def make_target():
    kind = register_target_kind()[0]

    def make(**options):
        return Target(kind, canonicalize(CudaOptions(**options)))

    return make
