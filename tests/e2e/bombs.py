# SPDX-License-Identifier: Apache-2.0
"""Small model files that ask for much time or memory, one function each: ``build(folder) -> path``.

``python -m tests.e2e.bombs [NAME]...`` runs them with a limit of a minute each, and says how each
ended. None is larger than 17 MB; what each would take without limits is in its docstring.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .broken_models import save

F, I64, B, S = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
LOCAL = "local"
Node = onnx.NodeProto


def info(name: str, shape: Sequence[int | str] | None = None, dtype: int = F):
    """A declared value; without a shape unless one is given."""
    return helper.make_tensor_value_info(name, dtype, shape)


def ints(name: str, *values: int) -> TensorProto:
    """A vector of integers."""
    return numpy_helper.from_array(np.array(values, np.int64), name)


def scalar(name: str, value: object, dtype: type = np.int64) -> TensorProto:
    """A tensor of rank 0."""
    return numpy_helper.from_array(np.array(value, dtype), name)


def proto(
    nodes: Sequence[Node],
    *,
    weights: Sequence[TensorProto] = (),
    shape: Sequence[int | str] = (2,),
    output: int = F,
    functions: Sequence[onnx.FunctionProto] = (),
    opset: int = 20,
    ml: bool = False,
    dtype: int = F,
) -> onnx.ModelProto:
    """A model with the input ``x`` and the output ``y``."""
    graph = helper.make_graph(
        nodes, "g", [info("x", shape, dtype)], [info("y", None, output)], list(weights)
    )
    opsets = [helper.make_opsetid("", opset)]
    if functions:
        opsets.append(helper.make_opsetid(LOCAL, 1))
    if ml:
        opsets.append(helper.make_opsetid("ai.onnx.ml", 4))
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=10)


def function(name: str, nodes: Sequence[Node]) -> onnx.FunctionProto:
    """A function of the model from ``a`` to ``b``."""
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(LOCAL, 1)]
    return helper.make_function(LOCAL, name, ["a"], ["b"], nodes, opsets)


def call(name: str, a: str, b: str) -> Node:
    """A call of such a function."""
    return helper.make_node(name, [a], [b], domain=LOCAL)


def doubling(levels: int, leaf: Sequence[Node]) -> list[onnx.FunctionProto]:
    """``f<levels>`` runs ``leaf`` 2**levels times."""
    made = [function("f0", leaf)]
    for n in range(1, levels + 1):
        made.append(function(f"f{n}", [call(f"f{n - 1}", "a", "t"), call(f"f{n - 1}", "t", "b")]))
    return made


def doubling_functions(folder: Path) -> Path:
    """2**40 nodes once its functions are expanded."""
    made = doubling(40, [helper.make_node("Relu", ["a"], ["b"])])
    return save(folder, proto([call("f40", "x", "y")], functions=made))


def doubling_functions_below_the_node_limit(folder: Path) -> Path:
    """2**18 nodes once its functions are expanded: within the limit of nodes."""
    made = doubling(18, [helper.make_node("Relu", ["a"], ["b"])])
    return save(folder, proto([call("f18", "x", "y")], functions=made))


def constant_in_functions(folder: Path) -> Path:
    """A constant of 4 MiB called 2**12 times: 16 GiB."""
    big = numpy_helper.from_array(np.ones(1 << 20, np.float32), "c")
    leaf = [
        helper.make_node("Constant", [], ["c"], value=big),
        helper.make_node("Add", ["a", "c"], ["b"]),
    ]
    return save(folder, proto([call("f12", "x", "y")], functions=doubling(12, leaf), shape=(1,)))


def strings_in_functions(folder: Path) -> Path:
    """An attribute of 4 MiB of text called 2**12 times."""
    leaf = [
        helper.make_node("Constant", [], ["c"], value_string="a" * (4 << 20)),
        helper.make_node("Identity", ["a"], ["b"]),
    ]
    return save(folder, proto([call("f12", "x", "y")], functions=doubling(12, leaf)))


def integers_in_functions(folder: Path) -> Path:
    """An attribute of a million integers called 2**12 times."""
    leaf = [
        helper.make_node("Constant", [], ["c"], value_ints=[1] * (1 << 20)),
        helper.make_node("Identity", ["a"], ["b"]),
    ]
    return save(folder, proto([call("f12", "x", "y")], functions=doubling(12, leaf)))


def names_in_functions(folder: Path) -> Path:
    """A name of a megabyte in a function called 2**12 times."""
    long = "n" * (1 << 20)
    leaf = [helper.make_node("Relu", ["a"], [long]), helper.make_node("Relu", [long], ["b"])]
    return save(folder, proto([call("f12", "x", "y")], functions=doubling(12, leaf)))


def functions_in_branches(folder: Path) -> Path:
    """Functions that call each other in both branches of a condition, 2**30 nodes."""
    made = [function("f0", [helper.make_node("Relu", ["a"], ["b"])])]
    for n in range(1, 31):
        branch = [
            helper.make_graph([call(f"f{n - 1}", "a", f"r{side}")], side, [], [info(f"r{side}")])
            for side in ("then", "else")
        ]
        condition = helper.make_node("Constant", [], ["c"], value=scalar("v", True, np.bool_))
        chosen = helper.make_node("If", ["c"], ["b"], then_branch=branch[0], else_branch=branch[1])
        made.append(function(f"f{n}", [condition, chosen]))
    return save(folder, proto([call("f30", "x", "y")], functions=made))


def fan_out(folder: Path, width: int = 100_000) -> Path:
    """One value that 100,000 nodes read, added up in a tree."""
    nodes = [helper.make_node("Abs", ["x"], [f"a{n}"]) for n in range(width)]
    nodes.append(helper.make_node("Sum", [f"a{n}" for n in range(width)], ["y"]))
    return save(folder, proto(nodes))


def fan_out_apart(folder: Path, width: int = 30_000) -> Path:
    """One value that 30,000 different nodes read, concatenated."""
    nodes: list[Node] = []
    for n in range(width):
        nodes.append(helper.make_node("LeakyRelu", ["x"], [f"a{n}"], alpha=n / width))
    nodes.append(helper.make_node("Concat", [f"a{n}" for n in range(width)], ["y"], axis=0))
    return save(folder, proto(nodes))


def wide_split(folder: Path, width: int = 100_000) -> Path:
    """A Split into 100,000 parts that are joined again."""
    names = [f"p{n}" for n in range(width)]
    nodes = [
        helper.make_node("Split", ["x"], names, axis=0, num_outputs=width),
        helper.make_node("Concat", names, ["y"], axis=0),
    ]
    return save(folder, proto(nodes, shape=(width,)))


def wide_split_of_a_row(folder: Path, width: int = 100_000) -> Path:
    """A Split into 100,000 parts of which each is used by a node of its own."""
    names = [f"p{n}" for n in range(width)]
    nodes = [helper.make_node("Split", ["x"], names, axis=0, num_outputs=width)]
    nodes += [helper.make_node("Relu", [name], [f"r{name}"]) for name in names]
    nodes.append(helper.make_node("Concat", [f"r{name}" for name in names], ["y"], axis=0))
    return save(folder, proto(nodes, shape=(width,)))


def long_chain(folder: Path, length: int = 100_000) -> Path:
    """100,000 nodes one behind the other."""
    ops = ("Abs", "Neg", "Tanh")
    nodes = [
        helper.make_node(ops[n % 3], [f"v{n - 1}" if n else "x"], [f"v{n}"]) for n in range(length)
    ]
    nodes.append(helper.make_node("Relu", [f"v{length - 1}"], ["y"]))
    return save(folder, proto(nodes))


def many_outputs(folder: Path, width: int = 20_000) -> Path:
    """20,000 outputs."""
    nodes = [helper.make_node("Elu", ["x"], [f"y{n}"], alpha=float(n)) for n in range(width)]
    graph = helper.make_graph(nodes, "g", [info("x", (2,))], [info(f"y{n}") for n in range(width)])
    opset = [helper.make_opsetid("", 20)]
    return save(folder, helper.make_model(graph, opset_imports=opset, ir_version=10))


def diamonds(folder: Path, levels: int = 20_000) -> Path:
    """20,000 additions of a value to itself: 2**20000 paths."""
    nodes = [
        helper.make_node("Add", [f"v{n - 1}" if n else "x"] * 2, [f"v{n}"]) for n in range(levels)
    ]
    nodes.append(helper.make_node("Relu", [f"v{levels - 1}"], ["y"]))
    return save(folder, proto(nodes))


def crossed_diamonds(folder: Path, levels: int = 5_000) -> Path:
    """Two values, each made of both before: 2**5000 paths."""
    nodes: list[Node] = [
        helper.make_node("Abs", ["x"], ["a0"]),
        helper.make_node("Neg", ["x"], ["b0"]),
    ]
    for n in range(levels):
        nodes.append(helper.make_node("Max", [f"a{n}", f"b{n}"], [f"a{n + 1}"]))
        nodes.append(helper.make_node("Min", [f"a{n}", f"b{n}"], [f"b{n + 1}"]))
    nodes.append(helper.make_node("Add", [f"a{levels}", f"b{levels}"], ["y"]))
    return save(folder, proto(nodes))


def doubling_concat(folder: Path) -> Path:
    """40 times a value joined to itself: 8 TiB."""
    nodes = [
        helper.make_node("Concat", [f"v{n - 1}" if n else "x"] * 2, [f"v{n}"], axis=0)
        for n in range(40)
    ]
    nodes.append(helper.make_node("ReduceSum", ["v39"], ["y"]))
    return save(folder, proto(nodes))


def doubling_constant(folder: Path) -> Path:
    """30 times a constant joined to itself: 8 GiB to fold."""
    nodes = [
        helper.make_node("Concat", [f"v{n - 1}" if n else "c"] * 2, [f"v{n}"], axis=0)
        for n in range(30)
    ]
    nodes += [
        helper.make_node("ReduceSum", ["v29"], ["s"]),
        helper.make_node("Add", ["x", "s"], ["y"]),
    ]
    return save(
        folder,
        proto(nodes, weights=[ints("i", 0), numpy_helper.from_array(np.ones(2, np.float32), "c")]),
    )


def folded_product(folder: Path) -> Path:
    """A product of two constants of 30,000 x 30,000 out of nothing."""
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["a"]),
        helper.make_node("MatMul", ["a", "a"], ["b"]),
        helper.make_node("ReduceSum", ["b"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    return save(folder, proto(nodes, weights=[ints("s", 30_000, 30_000)]))


def folded_convolutions(folder: Path) -> Path:
    """200 convolutions of constants, each dear."""
    weight = numpy_helper.from_array(np.ones((64, 64, 3, 3), np.float32), "w")
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["v0"])]
    nodes += [
        helper.make_node("Conv", [f"v{n}", "w"], [f"v{n + 1}"], pads=[1, 1, 1, 1])
        for n in range(200)
    ]
    nodes += [
        helper.make_node("ReduceSum", ["v200"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    return save(folder, proto(nodes, weights=[weight, ints("s", 1, 64, 96, 96)]))


def huge_range(folder: Path) -> Path:
    """A range of 2**40 numbers."""
    nodes = [
        helper.make_node("Range", ["a", "b", "c"], ["r"]),
        helper.make_node("ReduceSum", ["r"], ["s"]),
        helper.make_node("Cast", ["s"], ["f"], to=F),
        helper.make_node("Add", ["x", "f"], ["y"]),
    ]
    weights = [scalar("a", 0), scalar("b", 1 << 40), scalar("c", 1)]
    return save(folder, proto(nodes, weights=weights))


def range_of_the_run(folder: Path) -> Path:
    """A range as long as an input says, which is random."""
    nodes = [
        helper.make_node("Cast", ["x"], ["n"], to=I64),
        helper.make_node("Mul", ["n", "m"], ["e"]),
        helper.make_node("Range", ["a", "e", "c"], ["r"]),
        helper.make_node("ReduceSum", ["r"], ["y"]),
    ]
    weights = [scalar("a", 0), scalar("c", 1), scalar("m", 1 << 50)]
    return save(folder, proto(nodes, weights=weights, shape=(), output=I64))


def huge_tile(folder: Path) -> Path:
    """Two numbers repeated 2**36 times."""
    nodes = [
        helper.make_node("Tile", ["x", "r"], ["t"]),
        helper.make_node("ReduceSum", ["t"], ["y"]),
    ]
    return save(folder, proto(nodes, weights=[ints("r", 1 << 36)]))


def huge_expand(folder: Path) -> Path:
    """A number spread over 2**20 x 2**20."""
    nodes = [
        helper.make_node("Expand", ["x", "s"], ["t"]),
        helper.make_node("ReduceSum", ["t"], ["y"]),
    ]
    return save(folder, proto(nodes, weights=[ints("s", 1 << 20, 1 << 20)], shape=(1,)))


def huge_pad(folder: Path) -> Path:
    """Two numbers among 2**40 zeros."""
    nodes = [helper.make_node("Pad", ["x", "p"], ["y"])]
    return save(folder, proto(nodes, weights=[ints("p", 1 << 40, 0)]))


def huge_one_hot(folder: Path) -> Path:
    """Two numbers of 2**38 places."""
    nodes = [
        helper.make_node("OneHot", ["i", "d", "v"], ["h"]),
        helper.make_node("ReduceSum", ["h"], ["s"]),
        helper.make_node("Add", ["x", "s"], ["y"]),
    ]
    weights = [ints("i", 0, 1), scalar("d", 1 << 38)]
    weights.append(numpy_helper.from_array(np.array([0, 1], np.float32), "v"))
    return save(folder, proto(nodes, weights=weights))


def huge_resize(folder: Path) -> Path:
    """An image enlarged 2**15 times each way."""
    scales = numpy_helper.from_array(np.array([1, 1, 1 << 15, 1 << 15], np.float32), "s")
    nodes = [helper.make_node("Resize", ["x", "", "s"], ["y"])]
    return save(folder, proto(nodes, weights=[scales], shape=(1, 1, 8, 8)))


def huge_window(folder: Path) -> Path:
    """A window of 2**36 samples."""
    nodes = [
        helper.make_node("HannWindow", ["n"], ["w"]),
        helper.make_node("ReduceSum", ["w"], ["s"]),
        helper.make_node("Add", ["x", "s"], ["y"]),
    ]
    return save(folder, proto(nodes, weights=[scalar("n", 1 << 36)]))


def huge_eye(folder: Path) -> Path:
    """The identity of 2**17 x 2**17 numbers, as a product."""
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["z"]),
        helper.make_node("EyeLike", ["z"], ["e"]),
        helper.make_node("ReduceSum", ["e"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    return save(folder, proto(nodes, weights=[ints("s", 1 << 17, 1 << 17)]))


def random_numbers(folder: Path) -> Path:
    """2**38 random numbers."""
    nodes = [
        helper.make_node("RandomNormal", [], ["r"], shape=[1 << 19, 1 << 19]),
        helper.make_node("ReduceSum", ["r"], ["s"]),
        helper.make_node("Add", ["x", "s"], ["y"]),
    ]
    return save(folder, proto(nodes))


def many_random_numbers(folder: Path) -> Path:
    """64 GiB of random numbers, 1 GiB at a time, all of them needed at the end."""
    nodes = [
        helper.make_node("RandomNormal", [], [f"r{n}"], shape=[1 << 28], seed=float(n))
        for n in range(64)
    ]
    nodes.append(helper.make_node("Concat", [f"r{n}" for n in range(64)], ["j"], axis=0))
    nodes += [
        helper.make_node("ReduceSum", ["j"], ["s"]),
        helper.make_node("Add", ["x", "s"], ["y"]),
    ]
    return save(folder, proto(nodes))


def loop_of(body: Sequence[Node], *, turns: int | None, keep: bool = False) -> list[Node]:
    """A Loop with ``v`` carried and ``w`` stacked if asked for; ``cond`` stays true."""
    outputs = [info("keep", (), B), info("w", (2,))] + ([info("w2", (2,))] if keep else [])
    extra = [helper.make_node("Identity", ["w"], ["w2"])] if keep else []
    graph = helper.make_graph(
        [helper.make_node("Identity", ["cond"], ["keep"]), *body, *extra],
        "body",
        [info("turn", (), I64), info("cond", (), B), info("v", (2,))],
        outputs,
    )
    limit = "" if turns is None else "turns"
    results = ["l", "stack"] if keep else ["l"]
    return [helper.make_node("Loop", [limit, "true", "c0"], results, body=graph, name="loop")]


TRUE = scalar("true", True, np.bool_)
TWO = numpy_helper.from_array(np.ones(2, np.float32), "c0")
ADD_X = helper.make_node("Add", ["x", "l"], ["y"])
STEP = helper.make_node("Tanh", ["v"], ["w"])


def endless_loop(folder: Path) -> Path:
    """A loop of constants without a limit, whose condition stays true."""
    nodes = [*loop_of([STEP], turns=None), ADD_X]
    return save(folder, proto(nodes, weights=[TRUE, TWO]))


def long_loop(folder: Path) -> Path:
    """A loop of constants with 2**62 turns."""
    nodes = [*loop_of([STEP], turns=1 << 62), ADD_X]
    return save(folder, proto(nodes, weights=[TRUE, TWO, scalar("turns", 1 << 62)]))


def stacking_loop(folder: Path) -> Path:
    """A loop of constants that stacks a row in each of 2**40 turns."""
    nodes = [*loop_of([STEP], turns=1 << 40, keep=True), ADD_X]
    return save(folder, proto(nodes, weights=[TRUE, TWO, scalar("turns", 1 << 40)]))


def growing_loop(folder: Path) -> Path:
    """A loop of constants whose carried value doubles in each turn."""
    body = [helper.make_node("Concat", ["v", "v"], ["w"], axis=0)]
    nodes = [
        *loop_of(body, turns=60),
        helper.make_node("ReduceSum", ["l"], ["s"]),
        helper.make_node("Add", ["x", "s"], ["y"]),
    ]
    return save(folder, proto(nodes, weights=[TRUE, TWO, scalar("turns", 60)]))


def nested_loops(folder: Path, depth: int = 6) -> Path:
    """Loops of 1,000 turns in each other, 10**18 turns in all."""
    inner: list[Node] = [helper.make_node("Tanh", ["v0"], ["w0"])]
    for n in range(depth):
        graph = helper.make_graph(
            [helper.make_node("Identity", [f"cond{n}"], [f"keep{n}"]), *inner],
            f"body{n}",
            [info(f"turn{n}", (), I64), info(f"cond{n}", (), B), info(f"v{n}", (2,))],
            [info(f"keep{n}", (), B), info(f"w{n}", (2,))],
        )
        start, result = (f"v{n + 1}", f"w{n + 1}") if n + 1 < depth else ("c0", "l")
        inner = [helper.make_node("Loop", ["turns", "true", start], [result], body=graph)]
    return save(folder, proto([*inner, ADD_X], weights=[TRUE, TWO, scalar("turns", 1000)]))


def growing_sequence(folder: Path) -> Path:
    """A sequence that gets an element in each of 2**40 turns."""
    sequence = helper.make_tensor_sequence_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["cond"], ["keep"]),
            helper.make_node("SequenceInsert", ["s", "c0"], ["t"]),
        ],
        "body",
        [info("turn", (), I64), info("cond", (), B), sequence("s", F, None)],
        [info("keep", (), B), sequence("t", F, None)],
    )
    nodes = [
        helper.make_node("SequenceEmpty", [], ["s0"]),
        helper.make_node("Loop", ["turns", "true", "s0"], ["l"], body=body),
        helper.make_node("ConcatFromSequence", ["l"], ["j"], axis=0),
        helper.make_node("ReduceSum", ["j"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    return save(folder, proto(nodes, weights=[TRUE, TWO, scalar("turns", 1 << 40)]))


def long_scan(folder: Path) -> Path:
    """A Scan over 16 million constants."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["a", "e"], ["b"]),
            helper.make_node("Identity", ["b"], ["o"]),
        ],
        "body",
        [info("a", ()), info("e", ())],
        [info("b", ()), info("o", ())],
    )
    nodes = [
        helper.make_node("ConstantOfShape", ["n"], ["z"]),
        helper.make_node("Scan", ["f", "z"], ["s", "o"], body=body, num_scan_inputs=1),
        helper.make_node("Add", ["x", "s"], ["y"]),
    ]
    weights = [ints("n", 1 << 24), scalar("f", 0, np.float32)]
    return save(folder, proto(nodes, weights=weights))


