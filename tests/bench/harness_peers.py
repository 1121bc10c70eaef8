# SPDX-License-Identifier: Apache-2.0
"""Intarsia as peers of an external benchmark and conformance harness.

The harness runs this file (named in its ``PEER_FILES``) with ``peer``, ``register``, ``Peer``,
``BACKENDS``, ``Unsupported`` and ``IN`` defined; ``INTARSIA_VENV`` names the environment that
Intarsia is installed in.
"""

from __future__ import annotations

import os
import tempfile

VENV = os.environ.get("INTARSIA_VENV", "venv")


@peer("intarsia_dnnl", venv=VENV, target="dnnl, llvm")  # noqa: F821
@peer("intarsia_llvm", venv=VENV, target="llvm")  # noqa: F821
class Intarsia(Peer):  # noqa: F821
    """One compiled artifact, kept in the harness's cache folder."""

    target = "dnnl, llvm"
    variants = ("static",)

    def imports(self):
        import intarsia_runtime.load  # noqa: F401

    def version(self):
        import intarsia

        return intarsia.__version__

    def load(self, path, cache):
        import intarsia

        artifact = f"{cache}/model.intarsia"
        if not os.path.exists(artifact):
            intarsia.build(path, target=self.target).save(artifact)
        self.executable = intarsia.load(artifact, threads=self.threads)
        self.names = [spec.name for spec in self.executable.inputs]
        self.artifact = [artifact]
        self.note = self.target

    def run(self, inputs):
        return list(self.executable.run({name: inputs[name] for name in self.names}).values())


class Conformance:
    """One ONNX backend test through import, build and run."""

    target = "llvm"

    def prepare(self, model):
        import intarsia
        from intarsia_runtime.errors import IntarsiaError

        try:
            built = intarsia.build(intarsia.from_onnx(model), target=self.target)
            with tempfile.TemporaryDirectory() as folder:
                executable = intarsia.load(built.save(f"{folder}/model.intarsia"), threads=1)
        except IntarsiaError as error:
            raise Unsupported(str(error)) from None  # noqa: F821
        names = [spec.name for spec in executable.inputs]
        given = IN(model)  # noqa: F821

        def run(arrays):
            inputs = dict(zip(given, arrays, strict=False))
            return list(executable.run({name: inputs[name] for name in names}).values())

        return run


class ConformanceDnnl(Conformance):
    """The same with the accelerator in front."""

    target = "dnnl, llvm"


BACKENDS["intarsia_llvm"] = (Conformance, VENV)  # noqa: F821
BACKENDS["intarsia_dnnl"] = (ConformanceDnnl, VENV)  # noqa: F821
