# SPDX-License-Identifier: Apache-2.0
"""torch.compile(backend="intarsia"): what is compiled, what is not, and whose memory is used."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import intarsia
from intarsia_runtime.errors import TargetError, UnsupportedError, UsageError
from intarsia_runtime.executors.aot import AotExecutor
from intarsia_torch import compiled as compiled_graphs
from intarsia_torch import dynamo
from intarsia_torch import graph as torch_graph

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: torch.onnx needs it")
pytest.importorskip("llvmlite", reason="needs a backend that generates code")
nn = torch.nn
pytestmark = pytest.mark.usefixtures("quick_export")
STRICT = {"target": "llvm", "fallback": False}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Let no test see what another has compiled, and compute without gradients."""
    torch.compiler.reset()
    with torch.no_grad():
        yield


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[intarsia.IRModule]:
    """Every module that is built."""
    seen: list[intarsia.IRModule] = []
    build = dynamo.build_or_fetch

    def watch(module: intarsia.IRModule, *args: object, **named: object) -> object:
        seen.append(module)
        return build(module, *args, **named)

    monkeypatch.setattr(dynamo, "build_or_fetch", watch)
    return seen


def compiled(function: Callable[..., object], **options: object) -> Callable[..., object]:
    return torch.compile(function, backend="intarsia", options=STRICT | options)


def close(found: object, want: object) -> None:
    torch.testing.assert_close(found, want, rtol=1e-3, atol=1e-5)


def test_torch_lists_the_backend() -> None:
    assert "intarsia" in torch.compiler.list_backends()


def test_weights_are_compiled_in_and_found_again_when_they_change(builds: list) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval()
    x, fast = torch.randn(2, 4), compiled(model)
    close(fast(x), model(x))
    close(fast(x), model(x))
    assert len(builds) == 1
    assert [str(p.type) for p in builds[0].main.params] == ["Tensor[(2, 4), float32]"]
    for _ in range(2):  # the second time, they are arguments already
        model[0].weight.mul_(3)
        close(fast(x), model(x))
    assert [len(module.main.params) for module in builds] == [1, 7]


@pytest.mark.parametrize("name", ["expm1", "log1p"])
def test_digits_near_zero_are_kept(name: str) -> None:
    function = getattr(torch, name)
    x = torch.tensor([1e-8, -3e-6, 1e-4, 0.0, 0.5, -1.0, -2.0, 80.0, float("inf"), float("nan")])
    want = function(x.double()).float()
    torch.testing.assert_close(compiled(function)(x), want, rtol=3e-7, atol=0.0, equal_nan=True)


def test_pytorch_keeps_its_number_of_threads(builds: list) -> None:
    """Torch compiles again when it changes, and so would we."""
    before = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            x, fast = torch.randn(2, 4), compiled(torch.relu)
            for _ in range(2):
                close(fast(x), torch.relu(x))
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(before)
    assert len(builds) == 2


def test_one_graph_with_other_weights_is_another_program(builds: list) -> None:
    layers = [nn.Linear(4, 4).eval() for _ in range(2)]
    fast = compiled(lambda layer, x: layer(x))
    x = torch.randn(2, 4)
    for _ in range(2):
        for layer in layers:
            close(fast(layer, x), layer(x))
    assert len(builds) == 2


def test_weights_stay_arguments_without_freeze(builds: list) -> None:
    model, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
    close(compiled(model, freeze=False)(x), model(x))
    assert len(builds[0].main.params) == 3


def test_one_program_takes_the_sizes_that_torch_leaves_open(builds: list) -> None:
    def function(x):
        return x * 2 + x.shape[0], x.shape[0] * 3

    fast = compiled(function)
    for rows in (2, 3, 5, 3, 17):
        x = torch.randn(rows, 4)
        close(fast(x), function(x))
    assert [module.main.params[0].type.is_static for module in builds] == [True, False]


