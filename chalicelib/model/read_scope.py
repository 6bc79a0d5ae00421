"""What a pass has read of its cluster."""

from __future__ import annotations

from enum import StrEnum


class ReadScope(StrEnum):
    """FULL: every list. CHANGES: what has changed since an earlier pass of the same process."""

    FULL = "full"
    CHANGES = "changes"
