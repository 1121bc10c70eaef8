# SPDX-License-Identifier: Apache-2.0
"""Time models on the GPU here beside PyTorch: ``python -m tests.bench.gpu [--profile] [MODEL]``.

Needs an NVIDIA GPU, a PyTorch that uses it, and for the models torchvision and transformers. Every
model has random weights and one set of random inputs. Both get inputs in the memory of the host and
give results back there; PyTorch runs eagerly, and as its own CUDA graph where the model can be
captured as one. One round times each of them once, in turn; medians. ``--profile`` prints the
kernels that take most of a run.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch

import intarsia

warnings.filterwarnings("ignore")
ROUNDS = 15


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


def timed(run):
    begin = time.perf_counter()
    run()
    return (time.perf_counter() - begin) * 1e3


def torch_graph(model, x):
    """Return PyTorch's own CUDA graph of the model, and its input and output on the GPU."""
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
    for row in rows[:8]:
        print(f"    {row.device_time_total:9.1f} us  {row.count:3}  {row.key[:70]}")


def measure(name, options="", profile=False):
    model, x = MODELS[name]()
    model = model.eval()
    half = options == " half"
    dtype = torch.float16 if half else torch.float32
    if half:
        model, x = model.half(), x.half() if x.is_floating_point() else x
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        # With gradients: without them attention is exported as one operator that ONNX has not.
        with torch.enable_grad():
            torch.onnx.export(model, (x,), str(path), dynamo=False, opset_version=17)
        begin = time.perf_counter()
        artifact = intarsia.build(
            path, target="cuda -arch=native" + ("" if half else options)
        ).save(Path(folder) / "m.intarsia")
        built = time.perf_counter() - begin
        ours = intarsia.load(artifact)
        want = model.double()(x.double() if x.is_floating_point() else x).float().numpy()
        model = model.to(dtype).cuda()
        (key,) = (spec.name for spec in ours.passport.plan.inputs)
        feeds = {key: x.numpy()}
        got = np.asarray(next(iter(ours.run(feeds).values())), np.float32)
        error = np.abs(got - want).max() / np.abs(want).max()
        own = x.cuda()
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = "tf32" in options
        peer = model(own).cpu().float().numpy()
        peer_error = np.abs(peer - want).max() / np.abs(want).max()

        def eager():
            model(x.cuda()).cpu()

        runs = {"ours": lambda: ours.run(feeds), "eager": eager}
        try:
            graph, y = torch_graph(model, own)
        except RuntimeError:  # it copies from the host as it runs
            runs["graph"] = eager
        else:

            def replay():
                own.copy_(x)
                graph.replay()
                return y.cpu()

            runs["graph"] = replay
        times = {key: [] for key in runs}
        for _ in range(3):
            for run in runs.values():
                run()
        for _ in range(ROUNDS):
            for key, run in runs.items():
                times[key].append(timed(run))
        ms = {key: statistics.median(found) for key, found in times.items()}
        if profile:
            profiled(runs["ours"])
            profiled(runs["graph"])
    print(
        f"{name:16}{options:22} error {error:.1e} (torch {peer_error:.1e})  built {built:5.1f} s  "
        + "  ".join(f"{key} {value:.3f} ms" for key, value in ms.items())
        + f"  ratio to graph {ms['ours'] / ms['graph']:.2f}",
        flush=True,
    )


def main(names):
    torch.manual_seed(1)
    torch.set_grad_enabled(False)
    print(torch.cuda.get_device_name(), torch.__version__)
    profile = "--profile" in names
    for name in [name for name in names if name != "--profile"] or MODELS:
        for options in ("", " -fpmath-mode=tf32", " half"):
            try:
                measure(name, options, profile)
            except Exception as error:  # the next model counts too
                print(f"{name}{options}: {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
