# SPDX-License-Identifier: Apache-2.0
"""The memory of a hardware tag bounds what is compiled for it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia.cli.main import main
from intarsia.driver.memory_bounds import MemoryBound, memory_bounds
from intarsia.host.host import Host

KIB, GIB = 1 << 10, 1 << 30


@pytest.fixture(scope="module")
def host() -> Host:
    return Host(env={})


@pytest.fixture
def net(tmp_path):
    """Two dense layers, 113 664 bytes of weights."""
    weights = [
        numpy_helper.from_array(np.ones(shape, np.float32), name)
        for name, shape in (("w1", (256, 96)), ("w2", (96, 40)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 40])],
        weights,
    )
    file = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), file)
    return file


FREESTANDING = ["--runtime", "c", "--executor-aot-unpacked-api", "--executor-aot-interface-api=c"]


def compile_for(target, net, *words):
    return main(["compile", str(net), "--target", target, "-o", f"{net}.tar", *words])


@pytest.mark.parametrize("words", [[], FREESTANDING])
def test_a_net_larger_than_the_flash_is_refused_with_both_numbers(net, capsys, words):
    assert compile_for("stm32l031k6", net, *words) == 8
    said = capsys.readouterr().err
    assert "does not fit into 'st/stm32l031k6'" in said
    assert "113,664 of 32,768 bytes of flash" in said
    assert "of 8,192 bytes of sram" in said
    assert not net.with_suffix(".onnx.tar").exists()


def test_overflow_may_be_allowed_and_is_said_every_time(net, capsys):
    for _ in range(2):
        assert compile_for("stm32l031k6", net, *FREESTANDING, "--allow-overflow") == 0
        assert "warning: the model does not fit into 'st/stm32l031k6'" in capsys.readouterr().err
    assert compile_for("stm32l031k6", net, *FREESTANDING) == 8


def test_a_net_that_fits_is_compiled(net):
    assert compile_for("nordic/nrf52840", net, *FREESTANDING) == 0


@pytest.mark.parametrize(
    "target, bounds",
    [
        (
            "st/nucleo-l476rg",
            [
                MemoryBound("flash", 1024 * KIB, True, False),
                MemoryBound("sram", 128 * KIB, False, True),
            ],
        ),
        ("raspberrypi/pico", [MemoryBound("sram", 264 * KIB, False, True)]),
        ("aws/t3.nano", [MemoryBound("dram", GIB // 2, True, True)]),
        ("raspberrypi/4b", []),
        ("llvm", []),
    ],
)
def test_what_bounds_a_build(host, target, bounds):
    assert list(memory_bounds(host, host.target(target))) == bounds


def test_a_gpu_is_bounded_by_its_own_memory(host):
    if "cuda" not in host.names():
        pytest.skip("needs the plugin that describes GPUs")
    for target, size in (("rtx-4090", 24), ("g5.xlarge", 24), ("Standard_NC4as_T4_v3", 16)):
        assert list(memory_bounds(host, host.target(target))) == [
            MemoryBound("global", size * GIB, True, True)
        ]
