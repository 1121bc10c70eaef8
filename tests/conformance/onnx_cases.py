# SPDX-License-Identifier: Apache-2.0
"""ONNX's own backend tests as plain values: a model, and data sets of inputs and outputs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

KINDS = ("node", "simple", "light", "pytorch-converted", "pytorch-operator")


@dataclass(frozen=True, slots=True)
class OnnxCase:
    """One test.

    Attributes:
        kind: Which of :data:`KINDS` it is of.
        name: Its name in ONNX.
        source: ONNX's own description of it, or the file of a light model.
    """

    kind: str
    name: str
    source: Any

    def read(self) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]], float, float]:
        """Return the model, the data sets, and the relative and absolute tolerance."""
        if isinstance(self.source, Path):
            return _light(self.source)
        case = self.source
        if case.model is not None:
            sets = [([_plain(v) for v in i], [_plain(v) for v in o]) for i, o in case.data_sets]
            return case.model, sets, case.rtol, case.atol
        folder = Path(case.model_dir)
        model = onnx.load(folder / "model.onnx")
        sets = []
        for data in sorted(folder.glob("test_data_set_*")):
            inputs = _read_all(data, "input", model.graph.input)
            sets.append((inputs, _read_all(data, "output", model.graph.output)))
        return model, sets, case.rtol, case.atol


def collect(kinds: tuple[str, ...] = KINDS) -> Iterator[OnnxCase]:
    """Yield the tests of some kinds, by name."""
    from onnx.backend.test.loader import load_model_tests

    for kind in kinds:
        if kind == "light":
            folder = Path(onnx.__file__).parent / "backend/test/data/light"
            yield from (OnnxCase(kind, f"test_{p.stem}", p) for p in sorted(folder.glob("*.onnx")))
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = load_model_tests(kind=kind)
        yield from (OnnxCase(kind, case.name, case) for case in sorted(found, key=_name))


def _name(case: Any) -> str:
    return case.name


def _light(path: Path) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]], float, float]:
    from onnx.backend.test.runner import Runner

    model = onnx.load(path)
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [
        Runner.generate_dummy_data(info, seed=0, name=path.name, random=False)
        for info in model.graph.input
        if info.name not in weights
    ]
    wanted = numpy_helper.to_array(onnx.load_tensor(f"{path.with_suffix('')}_output_0.pb"))
    return model, [(inputs, [wanted])], 1e-3, 1e-7


def _read_all(folder: Path, role: str, infos: Any) -> list[Any]:
    paths = sorted(folder.glob(f"{role}_*.pb"), key=_number)
    return [_read(path, info) for path, info in zip(paths, infos, strict=False)]


def _number(path: Path) -> int:
    return int(path.stem.rpartition("_")[2])


def _read(path: Path, info: onnx.ValueInfoProto) -> Any:
    kinds = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}
    message = kinds.get(info.type.WhichOneof("value") or "", onnx.TensorProto)()
    message.ParseFromString(path.read_bytes())
    return _plain(message)


def _plain(value: Any) -> Any:
    """Return arrays, lists and ``None`` for messages."""
    match value:
        case onnx.TensorProto():
            return numpy_helper.to_array(value)
        case onnx.SequenceProto():
            return numpy_helper.to_list(value)
        case onnx.OptionalProto():
            return numpy_helper.to_optional(value)
        case list() | tuple() | None:
            return value
        case _:
            return np.asarray(value)