def test_inputs_and_outputs_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    run_at = AotExecutor.run_at

    def watch(self: AotExecutor, shapes: tuple, addresses: list[int]) -> None:
        seen.extend(addresses)
        run_at(self, shapes, addresses)

    monkeypatch.setattr(AotExecutor, "run_at", watch)
    x = torch.randn(64, 64)
    result = compiled(torch.relu)(x)
    assert seen == [x.data_ptr(), result.data_ptr()]


def test_strides_of_an_input_do_not_matter() -> None:
    fast = compiled(lambda x: torch.relu(x) + 1)
    base = torch.randn(6, 8)
    for x in (base.t(), base.view(3, 2, 8).transpose(0, 2)[:, :, ::2]):
        close(fast(x), torch.relu(x) + 1)


def test_a_view_of_an_input_is_a_view() -> None:
    def function(x):
        return x + 1, x[1:].t(), x, None, 7

    fast = compiled(function)
    for x in (torch.randn(3, 4), torch.randn(8)[2:].view(2, 3)):
        found = fast(x)
        close(found[:3], function(x)[:3])
        assert found[1].data_ptr() == x[1:].data_ptr()
        assert found[2].data_ptr() == x.data_ptr()
        assert found[3:] == (None, 7)


def test_a_graph_of_views_alone_is_not_built(builds: list) -> None:
    x = torch.randn(3, 4)
    found = compiled(lambda x: x.view(-1)[2:])(x)
    assert found.data_ptr() == x.view(-1)[2:].data_ptr()
    assert builds == []


@pytest.mark.parametrize("kind", ["bfloat16", "float64", "int64"])
def test_element_types_pass(kind: str) -> None:
    def function(x):
        return x + x

    x = torch.arange(12).reshape(3, 4).to(getattr(torch, kind))
    found = compiled(function)(x.t())
    assert found.dtype is x.dtype
    close(found, function(x.t()))


def test_tensors_of_inference_mode_pass() -> None:
    with torch.inference_mode():
        model, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
        close(compiled(model)(x), model(x))


def test_graphs_on_both_sides_of_a_break() -> None:
    def function(x):
        y = torch.relu(x)
        torch._dynamo.graph_break()
        return y * 2

    x = torch.randn(3)
    close(compiled(function)(x), function(x))


def writes(x):
    x.add_(1)
    return x * 2


def shares(x):
    y = x * 2
    return y, y[1:]


def reads_as(x):
    return x + 1, x.view(torch.int32)


REFUSED = [
    (writes, "the graph writes to its argument 0"),
    (shares, "two results of the graph share memory"),
    (reads_as, "a result reads argument 0 as torch.int32"),
    (torch.special.bessel_j0, r"no ONNX operator for prims\.bessel_j0"),
]


@pytest.mark.parametrize("function, reason", REFUSED, ids=["write", "share", "bits", "op"])
def test_what_is_refused_runs_in_pytorch_with_one_warning(
    function: Callable[..., object], reason: str
) -> None:
    fast = compiled(function, fallback=True)
    with pytest.warns(UserWarning, match=f"PyTorch runs a graph .*({reason})") as caught:
        close(fast(torch.ones(4)), function(torch.ones(4)))
    assert len([w for w in caught if "Intarsia" in str(w.message)]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        close(fast(torch.ones(4)), function(torch.ones(4)))


def test_without_fallback_a_refusal_is_an_error() -> None:
    with pytest.raises(UnsupportedError, match="the graph writes to its argument 0"):
        compiled(writes)(torch.ones(4))


def test_disjoint_parts_of_one_memory_are_two_results() -> None:
    def function(x):
        return (x * 2).chunk(2, -1)

    x = torch.randn(3, 4)
    close(compiled(function)(x), function(x))


def test_training_is_left_to_pytorch() -> None:
    model, x = nn.Linear(4, 3), torch.randn(2, 4)
    with torch.enable_grad(), pytest.warns(UserWarning, match="gradients are on"):
        compiled(model, fallback=True)(x).sum().backward()
    assert model.weight.grad is not None


def test_training_without_fallback_is_an_error() -> None:
    model = nn.Linear(4, 3)
    with torch.enable_grad(), pytest.raises(UnsupportedError, match="gradients are on"):
        dynamo.backend(graph(), list(model.parameters()), options=STRICT)


def test_a_tensor_of_a_device_is_refused() -> None:
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    with pytest.raises(UnsupportedError, match="a tensor is on 'meta'"):
        torch_graph.specialize(graph, [torch.empty(2, device="meta")], ())


def test_an_element_type_without_arrays_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="elements of type torch"):
        torch_graph.array_of(torch.zeros(2).to(torch.float8_e5m2))


