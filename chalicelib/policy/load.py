"""Loads a policy from text: read, validate, and only then build.

The last valid version stays in force while a document is invalid, so this module never returns a partial policy: the
result is either all mistakes, or a Policy that all other code may rely on.
"""

from __future__ import annotations

import hashlib
from typing import Any

from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.policy import (
    GroupPolicy,
    KubernetesAccess,
    MaxDisruption,
    NodePrices,
    Options,
    Policy,
    Webhook,
    Window,
)
from chalicelib.model.scaling_rules import Headroom, Rule, ScaleUp, Schedule
from chalicelib.policy.admission import Admission, check_admission
from chalicelib.policy.diagnostics import Diagnostics
from chalicelib.policy.document import ROOT
from chalicelib.policy.notifications import read_notifications
from chalicelib.policy.options import Read
from chalicelib.policy.partial_policy import PartialPolicy
from chalicelib.policy.provider_validation import Ask, asked, further
from chalicelib.policy.schema import read_section
from chalicelib.policy.validation import CHECKS
from chalicelib.policy.yaml_document import read


def load(
    text: str, *, place: str, admission: Admission | None = None, ask: Ask | None = None
) -> tuple[Policy, tuple[str, ...]]:
    """Return (policy, warnings) for one policy document. place: the file's name, for messages. admission: the
    document's purpose and its deployment; None: do not check what a deployment permits. ask: the providers'
    validation; None: the providers are not asked.

    Raises InputErrors with every mistake, in the order of the text: `policy.yaml:14: spec.nodeGroups[1].max`. The
    providers' mistakes come last, without a line.
    """
    try:
        root = read(text, place=place)
    except BadInput as error:
        raise InputErrors((error,)) from None
    report = Diagnostics(place, root)
    found = read_section(ROOT, root, (), report) or {}
    draft, name = _draft(found.get("spec")), (found.get("metadata") or {}).get("name", "")
    refused: tuple[BadInput, ...] = ()
    if draft is not None:
        for check in CHECKS:
            check(draft, report)
        refused = asked(draft, root, name, ask, report) if ask is not None else ()
        if admission is not None:
            check_admission(draft, name, admission, report)
    report.check(further(refused, place, report))
    return _policy(found), report.warnings()


def digest(text: str) -> str:
    """Return the SHA-256 of the text with normalised line ends: equal digests mean the same document."""
    return hashlib.sha256("\n".join(text.splitlines()).encode("utf-8", "surrogatepass")).hexdigest()


def _draft(spec: dict[str, Any] | None) -> PartialPolicy | None:
    """Build the input of cross-field validation from the readable values."""
    if spec is None:
        return None
    return PartialPolicy(
        spec, spec.get("kubernetes"), spec.get("providers"), spec.get("node_groups", ()), spec.get("options", Read())
    )


def _policy(found: dict[str, Any]) -> Policy:
    """Build the policy after all checks, so no required value can be missing."""
    spec: dict[str, Any] = {name: value for name, value in found["spec"].items() if name in Policy.__struct_fields__}
    made: dict[str, Any] = {
        "kubernetes": KubernetesAccess(**spec.pop("kubernetes")),
        "node_groups": tuple(GroupPolicy(**group) for group in spec.pop("node_groups", ())),
        "options": Options(**spec.pop("options", Read()).in_force),
        "webhook": Webhook(**spec.pop("webhook", {})),
        "max_disruption": MaxDisruption(**spec.pop("max_disruption", {})),
        "maintenance_windows": tuple(Window(**window) for window in spec.pop("maintenance_windows", ())),
        "scale_up": ScaleUp(**spec.pop("scale_up", {})),
        "rules": tuple(Rule(**rule) for rule in spec.pop("rules", ())),
        "schedules": tuple(Schedule(**schedule) for schedule in spec.pop("schedules", ())),
        "headroom": tuple(Headroom(**headroom) for headroom in spec.pop("headroom", ())),
        "notifications": read_notifications(spec.pop("notifications", None)),
        "prices": NodePrices(**prices) if (prices := spec.pop("prices", None)) is not None else None,
    }
    return Policy(name=found["metadata"]["name"], **spec, **made)
