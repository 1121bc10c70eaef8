# SPDX-License-Identifier: Apache-2.0
"""from_torch: modules and exported programs become modules of the IR, or a reason why not."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia.cli.main import main
from intarsia.driver.dynamic import import_any
from intarsia.driver.importing import import_model
from intarsia.driver.source import ModuleSource
from intarsia_ir.graph.walk import post_order
from intarsia_ir.ops.evaluate import evaluate
from intarsia_runtime.errors import ModelError, UnsupportedError, UsageError
from intarsia_torch import importing, onnx_export
from intarsia_torch.attention import encoder_layer, self_attention

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: torch.onnx needs it")
nn = torch.nn
pytestmark = pytest.mark.usefixtures("quick_export")


class Gate(nn.Module):
    """Two inputs, a keyword, a weight; a tuple of results."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x, other, *, scale=1.0):
        y = self.linear(x)
        return torch.sigmoid(y) * other, y * scale


def run(module: intarsia.IRModule, *args: np.ndarray) -> list[np.ndarray]:
    names = [param.name for param in module.main.params]
    return list(evaluate(module.main, dict(zip(names, args, strict=True)), module))


def test_a_module_becomes_a_function_of_its_inputs() -> None:
    model, x, other = Gate().eval(), torch.randn(2, 3), torch.randn(2, 4)
    module = intarsia.from_torch(model, (x, other), {"scale": torch.tensor(2.0)})
    assert [str(p.type) for p in module.main.params[:2]] == [
        "Tensor[(2, 3), float32]",
        "Tensor[(2, 4), float32]",
    ]
    assert [p.name for p in module.main.params] == ["x", "other", "scale"]
    found = run(module, x.numpy(), other.numpy(), np.float32(2))
    with torch.no_grad():
        want = model(x, other, scale=torch.tensor(2.0))
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-5, atol=1e-6)


def test_weights_are_those_of_the_moment() -> None:
    model, x = nn.Linear(3, 2).eval(), torch.randn(2, 3)
    with torch.no_grad():
        want = model(x).numpy()
        module = intarsia.from_torch(model, (x,))
        model.weight.zero_()
    np.testing.assert_allclose(run(module, x.numpy())[0], want, rtol=1e-5, atol=1e-6)


def test_an_exported_program_may_leave_sizes_open() -> None:
    batch = torch.export.Dim("batch", max=64)
    model = nn.Linear(3, 2).eval()
    exported = torch.export.export(model, (torch.randn(2, 3),), dynamic_shapes=({0: batch},))
    assert not intarsia.from_torch(exported).main.params[0].type.is_static
    module = intarsia.from_torch(exported, shapes={"input": (5, 3)})
    assert str(module.main.params[0].type) == "Tensor[(5, 3), float32]"


def test_element_types_are_kept() -> None:
    class Sums(nn.Module):
        def forward(self, *values):
            return tuple(value + value for value in values)

    kinds = ("float16", "bfloat16", "float64", "int8", "uint8", "int32", "int64")
    args = tuple(torch.ones(2, dtype=getattr(torch, kind)) for kind in kinds)
    module = intarsia.from_torch(Sums().eval(), args)
    assert [p.type.dtype.value for p in module.main.params] == list(kinds)
    assert [value.type.dtype.value for value in module.main.outputs] == list(kinds)


class Fused(nn.Module):
    """An encoder layer by the operator that PyTorch runs outside of training."""

    def __init__(self, layer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x):
        own, attention = self.layer, self.layer.self_attn
        weights = (attention.in_proj_weight, attention.in_proj_bias)
        weights += (attention.out_proj.weight, attention.out_proj.bias)
        norms = (own.norm1.weight, own.norm1.bias, own.norm2.weight, own.norm2.bias)
        linear = (own.linear1.weight, own.linear1.bias, own.linear2.weight, own.linear2.bias)
        options = (own.activation_relu_or_gelu == 2, own.norm_first, own.norm1.eps)
        return torch._transformer_encoder_layer_fwd(x, 8, 2, *weights, *options, *norms, *linear)


def test_a_fused_encoder_layer_is_expanded() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True).eval()
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        want = Fused(layer)(x).numpy()
    found = run(intarsia.from_torch(Fused(layer).eval(), (x,)), x.numpy())[0]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_the_expanded_layer_is_the_fused_one(gelu: bool, first: bool) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=first).eval()
    layer.activation_relu_or_gelu = 1 + gelu
    x = torch.randn(2, 3, 8)
    table = {torch._transformer_encoder_layer_fwd: partial(encoder_layer, torch)}

    class Expanded(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return table.get(function, function)(*args, **(kwargs or {}))

    with torch.no_grad():
        want = Fused(layer)(x)
        with Expanded():
            found = Fused(layer)(x)
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("average", [False, True])
def test_the_expanded_attention_is_the_fused_one(additive: bool, average: bool) -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    weights = (attention.in_proj_weight, attention.in_proj_bias)
    weights += (attention.out_proj.weight, attention.out_proj.bias)
    x, mask = torch.randn(2, 3, 8), torch.tensor([[False, True, False], [False, False, True]])
    given = torch.zeros(2, 3).masked_fill(mask, -torch.inf) if additive else mask
    with torch.no_grad():
        want = torch._native_multi_head_attention(x, x, x, 8, 2, *weights, mask, True, average, 1)
        found = self_attention(torch, x, x, x, 8, 2, *weights, given, True, average, 1)
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)


