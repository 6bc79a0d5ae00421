"""The result of a check: what was found, how bad it is, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """How bad a finding is. UNASKED: the check could not be made, so nothing is known; never taken for good."""

    ERROR = "error"
    WARNING = "warn"
    INFO = "info"
    UNASKED = "unknown"


class Finding(msgspec.Struct, frozen=True):
    """One result.

    id: `DR04`. subject: a short word such as `rbac`, `pdb`, `quota`, for --only. message: one line. fix: what to do,
    one line or a few lines of YAML. evidence: figures and names, JSON values only.
    """

    id: str
    severity: Severity
    subject: str
    message: str
    fix: str
    evidence: Mapping[str, object] = msgspec.field(default_factory=dict)

    @property
    def url(self) -> str:
        """The heading of docs/runbook.md about this check."""
        return f"docs/runbook.md#{self.id.lower()}"
