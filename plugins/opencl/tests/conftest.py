# SPDX-License-Identifier: Apache-2.0
"""Targets of the plugin, and the device that the tests run on."""

from __future__ import annotations

import platform
import sys

import pytest

from intarsia.target.target import Target
from intarsia_opencl.driver import find_device
from intarsia_opencl.plugin import register_target_kind
from intarsia_opencl.target import OpenclOptions, canonicalize
from intarsia_runtime.errors import WorkerLost


@pytest.fixture(scope="session")
def make_target():
    kind = register_target_kind()[0]

    def make(**options):
        return Target(kind, canonicalize(OpenclOptions(**options)))

    return make


@pytest.fixture(scope="session")
def device():
    """The first device: pocl on this machine's CPU, unless there is a GPU with a driver."""
    try:
        return find_device("auto", "")
    except WorkerLost as error:
        if (sys.platform, platform.machine()) == ("linux", "x86_64"):
            raise  # the tests' dependencies have pocl for it
        pytest.skip(error.message)
