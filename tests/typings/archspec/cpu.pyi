# SPDX-License-Identifier: Apache-2.0
# The part of archspec that names processors; the library has no types.

from collections.abc import Collection, Mapping, Sequence

class Microarchitecture:
    name: str
    features: Collection[str]
    @property
    def ancestors(self) -> Sequence[Microarchitecture]: ...
    @property
    def family(self) -> Microarchitecture: ...
    def __contains__(self, feature: object) -> bool: ...

TARGETS: Mapping[str, Microarchitecture]

def host() -> Microarchitecture: ...
