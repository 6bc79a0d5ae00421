"""Loads a policy from text: read, validate, and only then build.

The last valid version stays in force while a document is invalid, so this module never returns a
partial policy: the result is either all mistakes, or a Policy that all other code may rely on.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.scaling_rules import Rule
from chalicelib.policy.admission import Admission, check_admission
from chalicelib.policy.diagnostics import Diagnostics
from chalicelib.policy.document import ROOT
from chalicelib.policy.options import OptionValues
from chalicelib.policy.providers import Ask, PartialPolicy, not_reported, provider_mistakes
from chalicelib.policy.schema import read_section
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Consolidation
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.event_webhook import Webhook
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.settings.headroom import Headroom
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.policy.settings.maintenance_window import Window
from chalicelib.policy.settings.max_disruption import MaxDisruption
from chalicelib.policy.settings.node_lifecycle import NodeLifecycle, RepairRule
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.settings.notifications import NoticeWebhook, Notifications, QuietHours
from chalicelib.policy.settings.scale_up import ScaleUp
from chalicelib.policy.settings.schedules import Schedule
from chalicelib.policy.settings.spot import Spot
from chalicelib.policy.validation import CHECKS
from chalicelib.policy.yaml_document import read

_SECTIONS: dict[str, type[msgspec.Struct]] = {
    "kubernetes": KubernetesAccess,
    "webhook": Webhook,
    "max_disruption": MaxDisruption,
    "scale_up": ScaleUp,
    "prices": NodePrices,
    "consolidation": Consolidation,
    "spot": Spot,
}
_STORED_EMPTY = ("webhook", "max_disruption", "scale_up")
_LISTS: dict[str, type[msgspec.Struct]] = {
    "node_groups": GroupPolicy,
    "disruption_budgets": DisruptionBudget,
    "maintenance_windows": Window,
    "rules": Rule,
    "schedules": Schedule,
    "headroom": Headroom,
}


def load(
    text: str, *, place: str, admission: Admission | None = None, ask: Ask | None = None
) -> tuple[Policy, tuple[str, ...]]:
    """Return (policy, warnings) for one policy document. place: the file's name, for messages.
    admission: the document's purpose and its deployment; None: do not check what a deployment
    permits. ask: the providers' validation; None: the providers are not asked.

    Raises InputErrors with every mistake, in the order of the text: `policy.yaml:14:
    spec.nodeGroups[1].max`. The providers' mistakes come last, without a line.
    """
    try:
        root = read(text, place=place)
    except BadInput as error:
        raise InputErrors((error,)) from None
    diagnostics = Diagnostics(place, root)
    values = read_section(ROOT, root, (), diagnostics) or {}
    spec, name = values.get("spec"), (values.get("metadata") or {}).get("name", "")
    mistakes: tuple[BadInput, ...] = ()
    if spec is not None:
        partial = PartialPolicy(
            spec,
            spec.get("kubernetes"),
            spec.get("providers"),
            spec.get("node_groups", ()),
            spec.get("options", OptionValues()),
        )
        for check in CHECKS:
            check(partial, diagnostics)
        mistakes = (
            provider_mistakes(partial, root, name, ask, diagnostics) if ask is not None else ()
        )
        if admission is not None:
            check_admission(partial, name, admission, diagnostics)
    diagnostics.check(not_reported(mistakes, place, diagnostics))
    return _policy(name, values["spec"]), diagnostics.warnings()


def digest(text: str) -> str:
    """Return the SHA-256 of the text with normalised line ends: equal
    digests mean the same document."""
    return hashlib.sha256("\n".join(text.splitlines()).encode("utf-8", "surrogatepass")).hexdigest()


def _policy(name: str, spec: dict[str, Any]) -> Policy:
    """Build the policy after all checks, so no required value can be missing."""
    values = {
        attribute: value
        for attribute, value in spec.items()
        if attribute in Policy.__struct_fields__
    }
    for attribute, struct in _SECTIONS.items():
        # An absent section is an empty object and not the default itself, so that stored
        # policies keep their bytes.
        if attribute in values or attribute in _STORED_EMPTY:
            values[attribute] = struct(**values.get(attribute, {}))
    for attribute, struct in _LISTS.items():
        if attribute in values:
            values[attribute] = tuple(struct(**entry) for entry in values[attribute])
    if "node_lifecycle" in values:
        lifecycle = dict(values["node_lifecycle"])
        lifecycle["repair"] = tuple(RepairRule(**rule) for rule in lifecycle.get("repair", ()))
        values["node_lifecycle"] = NodeLifecycle(**lifecycle)
    values["options"] = Options(**values.get("options", OptionValues()).in_force)
    if "notifications" in values:
        notices = dict(values["notifications"])
        webhook = notices.pop("webhook", None)
        notices["quiet_hours"] = tuple(
            QuietHours(**window) for window in notices.get("quiet_hours", ())
        )
        values["notifications"] = Notifications(
            **notices, webhook=NoticeWebhook(**webhook) if webhook else None
        )
    return Policy(name=name, **values)