def unrolled_loop(folder: Path) -> Path:
    """A loop over an input with 2**40 turns, which a compiler may unroll."""
    graph = helper.make_graph(
        [
            helper.make_node("Identity", ["cond"], ["keep"]),
            helper.make_node("Tanh", ["v"], ["w"]),
        ],
        "body",
        [info("turn", (), I64), info("cond", (), B), info("v", (2,))],
        [info("keep", (), B), info("w", (2,))],
    )
    nodes = [helper.make_node("Loop", ["turns", "true", "x"], ["y"], body=graph)]
    return save(folder, proto(nodes, weights=[TRUE, scalar("turns", 1 << 40)]))


def long_lstm(folder: Path) -> Path:
    """An LSTM over a million steps."""
    weights = [
        numpy_helper.from_array(np.ones((1, 16, 4), np.float32), "w"),
        numpy_helper.from_array(np.ones((1, 16, 4), np.float32), "r"),
    ]
    nodes = [helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=4)]
    return save(folder, proto(nodes, weights=weights, shape=(1_000_000, 1, 4)))


def regex(folder: Path, pattern: str, text: str) -> Path:
    """A constant text matched with a pattern."""
    words = helper.make_tensor("t", S, [1], [text.encode()])
    nodes = [
        helper.make_node("RegexFullMatch", ["t"], ["m"], pattern=pattern, name="match"),
        helper.make_node("Cast", ["m"], ["f"], to=F),
        helper.make_node("Add", ["x", "f"], ["y"]),
    ]
    return save(folder, proto(nodes, weights=[words]))


