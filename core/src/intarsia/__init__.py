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
    from .build.artifact import Artifact
    from .build.build import build
    from .build.config import Executor, Runtime
    from .build.target import Target
    from .errors import IntarsiaError
    from .frontend.onnx import from_onnx
    from .frontend.torch import from_torch
    from .host.host import Host
    from .ir.module import IRModule
    from .runtime.load import load
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


def __getattr__(name: str) -> object:
    """Import the part that defines ``name``, and return its value (PEP 562)."""
    match name:
        case "Artifact":
            module = "build.artifact"
        case "build":
            module = "build.build"
        case "Executor" | "Runtime":
            module = "build.config"
        case "IntarsiaError":
            module = "errors"
        case "from_onnx":
            module = "frontend.onnx"
        case "from_torch":
            module = "frontend.torch"
        case "Host":
            module = "host.host"
        case "IRModule":
            module = "ir.module"
        case "load":
            module = "runtime.load"
        case "CompositeTarget":
            module = "target.target"
        case "Target":
            module = "build.target"
        case "__version__":
            return importlib.import_module(".build.pack", __name__).own_version()
        case _:
            raise AttributeError(f"module 'intarsia' has no attribute '{name}'")
    value: object = vars(importlib.import_module(f".{module}", __name__))[name]
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, for completion."""
    return __all__
