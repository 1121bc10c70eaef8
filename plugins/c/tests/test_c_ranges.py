# SPDX-License-Identifier: Apache-2.0
"""Runtime ``c`` for ranges of sizes: memory for the largest, laid out for those of the call."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia
from intarsia_ir.size_values import SizeValues
from intarsia_runtime.errors import ResourceError, UnsupportedError

from .calling import STRICT, exact_session

PLAIN = "aot -unpacked-api -interface-api=c"
SHAPES = {
    "x": (SizeValues.of_range(1, 3), 3, SizeValues.of_range(2, 17), SizeValues.of_range(2, 9))
}

MAIN = """
#include "net.h"
#include <stdio.h>

enum { MOST_IN = 3 * 3 * 17 * 9, MOST_OUT = 3 * 5 };

int main(void)
{
    static float input[MOST_IN];
    static float output[MOST_OUT];
    static uint64_t workspace[NET_WORKSPACE_SIZE / 8 + 64];
    unsigned char *const behind = (unsigned char *)workspace + NET_WORKSPACE_SIZE;
    struct net_inputs inputs;
    struct net_outputs outputs;
    int64_t sizes[3];
    int status;
    inputs.x = input;
    outputs.y = output;
    for (int i = 0; i < 256; ++i) {
        behind[i] = 0xA5;
    }
    while (fread(sizes, sizeof sizes, 1, stdin) == 1) {
        const size_t count = (size_t)(sizes[0] * 3 * sizes[1] * sizes[2]);
        if (count <= MOST_IN && fread(input, sizeof input[0], count, stdin) != count) {
            return 2;
        }
        inputs.N = sizes[0];
        inputs.H = sizes[1];
        inputs.W = sizes[2];
        status = net_run(&inputs, &outputs, workspace);
        fwrite(&status, sizeof status, 1, stdout);
        if (status == 0) {
            fwrite(output, sizeof output[0], (size_t)(sizes[0] * 5), stdout);
        }
    }
    for (int i = 0; i < 256; ++i) {
        if (behind[i] != 0xA5) {
            return 3;
        }
    }
    return 0;
}
"""


def net():
    """A small convolution network with a softmax, of open batch, height and width."""
    rng, info = np.random.default_rng(0), helper.make_tensor_value_info
    weights = {"k": rng.standard_normal((8, 3, 3, 3)), "w": rng.standard_normal((8, 5))}
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["m"]),
        helper.make_node("Flatten", ["m"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["l"]),
        helper.make_node("Softmax", ["l"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [info("x", TensorProto.FLOAT, ("N", 3, "H", "W"))],
        [info("y", TensorProto.FLOAT, ("N", 5))],
        [numpy_helper.from_array(a.astype(np.float32), name) for name, a in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = intarsia.build(
        net().SerializeToString(), "c -prefix=net", executor=PLAIN, runtime="c -link-params",
        shapes=SHAPES,
    )  # fmt: skip
    return made.save(f"{tmp_path_factory.mktemp('ranges') / 'net'}/")


@pytest.mark.parametrize("flags", [["-O1"], ["-O1", "-fsanitize=address,undefined"]])
def test_a_program_runs_every_size_of_its_ranges(folder, tmp_path, flags) -> None:
    (tmp_path / "main.c").write_text(MAIN)
    sources = [tmp_path / "main.c", folder / "src" / "net.c", folder / "src" / "net_parameters.c"]
    command = ["cc", "-std=c99", *STRICT, *flags, f"-I{folder / 'include'}", *map(str, sources)]
    subprocess.run([*command, "-o", tmp_path / "main", "-lm"], check=True)
    session = exact_session(net().SerializeToString())
    rng = np.random.default_rng(1)
    given_, wanted = b"", []
    for sizes in ((3, 17, 9), (1, 2, 2), (2, 13, 7), (1, 17, 2), (3, 5, 9)):
        x = rng.standard_normal((sizes[0], 3, *sizes[1:])).astype(np.float32)
        given_ += np.array(sizes, np.int64).tobytes() + x.tobytes()
        wanted.append(session.run(None, {"x": x})[0])
    given_ += np.array([4, 17, 9], np.int64).tobytes()
    run = subprocess.run([tmp_path / "main"], input=given_, capture_output=True, check=True)
    rest = run.stdout
    for array in wanted:
        assert np.frombuffer(rest, np.int32, 1) == 0
        found = np.frombuffer(rest, np.float32, array.size, 4).reshape(array.shape)
        np.testing.assert_allclose(found, array, rtol=1e-4, atol=1e-6)
        rest = rest[4 + array.nbytes :]
    assert np.frombuffer(rest, np.int32).tolist() == [2]  # the guard that the header names


def test_the_header_says_what_a_size_may_be(folder) -> None:
    header = (folder / "include" / "net.h").read_text()
    assert header[header.index("struct net_inputs") : header.index("struct net_outputs")] == (
        "struct net_inputs {\n"
        "    const float *x; /* float32[N, 3, H, W] */\n"
        "    int64_t N; /* a size, in elements */\n"
        "    int64_t H; /* a size, in elements */\n"
        "    int64_t W; /* a size, in elements */\n"
        "};\n\n"
    )
    assert "   2: the artifact was compiled for N from 1 to 3\n" in header
    main = json.loads((folder / "metadata.json").read_text())["modules"]["default"]["memory"][
        "functions"
    ]["main"][0]
    assert main["sizes"] == {"N": [1, 3], "H": [2, 17], "W": [2, 9]}
    assert main["inputs"]["x"]["size"] == 4 * 3 * 3 * 17 * 9
    assert f"NET_WORKSPACE_SIZE {main['workspace_size_bytes']}\n" in header


def test_sizes_without_a_bound_are_refused() -> None:
    open_width = {"x": (1, 3, SizeValues.of_range(2, 9), SizeValues.at_least(2))}
    with pytest.raises(UnsupportedError, match="the size 'W' has no largest value") as caught:
        intarsia.build(net().SerializeToString(), "c", executor=PLAIN, runtime="c",
                       shapes=open_width)  # fmt: skip
    assert "--shape input:1..32" in caught.value.hint


def test_packed_functions_take_no_sizes() -> None:
    with pytest.raises(UnsupportedError, match="packed functions take no sizes") as caught:
        intarsia.build(net().SerializeToString(), "c", runtime="c", shapes=SHAPES)
    assert "--executor-aot-interface-api c" in caught.value.hint


def test_objects_have_known_sizes() -> None:
    pytest.importorskip("intarsia_llvm")
    with pytest.raises(UnsupportedError, match="has known sizes, and 'N' is open") as caught:
        intarsia.build(net().SerializeToString(), "llvm", executor=PLAIN, runtime="c",
                       shapes=SHAPES)  # fmt: skip
    assert "backend 'c'" in caught.value.hint


def test_a_board_has_memory_for_the_largest_sizes() -> None:
    wide = {"x": (1, 3, *[SizeValues.of_range(2, 400)] * 2)}
    with pytest.raises(ResourceError, match="of 65,536 bytes of sram"):
        intarsia.build(net().SerializeToString(), "st/stm32f401cc", executor=PLAIN, runtime="c",
                       shapes=wide)  # fmt: skip
