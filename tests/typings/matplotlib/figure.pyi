# SPDX-License-Identifier: Apache-2.0

from collections.abc import Mapping
from typing import BinaryIO

from .axes import Axes

class Figure:
    def __init__(self, *, figsize: tuple[float, float], layout: str) -> None: ...
    def subplots(self) -> Axes: ...
    def savefig(
        self, fname: BinaryIO, *, format: str, metadata: Mapping[str, object] | None
    ) -> None: ...
