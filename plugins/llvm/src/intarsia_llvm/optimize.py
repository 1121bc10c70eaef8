# SPDX-License-Identifier: Apache-2.0
"""LLVM IR text to an object file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_runtime.errors import ToolchainError

from .machine import CodegenMachine

if TYPE_CHECKING:
    from llvmlite import binding

SCHEDULED = "!intarsia.scheduled = !{}"
"""Says in a module that LLVM has no loops to vectorize or to improve."""

_MOST = 3


def prepare() -> None:
    """Load LLVM, and have it know all machines that it has code generators for."""
    from llvmlite import binding  # an SDK: loaded when code is generated

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()


def _target_machine(machine: CodegenMachine, level: int) -> binding.TargetMachine:
    from llvmlite import binding

    try:
        target = binding.Target.from_triple(machine.triple)
    except RuntimeError as cause:
        raise ToolchainError(
            f"LLVM cannot generate code for '{machine.triple}': {cause}",
            hint="check -mtriple; e.g. x86_64-unknown-linux-gnu, aarch64-unknown-linux-gnu",
        ) from cause
    return target.create_target_machine(
        cpu=machine.cpu,
        features=machine.features,
        opt=_MOST if level else 0,  # of selection, registers and order, which all kernels need
        reloc="static" if machine.bare else "pic",
        codemodel="default",
    )


def compile_object(text: str, machine: CodegenMachine, level: int) -> bytes:
    """Verify, optimize and compile a module.

    Raises:
        ToolchainError: LLVM refuses the text or the machine.
    """
    module, target_machine = _optimized(text, machine, level)
    return target_machine.emit_object(module)


def compile_assembly(text: str, machine: CodegenMachine, level: int) -> str:
    """Return the assembly of what :func:`compile_object` compiles."""
    module, target_machine = _optimized(text, machine, level)
    return target_machine.emit_assembly(module)


def _optimized(
    text: str, machine: CodegenMachine, level: int
) -> tuple[binding.ModuleRef, binding.TargetMachine]:
    from llvmlite import binding

    prepare()
    target_machine = _target_machine(machine, level)
    try:
        module = binding.parse_assembly(text)
        module.data_layout = str(target_machine.target_data)
        module.verify()
    except RuntimeError as cause:
        raise ToolchainError(f"LLVM refuses the generated module: {cause}") from cause
    if level == 1 and SCHEDULED in text:
        _simplify(module, target_machine)
    else:
        _run_level(module, target_machine, level)
    return module, target_machine


def _simplify(module: binding.ModuleRef, target_machine: binding.TargetMachine) -> None:
    """Put sums into registers and simplify instructions, which is all that scheduled kernels need.

    It takes a tenth of the time of level 1, whose code has as many instructions within 1 %.
    """
    from llvmlite import binding

    options = binding.create_pipeline_tuning_options(speed_level=0)
    passes = binding.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.run(module, binding.create_pass_builder(target_machine, options))


def _run_level(
    module: binding.ModuleRef, target_machine: binding.TargetMachine, level: int
) -> None:
    from llvmlite import binding

    tuning = binding.create_pipeline_tuning_options(speed_level=level)
    tuning.slp_vectorization = False
    tuning.loop_vectorization = level >= 1
    tuning.loop_interleaving = False
    # Schedules say what to unroll; unrolling more costs seconds and gains nothing measurable.
    tuning.loop_unrolling = False
    builder = binding.create_pass_builder(target_machine, tuning)
    builder.getModulePassManager().run(module, builder)


def llvm_version() -> str:
    """Return the version of LLVM inside llvmlite, e.g. ``22.1.0``."""
    from llvmlite import binding  # an SDK: loaded when code is generated

    return ".".join(str(part) for part in binding.llvm_version_info)
