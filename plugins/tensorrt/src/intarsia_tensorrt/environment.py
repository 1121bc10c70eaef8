# SPDX-License-Identifier: Apache-2.0
"""What compiled regions depend on besides the options: part of the keys of caches."""

from __future__ import annotations

from intarsia.plugin.accelerator import IntarsiaError

from .device import Gpu
from .sdk import builds_on_the_gpu, installed_versions
from .signature import SCHEMA


def environment_version() -> str:
    """Return what compiled regions depend on besides the options."""
    versions = installed_versions()
    gpu = ""
    if builds_on_the_gpu("auto"):
        gpu = f", {_gpu_here()}"  # engines of this edition are for the GPU that builds them
    return f"network {SCHEMA}, {versions}{gpu}"


def _gpu_here() -> str:
    try:
        gpu = Gpu()
    except IntarsiaError:
        return "no GPU"
    try:
        return gpu.identity
    finally:
        gpu.close()
