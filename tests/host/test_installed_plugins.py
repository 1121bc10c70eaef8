# SPDX-License-Identifier: Apache-2.0
"""Plugins installed by pip: good, broken, incompatible, claiming another's kind, greedy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
FIXTURES = {"acme", "broken", "future", "former", "notes", "acme-dnnl", "greedy"}
ONLY = {"INTARSIA_PLUGINS": ",".join(sorted(FIXTURES)), "INTARSIA_DISABLE_PLUGINS": ""}


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backend called ``loops`` and a second owner of the kind that the claimant claims."""
    folder = tmp_path_factory.mktemp("backend")
    for name, kind, role in (("loops", "loops", "backend"), ("rightful", "dnnl", "accelerator")):
        info, package = folder / f"{name}_plugin-1.0.dist-info", folder / f"{name}_plugin"
        info.mkdir()
        package.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}-plugin\nVersion: 1.0\n\n"
        )
        (info / "entry_points.txt").write_text(
            f"[intarsia.plugins]\n{name} = {name}_plugin:plugin.toml\n"
        )
        (package / "plugin.toml").write_text(
            f'schema = 1\nname = "{name}"\napi = ">=2.0,<3"\n'
            f'summary = "s"\nhooks = "{name}_plugin"\n'
            f'[[target-kind]]\nname = "{kind}"\nrole = "{role}"\nsummary = "s"\n'
        )
        (package / "__init__.py").write_text(
            "from dataclasses import dataclass\n"
            "from intarsia.plugin import Role, TargetKind, hookimpl\n"
            "@dataclass(frozen=True)\nclass Options:\n    pass\n"
            "@hookimpl\ndef register_target_kind():\n"
            f"    return [TargetKind({kind!r}, Role({role!r}), Options)]\n"
        )
    return folder


def env_with(folder: Path, *names: str) -> dict[str, str]:
    """Settings that allow the fixtures and further plugins found in a folder."""
    return {**ONLY, "INTARSIA_PLUGINS": ",".join([ONLY["INTARSIA_PLUGINS"], *names])}


def listed(run: subprocess.CompletedProcess[str]) -> dict[str, dict[str, object]]:
    assert run.returncode == 0, run.stderr
    value = json.loads(run.stdout)
    assert value["schema"] == 1
    return {row["distribution"]: row for row in value["plugins"]}


OWN = ("intarsia_runtime", "intarsia_ir")
"""Packages of the host's own floors; a listing imports neither operators nor loops."""


def test_listing_reads_manifests_only(run_python: Run) -> None:
    code = (
        "import sys\n"
        "from intarsia.cli.main import main\n"
        "code = main(['plugins', 'list', '--json'])\n"
        "heavy = {'numpy', 'onnx', 'pluggy', 'rich', 'tvm_ffi', 'safetensors', 'llvmlite'}\n"
        f"own = {OWN}\n"
        "plugins = {m for m in sys.modules if m.startswith(('intarsia_', 'acme_'))}\n"
        "plugins = {m for m in plugins if not m.startswith(own)}\n"
        "print(code, sorted(plugins | (heavy & set(sys.modules))), file=sys.stderr)\n"
    )
    run = run_python("-c", code, **ONLY)
    assert run.stderr == "0 []\n"
    rows = listed(run)
    assert {name: rows[name]["state"] for name in rows if rows[name]["name"] in FIXTURES} == {
        "intarsia-acme": "discovered",
        "intarsia-broken": "discovered",
        "intarsia-future": "incompatible",
        "intarsia-former": "incompatible",
        "intarsia-notes": "discovered",
        "acme-dnnl": "discovered",
        "intarsia-greedy": "discovered",
    }
    assert rows["intarsia-acme"]["version"] == "0.3.0"
    assert rows["intarsia-acme"]["kinds"] == ["acme"]
    assert rows["intarsia-future"]["reason"] == "it needs hook API >=3.0,<4; this intarsia has 2.0"
    assert "hook API 2.0" in str(rows["intarsia-future"]["remedy"])


@pytest.mark.parametrize("command", [["targets", "list"], ["--help"], ["plugins", "show", "acme"]])
def test_other_listings_import_no_plugin_either(run_python: Run, command: list[str]) -> None:
    code = (
        "import sys\n"
        "from intarsia.cli.main import main\n"
        f"main({command!r})\n"
        "plugins = [m for m in sys.modules if m.startswith(('intarsia_', 'acme_'))]\n"
        f"print([m for m in plugins if not m.startswith({OWN})], file=sys.stderr)\n"
        "print('numpy' in sys.modules, 'pluggy' in sys.modules, file=sys.stderr)\n"
    )
    assert run_python("-c", code, **ONLY).stderr == "[]\nFalse False\n"


