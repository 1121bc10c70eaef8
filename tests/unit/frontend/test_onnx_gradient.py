# SPDX-License-Identifier: Apache-2.0
"""Gradient: derivatives of named values, against differences of the model itself in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.deduplicate import deduplicate
from intarsia_onnx import from_onnx, importer
from intarsia_onnx.dynamic import plan_onnx
from intarsia_runtime.errors import ModelError, UnsupportedError

from .onnx_models import model, node

DOMAIN = "ai.onnx.preview.training"
RNG = np.random.default_rng(3)
STEP = 1e-6


def gradient(operands: str, results: str, *, y: str, **names: str) -> onnx.NodeProto:
    """A Gradient whose ``xs`` are its first operands, if they are not named."""
    outputs = results.split()
    xs = names.pop("xs", " ".join(operands.split()[: len(outputs)])).split()
    lists = {key: text.split() for key, text in names.items()}
    return node("Gradient", operands, results, domain=DOMAIN, y=y, xs=xs, name="slope", **lists)


def built(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: str,
    weights: Mapping[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """A model of float64 that may use Gradient."""
    proto = model(nodes, inputs, weights=weights, outputs=outputs.split(), dtype=TensorProto.DOUBLE)
    proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return proto


def run(proto: onnx.ModelProto, **values: object) -> list[np.ndarray]:
    arrays = {name: np.asarray(value, np.float64) for name, value in values.items()}
    return list(evaluate(from_onnx(proto).main, arrays))


NET = [
    node("Conv", "image kernel shift", "c", pads=[1, 1, 1, 1], strides=[2, 2]),
    node("Relu", "c", "r"),
    node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
    node("Flatten", "p", "f"),
    node("Gemm", "f matrix offset", "g", transB=1),
    node("LayerNormalization", "g scale", "n"),
    node("Softmax", "n", "s"),
    node("Log", "s", "l"),
    node("Mul", "l target", "m"),
    node("ReduceSum", "m", "loss", keepdims=0),
]
WEIGHTS = {
    "kernel": RNG.standard_normal((4, 3, 3, 3)),
    "shift": RNG.standard_normal(4),
    "matrix": RNG.standard_normal((5, 16)),
    "offset": RNG.standard_normal(5),
    "scale": RNG.standard_normal(5),
}
INPUTS = {"image": (2, 3, 8, 8), "target": (2, 5)}


def test_weights_of_a_network() -> None:
    """One step of training: the derivative of a loss by every weight."""
    names = " ".join(WEIGHTS)
    slopes = [f"d_{name}" for name in WEIGHTS]
    step = gradient(f"{names} image target", " ".join(slopes), y="loss", zs="image target")
    proto = built([*NET, step], INPUTS, f"loss {' '.join(slopes)}", WEIGHTS)
    given = {name: RNG.standard_normal(shape) for name, shape in INPUTS.items()}
    _, *found = run(proto, **given)
    for (name, value), slope in zip(WEIGHTS.items(), found, strict=True):
        way = RNG.standard_normal(value.shape)
        ends = [
            run(built(NET, INPUTS, "loss", {**WEIGHTS, name: value + sign * STEP * way}), **given)
            for sign in (1, -1)
        ]
        wanted = (ends[0][0] - ends[1][0]) / (2 * STEP)
        assert slope.shape == value.shape
        assert np.isclose((slope * way).sum(), wanted, rtol=1e-6, atol=1e-7), name


def test_what_is_computed_anyway_is_computed_once() -> None:
    nodes = [node("Sin", "x", "s"), node("Exp", "s", "y"), gradient("x", "d", y="y")]
    module = deduplicate(from_onnx(built(nodes, {"x": (3,)}, "y d")), Remarks())
    names = [call.name for call in calls(module.main)]
    assert names.count("sin") == names.count("exp") == names.count("cos") == 1


def test_by_a_value_between() -> None:
    nodes = [node("Sin", "x", "h"), node("Mul", "h h", "y"), gradient("h", "d", y="y")]
    assert np.allclose(run(built(nodes, {"x": ()}, "d"), x=0.7)[0], 2 * np.sin(0.7))


def test_at_another_place() -> None:
    """``y = sin(x) * z`` by ``h = sin(x)`` and ``z``, at given values of both."""
    nodes = [
        node("Sin", "x", "h"),
        node("Mul", "h h", "q"),
        node("Mul", "q z", "y"),
        gradient("h1 z1", "dh dz", y="y", xs="h z"),
    ]
    proto = built(nodes, dict.fromkeys(("x", "z", "h1", "z1"), ()), "y dh dz")
    y, by_h, by_z = run(proto, x=0.5, z=2.0, h1=3.0, z1=5.0)
    assert np.allclose([y, by_h, by_z], [2 * np.sin(0.5) ** 2, 30.0, 9.0])


def test_two_names_of_one_value_are_two_variables() -> None:
    nodes = [node("Identity", "x", "b"), node("Mul", "x b", "y")]
    alone = built([*nodes, gradient("b", "d", y="y")], {"x": ()}, "d")
    assert run(alone, x=3.0)[0] == 3
    both = built([*nodes, gradient("x b", "d e", y="y")], {"x": ()}, "d e")
    assert run(both, x=3.0) == [3, 3]
    assert run(built([*nodes, gradient("x", "d", y="y")], {"x": ()}, "d"), x=3.0)[0] == 6


def test_a_name_among_zs_is_constant() -> None:
    nodes = [node("Sin", "x", "h"), node("Mul", "x h", "y")]
    proto = built([*nodes, gradient("x h", "d", y="y", zs="h")], {"x": ()}, "d")
    assert np.allclose(run(proto, x=0.7)[0], np.sin(0.7))


def test_derivative_of_a_derivative() -> None:
    """The third derivative of ``x**4``."""
    nodes = [
        node("Mul", "x x", "q"),
        node("Mul", "q q", "y"),
        gradient("x", "d1", y="y"),
        gradient("x", "d2", y="d1"),
        gradient("x", "d3", y="d2"),
    ]
    found = run(built(nodes, {"x": ()}, "d1 d2 d3"), x=2.0)
    assert np.allclose(found, [32, 48, 48])


def test_a_derivative_by_what_only_another_names() -> None:
    """``w`` is no operand of the first Gradient, and yet its result depends on it."""
    nodes = [
        node("Mul", "x x", "q"),
        node("Mul", "q w", "y"),
        gradient("x", "d", y="y"),
        gradient("w", "e", y="d"),
    ]
    assert run(built(nodes, {"x": (), "w": ()}, "d e"), x=3.0, w=5.0) == [30, 6]


def test_value_that_follows_the_node() -> None:
    nodes = [gradient("x", "d", y="y"), node("Exp", "x", "y")]
    assert np.allclose(run(built(nodes, {"x": ()}, "d"), x=1.0)[0], np.e)


def test_results_left_out() -> None:
    nodes = [
        node("Mod", "a b", "m", fmod=1),
        node("LRN", "a", "n", size=3),
        node("ReduceSum", "n", "r", keepdims=0),
        node("Mul", "r b", "y"),
        gradient("a b", "_ d", y="y", xs="a b"),
    ]
    found = run(built(nodes, {"a": (1, 4, 2, 2), "b": ()}, "d r"), a=np.ones((1, 4, 2, 2)), b=2.0)
    slope, result = found
    assert np.isclose(slope, result)


def test_in_a_branch() -> None:
    body = helper.make_graph(
        [node("Mul", "x x", "q"), node("Sin", "q", "s"), gradient("q", "d", y="s")],
        "then",
        [],
        [helper.make_empty_tensor_value_info("d")],
    )
    nodes = [node("If", "yes", "y", then_branch=body, else_branch=body)]
    proto = built(nodes, {"x": ()}, "y", {"yes": np.array(True)})
    assert np.allclose(run(proto, x=0.5)[0], np.cos(0.25))


def refused(
    nodes: Sequence[onnx.NodeProto], error: type[Exception], inputs: str = "x"
) -> Exception:
    with pytest.raises(error) as caught:
        from_onnx(built(nodes, dict.fromkeys(inputs.split(), (1, 3, 2, 2)), "d"))
    assert "slope" in str(caught.value) or "normal" in str(caught.value)
    return caught.value


def test_no_rule_names_operator_and_node() -> None:
    nodes = [node("LRN", "x", "y", size=3, name="normal"), gradient("x", "d", y="y")]
    error = refused(nodes, UnsupportedError)
    assert "derivative of operator 'nn.lrn'" in str(error)
    assert "these can be differentiated: abs, acos" in str(error)


SQUARE = node("Mul", "x x", "y")


@pytest.mark.parametrize(
    ("last", "message"),
    [
        (gradient("x", "d", y="z"), "'z' is not defined by anything"),
        (gradient("x", "d", y="y", xs="a"), "'a' is not defined by anything"),
        (gradient("x", "d", y="y", xs="x y"), "1 operands and 1 results do not fit 2 names"),
        (node("Gradient", "x", "d", domain=DOMAIN, y="y", name="slope"), "do not fit 0 names"),
        (gradient("x x", "d", y="y", xs="x x"), "name a value twice"),
        (gradient("x", "d", y="d"), "depends on its own result"),
        (node("Gradient", "x", "d", domain=DOMAIN, xs="x", name="slope"), "'xs' is not a list"),
        (node("Gradient", "x", "d", domain=DOMAIN, xs=["x"], name="slope"), "'y' is missing"),
    ],
)
def test_broken_nodes(last: onnx.NodeProto, message: str) -> None:
    assert message in str(refused([SQUARE, last], ModelError))


def test_two_that_need_each_other() -> None:
    nodes = [gradient("x", "d", y="e"), gradient("x", "e", y="d")]
    with pytest.raises(ModelError, match="depends on its own result"):
        from_onnx(built(nodes, {"x": ()}, "d"))


def test_whole_numbers_have_no_derivative() -> None:
    nodes = [node("Cast", "x", "i", to=TensorProto.INT64), node("Mul", "i i", "y")]
    assert "'i' has no derivatives" in str(refused([*nodes, gradient("i", "d", y="y")], ModelError))
    assert "'y' has no derivatives" in str(refused([*nodes, gradient("x", "d", y="y")], ModelError))


def test_names_of_an_outer_graph() -> None:
    body = helper.make_graph(
        [gradient("x", "d", y="y")], "then", [], [helper.make_empty_tensor_value_info("d")]
    )
    nodes = [SQUARE, node("If", "yes", "z", then_branch=body, else_branch=body)]
    with pytest.raises(UnsupportedError, match="'y' is not a value in the graph of the node"):
        from_onnx(built(nodes, {"x": ()}, "z", {"yes": np.array(True)}))


def test_a_value_that_cannot_be_imported_is_named_once() -> None:
    nodes = [node("Nonsense", "x", "y", name="odd"), gradient("x", "d", y="y")]
    with pytest.raises(UnsupportedError, match="'Nonsense'") as caught:
        from_onnx(built(nodes, {"x": ()}, "d"))
    assert str(caught.value).count("Nonsense") == 1


def test_derivatives_of_derivatives_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each doubles what is imported, so thirty of them are refused instead of never done."""
    monkeypatch.setattr(importer, "MAX_WRITTEN", 100)
    nodes = [SQUARE, gradient("x", "d0", y="y")]
    for order in range(30):
        nodes.append(node("Mul", f"d{order} x", f"y{order}"))
        nodes.append(gradient("x", f"d{order + 1}", y=f"y{order}"))
    with pytest.raises(UnsupportedError, match="derivatives of more than 100 nodes"):
        from_onnx(built(nodes, {"x": ()}, "d30"))


