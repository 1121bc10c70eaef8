# SPDX-License-Identifier: Apache-2.0
"""Contestants that another Python runs: what their programs answer, and PyTorch's inductor."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia.driver.arrays import write_arrays
from intarsia_runtime.errors import ModelError, UsageError, WorkerLost
from intarsia_tools import foreign, inductor
from intarsia_tools.foreign import ForeignContestant, ForeignPeer

Start = Callable[[str], ForeignContestant]

STEADY = """
import sys
print('{"ready": null}', flush=True)
for line in sys.stdin:
    print('{"seconds": %s}' % (int(line) / 4), flush=True)
"""


@pytest.fixture
def contestant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Return a function that starts a contestant with the program of a peer."""

    def start(text: str) -> ForeignContestant:
        program = tmp_path / "program.py"
        program.write_text(text)
        peer = ForeignPeer(str(program), "torch two", "OTHER_PYTHON")
        monkeypatch.setattr(foreign, "FOREIGN", MappingProxyType({"them": peer}))
        return ForeignContestant("them", tmp_path / "m.onnx", tmp_path / "i.npz", 1)

    return start


def test_a_program_answers_a_line_by_a_line(contestant: Start) -> None:
    with contestant(STEADY) as them:
        assert [them.seconds(2), them.seconds(6)] == [0.5, 1.5]


def test_the_program_gets_model_inputs_and_threads(contestant: Start) -> None:
    words = "' '.join([a.rsplit('/')[-1] for a in sys.argv[1:]] + [os.environ['OMP_NUM_THREADS']])"
    with pytest.raises(ModelError, match=r"'them' does not take .*m\.onnx': m\.onnx i\.npz 1 1$"):
        contestant(f"import os, sys, json; print(json.dumps({{'refused': {words}}}))")


def test_a_missing_package_comes_with_the_command(contestant: Start) -> None:
    with pytest.raises(UsageError, match="'them' is not installed: no torch") as caught:
        contestant('print(\'{"missing": "no torch"}\')')
    assert caught.value.hint == (
        "pip install torch two, or let OTHER_PYTHON name a Python that has them"
    )


def test_a_program_that_ends_leaves_its_last_words(contestant: Start) -> None:
    with pytest.raises(WorkerLost, match="'them' ended with exit code 3: out of luck"):
        contestant("import sys; print('out of luck', file=sys.stderr); sys.exit(3)")
    with (
        contestant("print('{\"ready\": null}')") as them,
        pytest.raises(WorkerLost, match="exit code 0"),
    ):
        them.seconds(1)


def test_a_python_that_is_none(
    contestant: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OTHER_PYTHON", str(tmp_path / "absent"))
    with pytest.raises(UsageError, match=r"cannot be run by .*absent': No such file"):
        contestant(STEADY)


def test_inductor_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("INTARSIA_TORCH_PYTHON", raising=False)
    with pytest.raises(UsageError, match="not installed: no torch here") as caught:
        ForeignContestant("inductor", tmp_path / "m.onnx", tmp_path / "i.npz", 1)
    assert "pip install torch onnx onnx2torch" in caught.value.hint


def test_the_stand_in_has_what_the_converter_imports() -> None:
    modules = inductor.stand_in()
    assert modules["torchvision"].ops is modules["torchvision.ops"]
    with pytest.raises(ImportError, match="needs a torchvision"):
        modules["torchvision.ops"].nms()
    assert [a.tolist() for a in inductor.arrays_of((np.ones(1), np.zeros(2)))] == [[1], [0, 0]]
    assert [a.tolist() for a in inductor.arrays_of(np.ones(1))] == [[1]]


@pytest.mark.skipif(
    not os.environ.get("INTARSIA_TORCH_PYTHON")
    and not all(map(importlib.util.find_spec, ("torch", "onnx2torch"))),
    reason="needs torch and onnx2torch, or INTARSIA_TORCH_PYTHON",
)
def test_inductor_computes_what_the_model_says(tmp_path: Path) -> None:
    weight = np.arange(12, dtype=np.float32).reshape(4, 3) - 5
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Sub", ["b", "a"], ["y"]),
    ]
    sizes = {"x": (2, 4), "b": (2, 3), "y": (2, 3)}
    values = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in sizes.items()}
    graph = helper.make_graph(
        nodes,
        "g",
        [values["x"], values["b"]],
        [values["y"]],
        [numpy_helper.from_array(weight, "w")],
    )
    model, inputs, results = (tmp_path / name for name in ("m.onnx", "i.npz", "o.npz"))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), model)
    rng = np.random.default_rng(0)
    x, b = (rng.standard_normal(sizes[n]).astype(np.float32) for n in ("x", "b"))
    write_arrays(inputs, {"b": b, "x": x})
    with ForeignContestant("inductor", model, inputs, 1, results) as them:
        assert 0 < them.seconds(3) < 1
    with np.load(results) as found:
        np.testing.assert_allclose(found["arr_0"], b - x @ weight, rtol=1e-5, atol=1e-5)
