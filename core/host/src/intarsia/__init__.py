# SPDX-License-Identifier: Apache-2.0
"""Intarsia composes ML-compiler backends: compile a model for a target, save it, load it, run it.

>>> artifact = intarsia.build("model.onnx", target="accelerator, backend")
>>> path = artifact.save("model.intarsia")
>>> outputs = intarsia.load(path).run({"input": array})

Importing this package imports none of its parts; each name does so when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_runtime.lazy import lazy_names

if TYPE_CHECKING:
    from intarsia_ir.graph.module import IRModule as IRModule
    from intarsia_onnx import from_onnx as from_onnx
    from intarsia_runtime.errors import IntarsiaError as IntarsiaError
    from intarsia_runtime.load import load as load
    from intarsia_torch.importing import from_torch as from_torch

    from .driver.artifact import Artifact as Artifact
    from .driver.build import build as build
    from .driver.config import Executor as Executor
    from .driver.config import Runtime as Runtime
    from .driver.configured import configured_target as configured_target
    from .driver.fetch_build import build_cached as build_cached
    from .driver.request import BUILD_OPTIONS as BUILD_OPTIONS
    from .driver.target import Target as Target
    from .driver.version import __version__ as __version__
    from .host.host import Host as Host
    from .target.read import OneSpec as OneSpec
    from .target.read import TargetSpec as TargetSpec
    from .target.target import CompositeTarget as CompositeTarget

if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "intarsia.driver.artifact": "Artifact",
            "intarsia.driver.build": "build",
            "intarsia.driver.config": "Executor Runtime",
            "intarsia.driver.configured": "configured_target",
            "intarsia.driver.fetch_build": "build_cached",
            "intarsia.driver.request": "BUILD_OPTIONS",
            "intarsia.driver.target": "Target",
            "intarsia.driver.version": "__version__",
            "intarsia.host.host": "Host",
            "intarsia.target.read": "OneSpec TargetSpec",
            "intarsia.target.target": "CompositeTarget",
            "intarsia_ir.graph.module": "IRModule",
            "intarsia_onnx": "from_onnx",
            "intarsia_runtime.errors": "IntarsiaError",
            "intarsia_runtime.load": "load",
            "intarsia_torch.importing": "from_torch",
        },
    )
