# SPDX-License-Identifier: Apache-2.0

from collections.abc import Sequence

class Spine:
    def set_visible(self, b: bool) -> None: ...

class Spines:
    def __getitem__(self, key: list[str]) -> Spine: ...

class Axes:
    spines: Spines
    def axvline(self, x: float, *, color: str, linewidth: float, linestyle: str) -> object: ...
    def barh(
        self,
        y: Sequence[float],
        width: Sequence[float],
        *,
        color: str | Sequence[str],
        xerr: Sequence[Sequence[float]] = ...,
        ecolor: str = ...,
        capsize: float = ...,
    ) -> object: ...
    def invert_yaxis(self) -> None: ...
    def set_title(self, label: str, *, fontsize: float, loc: str) -> object: ...
    def set_xlabel(self, xlabel: str) -> object: ...
    def set_xlim(self, *, left: float) -> object: ...
    def set_yticks(
        self, ticks: Sequence[float], labels: Sequence[str], *, fontsize: float
    ) -> object: ...
