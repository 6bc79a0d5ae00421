"""One cluster's policy in force: the sections of spec, and what an operator has paused.

The document uses Cluster Autoscaler's flags in lowerCamelCase. Durations are seconds,
memory is bytes.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from chalicelib.model.pause import Pause
from chalicelib.model.scaling_rules import Rule
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.consolidation import Consolidation
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.event_webhook import Webhook
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.settings.headroom import Headroom
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.policy.settings.maintenance_window import Window
from chalicelib.policy.settings.max_disruption import MaxDisruption
from chalicelib.policy.settings.node_lifecycle import NodeLifecycle
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.settings.notifications import Notifications
from chalicelib.policy.settings.scale_up import ScaleUp
from chalicelib.policy.settings.schedules import Schedule
from chalicelib.policy.settings.spot import Spot


class Mode(StrEnum):
    """`off` does nothing, `shadow` plans and explains but changes nothing, `active` acts.

    Only runtime/mode_guard.py reads it."""

    OFF = "off"
    SHADOW = "shadow"
    ACTIVE = "active"


class ClusterReading(StrEnum):
    """What a pass reads of its cluster: the changes since an earlier pass of the same process,
    everything, or changes that are compared with full lists of the same versions."""

    CHANGES = "changes"
    FULL = "full"
    VERIFY = "verify"


class Metrics(StrEnum):
    """What is written to CloudWatch: nothing, at most six series while they are not
    zero (`summary`), or all."""

    OFF = "off"
    SUMMARY = "summary"
    FULL = "full"


class Policy(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One cluster's policy in force. providers: each provider's own settings as validated text
    values. pauses: what an operator has paused now; never part of a document. node_lifecycle: None:
    nodes may grow old, drift and be sick. spot: None: interruptions are only reported."""

    name: str
    mode: Mode = Mode.SHADOW
    scan_interval: float = 60.0
    kubernetes: KubernetesAccess = KubernetesAccess()
    providers: dict[str, dict[str, str]] = {}
    node_groups: tuple[GroupPolicy, ...] = ()
    options: Options = Options()
    webhook: Webhook = Webhook()
    prices: NodePrices | None = None
    max_disruption: MaxDisruption = MaxDisruption()
    consolidation: Consolidation = Consolidation()
    disruption_budgets: tuple[DisruptionBudget, ...] = ()
    node_lifecycle: NodeLifecycle | None = None
    spot: Spot | None = None
    maintenance_windows: tuple[Window, ...] = ()
    rules: tuple[Rule, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    headroom: tuple[Headroom, ...] = ()
    scale_up: ScaleUp = ScaleUp()
    metrics: Metrics = Metrics.SUMMARY
    notifications: Notifications | None = None
    record_decisions: bool = False
    reading: ClusterReading = ClusterReading.CHANGES
    version: int = 0
    pauses: tuple[Pause, ...] = ()


def in_mode(policy: Policy, word: str) -> Policy:
    """Return the policy in another mode, given by the document's word for it. Raises
    ValueError for an unknown mode."""
    return msgspec.structs.replace(policy, mode=Mode(word))
