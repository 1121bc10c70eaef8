# SPDX-License-Identifier: Apache-2.0
"""Who made an artifact: signed by ``compile``, checked by ``run`` and ``inspect``."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

import intarsia
from intarsia.cli.main import main
from intarsia_runtime.artifact import signing
from intarsia_runtime.artifact.signing import check_signature, sign_artifact, signature_path
from intarsia_runtime.errors import ArtifactError, ToolchainError, UsageError

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("mine", "other"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    return folder


@pytest.fixture(scope="module")
def signed(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact that ``compile`` signed."""
    from onnx import TensorProto, helper, save

    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g", *[[each] for each in types]
    )
    folder = tmp_path_factory.mktemp("signed")
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), folder / "m.onnx")
    output = str(folder / "m.intarsia")
    command = ["compile", str(folder / "m.onnx"), "--target", "llvm", "-o", output]
    assert main([*command, "--sign", str(keys / "mine")]) == 0
    return Path(output)


def test_a_signed_artifact_runs(signed: Path, keys: Path) -> None:
    assert main(["run", str(signed), "--signed-by", str(keys / "mine.pub")]) == 0
    assert main(["inspect", str(signed), "--signed-by", str(keys / "mine.pub")]) == 0
    with intarsia.load(signed, signed_by=keys / "mine.pub"):
        pass


def test_a_signature_of_somebody_else_is_refused(
    signed: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("run", "inspect"):
        assert main([command, str(signed), "--signed-by", str(keys / "other.pub")]) == 7
        assert "its signature is not one of" in capsys.readouterr().err


def test_an_artifact_without_a_signature_is_refused(
    signed: Path, keys: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare.intarsia"
    shutil.copy(signed, bare)
    with pytest.raises(ArtifactError, match=r"it has no signature 'bare\.intarsia\.sig'"):
        intarsia.load(bare, signed_by=keys / "mine.pub")


def test_a_changed_artifact_is_refused_though_its_digests_are_right(
    signed: Path, keys: Path, tmp_path: Path
) -> None:
    changed = tmp_path / "changed.intarsia"
    with zipfile.ZipFile(signed) as archive, zipfile.ZipFile(changed, "w") as other:
        for name in archive.namelist():
            data = archive.read(name)
            if name == "passport.json":
                data = json.dumps(json.loads(data) | {"name": "evil"}).encode()
            other.writestr(name, data)
    shutil.copy(signature_path(signed), signature_path(changed))
    with intarsia.load(changed):
        pass  # nothing else is wrong with it
    with pytest.raises(ArtifactError, match="its signature is not one of"):
        intarsia.load(changed, signed_by=keys / "mine.pub")


def test_a_signature_for_another_purpose_is_refused(
    signed: Path, keys: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.intarsia"
    shutil.copy(signed, copy)
    with zipfile.ZipFile(copy) as archive:
        passport = archive.read("passport.json")
    command = ["ssh-keygen", "-Y", "sign", "-q", "-f", str(keys / "mine"), "-n", "file"]
    done = subprocess.run(command, input=passport, capture_output=True, check=True)
    signature_path(copy).write_bytes(done.stdout)
    with pytest.raises(ArtifactError, match="its signature is not one of"):
        check_signature(passport, copy, keys / "mine.pub")


def test_keys_that_cannot_be_used_are_named(signed: Path, keys: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no public key of OpenSSH"):
        intarsia.load(signed, signed_by=keys / "mine")
    with pytest.raises(UsageError, match="cannot read the public key"):
        intarsia.load(signed, signed_by=tmp_path / "absent.pub")
    (tmp_path / "no-key").write_text("no key\n")
    (tmp_path / "no-key").chmod(0o600)
    with pytest.raises(UsageError, match="cannot sign with"):
        sign_artifact(signed, tmp_path / "no-key")


def test_only_artifacts_are_signed_and_checked(
    signed: Path, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(signed.with_name("m.onnx"))
    options = ["--target", "llvm", "--signed-by", str(keys / "mine.pub")]
    assert main(["run", model, *options]) == 2
    assert "--signed-by is for artifacts" in capsys.readouterr().err
    output = ["--target", "c", "--runtime", "c", "-o", str(tmp_path / "m.tar")]
    assert main(["compile", model, *output, "--sign", str(keys / "mine")]) == 2
    assert "--sign is for artifacts" in capsys.readouterr().err


def test_without_ssh_keygen(signed: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolchainError, match="signatures need ssh-keygen"):
        sign_artifact(signed, keys / "mine")


def test_an_ssh_keygen_that_does_not_run(
    signed: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signing.shutil, "which", lambda _: "/nowhere/ssh-keygen")
    with pytest.raises(ToolchainError, match="ssh-keygen does not run"):
        sign_artifact(signed, keys / "mine")