def test_old_programs_make_place_for_new_ones(
    monkeypatch: pytest.MonkeyPatch, builds: list
) -> None:
    monkeypatch.setattr(compiled_graphs, "MOST_KEPT", 1)
    run = dynamo.backend(graph(), [torch.ones(2)], options=STRICT)
    for rows in (2, 3, 2):
        close(run(torch.ones(rows))[0], torch.ones(rows) + 1)
    assert len(builds) == 3


def graph() -> object:
    return torch.fx.symbolic_trace(lambda x: (x + 1,))


def test_the_target_comes_from_scope_environment_or_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, builds: list
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INTARSIA_TARGET", raising=False)
    x = torch.ones(2)
    with pytest.raises(TargetError, match="no target is set"):
        dynamo.backend(graph(), [x])
    (tmp_path / "intarsia.toml").write_text('target = "nothing"')
    with pytest.raises(TargetError, match="nothing"):
        dynamo.backend(graph(), [x])
    monkeypatch.setenv("INTARSIA_TARGET", "llvm")
    dynamo.backend(graph(), [x])
    with pytest.raises(TargetError, match=r"target_host .* is not the host of the target"):
        dynamo.backend(graph(), [x], options={"target_host": "llvm -mcpu=haswell"})
    monkeypatch.setenv("INTARSIA_TARGET", "nothing")
    with intarsia.Host().target("llvm"):
        dynamo.backend(graph(), [x])


@pytest.mark.parametrize(
    "named, message",
    [
        ({"options": {"tarjet": "llvm"}}, "no option 'tarjet'\n  hint: did you mean 'target'"),
        ({"options": {"shapes": {}}}, "no option 'shapes'"),
        ({"mode": "max-autotune"}, "there is no mode 'max-autotune'"),
    ],
)
def test_unknown_settings_are_errors(named: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        dynamo.backend(graph(), [torch.ones(2)], **named)


def test_options_of_a_build_reach_it(tmp_path: Path) -> None:
    compiled(torch.relu, dump_ir=tmp_path, threads=1)(torch.ones(2))
    assert any(tmp_path.iterdir())


def test_numbers_of_a_module_that_torch_passes_as_tensors() -> None:
    """With ``dynamic=True`` the momentum and epsilon of a batch norm are tensors of one element."""
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    net.eval()
    net[1].running_var.uniform_(0.5, 2)
    fast = torch.compile(net, backend="intarsia", options=STRICT, dynamic=True)
    with torch.no_grad():
        for size in (5, 8, 11):
            x = torch.randn(2, 3, size, size)
            torch.testing.assert_close(fast(x), net(x), rtol=1e-4, atol=1e-5)
        x = torch.randn(2, 3, 5, 5)
        net[1].eps = 0.5
        torch.testing.assert_close(fast(x), net(x), rtol=1e-4, atol=1e-5)


def test_a_graph_that_needs_contents_is_run_by_pytorch() -> None:
    def shifted(x: torch.Tensor) -> torch.Tensor:
        return x + x.sum().item()

    torch._dynamo.config.capture_scalar_outputs, before = (
        True,
        torch._dynamo.config.capture_scalar_outputs,
    )
    try:
        fast = torch.compile(shifted, backend="intarsia", options={"target": "llvm"})
        x = torch.randn(4)
        with torch.no_grad(), pytest.warns(UserWarning, match="cannot be traced"):
            torch.testing.assert_close(fast(x), shifted(x))
    finally:
        torch._dynamo.config.capture_scalar_outputs = before
