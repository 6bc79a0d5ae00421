"""The location of the reference data, and the pytest mark for tests that need it, since users of
a release do not have it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("OUTSCALER_SHARED", Path(__file__).resolve().parents[2] / "shared"))

needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(),
    reason="the reference data (../shared) is not beside this checkout; set OUTSCALER_SHARED",
)