def test_refused_where_only_the_run_knows_sizes() -> None:
    proto = built([SQUARE, gradient("x", "d", y="y")], {"x": ("N",)}, "d")
    with pytest.raises(UnsupportedError, match="Gradient' cannot wait for values of the run"):
        plan_onnx(proto)
    with pytest.raises(UnsupportedError, match="a size is not known"):
        from_onnx(proto)
    mixed = built([node("Mul", "x z", "y"), gradient("x", "d", y="y")], {"x": (), "z": ("N",)}, "d")
    with pytest.raises(UnsupportedError, match="Gradient' cannot wait for values of the run"):
        plan_onnx(mixed)


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_through_a_recurrent_layer(op: str, gates: int) -> None:
    """In float32 a layer is an operator, whose steps have rules; in float64 it is its steps."""
    weights = {
        "w": RNG.standard_normal((1, gates * 5, 3)),
        "r": RNG.standard_normal((1, gates * 5, 5)),
    }
    nodes = [
        node(op, "x w r", "every last", hidden_size=5),
        node("ReduceSum", "last", "y", keepdims=0),
        gradient("x r w", "d_x d_r", y="y", zs="w"),
    ]
    x, found = RNG.standard_normal((4, 2, 3)), []
    for dtype in (np.float32, np.float64):
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        own = {name: value.astype(dtype) for name, value in weights.items()}
        proto = model(nodes, {"x": x.shape}, weights=own, outputs=["d_x", "d_r"], dtype=kind)
        proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        found.append(evaluate(from_onnx(proto).main, {"x": x.astype(dtype)}))
    for got, want in zip(*found, strict=True):
        assert np.abs(want).max() > 0.01
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
