# SPDX-License-Identifier: Apache-2.0
# The part of Matplotlib that draws bars; its own types leave keyword arguments unknown.

from collections.abc import Mapping
from contextlib import AbstractContextManager

def rc_context(rc: Mapping[str, object]) -> AbstractContextManager[None]: ...
