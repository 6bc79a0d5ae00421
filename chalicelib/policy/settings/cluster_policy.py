"""One cluster's policy in force: the sections of spec, and what an operator has paused.

The document uses Cluster Autoscaler's flags in lowerCamelCase. Durations are seconds,
memory is bytes.
"""

from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

from chalicelib.model.pause import Pause
from chalicelib.model.scaling_rules import Rule
from chalicelib.policy.schema import Required, nested
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.consolidation import CONSOLIDATION, Consolidation
from chalicelib.policy.settings.disruption_budgets import DISRUPTION_BUDGETS, DisruptionBudget
from chalicelib.policy.settings.event_webhook import Webhook
from chalicelib.policy.settings.group_policy import NODE_GROUPS, GroupPolicy
from chalicelib.policy.settings.headroom import HEADROOMS, Headroom
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.policy.settings.maintenance_window import WINDOWS, Window
from chalicelib.policy.settings.managed_pools import MANAGED_POOLS, ManagedPool
from chalicelib.policy.settings.max_disruption import MaxDisruption
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_lifecycle import NODE_LIFECYCLE, NodeLifecycle
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.settings.notifications import Notifications
from chalicelib.policy.settings.rules import RULES
from chalicelib.policy.settings.scale_up import ScaleUp
from chalicelib.policy.settings.schedules import SCHEDULES, Schedule
from chalicelib.policy.settings.spot import SPOT, Spot
from chalicelib.policy.value_types import BOOLEAN, duration, member


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


SCAN_INTERVAL = (5.0, 3600.0)
"""The shortest and the longest interval between passes, in seconds."""


class Policy(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One cluster's policy in force. providers: each provider's own settings as validated text
    values. pauses: what an operator has paused now; own_minimums: of node_groups, before schedules
    have replaced them; None: none has. Both are never part of a document. node_lifecycle: None:
    nodes may grow old, drift and be sick. spot: None: interruptions are only reported.
    document_order: providers and options are declared in tables of their own (document.py)."""

    document_order: ClassVar[tuple[str, ...]] = (
        "mode",
        "scanInterval",
        "kubernetes",
        "providers",
        "nodeGroups",
        "managedPools",
        "options",
        "prices",
        "maxDisruption",
        "consolidation",
        "disruptionBudgets",
        "nodeLifecycle",
        "spot",
        "maintenanceWindows",
        "scaleUp",
        "rules",
        "schedules",
        "headroom",
        "webhook",
        "notifications",
        "recordDecisions",
        "reading",
        "metrics",
    )

    name: str
    mode: Annotated[
        Mode,
        member(Mode),
        "off: nothing happens. shadow: plan and explain, touch nothing. active: act.",
    ] = Mode.SHADOW
    scan_interval: Annotated[
        float,
        duration(*SCAN_INTERVAL),
        "Interval between passes, from 5s to 1h; below one minute by delayed messages.",
    ] = 60.0
    kubernetes: Annotated[
        KubernetesAccess,
        nested(KubernetesAccess),
        "How to reach the cluster.",
        Required("kubernetes: {kubeconfigSecret: NAME}"),
    ] = KubernetesAccess()
    providers: dict[str, dict[str, str]] = {}
    node_groups: Annotated[
        tuple[GroupPolicy, ...],
        NODE_GROUPS,
        "Bounds and priorities for groups, where the provider's own are not wanted.",
    ] = ()
    managed_pools: Annotated[
        tuple[ManagedPool, ...],
        MANAGED_POOLS,
        "Groups that Outscaler makes itself, of the vendor's machine types.",
    ] = ()
    options: Options = Options()
    webhook: Annotated[
        Webhook,
        nested(Webhook),
        "Authentication of events that request a pass; none are accepted if not given.",
    ] = Webhook()
    prices: Annotated[
        NodePrices | None,
        nested(NodePrices),
        "What machines cost per hour, for consolidation and for the expanders price and "
        "least-cost.",
    ] = None
    max_disruption: Annotated[
        MaxDisruption,
        nested(MaxDisruption),
        "The circuit breaker: limits of removals; none if not given.",
    ] = MaxDisruption()
    consolidation: Annotated[
        Consolidation,
        CONSOLIDATION,
        "Whether needed nodes go, too, where their pods fit a cheaper place; off.",
    ] = Consolidation()
    disruption_budgets: Annotated[
        tuple[DisruptionBudget, ...],
        DISRUPTION_BUDGETS,
        "Most nodes of a pool that are on their way out at once, by reason and time; one of 10% if "
        "not given.",
    ] = ()
    node_lifecycle: Annotated[
        NodeLifecycle | None,
        NODE_LIFECYCLE,
        "What happens to nodes that are old, drifted or sick; nothing if not given.",
    ] = None
    spot: Annotated[
        Spot | None,
        SPOT,
        "Nodes that their vendor may take back; interruptions are only reported if not given.",
    ] = None
    maintenance_windows: Annotated[
        tuple[Window, ...], WINDOWS, "When nodes may be removed; always if not given."
    ] = ()
    rules: Annotated[tuple[Rule, ...], RULES, "Cron and metric rules that add nodes."] = ()
    schedules: Annotated[
        tuple[Schedule, ...],
        SCHEDULES,
        "Windows of a clock in which bounds, headroom or the mode are others.",
    ] = ()
    headroom: Annotated[tuple[Headroom, ...], HEADROOMS, "Spare capacity that is kept free."] = ()
    scale_up: Annotated[ScaleUp, nested(ScaleUp), "What may make groups grow."] = ScaleUp()
    metrics: Annotated[
        Metrics,
        member(Metrics),
        "What is written for CloudWatch, which charges for each series. off: nothing. summary: at "
        "most six series, each only while it is not zero. full: every series. GET /metrics has "
        "every series in any case.",
    ] = Metrics.SUMMARY
    notifications: Annotated[
        Notifications | None,
        nested(Notifications),
        "Where messages about conditions of the cluster go; none are sent if not given.",
    ] = None
    record_decisions: Annotated[
        bool,
        BOOLEAN,
        "Whether what each decision with changes was made from is recorded, for outscaler replay.",
    ] = False
    reading: Annotated[
        ClusterReading,
        member(ClusterReading),
        "What a pass reads. changes: what has changed since an earlier pass of the same process, "
        "everything where there was none. full: everything. verify: changes, compared with full "
        "lists of the same versions; a difference is an error in the log.",
    ] = ClusterReading.CHANGES
    version: int = 0
    pauses: tuple[Pause, ...] = ()
    own_minimums: dict[str, int] | None = None


def in_mode(policy: Policy, word: str) -> Policy:
    """Return the policy in another mode, given by the document's word for it. Raises
    ValueError for an unknown mode."""
    return msgspec.structs.replace(policy, mode=Mode(word))
