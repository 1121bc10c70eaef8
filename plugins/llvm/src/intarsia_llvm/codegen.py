# SPDX-License-Identifier: Apache-2.0
"""The backend's code generator: a tensor module to machine code that a process loads."""

from __future__ import annotations

from dataclasses import replace

from intarsia.artifact.unit import CompiledUnit
from intarsia.lower.kernels import TensorModule
from intarsia.target.target import Target
from intarsia.tir.passes.simplify import simplify
from intarsia.tir.passes.vectorize import vectorize

from .emit.module import emit_module
from .intrinsics.expand import RULES, expand_intrinsics
from .link import link, linker_text
from .optimise import compile_object
from .target import LlvmOptions, host_triple, machine


def tir_codegen(module: TensorModule, target: Target) -> CompiledUnit:
    """Compile all kernels of ``module`` and its call plan.

    The unit is a shared library; without a linker for this machine, an object file.

    Raises:
        ToolchainError: LLVM or the linker fails.
        UnsupportedError: A kernel uses an operation that has no machine code.
    """
    options: LlvmOptions = target.options
    model = machine(options)
    code = compile_object(llvm_text(module, options), model, options.opt_level)
    linked = link(code, model.triple)
    return CompiledUnit(
        name=module.name,
        loader=linked.loader,
        files=linked.files,
        cpu_features=model.cpu_features,
        versions={"llvm": llvm_version()},
    )


def llvm_text(module: TensorModule, options: LlvmOptions) -> str:
    """Return the LLVM IR of ``module`` before LLVM's optimiser."""
    model = machine(options)
    rules = {**RULES, **module.rules}
    functions = tuple(
        expand_intrinsics(vectorize(simplify(function)), rules) for function in module.functions
    )
    return emit_module(
        replace(module, functions=functions),
        triple=model.triple,
        threads=options.num_threads,
        vector_bits=32 * model.lanes,
        tune=model.tune,
        half=model.half,
    )


def llvm_version() -> str:
    """Return the version of LLVM inside llvmlite, e.g. ``22.1.0``."""
    from llvmlite import binding  # an SDK: loaded when code is generated

    return ".".join(str(part) for part in binding.llvm_version_info)


def env_version() -> str:
    """Return what besides its own code a build depends on: LLVM, and what links."""
    return f"{llvm_version()}, {linker_text(host_triple())}"
