# SPDX-License-Identifier: Apache-2.0
"""Single nodes of the domain ``com.microsoft`` and how to compare them with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.graph.module import IRModule
from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx

DOMAIN = "com.microsoft"


class Const(NamedTuple):
    """An operand that is stored in the model."""

    data: np.ndarray


class Case(NamedTuple):
    """A node: operands by position (``None`` is one left out) and attributes.

    ``open`` names dimensions of operands that are open in the second import.
    """

    op: str
    operands: tuple[np.ndarray | Const | None, ...]
    attrs: dict[str, object]
    outputs: Sequence[int] = (0,)
    domain: str = DOMAIN
    open: dict[int, dict[int, str]] = {}  # noqa: RUF012 (never changed)

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        """Values of the inputs."""
        found = enumerate(self.operands)
        return {f"x{n}": value for n, value in found if isinstance(value, np.ndarray)}

    def model(self, *, open_sizes: bool = False) -> onnx.ModelProto:
        """Return the node as a model with inputs ``x0``, ``x1`` ... and outputs ``y0`` ..."""
        names = ["" if value is None else f"x{n}" for n, value in enumerate(self.operands)]
        results = [f"y{n}" if n in self.outputs else "" for n in range(max(self.outputs) + 1)]
        made = helper.make_node(self.op, names, results, domain=self.domain, **self.attrs)
        inputs: list[onnx.ValueInfoProto] = []
        for name, value in self.feeds.items():
            shape: list[int | str] = list(value.shape)
            for axis, size in self.open.get(int(name[1:]), {}).items() if open_sizes else ():
                shape[axis] = size
            dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
            inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        stored = [
            numpy_helper.from_array(value.data, f"x{n}")
            for n, value in enumerate(self.operands)
            if isinstance(value, Const)
        ]
        outputs = [helper.make_empty_tensor_value_info(f"y{n}") for n in self.outputs]
        graph = helper.make_graph([made], "g", inputs, outputs, stored)
        domains = dict.fromkeys(("", DOMAIN, self.domain))
        imports = [helper.make_opsetid(name, 1 if name else 17) for name in domains]
        return helper.make_model(graph, opset_imports=imports, ir_version=9)


def session(model: bytes | str, threads: int = 1) -> onnxruntime.InferenceSession:
    """Open a model with exact 8-bit products: without VNNI they saturate in 16 bits by default."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def expected(case: Case, threads: int = 1) -> list[np.ndarray]:
    """What ONNX Runtime computes."""
    return session(case.model().SerializeToString(), threads).run(None, case.feeds)


def imported(case: Case) -> list[IRModule]:
    """The case as a module of fixed sizes, and if it names any as one of open sizes."""
    modules = [from_onnx(case.model())]
    if case.open:
        with collecting_guards():
            modules.append(from_onnx(case.model(open_sizes=True)))
    return modules


def check(case: Case, wanted: Sequence[np.ndarray], *, rtol: float = 1e-5, atol: float = 2e-6):
    """Compare every form of the case with results."""
    for module in imported(case):
        found = evaluate(module.main, case.feeds)
        for one, other in zip(found, wanted, strict=True):
            assert one.shape == other.shape
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)
