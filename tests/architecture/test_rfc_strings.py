# SPDX-License-Identifier: Apache-2.0
"""The proposals' own strings, dictionaries and calls do what their text asks, or say why not."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest

import intarsia
from intarsia.cli.main import main
from intarsia.driver.build import build
from intarsia.host.host import Host
from intarsia.host.manager import LocalPlugin
from intarsia.host.manifest import AttributeRow, Manifest
from intarsia.plugin import (
    DType,
    KindAttribute,
    KindAttributeValue,
    call_target_intrinsic,
    hookimpl,
)
from intarsia_ir.graph.expr import Function, Var, call
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.nn import Matmul
from intarsia_runtime.errors import TargetError, UsageError

from . import rfc_strings as rfc
from .source_tree import HOST, ROOT

FENCE = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
CODE_LINE = re.compile(
    r"^\s*(?:TVM_REGISTER\w*\(.*|\.\w+[(<].*|\{|\}|[a-z_]+: .*[\]}],?|[a-z_]+: \w+,)$", re.MULTILINE
)
WORD = re.compile(
    r"(?<![\w./-])(?:[a-z0-9]+/[a-z0-9][\w./:-]*\w|-[a-z]\w*(?:=\S+?)?|[a-z_]+=\"?[\w?.-]+\"?"
    r"|<[^>\n]+>/<[^>\n]+>|[a-z]+_\w+)(?=[\s,.;:)(?]|$)"
)
QUOTED = re.compile(r"[“\"]([^”\"\n]+)[”\"]")
ALL = {*(row.says for row in rfc.TARGETS), *(row.says for row in rfc.SETTINGS), *rfc.CODE}


@pytest.fixture(scope="module")
def host() -> Host:
    found = Host()
    wanted = {"arm_acl", "c", "cuda", "dnnl", "llvm", "opencl", "tensorrt"}
    missing = wanted - set(found.names())
    if missing:
        pytest.skip(f"the strings need plugins that are not installed: {', '.join(missing)}")
    return found


def texts() -> dict[str, str]:
    """The proposals by file name; they are not part of the repository."""
    for folder in ROOT.parents:
        if (folder / "shared" / "rfcs").is_dir():
            files = (folder / "shared" / "rfcs").glob("*.md")
            return {path.name: path.read_text(encoding="utf-8") for path in files}
    pytest.skip("the texts of the proposals are not beside this checkout")


def plain(text: str) -> str:
    return " ".join(text.split())


def fragments(text: str) -> Iterator[str]:
    """Everything in a proposal that looks like code: blocks by line, spans, words, quotations."""
    for block in FENCE.finditer(text):
        yield from (line.strip() for line in block[1].splitlines() if line.strip())
    rest = FENCE.sub("", text)
    yield from INLINE.findall(rest)
    if not FENCE.search(text):
        yield from (found[0].strip() for found in CODE_LINE.finditer(rest))
        rest = CODE_LINE.sub("", rest)
        yield from WORD.findall(rest)
        yield from QUOTED.findall(rest)


@pytest.mark.parametrize("row", rfc.TARGETS, ids=lambda row: f"{row.says}|{row.given or ''}")
def test_a_target_of_the_proposals(host: Host, row: rfc.Row) -> None:
    given = row.says if row.given is None else row.given
    if row.refused:
        with pytest.raises(TargetError) as caught:
            host.target(given)  # type: ignore[arg-type]
        assert row.refused in caught.value.message
        assert row.hint in caught.value.hint
        return
    target = host.target(given)  # type: ignore[arg-type]
    assert f"{target} ".startswith(row.begins)
    found = host.hardware_of(target)
    assert (found.name if found else "") == row.hardware
    for written in (str(target), target.json_text(), target.to_json()):
        assert host.target(written) == target


@pytest.mark.parametrize("row", rfc.SETTINGS, ids=lambda row: row.given)
def test_a_setting_of_the_proposals(host: Host, row: rfc.Setting) -> None:
    kind = {"executor": intarsia.Executor, "runtime": intarsia.Runtime}[row.what]
    if row.refused:
        with pytest.raises(UsageError) as caught:
            kind(row.given, host=host)
        assert row.refused in caught.value.message
    else:
        assert str(kind(row.given, host=host)) == row.means
    if row.target:
        with pytest.raises(TargetError, match=f"not an option of a target.*{row.what}"):
            host.target(row.target)


@pytest.mark.parametrize("kind", ["c", "cuda", "llvm", "opencl"])
def test_hardware_is_an_option_of_every_backend(host: Host, kind: str) -> None:
    assert kind in host.backends()
    for name in ("rasp4b", "nvidia/gtx2080ti", "rk3399/bigcpu"):
        target = host.target(f"{kind} -hardware={name}")
        canonical = host.hardware().resolve(name).name
        assert target.fallback.hardware == canonical
        assert f" -hardware={canonical}" in str(target.fallback)
        assert target.fallback.to_json()["hardware"] == canonical


def test_hardware_is_an_option_of_every_kind(host: Host) -> None:
    for row in host.kinds():
        behind = ", llvm" if row.role == "accelerator" else ""
        target = host.target(f"{row.name} -hardware=rasp4b{behind}")
        assert target.targets[0].hardware == "raspberrypi/4b", row.name


def test_kinds_for_the_cpu_have_its_key_and_device(host: Host) -> None:
    for name in ("llvm", "c"):
        kind = host.kind(name)
        assert (kind.default_keys, kind.device_type) == (("cpu",), 1)
        assert host.target(name).fallback.keys == (name, "cpu")
    assert host.target("rasp4b").fallback.keys == ("arm", "llvm", "cpu")


def test_the_alias_replaces_the_object(host: Host) -> None:
    alias = host.target(spec="acl")
    driver = {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}
    whole = {"kind": "composite", "target_host": driver, "accelerators": [{"kind": "arm_acl"}]}
    assert alias == host.target(whole) == intarsia.Target("acl", host=host)


def signature(head: str) -> list[tuple[str, object]]:
    names: dict[str, Callable[..., object]] = {}
    exec(f"{head}: ...", names)
    return [(p.name, p.default) for p in inspect.signature(names["build"]).parameters.values()]


def test_the_signature_is_the_new_one() -> None:
    ours = [(p.name, p.default) for p in inspect.signature(build).parameters.values()]
    assert ours[:7] == signature(rfc.NEW_SIGNATURE)
    removed = [row for row in signature(rfc.NEW_SIGNATURE) if row[0] not in ("executor", "runtime")]
    assert removed == signature(rfc.OLD_SIGNATURE)


def product() -> IRModule:
    x = Var("x", TensorType((2, 3), DType.FLOAT32))
    weight = Var("w", TensorType((3, 4), DType.FLOAT32))
    return IRModule.from_function(
        Function((x, weight), call(Matmul, x, weight, attrs=Matmul.Attrs()), ("y",))
    )


def test_the_call_runs_as_written(host: Host) -> None:
    tvm = SimpleNamespace(relay=SimpleNamespace(build=intarsia.build))
    names = {
        "tvm": tvm,
        "ir_module": product(),
        "target": host.target("c"),
        "params": {"w": np.ones((3, 4), np.float32)},
        "Executor": intarsia.Executor,
        "Runtime": intarsia.Runtime,
    }
    artifact = eval(rfc.CALL, names)
    assert artifact.passport.name == "the_ultimate_cat_spotter"
    assert artifact.passport.executor["kind"] == "aot"
    assert artifact.passport.runtime["kind"] == "c"


@pytest.mark.parametrize("executor", ["graph", {"kind": "graph"}])
def test_build_takes_an_executor_as_a_string_or_an_object(host: Host, executor: object) -> None:
    params = {"w": np.ones((3, 4), np.float32)}
    built = intarsia.build(product(), "c", executor=executor, params=params, host=host)  # type: ignore[arg-type]
    assert built.passport.executor["kind"] == "graph"


def test_the_annotation_is_refused_and_says_what_to_write() -> None:
    executor, runtime = intarsia.Executor("graph"), intarsia.Runtime("cpp")
    for line in rfc.ANNOTATION.splitlines():
        names = {"ir_mod": product(), "executor": executor, "runtime": runtime}
        with pytest.raises(UsageError, match="a module does not change") as caught:
            exec(line.strip(), names)
        assert "module.with_attr('" in caught.value.hint
    carrying = product().with_attr("Executor", executor).with_attr("Runtime", runtime)
    assert (carrying.attr("Executor"), carrying.attr("Runtime")) == (executor, runtime)


def test_a_column_is_set_and_read() -> None:
    column = KindAttribute("FRelayCodegen", object)
    manifest = Manifest(
        *("column", ">=2.0,<3", "s", ""),
        *((), (), (), (), ()),
        (AttributeRow("FRelayCodegen", "dnnl", "s"),),
    )

    class Hooks:
        @hookimpl
        def register_kind_attribute(self) -> list[KindAttributeValue]:
            return [column.of("dnnl", "DNNLCodegen")]

    both = Host(local=[LocalPlugin(manifest, Hooks(), "acme-column")])
    if "dnnl" not in both.names():
        pytest.skip("the plugin dnnl is not installed")
    assert column.get(both.kind("dnnl")) == "DNNLCodegen"


def test_code_generation_is_a_hook_of_the_kind(host: Host) -> None:
    assert host.has_hook("dnnl", "relay_codegen")
    assert not host.has_hook("llvm", "relay_codegen")


def test_values_of_mcpu_are_listed(host: Host, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "show", "llvm", "--values", "mcpu"]) == 0
    assert "haswell" in capfd.readouterr().out


def test_names_of_the_proposals_are_ours() -> None:
    assert (HOST / rfc.TABLE_FILE).is_file()
    assert "kind" in inspect.signature(call_target_intrinsic).parameters
    assert not hasattr(intarsia.plugin, "call_llvm_intrinsic")
    for name in rfc.NAMES:
        assert name.strip("`") in intarsia.__all__


def test_a_kind_of_this_repository_that_is_not_installed_says_what_to_install() -> None:
    extras = tomllib.loads((ROOT / "core" / "host" / "pyproject.toml").read_text(encoding="utf-8"))
    named = {
        re.split(r"[\[>=]", text)[0]
        for texts in extras["project"]["optional-dependencies"].values()
        for text in texts
    }
    for path in sorted((ROOT / "plugins").glob("*/pyproject.toml")):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        assert project["name"] in named, "the hint of an unknown kind is made of these names"
    with pytest.raises(TargetError) as caught:
        Host(path=[str(ROOT / "docs")]).target("dnnl, llvm")
    assert caught.value.hint == "pip install intarsia-dnnl"


def test_every_fragment_is_from_its_proposal() -> None:
    known = {name: plain(text) for name, text in texts().items()}
    for row in rfc.TARGETS:
        assert plain(row.says) in known[row.of], row
    for setting in rfc.SETTINGS:
        assert plain(setting.says) in known[rfc.EXECUTOR], setting
    for fragment in (*rfc.CODE, *rfc.NOT_INPUT):
        assert any(plain(fragment) in text for text in known.values()), fragment


@pytest.mark.parametrize("name", [rfc.COMPOSITE, rfc.ATTRIBUTES, rfc.EXECUTOR])
def test_every_fragment_of_a_proposal_is_in_the_table(name: str) -> None:
    covered = [plain(says) for says in ALL]
    found = list(dict.fromkeys(fragments(texts()[name])))
    assert len(found) >= 15
    whole = {one: re.compile(rf"(?<![\w/:.-]){re.escape(plain(one))}(?![\w/:-])") for one in found}
    missing = [
        fragment
        for fragment, pattern in whole.items()
        if fragment not in rfc.NOT_INPUT and not any(map(pattern.search, covered))
    ]
    assert missing == []
