# SPDX-License-Identifier: Apache-2.0
"""Models of open sizes, exported from PyTorch: one for each way in which sizes stay open.

``python -m tests.bench.open_models FOLDER`` writes them. Weights are random; shapes of layers are
those of small published networks, so that a size takes milliseconds and not seconds.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

Inputs = dict[str, np.ndarray]
Sizes = Mapping[str, int]

WORDS = 1000


@dataclass(frozen=True)
class OpenModel:
    """A network and the sizes that it is measured at.

    Attributes:
        build: Makes the module; ``torch`` is imported when it is called.
        axes: Name of an input to its open axes and the name of each size.
        inputs: Makes inputs of given sizes.
        sizes: Odd, small and large ones; the first is that of the export.
        quantized: How the file is quantized after the export; empty if it is not.
    """

    build: Callable[[], Any]
    axes: Mapping[str, Mapping[int, str]]
    inputs: Callable[[Sizes], Inputs]
    sizes: tuple[Sizes, ...]
    quantized: str = ""


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _floats(*shape: int) -> np.ndarray:
    return _rng().standard_normal(shape).astype(np.float32)


def _words(*shape: int) -> np.ndarray:
    return _rng().integers(0, WORDS, shape)


def _image(channels: int) -> Callable[[Sizes], Inputs]:
    return lambda s: {"x": _floats(s["B"], channels, s["H"], s["W"])}


def _text(s: Sizes) -> Inputs:
    mask = np.ones((s["B"], s["S"]), np.int64)
    mask[0, s["S"] * 3 // 4 + 1 :] = 0
    return {"ids": _words(s["B"], s["S"]), "mask": mask}


def _decoder_inputs(s: Sizes) -> Inputs:
    caches = {f"past_{kind}{n}": _floats(s["B"], 8, s["P"], 64) for n in range(4) for kind in "kv"}
    return {"ids": _words(s["B"], s["S"]), **caches}


def _sizes(names: str, *rows: tuple[int, ...]) -> tuple[Sizes, ...]:
    return tuple(dict(zip(names, row, strict=True)) for row in rows)


IMAGE_AXES = {"x": {0: "B", 2: "H", 3: "W"}}
TEXT_AXES = {"ids": {0: "B", 1: "S"}, "mask": {0: "B", 1: "S"}}
TEXT_SIZES = _sizes("BS", (1, 16), (1, 5), (1, 100), (3, 31), (1, 384))
CACHES = {f"past_{kind}{n}": {0: "B", 2: "P"} for n in range(4) for kind in "kv"}


def _net(name: str) -> Callable[[], Any]:
    def build() -> Any:
        return importlib.import_module("tests.bench.open_nets").NETS[name]()

    return build


MODELS: Mapping[str, OpenModel] = MappingProxyType(
    {
        "minilm": OpenModel(_net("Encoder"), TEXT_AXES, _text, TEXT_SIZES),
        "minilm_int8": OpenModel(_net("Encoder"), TEXT_AXES, _text, TEXT_SIZES, "dynamic"),
        "decoder": OpenModel(
            _net("Decoder"),
            {"ids": {0: "B", 1: "S"}, **CACHES},
            _decoder_inputs,
            _sizes("BSP", (1, 1, 16), (1, 1, 3), (1, 1, 255), (1, 1, 777), (1, 48, 1), (4, 1, 77)),
        ),
        "vit": OpenModel(
            _net("Vit"),
            {"x": {0: "B"}},
            lambda s: {"x": _floats(s["B"], 3, 160, 160)},
            _sizes("B", (2,), (1,), (3,), (8,)),
        ),
        "resnet": OpenModel(
            _net("ResNet"),
            IMAGE_AXES,
            _image(3),
            _sizes("BHW", (1, 224, 224), (1, 97, 131), (5, 64, 64), (1, 320, 256)),
        ),
        "resnet_qdq": OpenModel(
            _net("ResNet"),
            {"x": {0: "B"}},
            lambda s: {"x": _floats(s["B"], 3, 128, 128)},
            _sizes("B", (2,), (1,), (3,), (8,)),
            "static",
        ),
        "mobilenet": OpenModel(
            _net("MobileNet"),
            IMAGE_AXES,
            _image(3),
            _sizes("BHW", (1, 224, 224), (1, 97, 131), (5, 64, 64), (1, 320, 256)),
        ),
        "convnext": OpenModel(
            _net("ConvNext"),
            IMAGE_AXES,
            _image(3),
            _sizes("BHW", (1, 224, 224), (1, 97, 131), (3, 64, 64)),
        ),
        "yolo": OpenModel(
            _net("Yolo"),
            IMAGE_AXES,
            _image(3),
            _sizes("BHW", (1, 320, 320), (1, 96, 160), (2, 224, 224), (1, 480, 352)),
        ),
        "unet": OpenModel(
            _net("UNet"),
            IMAGE_AXES,
            _image(1),
            _sizes("BHW", (1, 128, 128), (1, 72, 104), (3, 64, 64), (1, 256, 192)),
        ),
        "crnn": OpenModel(
            _net("Crnn"),
            {"x": {0: "B", 3: "W"}},
            lambda s: {"x": _floats(s["B"], 3, 32, s["W"])},
            _sizes("BW", (1, 100), (1, 33), (1, 320), (4, 161)),
        ),
        "wav2vec": OpenModel(
            _net("Wav2Vec"),
            {"x": {0: "B", 1: "T"}},
            lambda s: {"x": _floats(s["B"], s["T"])},
            _sizes("BT", (1, 16000), (1, 4001), (2, 9999), (1, 40000)),
        ),
        "vocoder": OpenModel(
            _net("Vocoder"),
            {"x": {0: "B", 2: "T"}},
            lambda s: {"x": _floats(s["B"], 80, s["T"])},
            _sizes("BT", (1, 50), (1, 7), (1, 201), (2, 33)),
        ),
        "lstm_tagger": OpenModel(
            _net("LstmTagger"),
            {"ids": {0: "S", 1: "B"}},
            lambda s: {"ids": _words(s["S"], s["B"])},
            _sizes("SB", (20, 1), (3, 1), (101, 1), (37, 5)),
        ),
        "gru_tagger": OpenModel(
            _net("GruTagger"),
            {"ids": {0: "S", 1: "B"}},
            lambda s: {"ids": _words(s["S"], s["B"])},
            _sizes("SB", (20, 1), (3, 1), (101, 1), (37, 5)),
        ),
        "mixer": OpenModel(
            _net("Mixer"),
            {"x": {0: "B", 1: "S"}, "y": {0: "B", 1: "S"}},
            lambda s: {"x": _floats(s["B"], s["S"], 96), "y": _floats(s["B"], s["S"], 1)},
            _sizes("BS", (1, 128), (1, 17), (7, 333), (1, 4000)),
        ),
    }
)
"""Name to model."""


def export(name: str, folder: Path) -> Path:
    """Write ``FOLDER/NAME.onnx`` unless it is there, and return its path."""
    path = folder / f"{name}.onnx"
    if path.exists():
        return path
    model = MODELS[name]
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    example = model.inputs(model.sizes[0])
    plain = folder / f"{name}.fp32.onnx" if model.quantized else path
    torch.onnx.export(
        model.build().eval(),
        tuple(torch.from_numpy(array) for array in example.values()),
        str(plain),
        input_names=list(example),
        dynamic_axes={name: dict(axes) for name, axes in model.axes.items()},
        opset_version=17,
        dynamo=False,
    )
    if model.quantized:
        _quantize(model, plain, path)
        plain.unlink()
    return path


def _quantize(model: OpenModel, plain: Path, path: Path) -> None:
    tool = importlib.import_module("onnxruntime.quantization")
    if model.quantized == "dynamic":
        tool.quantize_dynamic(plain, path, weight_type=tool.QuantType.QInt8)
        return

    class Reader(tool.CalibrationDataReader):
        def __init__(self) -> None:
            self.left = [model.inputs(sizes) for sizes in model.sizes]

        def get_next(self) -> Inputs | None:
            return self.left.pop() if self.left else None

    prepared = plain.with_suffix(".prepared.onnx")
    importlib.import_module("onnxruntime.quantization.shape_inference").quant_pre_process(
        plain, prepared, skip_symbolic_shape=True
    )
    tool.quantize_static(
        prepared, path, Reader(), quant_format=tool.QuantFormat.QDQ, per_channel=True
    )
    prepared.unlink()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for each in sys.argv[2:] or MODELS:
        print(export(each, target), flush=True)
