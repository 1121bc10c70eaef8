# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from intarsia_loops.codegen.c_interface import (
    Interface,
    identifier,
    mapping_declaration,
    pack_weights,
)
from intarsia_runtime.artifact.plan import Argument, ArgumentSource, CallPlan, CopyStep, TensorSpec
from intarsia_runtime.dtype import DType


def plan() -> CallPlan:
    """Copies a weight to the output."""
    spec = TensorSpec("a b", (2,), DType.FLOAT16)
    ends = (
        Argument(place, 0, (2,), DType.FLOAT16)
        for place in (ArgumentSource.CONSTANT, ArgumentSource.OUTPUT)
    )
    return CallPlan((spec,), (spec,), ("w", "v"), (), 8, (CopyStep(*ends),))


@pytest.mark.parametrize(
    ("name", "made"), [("net", "net"), ("my net-2", "my_net_2"), ("3d", "model_3d"), ("", "model_")]
)
def test_a_name_of_a_model_begins_names_in_c(name: str, made: str) -> None:
    assert identifier(name) == made


def test_the_header_declares_what_a_program_needs() -> None:
    text = Interface(plan(), "net", alignment=16).header("/* more */")
    for line in (
        "#define NET_WORKSPACE_SIZE 8",
        "#define NET_WORKSPACE_ALIGNMENT 16",
        "    const uint16_t *a_b; /* float16[2] */",
        "    uint16_t *a_b; /* float16[2] */",
        "int net_run(const struct net_inputs *inputs,",
        "            const struct net_constants *constants,",
        "/* more */",
    ):
        assert line in text.splitlines()


def test_linked_weights_are_no_argument() -> None:
    face = Interface(plan(), "net", linked=True)
    assert not face.asks_constants
    assert "constants *constants" not in face.signature()
    assert "extern const struct net_constants net_parameters;" in face.header()


def test_weights_are_packed_at_their_alignment() -> None:
    face = Interface(plan(), "net", constant_alignment=16)
    constants = {"w": np.array([1, 2], np.float16), "v": np.array([3], np.uint8)}
    content, starts = pack_weights(face, constants)
    assert starts == [0, 16]
    assert content == constants["w"].tobytes() + bytes(12) + b"\x03"
    said = mapping_declaration(face, len(content))
    assert "parameters/net.bin, 17" in said
    assert "void net_map_constants(const void *parameters, struct net_constants" in said