def test_large_weights_go_through_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise UnsupportedError("no converter")

    monkeypatch.setattr(importing, "import_exported", refuse)  # so that ONNX is the way
    monkeypatch.setattr(onnx_export, "LARGEST_IN_MEMORY", 1000)
    model, x = nn.Linear(64, 64).eval(), torch.randn(2, 64)
    module = intarsia.from_torch(model, (x,))
    with torch.no_grad():
        want = model(x).numpy()
    np.testing.assert_allclose(run(module, x.numpy())[0], want, rtol=1e-4, atol=1e-5)


def test_nodes_keep_their_names() -> None:
    module = intarsia.from_torch(nn.Sequential(nn.ReLU()).eval(), (torch.randn(2),))
    assert any("relu" in node.span.name for node in post_order(module.main.body))


class Branch(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen.add_(1)
        return x + self.seen


class Bessel(nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x)


@pytest.mark.parametrize(
    "model, error, message",
    [
        (nn.Linear(2, 2), UsageError, "Linear is in training mode"),
        (Branch().eval(), UnsupportedError, "PyTorch cannot export it: "),
        (Counter().eval(), UnsupportedError, "the program writes to 'seen'"),
        (Bessel().eval(), UnsupportedError, r"no ONNX operator for prims\.bessel_j0"),
        (torch.relu, UsageError, "expected a torch.nn.Module or an exported program"),
    ],
    ids=["training", "branch", "buffer", "operator", "function"],
)
def test_what_is_refused_says_why(model: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        intarsia.from_torch(model, (torch.randn(2, 2),))


def test_a_branch_on_data_is_named_by_its_line() -> None:
    with pytest.raises(UnsupportedError) as caught:
        intarsia.from_torch(Branch().eval(), (torch.randn(2),))
    path, _, line = caught.value.where.rpartition(":")
    assert "if x.sum() > 0" in Path(path).read_text().splitlines()[int(line) - 1]


def test_an_exported_program_takes_no_arguments() -> None:
    exported = torch.export.export(nn.ReLU().eval(), (torch.randn(2),))
    with pytest.raises(UsageError, match="an exported program knows its arguments"):
        intarsia.from_torch(exported, (torch.randn(2),))


def test_an_export_that_fails_inside_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **named: object) -> None:
        raise RuntimeError("\x1b[96mno way\x1b[0m\nmore words")

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(UnsupportedError, match="PyTorch's ONNX export fails: no way\n"):
        intarsia.from_torch(Bessel().eval(), (torch.randn(2),))


def test_without_torch_the_error_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "import intarsia\n"
        "try: intarsia.from_torch(None)\n"
        "except intarsia.IntarsiaError as error: print(error)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "hint: pip install 'intarsia[torch]'" in run.stdout


def test_the_front_end_loads_no_torch() -> None:
    program = "import sys, intarsia_torch.dynamo; print('torch' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "False"


def saved_gate(folder: Path) -> Path:
    path = folder / "gate.pt2"
    program = torch.export.export(Gate().eval(), (torch.randn(2, 3), torch.randn(2, 4)))
    torch.export.save(program, path)
    return path


def test_a_saved_program_is_imported(tmp_path: Path) -> None:
    path = saved_gate(tmp_path)
    x, other = torch.randn(2, 3), torch.randn(2, 4)
    with torch.no_grad():
        want = torch.export.load(path).module()(x, other)
    for module in (
        intarsia.from_torch(path),
        import_model(path),
        import_any(ModuleSource(path), None, None, None),
    ):
        assert isinstance(module, intarsia.IRModule)
        found = run(module, x.numpy(), other.numpy())
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a, b.numpy(), rtol=1e-5, atol=1e-6)


def test_a_saved_program_is_compiled_and_run_by_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("llvmlite", reason="needs a backend that generates code")
    monkeypatch.chdir(tmp_path)
    path = saved_gate(tmp_path)
    assert main(["compile", str(path), "--target", "llvm", "-o", "gate.intarsia"]) == 0
    assert main(["run", str(path), "--target", "llvm", "--verify", "--json"]) == 0
    assert '"verify"' in capsys.readouterr().out


def test_a_file_that_holds_no_program(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    torch.save({"weight": torch.ones(2)}, tmp_path / "weights.pt2")
    with pytest.raises(ModelError, match=r"holds no exported.*reads: .*archive_format") as caught:
        intarsia.from_torch(tmp_path / "weights.pt2")
    assert "torch.export.save" in caught.value.hint
    assert (caplog.text, capfd.readouterr().err) == ("", "")  # torch prints a traceback
