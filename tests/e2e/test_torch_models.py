# SPDX-License-Identifier: Apache-2.0
"""Models of PyTorch agree with PyTorch, compiled ahead of time and by torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import intarsia

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: torch.onnx needs it")
nn = torch.nn
pytestmark = pytest.mark.usefixtures("quick_export")
TARGETS = ("llvm", "dnnl, llvm")


class Recurrent(nn.Module):
    """Two layers in both directions, and a linear layer on every step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        states, (hidden, cell) = self.lstm(x)
        return self.head(states), hidden, cell


def mlp():
    layers = nn.Linear(24, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 10), nn.Softmax(-1)
    return nn.Sequential(*layers), torch.randn(4, 24)


def cnn():
    first = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)
    second = nn.Conv2d(16, 32, 3, stride=2, groups=2), nn.BatchNorm2d(32), nn.SiLU()
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5)
    model = nn.Sequential(*first, *second, *head)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return model, torch.randn(2, 3, 32, 32)


def encoder():
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), torch.randn(2, 7, 32)


def lstm():
    return Recurrent(), torch.randn(2, 5, 8)


MODELS = (mlp, cnn, encoder, lstm)


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    torch.manual_seed(0)
    torch.compiler.reset()
    with torch.no_grad():
        yield


def results_of(value: object) -> tuple:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", MODELS)
def test_from_torch_agrees_with_pytorch(
    tmp_path: Path, make: Callable[[], tuple], target: str
) -> None:
    model, x = make()
    want = results_of(model.eval()(x))
    module = intarsia.from_torch(model, (x,))
    path = intarsia.build(module, target=target).save(tmp_path / "model.intarsia")
    found = intarsia.load(path).run([x])  # DLPack
    for a, b in zip(found.values(), want, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", MODELS)
def test_torch_compile_agrees_with_pytorch(make: Callable[[], tuple], target: str) -> None:
    model, x = make()
    want = results_of(model.eval()(x))
    options = {"target": target, "fallback": False}
    fast = torch.compile(model, backend="intarsia", options=options, fullgraph=True)
    with torch._dynamo.config.patch(allow_rnn=True):
        for _ in range(2):
            torch.testing.assert_close(results_of(fast(x)), want, rtol=1e-3, atol=1e-5)