def test_a_broken_plugin_costs_only_those_who_ask_for_it(run_python: Run, backend: Path) -> None:
    env = env_with(backend, "loops")
    path = f"{backend}"
    good = run_python("-c", program("acme -max-elements=9, loops", path), **env)
    assert (good.returncode, good.stdout) == (0, "acme -max-elements=9, loops\n")
    bad = run_python("-c", program("broken, loops", path), **env)
    assert bad.returncode == 5
    assert "plugin 'broken' (intarsia-broken 1.2.3)" in bad.stderr
    assert "SystemExit: 0" in bad.stderr
    assert "--no-plugin broken" in bad.stderr
    assert bad.stdout == ""  # what it printed went to stderr
    assert "Traceback" not in bad.stderr


def program(target: str, path: str) -> str:
    """Parse a target with one more folder on the path."""
    return (
        f"import sys; sys.path.append({path!r})\n"
        "from intarsia.cli.main import main\n"
        f"sys.exit(main(['targets', 'parse', {target!r}]))"
    )


def test_an_incompatible_plugin_is_never_imported(run_python: Run, backend: Path) -> None:
    run = run_python("-c", program("future, loops", str(backend)), **env_with(backend, "loops"))
    assert run.returncode == 5
    assert "is incompatible: it needs hook API >=3.0,<4" in run.stderr


def test_a_plugin_for_hook_api_1_is_listed_with_the_remedy(run_python: Run, backend: Path) -> None:
    row = listed(run_python("-m", "intarsia", "plugins", "list", "--json", **ONLY))[
        "intarsia-former"
    ]
    assert row["state"] == "incompatible"
    assert row["reason"] == "it needs hook API >=1.0,<2; this intarsia has 2.0"
    assert row["remedy"] == "install a version of intarsia-former made for hook API 2.0"
    run = run_python("-c", program("former", str(backend)), **env_with(backend, "loops"))
    assert run.returncode == 5
    assert "hint: install a version of intarsia-former made for hook API 2.0" in run.stderr


def test_a_plugins_command_is_in_the_help_and_runs(run_python: Run, tmp_path: Path) -> None:
    shown = run_python("-m", "intarsia", "--help", **ONLY)
    assert "hum" in shown.stdout.partition("Commands of plugins:")[2]
    (tmp_path / "a.notes").write_text("notes 4\nexp\nnegative\n")
    run = run_python("-m", "intarsia", "hum", str(tmp_path / "a.notes"), **ONLY)
    assert (run.returncode, run.stdout) == (0, "exp negative\n")
    gone = run_python("-m", "intarsia", "hum", str(tmp_path / "b.notes"), **ONLY)
    assert gone.returncode == 5
    assert "plugin 'notes' (intarsia-notes 0.2) failed in command 'hum'" in gone.stderr
    assert run_python("-m", "intarsia", "hum", **ONLY).returncode == 2  # click's own usage error
    assert run_python("-m", "intarsia", "--no-plugin", "notes", "hum", **ONLY).returncode == 2


def test_a_plugins_format_is_found_by_suffix_and_by_its_first_bytes(
    run_python: Run, tmp_path: Path
) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from intarsia.host.host import Host\n"
        "host = Host()\n"
        "print(host.frontends(), 'intarsia_notes' in sys.modules)\n"
        "text = b'notes 4\\nexp\\n'\n"
        "for model in (Path('a.notes.txt'), text):\n"
        "    frontend = host.frontend_for(model)\n"
        "    module = frontend.importer(text, {'x': (3,)}, False)\n"
        "    print(frontend.name, module.main.params[0].type)\n"
    )
    run = run_python("-c", code, **ONLY)
    first, *rows = run.stdout.splitlines()
    assert "name='notes', suffixes=('.notes', '.notes.txt')" in first
    assert first.endswith("False")
    assert [row.split()[0] for row in rows] == ["notes", "notes"], run.stderr


def test_two_owners_of_a_kind_are_named_with_the_setting_that_decides(
    run_python: Run, backend: Path
) -> None:
    env = env_with(backend, "loops", "rightful")
    run = run_python("-c", program("dnnl, loops", str(backend)), **env)
    assert run.returncode == 2
    assert "target kind 'dnnl' is claimed by both 'acme-dnnl' and 'rightful-plugin'" in run.stderr
    assert "INTARSIA_DISABLE_PLUGINS=acme-dnnl" in run.stderr
    decided = {**env, "INTARSIA_DISABLE_PLUGINS": "acme-dnnl"}
    run = run_python("-c", program("dnnl, loops", str(backend)), **decided)
    assert (run.returncode, run.stdout) == (0, "dnnl, loops\n")