def nested_repetition(folder: Path) -> Path:
    """``(a*)*b`` of 60 letters a: 2**60 ways."""
    return regex(folder, "(a*)*b", "a" * 60)


def overlapping_choice(folder: Path) -> Path:
    """``(a|a|aa)+$`` likewise."""
    return regex(folder, "(a|a|aa)+c", "a" * 60)


def polynomial_repetition(folder: Path) -> Path:
    """20 repetitions one behind the other, of 5,000 letters."""
    return regex(folder, "a*" * 20 + "c", "a" * 5000)


def counted_repetition(folder: Path) -> Path:
    """Counts in counts: 10**12 states."""
    return regex(folder, "(((a{1000}){1000}){1000}){1000}", "a" * 60)


def back_reference(folder: Path) -> Path:
    """What RE2 does not have."""
    return regex(folder, r"(a*)\1\1b", "a" * 100)


def n_grams(folder: Path) -> Path:
    """All n-grams of up to 3,000 words with up to 3,000 skips."""
    node = helper.make_node(
        "TfIdfVectorizer", ["c"], ["t"],
        mode="TF", min_gram_length=1, max_gram_length=3000, max_skip_count=3000,
        ngram_counts=[0], ngram_indexes=[0], pool_int64s=[1],
    )  # fmt: skip
    nodes = [node, helper.make_node("Add", ["x", "t"], ["y"])]
    words = numpy_helper.from_array(np.ones(20_000, np.int64), "c")
    return save(folder, proto(nodes, weights=[words], shape=(1,)))


