# SPDX-License-Identifier: Apache-2.0
"""Executors and runtimes of plugins run what was compiled for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from intarsia_runtime.errors import ArtifactError, PluginError, ResourceError
from intarsia_runtime.load import load

Save = Callable[..., Path]
COUNTING = """
from intarsia_runtime.executors.aot import AotExecutor

class Counting(AotExecutor):
    def __init__(self, program, limit):
        super().__init__(program)
        self.left = limit

    def run(self, inputs):
        self.left -= 1
        return super().run(inputs)

def drive(program, options):
    return Counting(program, options.get("limit", 7))
"""
ELSEWHERE = """
class Page:
    inputs = outputs = ()
    def __init__(self, opened, threads, options):
        self.passport, self.threads, self.options = opened.passport, threads, options
    def run(self, inputs): return {"page": self.options["kind"]}
    def run_into(self, inputs, outputs): pass
    def close(self): pass

def open(opened, *, threads, options):
    return Page(opened, threads, options)
"""


@pytest.fixture
def give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Install a module and one entry point ``group: name = acme_web:function``."""

    def install(source: str, *points: str) -> None:
        facts = tmp_path / "acme_web-1.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-web\nVersion: 1.0\n")
        lines = [f"[{group}]\n{rest}\n" for group, _, rest in (p.partition(": ") for p in points)]
        (facts / "entry_points.txt").write_text("\n".join(lines))
        (facts / "RECORD").write_text("acme_web.py,,\n")
        (tmp_path / "acme_web.py").write_text(source)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(__import__("sys").modules, "acme_web", raising=False)

    return install


def test_an_executor_of_a_plugin_drives_the_program(save: Save, give) -> None:
    give(COUNTING, "intarsia.executors: counting = acme_web:drive")
    path = save(executor={"kind": "counting", "limit": 3})
    with load(path) as made, load(path, executor="graph") as plain:
        inputs = {s.name: np.ones(s.shape, np.float32) for s in made.inputs}
        found, wanted = made.run(inputs), plain.run(inputs)
        assert {n: a.tolist() for n, a in found.items()} == {
            n: a.tolist() for n, a in wanted.items()
        }
        assert made.left == 2
    with load(save(), executor="counting") as asked:
        assert asked.left == 7


def test_a_runtime_of_a_plugin_runs_it_elsewhere(save: Save, give) -> None:
    give(ELSEWHERE, "intarsia.runtimes: page = acme_web:open")
    made = load(save(runtime={"kind": "page"}), threads=2)
    assert (made.threads, made.run({})) == (2, {"page": "page"})


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"executor": {"kind": "counting"}}, "needs the executor 'counting', which is not"),
        ({"runtime": {"kind": "page"}}, "for the runtime 'page', which is not installed"),
    ],
)
def test_what_is_not_installed_is_named(save: Save, changes: dict[str, object], words: str) -> None:
    with pytest.raises(ArtifactError, match=words):
        load(save(**changes))


@pytest.mark.parametrize(
    "source, error, words",
    [
        ("def drive(program, options): return 3", PluginError, "made int, which has no inputs"),
        ("def drive(program, options): raise KeyError('x')", PluginError, "fails on this artifact"),
        ("drive = 3", PluginError, "the executor 'odd' of acme-web is not a function"),
        ("import no_such_module", PluginError, "but importing it fails"),
        (
            "from intarsia_runtime.errors import ResourceError\n"
            "def drive(program, options): raise ResourceError('no memory on it')",
            ResourceError,
            "no memory on it",
        ),
    ],
)
def test_a_bad_executor_is_named(
    save: Save, give, source: str, error: type[Exception], words: str
) -> None:
    give(source, "intarsia.executors: odd = acme_web:drive")
    with pytest.raises(error, match=words):
        load(save(executor={"kind": "odd"}))


FAULTY = """
class Faulty:
    outputs = passport = threads = ()
    def __init__(self, opened, threads, options):
        pass
    @property
    def inputs(self): raise FAULT
    def run(self, inputs): raise FAULT
    def run_into(self, inputs, outputs): raise FAULT
    def close(self): raise FAULT
    def __dir__(self): return [*super().__dir__(), "inputs"]

def open(opened, *, threads, options):
    return Faulty(opened, threads, options)
"""


@pytest.mark.parametrize("fault", ["ZeroDivisionError()", "SystemExit(0)", "KeyboardInterrupt()",
                                   "AttributeError('x')"])  # fmt: skip
@pytest.mark.parametrize("method", ["inputs", "run", "run_into", "close"])
def test_what_a_runtime_raises_names_it(save: Save, give, method: str, fault: str) -> None:
    give(FAULTY.replace("FAULT", fault), "intarsia.runtimes: page = acme_web:open")
    made = load(save(runtime={"kind": "page"}))
    arguments = {"run": ({},), "run_into": ({}, {}), "close": ()}
    with pytest.raises(PluginError) as caught:
        getattr(made, method)(*arguments[method])
    assert caught.value.exit_code == 5
    assert f"package 'acme_web' (acme-web 1.0) failed in {method}" in caught.value.message
    assert "of the runtime 'page': " + fault.partition("(")[0] in caught.value.message


def test_an_answer_of_another_type_names_the_runtime(save: Save, give) -> None:
    source = ELSEWHERE.replace('{"page": self.options["kind"]}', "None")
    give(source, "intarsia.runtimes: page = acme_web:open")
    with pytest.raises(PluginError, match=r"acme-web 1\.0.* answered run\(\) of .* with NoneType"):
        load(save(runtime={"kind": "page"})).run({})


def test_an_attribute_that_a_runtime_does_not_have_is_none_of_its_faults(save: Save, give) -> None:
    give(ELSEWHERE, "intarsia.runtimes: page = acme_web:open")
    assert not hasattr(load(save(runtime={"kind": "page"})), "spin")
