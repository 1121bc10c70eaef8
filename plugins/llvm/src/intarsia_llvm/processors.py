# SPDX-License-Identifier: Apache-2.0
"""The processors and features that the installed LLVM knows for a triple.

LLVM prints them and has no function that returns them, so a child process prints and is read.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache

from intarsia.plugin import KnownValue, KnownValues
from intarsia.plugin.backend import did_you_mean
from intarsia_runtime.errors import TargetError, ToolchainError

from .target import (
    X86_CPUS,
    LlvmOptions,
    canonicalize,
    feature_hint,
    host_cpu,
    host_triple,
    is_known,
    is_x86,
)

_PRINT = """
import sys
from llvmlite import binding
binding.initialize_all_targets()
binding.initialize_all_asmprinters()
try:
    target = binding.Target.from_triple(sys.argv[1])
except RuntimeError as error:
    sys.exit(str(error))
print(".".join(str(part) for part in binding.llvm_version_info))
target.create_target_machine(cpu="help")
"""
_TRY = """
import sys
from llvmlite import binding
binding.initialize_all_targets()
binding.initialize_all_asmprinters()
triple, cpu, features = sys.argv[1:]
machine = binding.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features)
machine.emit_object(binding.parse_assembly(f'target triple = "{triple}"'))
"""
_ROW = re.compile(r"^  (\S+) +- (.*)$", re.MULTILINE)
_SECONDS = 60.0


@cache
def processors_and_features(
    triple: str,
) -> tuple[str, tuple[KnownValue, ...], tuple[KnownValue, ...]]:
    """Return the version of LLVM, its processors and its features for a triple.

    Raises:
        TargetError: LLVM does not know the triple.
        ToolchainError: LLVM did not answer.
    """
    run = _ask_llvm(_PRINT, triple)
    if run.returncode != 0:
        raise TargetError(
            f"-mtriple: LLVM does not know '{triple[:60]}': {_last_words(run)}", option="mtriple"
        )
    cpus, _, features = run.stderr.partition("Available features")
    return run.stdout.strip(), _rows(cpus), _rows(features)


def _ask_llvm(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, which LLVM may end.

    Raises:
        ToolchainError: LLVM did not answer.
    """
    command = [sys.executable, "-c", script, *arguments]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as cause:
        raise ToolchainError(f"LLVM does not say which processors it knows: {cause}") from None


def _last_words(run: subprocess.CompletedProcess[str]) -> str:
    return (run.stderr.strip().splitlines() or ["no message"])[-1][:200]


@cache
def _check_combination(triple: str, cpu: str, features: str) -> None:
    """Refuse what LLVM would end the process for, as a RISC-V processor of another width.

    Raises:
        TargetError: LLVM takes each of the three, and not all of them together.
    """
    run = _ask_llvm(_TRY, triple, cpu, features)
    if run.returncode != 0:
        words = _last_words(run).removeprefix("LLVM ERROR: ")
        raise TargetError(
            f"-mcpu={cpu} for {triple}: {words}",
            hint=f"intarsia targets show 'llvm -mtriple={triple}' --values mcpu",
            option="mcpu",
        )


def _rows(text: str) -> tuple[KnownValue, ...]:
    rows = {value: meaning for value, meaning in _ROW.findall(text) if value != "help"}
    return tuple(KnownValue(value, meaning) for value, meaning in sorted(rows.items()))


def known_values(flag: str, options: LlvmOptions) -> KnownValues:
    """Return what ``-mcpu``, ``-mtune`` or ``-mattr`` may be for the triple of the options.

    Raises:
        TargetError: LLVM does not know the triple.
    """
    triple = options.mtriple or host_triple()
    version, cpus, features = processors_and_features(triple)
    if flag == "mattr":
        rows = tuple(KnownValue(f"+{row.value}", row.doc) for row in features)
    elif flag == "mcpu" and is_x86(triple):
        rows = tuple(row for row in cpus if row.value in X86_CPUS)
    else:
        rows = cpus
    name, own = host_cpu()
    machine = f"{name} ({host_triple()})"
    if own:
        machine += f" with {', '.join(f'+{feature}' for feature in own)}"
    return KnownValues(rows, f"LLVM {version} for {triple}", machine)


def check_processor(options: LlvmOptions) -> LlvmOptions:
    """Canonicalize options, and refuse what LLVM would ignore with a warning.

    x86 has a table of its own, so only other machines and rare features cost a question to LLVM.

    Raises:
        TargetError: An unknown processor, feature or triple.
    """
    options = canonicalize(options)
    if is_known(options):
        return options
    wanted = [("mcpu", options.mcpu), ("mtune", options.mtune)]
    wanted += [("mattr", feature[1:]) for feature in options.mattr]
    _, cpus, features = processors_and_features(options.mtriple)
    processors = {row.value for row in cpus} | {"generic"}
    known_features = {row.value for row in features}
    for flag, name in wanted:
        known = known_features if flag == "mattr" else processors
        if (name or flag == "mattr") and name not in known:
            what = "feature" if flag == "mattr" else "processor"
            raise TargetError(
                f"-{flag}: LLVM knows no {what} '{name}' for {options.mtriple}",
                hint=(feature_hint(name, known_features) if flag != "mattr" else "")
                or did_you_mean(name, known)
                or f"intarsia targets show 'llvm -mtriple={options.mtriple}' --values {flag}",
                option=flag,
            )
    if options.mtriple.startswith("riscv"):
        _check_combination(options.mtriple, options.mcpu, ",".join(options.mattr))
    return options