def n_gram_places(folder: Path) -> Path:
    """One n-gram in the last of 2**40 places."""
    node = helper.make_node(
        "TfIdfVectorizer", ["c"], ["t"],
        mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0,
        ngram_counts=[0], ngram_indexes=[1 << 40], pool_int64s=[1],
    )  # fmt: skip
    nodes = [node, helper.make_node("Add", ["x", "t"], ["y"])]
    return save(folder, proto(nodes, weights=[ints("c", 1, 2)], shape=(1,)))


def split_text(folder: Path) -> Path:
    """A text of four million parts beside 4,000 short ones: 1.6e10 places."""
    texts = [b"a " * 4_000_000] + [b"b"] * 4_000
    words = TensorProto(name="t", data_type=S, dims=[len(texts)], string_data=texts)
    nodes = [
        helper.make_node("StringSplit", ["t"], ["p", "n"]),
        helper.make_node("Cast", ["n"], ["f"], to=F),
        helper.make_node("ReduceSum", ["f"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    return save(folder, proto(nodes, weights=[words]))


def doubling_text(folder: Path) -> Path:
    """40 times a text joined to itself."""
    nodes = [
        helper.make_node("StringConcat", [f"v{n - 1}" if n else "t"] * 2, [f"v{n}"])
        for n in range(40)
    ]
    nodes += [
        helper.make_node("RegexFullMatch", ["v39"], ["m"], pattern="b"),
        helper.make_node("Cast", ["m"], ["f"], to=F),
        helper.make_node("Add", ["x", "f"], ["y"]),
    ]
    words = helper.make_tensor("t", S, [1], [b"a" * 16])
    return save(folder, proto(nodes, weights=[words]))


def equation_of_many_letters(folder: Path) -> Path:
    """An Einsum of 26 letters of size 4: 4**26 products."""
    equation = "abcdefghijklm,nopqrstuvwxyz->" + "az"
    nodes = [helper.make_node("Einsum", ["x", "x"], ["y"], equation=equation)]
    return save(folder, proto(nodes, shape=(4,) * 13))


def broadcast_of_ranks(folder: Path) -> Path:
    """Outer sums: 24 dimensions of size 8."""
    nodes: list[Node] = []
    weights: list[TensorProto] = []
    last = "x"
    for n in range(24):
        weights.append(numpy_helper.from_array(np.ones((8,) + (1,) * n, np.float32), f"c{n}"))
        nodes.append(helper.make_node("Add", [last, f"c{n}"], [f"v{n}"]))
        last = f"v{n}"
    nodes.append(helper.make_node("ReduceSum", [last], ["y"]))
    return save(folder, proto(nodes, weights=weights, shape=(1,)))


def deep_branches(folder: Path, depth: int = 24) -> Path:
    """Conditions in both branches of conditions: 2**12 graphs within protobuf's depth."""

    def branch(level: int, name: str) -> onnx.GraphProto:
        if level == 0:
            node = helper.make_node("Relu", ["x"], [name])
        else:
            node = helper.make_node(
                "If", ["true"], [name],
                then_branch=branch(level - 1, f"{name}t"),
                else_branch=branch(level - 1, f"{name}e"),
            )  # fmt: skip
        return helper.make_graph([node], name, [], [info(name)])

    top = branch(min(depth, 13), "z")
    nodes = [*top.node, helper.make_node("Relu", ["z"], ["y"])]
    return save(folder, proto(nodes, weights=[TRUE]))


def trees(folder: Path) -> Path:
    """A tree whose nodes point in a circle."""
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml",
        n_targets=1, nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0], nodes_modes=["BRANCH_LEQ"] * 3,
        nodes_values=[0.0, 1.0, 2.0], nodes_truenodeids=[1, 2, 0],
        nodes_falsenodeids=[2, 0, 1], target_treeids=[0], target_nodeids=[0],
        target_ids=[0], target_weights=[1.0],
    )  # fmt: skip
    return save(folder, proto([node], shape=(1, 2), ml=True))


def tree_targets(folder: Path) -> Path:
    """A tree with 2**50 targets."""
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml",
        n_targets=1 << 50, nodes_treeids=[0], nodes_nodeids=[0], nodes_featureids=[0],
        nodes_modes=["LEAF"], nodes_values=[0.0], nodes_truenodeids=[0], nodes_falsenodeids=[0],
        target_treeids=[0], target_nodeids=[0], target_ids=[0], target_weights=[1.0],
    )  # fmt: skip
    return save(folder, proto([node], shape=(1, 2), ml=True))


