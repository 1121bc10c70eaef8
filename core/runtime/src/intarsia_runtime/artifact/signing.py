# SPDX-License-Identifier: Apache-2.0
"""Who made an artifact: signatures of OpenSSH, made and checked by the system's ``ssh-keygen``.

An artifact is native code, and its digests say only that nothing was damaged on the way. A
signature says who wrote it. The passport is what is signed: it names the digest of every other
member. So only its bytes are read before the signature is checked. The signature lies beside the
artifact, ``model.intarsia.sig``: equal builds stay equal to the byte.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

from ..errors import ArtifactError, ToolchainError, UsageError
from .abandoned import temporary_folder

NAMESPACE = "intarsia-artifact"
"""What the key signs for; a signature of the same key for anything else is none of an artifact."""

SUFFIX = ".sig"
_PASSPORT = "passport.json"
_SIGNER = "signer"
_SECONDS = 60
_MAX_KEY = 1 << 16


def signature_path(artifact: Path) -> Path:
    """Return where the signature of an artifact lies."""
    return artifact.with_name(artifact.name + SUFFIX)


def sign_artifact(artifact: Path, key: Path) -> Path:
    """Sign an artifact with a private key of OpenSSH, or with a public one whose agent has it.

    Returns:
        Where the signature was written.

    Raises:
        UsageError: The key cannot be used.
        ToolchainError: There is no ``ssh-keygen``.
    """
    with zipfile.ZipFile(artifact) as archive:
        content = archive.read(_PASSPORT)
    command = [_tool(), "-Y", "sign", "-f", str(key), "-n", NAMESPACE, "-q"]
    done = _run(command, content)
    if done.returncode or b"BEGIN SSH SIGNATURE" not in done.stdout:
        raise UsageError(
            f"cannot sign with '{key}': {_last_line(done.stderr)}",
            hint="a private key of OpenSSH: ssh-keygen -t ed25519 -f KEY",
        )
    place = signature_path(artifact)
    place.write_bytes(done.stdout)
    return place


def check_signature(passport: bytes, artifact: Path, public_key: Path) -> None:
    """Check that whoever has a key signed a passport.

    Args:
        passport: The bytes that will be read as the passport.
        artifact: Where they come from; the signature lies beside it.
        public_key: A public key of OpenSSH, as ``id_ed25519.pub`` holds it.

    Raises:
        ArtifactError: There is no signature, or it is not of this key for this passport.
        UsageError: The public key cannot be read.
        ToolchainError: There is no ``ssh-keygen``.
    """
    place = signature_path(artifact)
    key = _public_key(public_key)
    if not place.is_file():
        raise ArtifactError(
            f"it has no signature '{place.name}', and one of '{public_key}' is required",
            hint="have it signed: intarsia compile ... --sign KEY",
            where=str(artifact),
        )
    with temporary_folder("signature") as folder:
        signers = Path(folder) / "signers"
        signers.write_text(f'{_SIGNER} namespaces="{NAMESPACE}" {key}\n', encoding="utf-8")
        command = [_tool(), "-Y", "verify", "-f", str(signers), "-I", _SIGNER, "-n", NAMESPACE]
        done = _run([*command, "-s", str(place)], passport)
    if done.returncode:
        raise ArtifactError(
            f"its signature is not one of '{public_key}': {_last_line(done.stderr or done.stdout)}",
            hint="do not run it: another key signed it, or it was changed",
            where=str(artifact),
        )


def _public_key(path: Path) -> str:
    """Return type and key of a public key file, without its comment."""
    try:
        with open(path, "rb") as file:
            words = file.read(_MAX_KEY).decode("ascii").split()
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the public key '{path}': {error}") from None
    if len(words) < 2 or not words[0].startswith(("ssh-", "ecdsa-", "sk-")):
        raise UsageError(
            f"'{path}' is no public key of OpenSSH", hint="name the file that ends with .pub"
        )
    return " ".join(words[:2])


def _tool() -> str:
    found = shutil.which("ssh-keygen")
    if found is None:
        raise ToolchainError(
            "signatures need ssh-keygen, which is missing", hint="install OpenSSH 8.2 or newer"
        )
    return found


def _run(command: list[str], content: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            command,
            input=content,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"ssh-keygen does not run: {error}") from None


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it says nothing"
