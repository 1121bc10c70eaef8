# SPDX-License-Identifier: Apache-2.0
"""Real models found on this machine, with inputs; nothing is downloaded.

* ``digits`` ships with the repository.
* The nine ``light`` models are inside the onnx wheel.
* magika and silero-vad come with their PyPI packages, where these are installed.
* Every ``*.onnx`` in the folder named by ``INTARSIA_MODELS`` (such as the generated ResNet-50,
  MobileNet-v2, VGG-16 and BERT-base of a benchmark harness).
"""

from __future__ import annotations

import importlib.metadata
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

HERE = Path(__file__).parent
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
PACKAGED = {
    "magika": ("magika", "models/standard_v3_3/model.onnx", {"bytes": (1, 2048)}),
    "silero_vad_openvino_16k": ("silero-vad", "data/silero_vad_openvino_16k.onnx", {}),
}
INTEGER_RANGES = {"bytes": (0, 256), "ids": (0, 30522), "mask": (1, 2), "sr": (16000, 16001)}


@dataclass(frozen=True)
class RealModel:
    """A model file and the shapes of its inputs that the file leaves open."""

    name: str
    path: Path
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def random_inputs(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Standard normal floats; integers in the range that the input's name implies."""
        rng = np.random.default_rng(seed)
        graph = onnx.load(self.path, load_external_data=False).graph
        weights = {tensor.name for tensor in graph.initializer}
        inputs: dict[str, np.ndarray] = {}
        for value in graph.input:
            if value.name in weights:
                continue
            tensor = value.type.tensor_type
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            shape = self.shapes.get(value.name, tuple(d.dim_value for d in tensor.shape.dim))
            if np.issubdtype(dtype, np.floating):
                inputs[value.name] = rng.standard_normal(shape).astype(dtype)
            else:
                low, high = INTEGER_RANGES.get(value.name, (0, 2))
                inputs[value.name] = np.asarray(rng.integers(low, high, shape), dtype)
        return inputs


def packaged_models() -> list[RealModel]:
    """Models inside installed distributions."""
    found: list[RealModel] = []
    for name, (distribution, member, shapes) in PACKAGED.items():
        try:
            files = importlib.metadata.files(distribution) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found += [
            RealModel(name, Path(str(file.locate())), shapes)
            for file in files
            if str(file).endswith(member)
        ]
    return found


def harness_models() -> list[RealModel]:
    """Models in the folder named by ``INTARSIA_MODELS``."""
    folder = os.environ.get("INTARSIA_MODELS")
    assert not folder or Path(folder).is_dir(), f"INTARSIA_MODELS is '{folder}', not a folder"
    return [RealModel(p.stem, p) for p in sorted(Path(folder).glob("*.onnx"))] if folder else []


DIGITS = RealModel("digits", HERE / "models" / "digits" / "digits.onnx")
LIGHT_MODELS = [RealModel(p.stem, p) for p in sorted(LIGHT.glob("*.onnx"))]
MODELS = [DIGITS, *LIGHT_MODELS, *packaged_models(), *harness_models()]
