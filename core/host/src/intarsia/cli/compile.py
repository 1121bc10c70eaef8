# SPDX-License-Identifier: Apache-2.0
"""``intarsia compile``: a model and a target in, an artifact out."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from intarsia_runtime.errors import UsageError

from ..target.kind_table import GIVEN_NAME
from .composed import ComposedCommand
from .idle import say_cautions, say_idle
from .model_options import BuildSettings, build_options, keep_model
from .output import echo, emit_json, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intarsia_ir.writing.artifact_writer import Aside
    from intarsia_ir.writing.deferred import Weights

    from ..driver.artifact import Artifact
    from ..driver.cache import KeptArtifact, Save


@click.command("compile", cls=ComposedCommand)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(), help="Path of the artifact.")
@click.option(
    "--output-format",
    type=click.Choice(["artifact", "mlf", "folder"]),
    help="Output format; mlf is a tar of sources, folder a folder of sources. Default by the path: "
    "model.tar, model/.",
)
@build_options()
@click.option("--sign", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="KEY",
              help="Sign with a private key of OpenSSH; writes OUTPUT.sig.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    model: Path,
    output: str,
    output_format: str | None,
    settings: BuildSettings,
    sign: Path | None,
    as_json: bool,
) -> None:
    """Compile MODEL, an ONNX file or a .pt2, into an artifact that runs without the compiler.

    An artifact is native code, like a program; --sign adds a signature.
    """
    from intarsia_ir.partition.report import bytes_text, float_text
    from intarsia_ir.writing.artifact_writer import ArtifactWriter  # help does without the compiler
    from intarsia_runtime.artifact.archive import is_artifact
    from intarsia_runtime.artifact.signing import sign_artifact

    from ..driver.cache import KeptArtifact

    path = Path(output)
    keep_model(model, path)
    with closing(ArtifactWriter(path)) as writer:

        def save(built: Artifact, aside: Aside | None) -> None:
            built.save(output, output_format=output_format, aside=aside, writer=writer)

        artifact = compile_model(model, settings, save, writer.begin)
    if isinstance(artifact, KeptArtifact):
        artifact.save(output, output_format=output_format)
    if sign is not None:
        if not is_artifact(path):
            raise UsageError("--sign is for artifacts", hint="leave --output-format out")
        sign_artifact(path, sign)
    say_idle(artifact.passport)
    say_cautions(artifact.passport)
    size = _bytes_of(path)
    if as_json:
        passport = artifact.passport
        emit_json(
            {
                "artifact": str(path),
                "bytes": size,
                "target": passport.target,
                "executor": dict(passport.executor),
                "runtime": dict(passport.runtime),
                "placement": dict(passport.placement),
            }
        )
        return
    echo(str(artifact.placement))
    text = float_text(cast("Sequence[str]", artifact.passport.placement.get("in_float", ())))
    if text:
        echo(f"{text} ('intarsia explain' names them)")
    echo(f"wrote {path} ({bytes_text(size)})")


def _bytes_of(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def compile_model(
    model: Path,
    settings: BuildSettings,
    save: Save | None = None,
    weights_known: Callable[[Weights], object] | None = None,
) -> Artifact | KeptArtifact:
    """Build an artifact as the options say, or fetch it from the cache; progress on a terminal.

    Args:
        model: What is compiled.
        settings: The options.
        save: Writes what was built now, and not fetched, where the user wants it.
        weights_known: Called with the weights of what is built before there is code.
    """
    from ..driver.cache import open_cache  # help does without the compiler
    from ..driver.fetch_build import ModelDigests, build_or_fetch, may_be_kept

    cache = open_cache(os.environ) if settings.use_cache else None
    sources = None if cache is None else ModelDigests(model)
    from ..driver.build import STAGES, build_request  # beside the reading of the sources

    request = replace(settings.request(model), weights_known=weights_known)
    if settings.target.origin.name != GIVEN_NAME:
        echo(f"target: {settings.target.text} (from {settings.target.origin.name})", err=True)

    def make() -> Artifact:
        with progress(f"compiling {model.name}", len(STAGES)) as advance:

            def stage(_: str) -> None:
                advance(1)

            return build_request(replace(request, progress=stage))

    kept = cache if may_be_kept(request) else None
    return build_or_fetch(request, cache=kept, sources=sources, make=make, save=save)