def test_a_greedy_plugin_cannot_answer_for_others(run_python: Run) -> None:
    code = (
        "from intarsia.host.host import Host\n"
        "from intarsia_runtime.errors import PluginError\n"
        "host = Host()\n"
        "host.kind('greedy')\n"
        "target = host.kind('acme')\n"
        "from intarsia.target.kind_table import make_target\n"
        "table = host.call('annotate', 'acme', target=make_target(target, {}))\n"
        "print([row.name for row in table.rows])\n"
        "for hook in ('annotate', 'relay_codegen', 'rewrite_tir', 'probe'):\n"
        "    names = {'annotate': ['target'], 'relay_codegen': ['region', 'target'],\n"
        "             'rewrite_tir': ['function', 'target'], 'probe': ['target']}[hook]\n"
        "    try:\n"
        "        host.call(hook, 'greedy', **dict.fromkeys(names))\n"
        "    except PluginError as error:\n"
        "        print(error.message)\n"
    )
    run = run_python("-c", code, **ONLY)
    assert run.returncode == 0, run.stderr
    label = "plugin 'greedy' (intarsia-greedy 6.6.6)"
    assert run.stdout.splitlines() == [
        "['nn.relu', 'add', 'multiply']",
        f"{label} answered annotate() with str, not SupportTable",
        f"{label} answered relay_codegen() with bytes, not CompiledUnit",
        f"{label} failed in rewrite_tir(): SystemExit: 3",
        f"{label} failed in probe(): ZeroDivisionError: no device",
    ]


def test_wheels_work_unpacked_and_zipped(wheels: dict[str, Path], run_python: Run) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(wheels['acme'])!r})\n"
        "from intarsia.host.host import Host\n"
        "host = Host(path=[sys.path[0]])\n"
        "print([(p.name, p.version, p.state) for p in host.plugins()], host.kind('acme').name)"
    )
    run = run_python("-c", code, **ONLY)
    assert run.stdout == "[('acme', '0.3.0', 'discovered')] acme\n", run.stderr


@pytest.mark.slow
def test_an_editable_install_is_found_without_import(tmp_path: Path, run_python: Run) -> None:
    project = Path(__file__).parent / "plugins" / "acme"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    command += [
        "--no-index",
        "--disable-pip-version-check",
        "--target",
        str(tmp_path),
        "-e",
        str(project),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 0, done.stderr
    code = (
        "import sys\n"
        "from intarsia.host.host import Host\n"
        f"(plugin,) = Host(path=[{str(tmp_path)!r}]).plugins()\n"
        "print(plugin.name, plugin.state, plugin.reason, 'intarsia_acme' in sys.modules)"
    )
    assert run_python("-c", code, **ONLY).stdout == "acme discovered  False\n"


def test_the_running_half_imports_no_compiler(run_python: Run) -> None:
    code = (
        "import json, sys\n"
        "import numpy as np\n"
        "from intarsia_runtime.artifact.plan import TensorSpec\n"
        "from intarsia_runtime.dtype import DType\n"
        "from intarsia_runtime.loading import LoadRequest\n"
        "from importlib_metadata import entry_points\n"
        "(entry,) = entry_points(group='intarsia.loaders', name='acme')\n"
        "spec = TensorSpec('x', (3,), DType.FLOAT32)\n"
        "steps = [{'op': 'add', 'args': [['input', 0], ['constant', 'w']]},\n"
        "         {'op': 'nn.relu', 'args': [['step', 0]]}]\n"
        "program = {'steps': steps, 'outputs': [['step', 1]]}\n"
        "files = {'program.json': json.dumps(program).encode()}\n"
        "weights = {'w': np.array([1, 1, 1], 'float32')}\n"
        "call = entry.load()(LoadRequest('r', files, weights, (spec,), (spec,), 1, 0))\n"
        "out = np.zeros(3, 'float32')\n"
        "call(np.array([-3, 0, 2], 'float32'), out)\n"
        "compiler = ('intarsia_ir.graph', 'intarsia.host', 'pluggy')\n"
        "print(out.tolist(), [m for m in compiler if m in sys.modules])"
    )
    run = run_python("-c", code, **ONLY)
    assert run.stdout == "[0.0, 1.0, 3.0] []\n", run.stderr