def many_weights(folder: Path, count: int = 100_000) -> Path:
    """100,000 weights of one number each."""
    weights = [scalar(f"w{n}", n, np.float32) for n in range(count)]
    nodes = [
        helper.make_node("Add", [f"v{n - 1}" if n else "x", f"w{n}"], [f"v{n}"])
        for n in range(count)
    ]
    nodes.append(helper.make_node("Relu", [f"v{count - 1}"], ["y"]))
    return save(folder, proto(nodes, weights=weights))


def many_dead_nodes(folder: Path, count: int = 200_000) -> Path:
    """200,000 nodes that nobody needs."""
    nodes = [helper.make_node("Abs", ["x"], [f"v{n}"]) for n in range(count)]
    nodes.append(helper.make_node("Relu", ["x"], ["y"]))
    return save(folder, proto(nodes))


def many_inputs(folder: Path, count: int = 20_000) -> Path:
    """20,000 inputs added up."""
    nodes = [helper.make_node("Sum", [f"x{n}" for n in range(count)], ["y"])]
    graph = helper.make_graph(nodes, "g", [info(f"x{n}", (2,)) for n in range(count)], [info("y")])
    opset = [helper.make_opsetid("", 20)]
    return save(folder, helper.make_model(graph, opset_imports=opset, ir_version=10))


