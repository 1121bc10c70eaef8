# SPDX-License-Identifier: Apache-2.0
"""PyTorch's inductor as a contestant of ``bench``: a program for any Python that has torch.

``python inductor.py MODEL INPUTS.npz THREADS [RESULTS.npz]`` compiles the model with its weights
frozen and says ``{"ready": null}``. Then it answers every line with a number of runs by the seconds
of one, ``{"seconds": 0.001}``, until there are no more. What it cannot do it says instead:
``{"missing": ...}`` is a package, ``{"refused": ...}`` why torch does not take the model. With
``RESULTS.npz`` the results of the first run are kept, in their order.

The model is an ONNX file, which onnx2torch converts; or a program of ``torch.export.save``, which
is preferred if it lies beside the ONNX file under the same name: it is what was written for torch.
It imports nothing of this package, because that Python need not have it.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TextIO, cast

import numpy as np

PROGRAM = ".pt2"
"""How the name of a saved exported program ends."""


def serve(model: Path, inputs: Path, threads: int, results: Path | None, answers: TextIO) -> None:
    """Compile, then run the model as often as told until the input ends."""

    def say(kind: str, value: object) -> None:
        print(json.dumps({kind: value}), file=answers, flush=True)

    try:
        run = compiled(model, inputs, threads)
        first = run()
        run()  # the second call may be compiled anew
    except ImportError as error:
        say("missing", str(error))
        return
    except Exception as error:  # onnx2torch and torch raise anything
        say("refused", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
        return
    if results is not None:
        np.savez(results, *arrays_of(first))
    say("ready", None)
    for line in sys.stdin:
        runs = int(line)
        run()
        start = time.perf_counter()
        for _ in range(runs):
            run()
        say("seconds", (time.perf_counter() - start) / runs)


def compiled(model: Path, inputs: Path, threads: int) -> Callable[[], object]:
    """Compile a model for some threads, to be run with the arrays of an ``.npz`` file.

    Raises:
        ImportError: torch, or what converts ONNX, is missing.
        Exception: What they raise about the model.
    """
    torch = importlib.import_module("torch")
    importlib.import_module("torch._inductor.config")
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    torch._inductor.config.freezing = True
    with np.load(inputs, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    saved = model.with_suffix(PROGRAM)
    if saved.exists():
        module, names = torch.export.load(str(saved)).module(), list(arrays)
    else:
        module, names = convert(model)
    tensors = [torch.from_numpy(arrays[name]) for name in names]
    function = torch.compile(module)

    def run() -> object:
        return function(*tensors)

    return run


def convert(model: Path) -> tuple[Callable[..., object], list[str]]:
    """Convert an ONNX file to a module of torch; return it and the names of its inputs."""
    onnx = importlib.import_module("onnx")
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError):  # the latter where it does not fit torch
        sys.modules.update(stand_in())
    proto = onnx.load(str(model))
    constants = {tensor.name for tensor in proto.graph.initializer}
    names = [value.name for value in proto.graph.input if value.name not in constants]
    return importlib.import_module("onnx2torch").convert(proto).train(mode=False), names


def stand_in() -> Mapping[str, ModuleType]:
    """Return modules in place of torchvision, which onnx2torch imports for two operators."""
    found: dict[str, ModuleType] = {}
    for name in ("torchvision", "torchvision.ops"):
        found[name] = ModuleType(name)
        found[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
    operators = found["torchvision.ops"]
    found["torchvision"].__dict__["ops"] = operators
    for name in ("box_convert", "nms", "roi_align"):
        operators.__dict__[name] = _absent
    return found


def _absent(*_: object, **__: object) -> object:
    raise ImportError("this operator needs a torchvision that fits torch")


def arrays_of(value: object) -> list[np.ndarray]:
    """Return the tensors of a result, which may be one or several, as arrays."""
    if not isinstance(value, (tuple, list)):
        return [np.asarray(value)]
    several = cast("Sequence[object]", value)
    return [np.asarray(one) for one in several]


def main(words: Sequence[str]) -> None:
    """Serve what the words name; what torch prints goes to stderr."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no processes that wait
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    model, inputs, threads, *results = words
    kept = Path(results[0]) if results else None
    serve(Path(model), Path(inputs), int(threads), kept, answers)


if __name__ == "__main__":
    main(sys.argv[1:])
