# SPDX-License-Identifier: Apache-2.0
"""Compile kernels for the CPU, and for the GPU where there is one, and load them."""

from __future__ import annotations

import pytest

from intarsia.target.target import Target
from intarsia_cuda.driver import device_name
from intarsia_cuda.plugin import register_target_kind
from intarsia_cuda.target import NATIVE, CudaOptions, canonicalize
from intarsia_runtime.errors import IntarsiaError

from .running import GpuModule, Module


@pytest.fixture(scope="session")
def make_target():
    kind = register_target_kind()[0]

    def make(**options):
        return Target(kind, canonicalize(CudaOptions(**options)))

    return make


@pytest.fixture(scope="session")
def gpu():
    """Skip where no NVIDIA GPU is."""
    try:
        device_name()
    except IntarsiaError as error:
        pytest.skip(f"no GPU to run on: {error.message}")


@pytest.fixture(scope="session", params=["emulated", "gpu"])
def place(request, make_target):
    """Where kernels run: options of its target, and which modules load them there."""
    if request.param == "emulated":
        return {}, Module
    request.getfixturevalue("gpu")
    return {"arch": NATIVE}, GpuModule
