# SPDX-License-Identifier: Apache-2.0
"""A passport names every CPU feature that the code of its artifact may use."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia
from intarsia import Executor, Runtime
from intarsia.cli.main import main
from intarsia_llvm import target
from intarsia_llvm.isa import AARCH64, ARM, CORTEX_M, Isa
from intarsia_llvm.link import find_linker
from intarsia_llvm.processors import processors_and_features
from intarsia_runtime.artifact.archive import open_artifact
from intarsia_runtime.artifact.machine import Machine, check_machine
from intarsia_runtime.errors import ArtifactError, ToolchainError

from .disassembly import TOOLS, outside

# Objects for programs: they need no linker, and every machine has them.
PROGRAM = {
    "executor": Executor("aot", {"unpacked-api": True, "interface-api": "c"}),
    "runtime": Runtime("c"),
}
RNG = np.random.default_rng(24)


def weights(**shapes: tuple[int, ...]) -> list[onnx.TensorProto]:
    arrays = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return [numpy_helper.from_array(array, name) for name, array in arrays.items()]


def model(nodes: list[onnx.NodeProto], initializers: list[onnx.TensorProto]) -> onnx.ModelProto:
    float32 = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", float32, [1, 8, 10, 10])],
        [helper.make_tensor_value_info("y", float32, None)],
        initializers,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@cache
def floats() -> onnx.ModelProto:
    """Convolution, pool, product, softmax and a function, by schedules and by LLVM."""
    return model(
        [
            helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
            helper.make_node("Flatten", ["c"], ["d"]),
            helper.make_node("MatMul", ["d", "v"], ["e"]),
            helper.make_node("Softmax", ["e"], ["f"]),
            helper.make_node("Tanh", ["f"], ["g"]),
            helper.make_node("Cast", ["g"], ["h"], to=TensorProto.FLOAT16),
            helper.make_node("Cast", ["h"], ["y"], to=TensorProto.FLOAT),
        ],
        weights(w=(16, 8, 3, 3), v=(400, 10)),
    )


@cache
def quantized() -> onnx.ModelProto:
    """A convolution between QuantizeLinear and DequantizeLinear, 8 bits."""
    scale = numpy_helper.from_array(np.float32(0.05), "s")
    zero = numpy_helper.from_array(np.uint8(128), "z")
    narrow = numpy_helper.from_array(RNG.integers(-127, 127, (16, 8, 3, 3), np.int8), "w")
    signed = numpy_helper.from_array(np.int8(0), "zw")
    return model(
        [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["a"]),
            helper.make_node("DequantizeLinear", ["w", "s", "zw"], ["v"]),
            helper.make_node("Conv", ["a", "v"], ["b"]),
            helper.make_node("QuantizeLinear", ["b", "s", "z"], ["c"]),
            helper.make_node("DequantizeLinear", ["c", "s", "z"], ["y"]),
        ],
        [scale, zero, narrow, signed],
    )


TAGS = {
    "x86_64": ("x86/x86-64", "x86/x86-64-v2", "intel/haswell", "intel/sapphirerapids", "amd/zen4"),
    "aarch64": (
        *("arm/aarch64", "raspberrypi/4b", "arm/cortex-a76", "fujitsu/a64fx", "aws/c7g.xlarge"),
        *("arm/neoverse-v2", "qualcomm/oryon-1", "ampere/ampere1a"),
    ),
    "armv7": ("arm/cortex-a7", "arm/cortex-a9"),
    "thumb": ("arm/cortex-m0", "arm/cortex-m4", "arm/cortex-m7", "arm/cortex-m33"),
    "riscv64": ("riscv/rv64gc", "sifive/u74", "sifive/x280", "spacemit/x60"),
}


@pytest.mark.parametrize(
    ("arch", "tag"), [(arch, tag) for arch, tags in TAGS.items() for tag in tags]
)
def test_code_holds_nothing_that_the_passport_does_not_name(
    arch: str, tag: str, tmp_path: Path
) -> None:
    tools = TOOLS[arch]
    if tools.missing:
        pytest.skip(f"no {tools.missing} (Debian's binutils for that machine)")
    for net in (floats(), quantized()):
        built = intarsia.build(net, tag, **PROGRAM)
        (unit,) = built.units
        (code,) = (content for name, content in unit.files.items() if name.endswith(".o"))
        assert outside(code, tools, built.passport.cpu_features, tmp_path) == []


@pytest.mark.parametrize(
    ("arch", "tag"),
    [("x86_64", "intel/haswell"), ("aarch64", "aws/c7g.xlarge"), ("aarch64", "raspberrypi/4b")],
)
def test_a_library_with_its_threads_holds_no_more(arch: str, tag: str, tmp_path: Path) -> None:
    tools = TOOLS[arch]
    if tools.missing:
        pytest.skip(f"no {tools.missing} (Debian's binutils for that machine)")
    try:
        find_linker(f"{arch}-unknown-linux-gnu")
    except ToolchainError as error:
        pytest.skip(f"{error} ({error.hint})")
    built = intarsia.build(quantized(), tag)
    (unit,) = built.units
    assert outside(unit.files["lib.so"], tools, built.passport.cpu_features, tmp_path) == []


@pytest.mark.parametrize(
    ("arch", "tag"),
    [("x86_64", "intel/haswell"), ("aarch64", "aws/c7g.xlarge"), ("riscv64", "sifive/u74")],
)
def test_less_than_the_passport_names_is_not_enough(arch: str, tag: str, tmp_path: Path) -> None:
    """Else the test above could not fail."""
    tools = TOOLS[arch]
    if tools.missing:
        pytest.skip(f"no {tools.missing} (Debian's binutils for that machine)")
    (unit,) = intarsia.build(quantized(), tag, **PROGRAM).units
    (code,) = (content for name, content in unit.files.items() if name.endswith(".o"))
    assert outside(code, tools, (), tmp_path) != []


@pytest.fixture(scope="module")
def graviton(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An artifact for aws/c7g.xlarge, whose cores have SVE."""
    path = tmp_path_factory.mktemp("check") / "net.intarsia"
    intarsia.build(floats(), "aws/c7g.xlarge", **PROGRAM).save(path)
    return str(path)


