# SPDX-License-Identifier: Apache-2.0
"""Time models on the GPU here beside PyTorch: ``python -m tests.bench.gpu [OPTION] [MODEL]``.

Needs an NVIDIA GPU, a PyTorch that uses it, and for the models torchvision and transformers. Every
model has random weights and one set of random inputs. All get inputs in the memory of the host and
give results back there: our artifact of known sizes, the one of open sizes, PyTorch eagerly, as its
own CUDA graph where the model can be captured as one, and with ``--compile`` what ``torch.compile``
makes of it. One round times each of them once, in turn; medians. ``--profile`` prints the kernels
that take most of a run, ``--closed`` leaves out open sizes. Artifacts are built first, side
by side.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch

import intarsia

warnings.filterwarnings("ignore")
ROUNDS = 15
VARIANTS = ("", " -fpmath-mode=tf32", " half")


class Logits(torch.nn.Module):
    """A model of transformers that gives one tensor."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, tokens):
        return self.inner(tokens).last_hidden_state


def mlp():
    layers = [torch.nn.Linear(1024, 1024) for _ in range(4)]
    return torch.nn.Sequential(*[x for layer in layers for x in (layer, torch.nn.ReLU())])


def vision(name):
    import torchvision

    model = getattr(torchvision.models, name)(weights=None)
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):  # the last one of a transformer starts as zeros
            torch.nn.init.normal_(module.weight, std=0.02)
    return model, torch.rand(1, 3, 224, 224)


def bert():
    from transformers import BertConfig, BertModel

    config = BertConfig(attn_implementation="eager")
    return Logits(BertModel(config)), torch.randint(0, 30000, (1, 128))


MODELS = {
    "mlp_64": lambda: (mlp(), torch.rand(64, 1024)),
    "resnet50": lambda: vision("resnet50"),
    "mobilenet_v2": lambda: vision("mobilenet_v2"),
    "bert_base_128": bert,
    "vit_b_16": lambda: vision("vit_b_16"),
}

OPEN = {
    "mlp_64": {0: "N"},
    "resnet50": {0: "N", 2: "H", 3: "W"},
    "mobilenet_v2": {0: "N", 2: "H", 3: "W"},
    "bert_base_128": {0: "N", 1: "T"},
}
"""Axes of the input that stay open; a vision transformer has one size."""


def made(name, variant):
    """Return a model and an input; the same ones in every process."""
    torch.manual_seed(1)
    torch.set_grad_enabled(False)
    model, x = MODELS[name]()
    model = model.eval()
    if variant == " half":
        model, x = model.half(), x.half() if x.is_floating_point() else x
    return model, x


def build(name, variant, axes, path):
    """Export and build; return how many seconds the build took."""
    warnings.filterwarnings("ignore")
    model, x = made(name, variant)
    exported = path.with_suffix(".onnx")
    # With gradients: without them attention is exported as one operator that ONNX has not.
    with torch.enable_grad():
        torch.onnx.export(
            model, (x,), str(exported), dynamo=False, opset_version=17,
            input_names=["x"], dynamic_axes={"x": axes} if axes else None,
        )  # fmt: skip
    begin = time.perf_counter()
    options = "" if variant == " half" else variant
    intarsia.build(exported, target="cuda -arch=native" + options).save(path)
    return time.perf_counter() - begin


def timed(run):
    begin = time.perf_counter()
    run()
    return (time.perf_counter() - begin) * 1e3


def torch_graph(model, x):
    """Return PyTorch's own CUDA graph of the model, and its output on the GPU."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
    return graph, y


def profiled(run):
    """Print the kernels that take most of a run."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        run()
        torch.cuda.synchronize()
    rows = sorted(found.key_averages(), key=lambda row: -row.device_time_total)
    total = sum(row.device_time_total for row in rows)
    print(f"    {len(rows)} kinds of work, {total / 1e3:.3f} ms on the GPU")
    for row in rows[:12]:
        print(f"    {row.device_time_total:9.1f} us  {row.count:3}  {row.key[:90]}")


def peers(model, x, *, compiled):
    """Return what PyTorch runs: eagerly, as a graph, compiled."""
    own = x.cuda()
    runs = {"eager": lambda: model(x.cuda()).cpu()}
    try:
        graph, y = torch_graph(model, own)
    except RuntimeError:  # it copies from the host as it runs
        torch.cuda.synchronize()
    else:

        def replay():
            own.copy_(x)
            graph.replay()
            return y.cpu()

        runs["graph"] = replay
    if compiled:
        fast = torch.compile(model, mode="reduce-overhead")
        runs["compiled"] = lambda: fast(x.cuda()).cpu()
    return runs


def error_of(got, want):
    return np.abs(np.asarray(got, np.float32) - want).max() / np.abs(want).max()


def measure(name, variant, artifacts, built, flags):
    model, x = made(name, variant)
    dtype = torch.float16 if variant == " half" else torch.float32
    want = model.double()(x.double() if x.is_floating_point() else x).float().numpy()
    model = model.to(dtype).cuda()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = "tf32" in variant
    runs, errors = {}, {}
    for key, path in artifacts.items():
        loaded = intarsia.load(path)
        (feed,) = (spec.name for spec in loaded.passport.plan.inputs)
        runs[key] = partial(loaded.run, {feed: x.numpy()})
        errors[key] = error_of(next(iter(runs[key]().values())), want)
    errors["torch"] = error_of(model(x.cuda()).cpu().float().numpy(), want)
    runs |= peers(model, x, compiled="--compile" in flags)
    times = {key: [] for key in runs}
    for _ in range(3):
        for run in runs.values():
            run()
    for _ in range(ROUNDS):
        for key, run in runs.items():
            times[key].append(timed(run))
    ms = {key: statistics.median(found) for key, found in times.items()}
    if "--profile" in flags:
        for key in [*artifacts, "graph" if "graph" in runs else "eager"]:
            print(f"  {key}")
            profiled(runs[key])
    print(
        f"{name:14}{variant:19} errors "
        + " ".join(f"{key} {value:.1e}" for key, value in errors.items())
        + "  built "
        + " ".join(f"{seconds:.1f}" for seconds in built)
        + " s  "
        + "  ".join(f"{key} {value:.3f}" for key, value in ms.items())
        + " ms",
        flush=True,
    )


def main(words):
    flags = [word for word in words if word.startswith("--")]
    names = [word for word in words if word not in flags] or list(MODELS)
    print(torch.cuda.get_device_name(), torch.__version__)
    with tempfile.TemporaryDirectory() as folder:
        jobs = {}
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
            for name in names:
                for number, variant in enumerate(VARIANTS):
                    for key, axes in (("ours", None), ("open", OPEN.get(name))):
                        if key == "open" and (axes is None or "--closed" in flags):
                            continue
                        path = Path(folder) / f"{name}{number}{key}.intarsia"
                        made_by = pool.submit(build, name, variant, axes, path)
                        jobs.setdefault((name, variant), {})[key] = path, made_by
        for (name, variant), found in jobs.items():
            try:
                built = [job.result() for _, job in found.values()]
                artifacts = {key: path for key, (path, _) in found.items()}
                measure(name, variant, artifacts, built, flags)
            except Exception as error:  # the next model counts too
                print(f"{name}{variant}: {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
