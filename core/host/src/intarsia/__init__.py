# SPDX-License-Identifier: Apache-2.0
"""Intarsia composes ML-compiler backends: compile a model for a target, save it, load it, run it.

>>> artifact = intarsia.build("model.onnx", target="accelerator, backend")
>>> path = artifact.save("model.intarsia")
>>> outputs = intarsia.load(path).run({"input": array})

Importing this package imports none of its parts; each name does so when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from intarsia_ir.graph.module import IRModule
    from intarsia_onnx import from_onnx
    from intarsia_runtime.errors import IntarsiaError
    from intarsia_runtime.load import load
    from intarsia_torch.importing import from_torch

    from .driver.artifact import Artifact
    from .driver.build import build
    from .driver.config import Executor, Runtime
    from .driver.target import Target
    from .host.host import Host
    from .target.target import CompositeTarget

    __version__: str

__all__ = [
    "Artifact",
    "CompositeTarget",
    "Executor",
    "Host",
    "IRModule",
    "IntarsiaError",
    "Runtime",
    "Target",
    "__version__",
    "build",
    "from_onnx",
    "from_torch",
    "load",
]

_HOMES = {
    "Artifact": "intarsia.driver.artifact",
    "CompositeTarget": "intarsia.target.target",
    "Executor": "intarsia.driver.config",
    "Host": "intarsia.host.host",
    "IRModule": "intarsia_ir.graph.module",
    "IntarsiaError": "intarsia_runtime.errors",
    "Runtime": "intarsia.driver.config",
    "Target": "intarsia.driver.target",
    "build": "intarsia.driver.build",
    "from_onnx": "intarsia_onnx",
    "from_torch": "intarsia_torch.importing",
    "load": "intarsia_runtime.load",
}


def __getattr__(name: str) -> object:
    """Import the part that defines ``name``, and return its value (PEP 562)."""
    if name == "__version__":
        return importlib.import_module("intarsia.driver.pack").own_version()
    if name not in _HOMES:
        raise AttributeError(f"module 'intarsia' has no attribute '{name}'")
    value: object = vars(importlib.import_module(_HOMES[name]))[name]
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, for completion."""
    return __all__
