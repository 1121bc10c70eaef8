# SPDX-License-Identifier: Apache-2.0
"""``python -m intarsia``: the command line without its script."""

from __future__ import annotations

import sys

from .cli.main import main

sys.exit(main())
