# SPDX-License-Identifier: Apache-2.0
"""Saves the torch modules that a harness made its ONNX models from, for the peer ``inductor``.

``PYTHON tests/bench/torch_modules.py gen_models.py FOLDER``, with a Python that has torch, writes
``FOLDER/NAME.pt2`` for each net of the file's ``TORCH_NETS`` that has ``FOLDER/NAME.onnx``.
``bench --vs inductor`` takes such a program where it lies beside the ONNX file.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from pathlib import Path


def main(source: str, folder: Path) -> None:
    """Save each net with the example inputs it was exported with."""
    torch = importlib.import_module("torch")  # the Python that has it is not the tests' own
    os.environ.setdefault("PEERS", str(folder))  # the file wants its root named
    made = runpy.run_path(source)
    for name in made["TORCH_NETS"]:
        if not (folder / f"{name}.onnx").exists():
            continue
        module, inputs = made["build"](name)
        with torch.no_grad():
            torch.export.save(torch.export.export(module, inputs), folder / f"{name}.pt2")
        print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
