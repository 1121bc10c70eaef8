# SPDX-License-Identifier: Apache-2.0
"""Structural mutants of small models, to find what the importer does not expect.

``python -m tests.e2e.model_mutants --seconds 60 --seed 1`` runs mutants in this process and prints
every internal error with its place, once. Mutants of a seed are always the same.
"""

from __future__ import annotations

import argparse
import random
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from intarsia.driver.dynamic import import_any
from intarsia.driver.source import ModuleSource
from intarsia_ir.budget import limited
from intarsia_ir.graph.module import IRModule
from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.prepare import PREPARE
from intarsia_runtime.errors import IntarsiaError

LARGEST = 1 << 16  # bytes of a model that is mutated
NUMBERS = (0, 1, -1, 2, -2, 3, 7, 99, -99, 1 << 31, -(1 << 31), 1 << 62, (1 << 63) - 1)
DTYPES = (*range(27), 77)
Mutate = Callable[[onnx.ModelProto, random.Random], None]


def seeds() -> list[bytes]:
    """The models of ONNX's own tests of operators that are small."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    found: list[bytes] = []
    for case in cases:
        data = case.model.SerializeToString() if case.model else b""
        if not case.model:
            path = Path(case.model_dir or "") / "model.onnx"
            data = path.read_bytes() if path.is_file() else b""
        if 0 < len(data) < LARGEST:
            found.append(data)
    return sorted(found)


def _node(proto: onnx.ModelProto, rng: random.Random) -> onnx.NodeProto:
    return rng.choice(proto.graph.node)


def _names(proto: onnx.ModelProto) -> list[str]:
    graph = proto.graph
    names = [v.name for v in (*graph.input, *graph.output)] + [t.name for t in graph.initializer]
    return [*names, *(name for node in graph.node for name in (*node.input, *node.output))]


def change_attribute(proto: onnx.ModelProto, rng: random.Random) -> None:
    """Give an attribute another value, of its own type or another."""
    node = _node(proto, rng)
    if not node.attribute:
        return
    attribute = rng.choice(node.attribute)
    name = attribute.name
    number = rng.choice(NUMBERS)
    old = list(attribute.ints)
    if old and rng.random() < 0.6:
        old[rng.randrange(len(old))] = number
        values: Any = old
    else:
        values = rng.choice(
            [number, float(number), [], [number], [number] * 3, [float(number)], "", "x", ["a"]]
        )
    kind = None if values != [] else AttributeProto.INTS
    attribute.CopyFrom(helper.make_attribute(name, values, attr_type=kind))


def add_attribute(proto: onnx.ModelProto, rng: random.Random) -> None:
    """Set an attribute that the operator has and the node left out."""
    node = _node(proto, rng)
    try:
        schema = onnx.defs.get_schema(node.op_type, 24, node.domain)
    except onnx.defs.SchemaError:
        return
    names = sorted(set(schema.attributes) - {attribute.name for attribute in node.attribute})
    if not names:
        return
    name = rng.choice(names)
    number = rng.choice(NUMBERS)
    match schema.attributes[name].type.name:
        case "INT":
            value: Any = number
        case "FLOAT":
            value = float(number)
        case "STRING":
            value = rng.choice(["", "x", "linear", "SAME_UPPER", "reverse", "constant", "relu"])
        case "INTS":
            value = [number] * rng.randrange(1, 4)
        case "FLOATS":
            value = [float(number)] * rng.randrange(1, 4)
        case "STRINGS":
            value = ["x"] * rng.randrange(1, 4)
        case _:
            return
    node.attribute.append(helper.make_attribute(name, value))


def drop_attribute(proto: onnx.ModelProto, rng: random.Random) -> None:
    """Take an attribute away."""
    node = _node(proto, rng)
    if node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]


def change_size(proto: onnx.ModelProto, rng: random.Random) -> None:
    """Give a dimension of an input or output another size, or a name."""
    info = rng.choice([*proto.graph.input, *proto.graph.output])
    dims = info.type.tensor_type.shape.dim
    if not dims:
        return
    dim = rng.choice(dims)
    dim.Clear()
    choice = rng.random()
    if choice < 0.7:
        dim.dim_value = rng.choice(NUMBERS)
    elif choice < 0.9:
        dim.dim_param = "N"


def change_rank(proto: onnx.ModelProto, rng: random.Random) -> None:
    """Give an input another rank, or none."""
    info = rng.choice(proto.graph.input or proto.graph.output)
    shape = info.type.tensor_type.shape
    choice = rng.random()
    if choice < 0.4 and shape.dim:
        del shape.dim[rng.randrange(len(shape.dim))]
    elif choice < 0.6:
        del shape.dim[:]
    elif choice < 0.9:
        shape.dim.add().dim_value = rng.choice((0, 1, 2, 3))
    else:
        info.type.tensor_type.ClearField("shape")


def change_dtype(proto: onnx.ModelProto, rng: random.Random) -> None:
    """Give an input another element type, or make it a sequence."""
    info = rng.choice(proto.graph.input or proto.graph.output)
    if rng.random() < 0.1:
        info.type.CopyFrom(helper.make_sequence_type_proto(info.type))
    else:
        info.type.tensor_type.elem_type = rng.choice(DTYPES)


def fix_input(proto: onnx.ModelProto, rng: random.Random) -> None:
    """Make an input a weight with edge values."""
    graph = proto.graph
    if not graph.input:
        return
    position = rng.randrange(len(graph.input))
    tensor = graph.input[position].type.tensor_type
    shape = [dim.dim_value for dim in tensor.shape.dim]
    count = 1
    for size in shape:
        count *= max(size, 0)
    plain = tensor.elem_type in range(1, 17) and tensor.elem_type != TensorProto.STRING
    if not plain or count > 1 << 12 or min(shape, default=0) < 0:
        return
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    numbers = [rng.choice(NUMBERS) for _ in range(count)]
    import numpy as np

    with np.errstate(all="ignore"):
        data = np.array(numbers, np.float64 if dtype.kind not in "iu" else np.int64)
        array = data.astype(dtype).reshape(shape)
    try:
        weight = numpy_helper.from_array(array, graph.input[position].name)
    except Exception:  # numbers of a byte that onnx cannot write
        return
    graph.initializer.append(weight)
    del graph.input[position]


def change_weight(proto: onnx.ModelProto, rng: random.Random) -> None:
    """Give a weight other sizes, another type, or other values."""
    if not proto.graph.initializer:
        return
    tensor = rng.choice(proto.graph.initializer)
    choice = rng.random()
    if choice < 0.3:
        tensor.data_type = rng.choice(DTYPES)
    elif choice < 0.5 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(NUMBERS)
    elif choice < 0.7:
        tensor.dims.insert(0, 1)
    elif tensor.raw_data:
        data = bytearray(tensor.raw_data)
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        tensor.raw_data = bytes(data)


def change_edge(proto: onnx.ModelProto, rng: random.Random) -> None:
    """Let a node read another value, or none."""
    node = _node(proto, rng)
    if node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice([*_names(proto), ""])


def change_count(proto: onnx.ModelProto, rng: random.Random) -> None:
    """Take an operand or result from a node, or give it one more."""
    node = _node(proto, rng)
    names = node.input if rng.random() < 0.6 else node.output
    if names and rng.random() < 0.5:
        del names[rng.randrange(len(names))]
    else:
        names.append(rng.choice([*_names(proto), "", "more"]))


def change_operator(proto: onnx.ModelProto, rng: random.Random) -> None:
    """Make a node another operator."""
    schemas = [s.name for s in onnx.defs.get_all_schemas() if not s.domain]
    _node(proto, rng).op_type = rng.choice(schemas)


def change_opset(proto: onnx.ModelProto, rng: random.Random) -> None:
    """Say another version of the operator set."""
    entry = rng.choice(proto.opset_import)
    entry.version = rng.randrange(5, 25)


def change_name(proto: onnx.ModelProto, rng: random.Random) -> None:
    """Give an input or a node a strange name."""
    name = rng.choice(["", "\x1b[31m", "a\nb", "ü" * 300, "../x", "%s", "\x00"])
    if rng.random() < 0.5:
        _node(proto, rng).name = name
    elif proto.graph.input:
        proto.graph.input[0].name = name


def drop_node(proto: onnx.ModelProto, rng: random.Random) -> None:
    """Take a node away, or have it twice."""
    nodes = proto.graph.node
    position = rng.randrange(len(nodes))
    if rng.random() < 0.5:
        del nodes[position]
    else:
        nodes.append(nodes[position])


def inner_graph(proto: onnx.ModelProto, rng: random.Random) -> None:
    """Change the graph inside a node."""
    graphs = [a.g for node in proto.graph.node for a in node.attribute if a.HasField("g")]
    if not graphs:
        return
    graph = rng.choice(graphs)
    inner = onnx.ModelProto(opset_import=proto.opset_import, graph=graph)
    if inner.graph.node:
        rng.choice((change_edge, change_count, drop_node, change_attribute))(inner, rng)
    if rng.random() < 0.3 and inner.graph.input:
        del inner.graph.input[-1]
    if rng.random() < 0.3 and inner.graph.output:
        del inner.graph.output[-1]
    graph.CopyFrom(inner.graph)


MUTATIONS: tuple[Mutate, ...] = (
    change_attribute, change_attribute, add_attribute, add_attribute, drop_attribute, change_size,
    change_rank, change_rank, change_dtype, change_dtype, fix_input, fix_input, fix_input,
    change_weight, change_edge, change_count, change_operator, change_opset, change_name,
    drop_node, inner_graph, inner_graph,
)  # fmt: skip


def mutants(seed: int) -> Iterator[tuple[int, bytes]]:
    """Yield mutants without end, each with its number."""
    models = seeds()
    number = 0
    while True:
        rng = random.Random(f"{seed} {number}")
        proto = onnx.ModelProto.FromString(rng.choice(models))
        for _ in range(rng.choice((1, 1, 2, 3))):
            if not (proto.graph.node and (proto.graph.input or proto.graph.output)):
                break
            try:
                rng.choice(MUTATIONS)(proto, rng)
            except (ValueError, TypeError):  # protobuf takes no such number
                continue
        yield number, proto.SerializeToString()
        number += 1


def check(data: bytes) -> str:
    """Import and prepare a model; return where an internal error was, or nothing."""
    try:
        with limited(5, host_seconds=5):
            imported = import_any(ModuleSource(data), None, None, None)
            pieces = [imported] if isinstance(imported, IRModule) else imported.pieces.values()
            for piece in pieces:
                PREPARE.run(piece, remarks=Remarks(), check=True)
    except IntarsiaError as error:
        return "" if type(error) is not IntarsiaError else f"bare: {error}"
    except Exception as error:  # what is looked for
        last = traceback.extract_tb(error.__traceback__)
        own = [f for f in last if "intarsia" in f.filename][-1]
        place = f"{own.filename.rpartition('intarsia/')[2]}:{own.lineno}"
        return f"{type(error).__name__}: {str(error)[:100]} at {place}"
    return ""


def main() -> None:
    """Run mutants for some time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[str, int] = {}
    end, count = time.monotonic() + wanted.seconds, 0
    for number, data in mutants(wanted.seed):
        start = time.monotonic()
        if start > end:
            break
        said = check(data)
        count += 1
        if time.monotonic() - start > 8:
            print(f"mutant {number} took {time.monotonic() - start:.1f} s", flush=True)
        place = said.rpartition(" at ")[2]
        if said and place not in found:
            print(f"mutant {number}: {said}", flush=True)
        if said:
            found[place] = found.get(place, 0) + 1
    print(f"{count} mutants, {sum(found.values())} internal errors at {len(found)} places")


if __name__ == "__main__":
    main()