@pytest.mark.parametrize("words", [("check",), ("hardware", "check")])
def test_check_names_what_a_machine_lacks(
    words: tuple[str, ...], graviton: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, graviton, "--on", "raspberrypi/4b"]) == 7
    lacking = capsys.readouterr().err.partition("CPU features ")[2].splitlines()[0].split()
    assert {"sve", "atomics", "lrcpc", "i8mm"} <= set(lacking)
    assert "crc32" not in lacking  # it has that
    assert main([*words, graviton, "--on", "aws/c7g.xlarge"]) == 0
    assert main([*words, graviton, "--on", "arm/neoverse-v2"]) == 0  # which has more


def test_loading_names_what_a_machine_lacks(graviton: str) -> None:
    passport = open_artifact(graviton).passport
    has = frozenset({"fp", "asimd", "crc32", "atomics", "asimdrdm"})
    with pytest.raises(ArtifactError, match=r"this machine has no asimddp .*\bsve\b"):
        check_machine(passport, Machine("linux", "aarch64", has))
    check_machine(passport, Machine("linux", "aarch64", has | {*passport.cpu_features}))


@pytest.mark.parametrize(
    ("arch", "has", "needs"),
    [
        ("aarch64", "fp asimd evtstrm aes crc32 atomics asimddp", "crc32 atomics asimddp"),
        ("riscv64", "i m a f d c v zba zicntr zve64d", "m a f d c v zba"),
    ],
)
def test_native_is_what_this_machine_has(
    arch: str, has: str, needs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Machine("linux", arch, frozenset(has.split()))
    monkeypatch.setattr(target, "host_triple", lambda: f"{arch}-unknown-linux-gnu")
    monkeypatch.setattr("intarsia_runtime.cpu.this_machine", lambda: here)
    target.host_cpu.cache_clear()
    try:
        options = target.canonicalize(target.LlvmOptions())
        assert target.canonicalize(options) == options
        assert set(target.machine(options).cpu_features) == set(needs.split())
    finally:
        target.host_cpu.cache_clear()


@pytest.mark.parametrize("isa", [AARCH64, ARM, CORTEX_M], ids=["aarch64", "arm", "cortex-m"])
def test_llvm_knows_every_feature_by_its_name(isa: Isa) -> None:
    """It ignores a name that it does not know, and then the feature would look like there."""
    triple = "aarch64-linux-gnu" if isa is AARCH64 else "armv7-linux-gnueabihf"
    _, _, features = processors_and_features(triple)
    assert {*isa.names, *isa.unused, *isa.implied.values()} <= {row.value for row in features}


def test_a_feature_that_a_user_adds_is_needed_and_one_for_speed_is_not() -> None:
    words = ("+sm4", "+fuse-aes", "+reserve-x20", "-crc")
    options = target.LlvmOptions(mtriple="aarch64-linux-gnu", mcpu="cortex-a72", mattr=words)
    assert target.machine(options).cpu_features == ("sm4",)


def test_a_processor_that_llvm_has_no_times_for_compiles() -> None:
    passport = intarsia.build(floats(), "qualcomm/oryon-1", **PROGRAM).passport
    assert {"i8mm", "bf16", "flagm2"} <= set(passport.cpu_features)


def test_what_two_cores_of_one_architecture_differ_in_is_named() -> None:
    """Cortex-A9 converts half precision, Cortex-A8 does not; no kernel has a name for that."""
    triple = "armv7-unknown-linux-gnueabihf"
    for_a9 = target.machine(target.LlvmOptions(mtriple=triple, mcpu="cortex-a9"))
    a8 = target.least_machine(target.LlvmOptions(mtriple=triple, mcpu="cortex-a8"))
    assert set(for_a9.cpu_features) - (a8.cpu_features or frozenset()) == {"fp16"}