def unsorted_chain(folder: Path, length: int = 50_000) -> Path:
    """50,000 nodes in the reverse order."""
    nodes = [helper.make_node("Abs", [f"v{n - 1}" if n else "x"], [f"v{n}"]) for n in range(length)]
    nodes.append(helper.make_node("Relu", [f"v{length - 1}"], ["y"]))
    return save(folder, proto(nodes[::-1]))


def shapes_of_shapes(folder: Path, count: int = 20_000) -> Path:
    """20,000 sizes computed of each other before one is used."""
    nodes = [helper.make_node("Shape", ["x"], ["v0"])]
    for n in range(count):
        nodes.append(helper.make_node("Add", [f"v{n}", "one"], [f"v{n + 1}"]))
    nodes += [
        helper.make_node("Sub", [f"v{count}", "count"], ["s"]),
        helper.make_node("Reshape", ["x", "s"], ["y"]),
    ]
    return save(folder, proto(nodes, weights=[ints("one", 1), ints("count", count)]))


Builder = Callable[[Path], Path]
BOMBS: tuple[Builder, ...] = (
    doubling_functions, doubling_functions_below_the_node_limit, constant_in_functions,
    strings_in_functions, integers_in_functions, names_in_functions, functions_in_branches,
    fan_out, fan_out_apart, wide_split, wide_split_of_a_row, long_chain, many_outputs, diamonds,
    crossed_diamonds, doubling_concat, doubling_constant, folded_product, folded_convolutions,
    huge_range, range_of_the_run, huge_tile, huge_expand, huge_pad, huge_one_hot, huge_resize,
    huge_window, huge_eye, random_numbers, many_random_numbers, endless_loop, long_loop,
    stacking_loop, growing_loop, nested_loops, growing_sequence, long_scan, unrolled_loop,
    long_lstm, nested_repetition, overlapping_choice, polynomial_repetition, counted_repetition,
    back_reference, n_grams, n_gram_places, split_text, doubling_text, equation_of_many_letters,
    broadcast_of_ranks, deep_branches, trees, tree_targets, many_weights, many_dead_nodes,
    many_inputs, unsorted_chain, shapes_of_shapes,
)  # fmt: skip


def main(names: Sequence[str]) -> None:
    """Run bombs one by one, and print exit code, seconds and what was said."""
    for build in BOMBS:
        if names and build.__name__ not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = build(Path(folder))
            command = [sys.executable, "-m", "intarsia", "run", str(path), "--target", "llvm"]
            start = time.monotonic()
            run = subprocess.run(
                [*command, "--no-cache", "--time-limit", "60", "--memory-limit", "6G"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        said = next((x for x in run.stderr.splitlines() if x.startswith("error:")), "")
        seconds = time.monotonic() - start
        print(f"{build.__name__:40} {run.returncode:4} {seconds:6.1f} s  {said[:120]}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
