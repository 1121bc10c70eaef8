# SPDX-License-Identifier: Apache-2.0
"""Sources of the tiny nets and of every operator, without a warning of any compiler there is.

What gcc says of the operators is ``test_c_operators.py``'s, which compiles and runs them.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

import intarsia
from intarsia import Executor, Runtime
from intarsia.target.target import Target
from intarsia_c.codegen import c_sources
from intarsia_c.plugin import register_target_kind
from intarsia_c.target import COptions
from intarsia_ir.tir.module import TensorModule
from intarsia_runtime.artifact.plan import CallPlan
from intarsia_testkit.recorded_cases import recorded

from .calling import STRICT
from .mcu.tiny_nets import NETS, save_net
from .test_c_operators import CORE_TESTS, FILES, lowered

COMPILERS = {
    "gcc": ("gcc",),
    "clang": ("clang",),
    "zig": (sys.executable, "-m", "ziglang", "cc"),
}
KINDS = ("", "_int8")


@pytest.fixture(params=COMPILERS)
def compiler(request):
    """The command of a compiler, and the flags under which it must be silent."""
    name = request.param
    if name == "zig":
        missing = importlib.util.find_spec("ziglang") is None
        reason = "zig is not installed: pip install ziglang"
    else:
        missing, reason = not shutil.which(name), f"{name} is not installed"
    if missing:
        pytest.skip(reason)
    return (*COMPILERS[name], "-std=c99", *STRICT)


@pytest.fixture(scope="module")
def nets(tmp_path_factory):
    """The folder with the sources of each tiny net: of floats for any machine, or for a board."""
    folder = tmp_path_factory.mktemp("nets")
    executor = Executor("aot", {"unpacked-api": True, "interface-api": "c"})
    for number, net in enumerate(NETS):
        name = f"{net}{KINDS[number % 2]}"
        path, _ = save_net(folder, name)
        target = ("c -freestanding", "c -mcpu=cortex-m4")[number // 2 % 2]
        runtime = Runtime("c", {"link-params": False})
        built = intarsia.build(path, target, executor=executor, runtime=runtime, mod_name=name)
        built.save(f"{folder}/{name}/")
    return folder


def check_silent(compiler, folder, sources, *flags):
    """Compile; zig takes one source at a time, and only makes objects."""
    one = "ziglang" in compiler
    for group in [[source] for source in sources] if one else [sources]:
        argv = [*compiler, *flags, *(("-c", "-o", "object.o") if one else ("-fsyntax-only",))]
        done = subprocess.run(
            [*argv, *group], cwd=folder, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), group


def test_tiny_nets(compiler, nets):
    sources = [str(path) for path in sorted(nets.glob("*/src/*.c"))]
    assert len(sources) >= len(NETS)
    check_silent(compiler, nets, sources, *(f"-I{p}" for p in sorted(nets.glob("*/include"))))


@pytest.fixture(scope="module")
def operators(tmp_path_factory):
    """The folder with one source that has a kernel for every case of every operator."""
    folder = tmp_path_factory.mktemp("operators")
    target = Target(register_target_kind()[0], COptions())
    functions = [
        replace(function, name=f"c{n}_{function.name}")
        for n, case in enumerate(
            case for file in FILES for case in recorded(CORE_TESTS / f"{file}.py")
        )
        for function in lowered(case, target).module.functions
    ]
    module = TensorModule(tuple(functions), CallPlan((), (), (), (), 0, ()))
    for name, text in c_sources(module, target.options).items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("compiler", ["clang", "zig"], indirect=True)
def test_operators(compiler, operators):
    check_silent(compiler, operators, ["model_entry.c"])
