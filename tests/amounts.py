"""The number of examples of a test: few in `make test`, many in `make test-slow`,
which sets OUTSCALER_LONG.

A test that uses it is marked `more`, so that `make test-slow` runs it again.
"""

from __future__ import annotations

import os

_LONG = bool(os.environ.get("OUTSCALER_LONG"))


def examples(few: int, many: int) -> int:
    """The number for this run."""
    return many if _LONG else few
