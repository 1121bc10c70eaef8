# SPDX-License-Identifier: Apache-2.0
"""The host side through the real binding of the driver, with a driver of ours below it.

``driver_stub.c`` is compiled as ``libcuda.so.1``: its memory is the host's, its kernels are the
emulated ones. So what the binding makes of our calls is tested, though on no GPU.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia_cuda.emulate import compile_emulated
from intarsia_testkit.open_models import save_perceptron

DIGITS = Path(__file__).resolve().parents[3] / "tests" / "e2e" / "models" / "digits"
STUB = Path(__file__).with_name("driver_stub.c")
OPENED = """
import sys
import numpy as np
from pathlib import Path
from intarsia_runtime.artifact.archive import open_artifact
from intarsia_runtime.loading import LoadRequest
from intarsia_cuda.driver import CudaDevice
from intarsia_cuda.program import program_from_json

artifact, library, answers = sys.argv[1:]
opened = open_artifact(Path(artifact))
plan, files = opened.passport.plan, opened.unit_files("main")
weights = {
    name: np.frombuffer(weight.data, np.uint8) for name, weight in opened.weights.items()
}
request = LoadRequest("main", files, weights, plan.inputs, plan.outputs, 1, 0, plan)
"""

RUN = f"""{OPENED}
from intarsia_runtime.artifact.plan import ArgumentSource
from intarsia_cuda.driver import device_name
from intarsia_cuda.loader import LoadedModel

print(device_name())
device = CudaDevice([b"/no/such/library\\0", library.encode() + b"\\0"])
model = LoadedModel(program_from_json(files["program.json"]), plan, request, device)
images = np.load(sys.argv[1].replace("model.intarsia", "images.npy"))
found = []
for image in images:
    outputs = [np.zeros(spec.shape, np.float32) for spec in plan.outputs]
    model.run(np.ascontiguousarray(image[None]), *outputs)
    found.append(outputs[0])
alone = model.kernel(plan.steps[0].function)
arrays = []
for argument in plan.steps[0].args:
    if argument.place is ArgumentSource.CONSTANT:
        data = weights[plan.constants[argument.index]].view(np.float32)
        arrays.append(data.reshape(argument.shape))
    else:
        arrays.append(np.ones(argument.shape, np.float32))
alone(*arrays)
np.savez(answers, whole=np.concatenate(found), first=arrays[-1])
device.close()
"""

OPEN_RUN = f"""{OPENED}
from intarsia_cuda.open_model import OpenCudaModel

device = CudaDevice([library.encode() + b"\\0"])
model = OpenCudaModel(program_from_json(files["program.json"]), plan, request, device)
found = []
for count in (3, 70, 70, 70, 1, 3, 3, 0):
    x = np.arange(count * 40, dtype=np.float32).reshape(count, 40) % 7 - 3
    y = np.zeros((count, 10), np.float32)
    model.run(x, y)
    found.append(y)
np.savez(answers, *found)
device.close()
"""


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    """The folder with our ``libcuda.so.1``."""
    pytest.importorskip("cuda.bindings.driver", reason="it is what calls the driver")
    if sys.platform != "linux":
        pytest.skip("libcuda.so.1 is the driver's name on Linux")
    folder = tmp_path_factory.mktemp("driver")
    library = folder / "libcuda.so.1"
    argv = ["gcc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1", "-o", library, STUB]
    subprocess.run([*argv, "-ldl"], check=True, timeout=60)
    return folder


def run_on_stub(stub, artifact, script):
    """Run a script with an artifact, its kernels as a library, and a file for answers."""
    folder = artifact.parent
    with zipfile.ZipFile(artifact) as archive:
        text = archive.read("units/main/kernels.cu").decode()
    heads = re.findall(r"__launch_bounds__\(\d+, 1\) (\w+)\(([^)]*)\)", text)
    counts = "".join(
        f'extern "C" const int count_{name} = {parameters.count(",") + 1};\n'
        for name, parameters in heads
    )
    library = folder / "kernels.so"
    library.write_bytes(compile_emulated(text + counts, [name for name, _ in heads]))
    argv = [sys.executable, "-c", script, artifact, library, folder / "answers.npz"]
    environment = os.environ | {"LD_LIBRARY_PATH": os.fspath(stub)}
    done = subprocess.run(
        argv, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "released with 0 pieces of memory" in done.stderr
    return done.stdout, np.load(folder / "answers.npz")


def test_a_model_runs_through_the_real_binding(stub, tmp_path):
    built = intarsia.build(DIGITS / "digits.onnx", target="cuda -emulate")
    artifact = built.save(tmp_path / "model.intarsia")
    images = np.load(DIGITS / "samples.npz")["image"][:4]
    np.save(tmp_path / "images.npy", images)
    told, answers = run_on_stub(stub, artifact, RUN)
    assert "stub 0" in told
    with intarsia.load(artifact) as model:
        want = [model.run({"image": image[None]})["probability"] for image in images]
    np.testing.assert_array_equal(answers["whole"], np.concatenate(want))
    assert np.isfinite(answers["first"]).all()
    assert (answers["first"] != 1).any()


def test_a_model_of_open_sizes_runs_through_the_real_binding(stub, tmp_path):
    built = intarsia.build(save_perceptron(tmp_path), target="cuda -emulate")
    artifact = built.save(tmp_path / "model.intarsia")
    _, answers = run_on_stub(stub, artifact, OPEN_RUN)
    with intarsia.load(artifact) as model:
        for found in answers.values():
            x = np.arange(len(found) * 40, dtype=np.float32).reshape(-1, 40) % 7 - 3
            np.testing.assert_array_equal(model.run({"x": x})["y"], found)
