"""The result of a check: what was found, how bad it is, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


SUBJECTS: Mapping[str, str] = {
    **dict.fromkeys(("DR01", "DR02", "DR03"), "kubeconfig"),
    **dict.fromkeys(("DR04", "DR05"), "rbac"),
    "DR06": "clock",
    **dict.fromkeys(("DR07", "DR08", "DR09"), "autoscaler"),
    **dict.fromkeys(("DR10", "DR11"), "vendor"),
    "DR12": "bounds",
    "DR13": "quota",
    **dict.fromkeys(("DR15", "DR16", "DR17"), "template"),
    **dict.fromkeys(("DR18", "DR19", "DR20"), "pdb"),
    **dict.fromkeys(("DR21", "DR22"), "drain"),
    "DR23": "pods",
    **dict.fromkeys(("DR24", "DR25"), "nodes"),
    "DR26": "versions",
    "DR27": "secrets",
    "DR28": "webhook",
    "DR29": "volume",
    "DR31": "expander",
    "DR32": "removals",
}
"""The subject of a check's findings, by its id."""


def finding(finding_id: str, severity: Severity, message: str, fix: str, **evidence: object) -> Finding:
    """Return a finding with the subject of its check."""
    return Finding(finding_id, severity, SUBJECTS[finding_id], message, fix, evidence)


def first_names(names: Sequence[str]) -> str:
    """Return three of the names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
