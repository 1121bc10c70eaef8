# SPDX-License-Identifier: Apache-2.0
"""Train the digit classifier of the demo and write ``digits.onnx`` and ``samples.npz``.

Run with: ``pip install torch onnxscript scikit-learn && python make_digits.py``.

Data: "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak; UCI Machine Learning
Repository, CC BY 4.0), the 1797 images of 8x8 pixels that scikit-learn ships. The last fifth is
held out; its first 32 images are the samples.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from sklearn.datasets import load_digits
from torch import nn

HERE = Path(__file__).parent


def block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Convolution, batch norm and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
    )


class Residual(nn.Module):
    """Two blocks and the way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(block(channels, channels), block(channels, channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


def make_model() -> nn.Module:
    """A residual network for 1x8x8 images in [0, 1]; 10 class probabilities."""
    return nn.Sequential(
        block(1, 16),
        Residual(16),
        nn.MaxPool2d(2),
        block(16, 32),
        Residual(32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
        nn.Softmax(dim=1),
    )


def strip(path: Path) -> None:
    """Remove the exporter's traces of the machine it ran on."""
    model = onnx.load(path)
    for entry in (*model.graph.node, *model.graph.value_info, model.graph, model):
        entry.ClearField("doc_string")
        entry.ClearField("metadata_props")
    onnx.save(model, path)


def train() -> None:
    """Train for 30 epochs, print the held-out accuracy, write both files."""
    torch.manual_seed(0)
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[:, None]
    split = len(images) * 4 // 5
    x, y = torch.from_numpy(images), torch.from_numpy(digits.target)
    model = make_model()
    optimiser = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 30)
    for _ in range(30):
        model.train()
        for batch in torch.randperm(split).split(64):
            loss = nn.functional.nll_loss(torch.log(model(x[batch]) + 1e-9), y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        right = (model(x[split:]).argmax(1) == y[split:]).float().mean().item()
    print(f"held-out accuracy {right:.4f} on {len(x) - split} images")
    torch.onnx.export(
        model,
        (x[split : split + 1],),
        str(HERE / "digits.onnx"),
        input_names=["image"],
        output_names=["probability"],
        opset_version=18,
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    strip(HERE / "digits.onnx")
    chosen = slice(split, split + 32)
    np.savez_compressed(HERE / "samples.npz", image=images[chosen], label=digits.target[chosen])


train()
