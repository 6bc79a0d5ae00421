"""State that must outlive a process. The planner receives it and returns the next state; the
store saves the difference.

It has no other copy: a cold start is the normal case. See docs/architecture.md "Tables".
"""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.node import Node, Taint
from chalicelib.model.operation import AwaitedPods, Operation
from chalicelib.model.reason import Reason
from chalicelib.model.scaling_rules import RuleObject

HOUR = 3600.0
LONGEST_REST = 24 * HOUR
"""Most seconds for which a part that new nodes do not have is not expected."""
PRIOR_HOURS = 720
"""Hours of the prior of InterruptionRisk: one interruption in 30 days."""


class PurchaseRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """Nodes that one scale-up has bought. count: how many, without those that could not be created.
    planned_at: when the scale-up was planned, so that its instances are younger; 0.0: unknown.
    pods: for whom; more_pods: pods that are only counted."""

    count: int
    since: float
    expected_at: float
    planned_at: float = 0.0
    pods: tuple[AwaitedPods, ...] = ()
    more_pods: int = 0


class ScaleUpRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Nodes that were requested and have not arrived yet: the sum of the purchases, with the
    instants of the last one. rows: the purchases, the oldest first; none for a single one of which
    nothing else is known, and in what earlier releases have written. given_up: nodes of purchases
    that timed out which the target may still contain although no instance of them exists."""

    increase: int
    since: float
    expected_at: float
    rows: tuple[PurchaseRow, ...] = ()
    given_up: int = 0

    @property
    def purchases(self) -> tuple[PurchaseRow, ...]:
        """Return one row per purchase, the oldest first."""
        if sum(row.count for row in self.rows) == self.increase:
            return self.rows
        return (PurchaseRow(self.increase, self.since, self.expected_at),)


class Backoff(msgspec.Struct, frozen=True, omit_defaults=True):
    """A back-off: active while until >= now; forgotten when last_failed is longer
    ago than the reset time."""

    duration: float
    until: float
    last_failed: float
    cls: str = ""
    code: str = ""
    message: str = ""
    attempt: int = 1


class FailedRemoval(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node whose removal failed. until: it is not tried again before; times: consecutive
    failures; why: the last failure. taken_back: its vendor did not take it although it had said so;
    this delays evacuations only, and is no failure of ours."""

    until: float
    times: int = 1
    why: str = ""
    taken_back: bool = False


class DrainedOwner(msgspec.Struct, frozen=True, omit_defaults=True):
    """An owner whose pods were on drained nodes. since: the last drain. nodes: the drained ones;
    bought: how many nodes were bought for its pods afterwards. pods: how many it had at the last
    drain. until: its pods are not moved before; times: how often all drained nodes were bought
    back."""

    since: float = 0.0
    nodes: tuple[str, ...] = ()
    bought: int = 0
    pods: int = 0
    until: float = 0.0
    times: int = 0


class InterruptionNotice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node that its vendor takes back: since when this is known, and when it leaves. by_vendor:
    the vendor's API says so, whatever the Node object shows."""

    seen_at: float
    leaves_at: float
    by_vendor: bool = False


class InterruptionRisk(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is learnt of a spot group's interruptions (docs/reference/spot.md "Risk").
    interruptions, hours: of its nodes, both halved every 7 days; counted_at: until when they
    are counted, nodes: how many it had then. last_notice: of the last interruption. notices: node
    -> the notice that holds now."""

    interruptions: float = 0.0
    hours: float = 0.0
    counted_at: float = 0.0
    nodes: int = 0
    last_notice: float = 0.0
    notices: dict[str, InterruptionNotice] = {}

    def hazard(self, rate: float = 0.0) -> Fraction:
        """Return the expected interruptions of a node in an hour: (1 + I) / (720 + T). rate: the
        vendor's, per node and 30 days, in place of the 1; out of 0 to 1: unknown."""
        prior = rate if 0.0 < rate <= 1.0 else 1.0
        return Fraction(prior + self.interruptions) / (PRIOR_HOURS + Fraction(self.hours))


class JoinStatistics(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is learnt of the nodes that a group was asked for (docs/reference/learning.md). ready:
    seconds from the request until ready, of the last joins, the newest last. joined, failed: how
    many came and how many did not, both halved every 7 days; counted_at: when they were last
    halved. starting: node -> when it was requested (0.0:
    unknown), of nodes that are not ready yet; unfinished: those of them whose kubelet is, while a
    taint or a missing device keeps pods away. seen_until: the creation of the newest node that was
    looked at. late: instances that counted as failed because they have no node in time.
    since_timeout: times since the last time-out."""

    ready: tuple[int, ...] = ()
    joined: float = 0.0
    failed: float = 0.0
    counted_at: float = 0.0
    starting: dict[str, float] = {}
    seen_until: float = 0.0
    unfinished: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    since_timeout: int = 0


class SickCondition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A condition that makes a node sick. since: when it began; seen_at: a pass that has seen
    it, not always the last one; ended: when it ended as the first pass saw that sees it no
    more, 0.0 while it lasts."""

    since: float
    seen_at: float
    ended: float = 0.0


class PurchaseAttempts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Purchases of which it is not known what comes, because new nodes of the group may be
    in one of several zones.

    zones: zone -> when a node of the group was last seen in it. open: zone -> nodes bought for it
    that have not come yet; since: from when on joining nodes count as theirs. missed: (instant,
    zone) of nodes that came elsewhere, for a day; once one comes, with "" instead of the zone, for
    an hour; hits: zone -> nodes that came there one after the
    other. strays: the nodes that came instead. storage: storage class -> when a node was planned to
    find out what a new one offers; `storage <class>` stands for it in missed.
    """

    zones: dict[str, float] = {}
    open: dict[str, int] = {}
    since: float = 0.0
    missed: tuple[tuple[float, str], ...] = ()
    hits: dict[str, int] = {}
    strays: tuple[str, ...] = ()
    storage: dict[str, float] = {}


class Part(StrEnum):
    """The kinds of parts of a node that may come late or never; the last
    one is that a taint goes."""

    LABEL = "label"
    RESOURCE = "resource"
    TAINT = "taint"

    def of(self, name: str) -> str:
        """Return a part in words."""
        return f"{self.value} {name}"


class Undelivered(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part that a new node of a group did not have although its template has it. created:
    creation of the newest such node. until: the part is not expected before; times: how often it
    was not there. taint: the one that did not go."""

    until: float
    times: int
    created: float = 0.0
    taint: Taint | None = None

    def rests(self, now: float) -> bool:
        """Return whether it is not expected now. A time that is too far ahead was
        written by a wrong clock."""
        return now < self.until <= now + LONGEST_REST


class GroupRenewal(msgspec.Struct, frozen=True, omit_defaults=True):
    """Renewals of a group's nodes for one reason (plan/state/renewals.py). began: since when new
    nodes are its successors. nodes: successors of sick nodes -> when they became known; owners: of
    pods (namespace/kind/name) -> when a sick node with such pods was last repaired. answers: what
    the vendor said of outdated nodes; template: a digest of what it said of new ones. until: end of
    the rest; times: rests in a row; early: those that ended before their time. node, detail: the
    successor that caused the rest, and what is wrong with it."""

    began: float = 0.0
    nodes: dict[str, float] = {}
    owners: dict[str, float] = {}
    answers: tuple[str, ...] = ()
    template: str = ""
    until: float = 0.0
    times: int = 0
    early: int = 0
    node: str = ""
    detail: str = ""


class Control(StrEnum):
    """Who may have changed a group's size since the last pass that read it."""

    OWN = ""  # passes act
    WATCHED = "watched"  # that pass did not act: another autoscaler may
    LEFT = "left"  # no pass has looked for a time


class GroupMemory(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"failed_instances": "erred"}
):
    """Memory per node group. target: the size that the last pass has read."""

    target: int = 0
    request: ScaleUpRequest | None = None
    backoff: Backoff | None = None
    last_add: float = 0.0
    last_delete: float = 0.0
    last_failure: float = 0.0
    size_wrong_since: float = 0.0
    size_wrong: tuple[int, int] = (0, 0)  # (registered, target) as first seen
    failed_instances: tuple[str, ...] = ()  # instances whose creation error was already counted
    # errors counted while the scale-up was open that had requested the instances
    failed_early: int = 0
    repair_failures: int = 0  # consecutive failed repairs (discard, shrink)
    repair_after: float = 0.0  # no repair is tried before
    failed_removals: dict[str, FailedRemoval] = {}  # by node
    # node -> when the restart was planned that ended before its vendor was asked
    not_restarted: dict[str, float] = {}
    drained: dict[str, DrainedOwner] = {}  # by owner of pods (namespace/kind/name)
    # the first pass that accepted the group as this cluster's; 0.0: none yet
    first_seen: float = 0.0
    risk: InterruptionRisk | None = None  # of a spot group
    joins: JoinStatistics | None = None
    renewals: dict[str, GroupRenewal] = {}  # by DisruptionReason
    # its nodes since then were bought because spot groups were not to be had
    fallback_since: float = 0.0
    attempts: PurchaseAttempts | None = None  # of a group in several zones
    undelivered: dict[str, Undelivered] = {}  # by Part.of: what its new nodes do not have
    control: Control = Control.OWN
    empty_since: float = 0.0  # of a group that Outscaler has made


class NodeMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """Memory per node. confirmed_at: the last pass that found it unneeded. A pass that could not
    judge it moves both instants forward, so that the time already counted is kept."""

    unneeded_since: float = 0.0
    confirmed_at: float = 0.0
    unremovable_until: float = 0.0
    why: Reason | None = None  # why it was unremovable when it was last tried
    # checksum of the pods on it, DaemonSets' not counted; only while consolidation is on
    pods: int = 0
    pods_since: float = 0.0  # since when it has exactly these pods, as far as passes have seen
    # since when every search wants to consolidate it into room that exists
    wanted_since: float = 0.0
    fallback: bool = False  # bought on demand because spot groups were not to be had
    sick: dict[str, SickCondition] = {}  # by type of condition
    restarted_at: float = 0.0  # when its last restart as a repair was planned
    drifted_since: float = 0.0  # since when every pass has seen that it is outdated
    # its soft taint was written by a pass of this cluster, not by another autoscaler
    soft_tainted: bool = False
    # it has marks of a horizon, or a pass is about to write them
    marked: bool = False
    # since when something keeps it although a horizon wants it gone
    held_since: float = 0.0
    stays_until: float = 0.0  # it counts as a node that stays


class StatedTemplate(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a vendor's template says of new nodes."""

    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    capacity: dict[str, int] = {}


class LearntTemplate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A template copied from a real, ready node of the group, without the labels
    that are of that node alone.

    own_labels: their keys, None in a row of an earlier release, whose labels were not sorted out.
    lacking_labels: keys of CSI drivers that say the zone or region on other nodes, and that this
    node did not have. stated: what the vendor's template said when the node was made, None if it is
    not known. differs_since: since when it says something else, 0.0 if it does not. capacities:
    storage class -> bytes that a new node offers, of classes whose drivers publish capacity per
    node.
    """

    node: Node
    learnt_at: float
    own_labels: tuple[str, ...] | None = None
    lacking_labels: tuple[str, ...] = ()
    stated: StatedTemplate | None = None
    differs_since: float = 0.0
    capacities: dict[str, int] = {}


class BreakerState(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"tripped_at": "pulled", "removals": "taken"},
):
    """The circuit breaker's state. removals: (instant, nodes, pods) of the plans of the last hour.
    tripped_at: since when removals are blocked because a plan exceeded the share that the policy
    allows, 0.0 if not tripped. wanted: how many nodes that plan would have removed."""

    removals: tuple[tuple[float, int, int], ...] = ()
    tripped_at: float = 0.0
    wanted: int = 0

    def last_hour(self, now: float) -> tuple[tuple[float, int, int], ...]:
        """Return the removals that count now. An instant an hour or more away is
        ignored, in the future too: after a clock error, removals must not stay blocked
        for as long as the clock was wrong."""
        return tuple(removal for removal in self.removals if abs(now - removal[0]) < HOUR)


class RuleMemory(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={
        "pending_occurrence": "kept",
        "target_size": "goal",
        "last_scaled_at": "acted",
        "last_occurrence": "handled",
    },
):
    """A rule on one pool. last_occurrence: the last handled one, or the instant from which
    occurrences count. cron: its expression at that time; a changed one starts anew.
    pending_occurrence: 0.0 without one. why: the reason for its wait. target_size: the pool size
    that the last occurrence requires and has not reached, 0 if it has. last_scaled_at: when the
    rule last added nodes.
    """

    last_occurrence: float = 0.0
    cron: str = ""
    pending_occurrence: float = 0.0
    why: str = ""
    target_size: int = 0
    last_scaled_at: float = 0.0


class ReplacementState(StrEnum):
    """How far a replacement has come (docs/reference/consolidation.md "Replacements")."""

    PROPOSED = "proposed"  # wanted once; begins if a later pass still wants it
    BUYING = "buying"  # scale-ups are under way
    WAITING = "waiting"  # they have succeeded; the new nodes are not ready yet
    DRAINING = "draining"  # the old nodes are being removed
    FAILED = "failed"  # given up; the same nodes are not replaced again before `until`


NOT_BEGUN = "not begun"
"""The end of an operation of which nothing was asked of the provider in time; it may
be planned again at once."""


class PurchasedNodes(msgspec.Struct, frozen=True, omit_defaults=True):
    """Nodes of one group that a replacement buys. price: of one of them, per hour in
    millionths. operation: id of the scale-up, "" before it is planned. names: the new Node
    objects, as far as known."""

    group: str
    nodes: int
    price: int
    operation: str = ""
    names: tuple[str, ...] = ()


class Replacement(msgspec.Struct, frozen=True, omit_defaults=True):
    """Nodes that go once others that are bought for their pods are ready.

    id: of (nodes, purchases, instant of the proposal). nodes: names of the old nodes that have not
    gone yet, in order of removal; gone: those that have. price: of all old nodes, per hour in
    millionths. disruption, its price and score: of the whole move when it was last judged. since:
    when it entered its state; bought_at: when it was begun. removals: old node -> id of its
    removal. ends: id of an operation that is over -> "" if it succeeded, else why not. until: end
    of its back-off, times: failures of the same set of nodes, why: the last failure.
    """

    id: str
    state: ReplacementState
    nodes: tuple[str, ...]
    purchases: tuple[PurchasedNodes, ...]
    price: int
    disruption: float
    score: float
    proposed_at: float
    since: float
    reason: DisruptionReason = DisruptionReason.CONSOLIDATION
    pool: str = ""
    disruption_price: int = 0
    bought_at: float = 0.0
    gone: tuple[str, ...] = ()
    removals: dict[str, str] = {}
    ends: dict[str, str] = {}
    until: float = 0.0
    times: int = 0
    why: Reason | None = None

    @property
    def cost(self) -> int:
        """Return the price of all that it buys, per hour in millionths."""
        return sum(purchase.nodes * purchase.price for purchase in self.purchases)

    @property
    def new_nodes(self) -> tuple[str, ...]:
        """Return the names of the nodes that it has bought, as far as known."""
        return tuple(name for purchase in self.purchases for name in purchase.names)


class Horizon(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which nodes leave and which stay, decided once. id: the value of its marks; since: when it
    was decided. levels: node -> number of its marks; going: the nodes that leave, the others of
    levels stay and keep room for pods that may be nowhere else. end: price at its end, millionths
    an hour. batch: the nodes whose marks the last pass was about to write, in this order; refused:
    node -> how often its mark did not come although those after it came, or was taken away;
    missing: passes that have seen no mark at all. gone: how many nodes have left by now."""

    id: str
    since: float
    levels: dict[str, int]
    going: tuple[str, ...]
    end: int
    batch: tuple[str, ...] = ()
    refused: dict[str, int] = {}
    missing: int = 0
    gone: int = 0

    @property
    def marked(self) -> int:
        """Return how many marks were there before that pass."""
        return len(self.levels) - len(self.batch)


class ConsolidationMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """What consolidation remembers beside replacements. digest: of what the last search without a
    result looked at, searched_at: its instant. moves: owner of pods (namespace/kind/name) ->
    (instant, pods) of the moves of a day.
    prices: group -> (instant, price in millionths) for each change within the time in which a price
    settles, oldest first; the first one is the price at the beginning of that time. reasons: node
    -> why that search left it. horizon: None: none stands; searched: the prices, pods and nodes of
    the last search for one, horizon_at: its instant. scores: pool -> (instant, lowest score of its
    best move since then) for each hour of a day, oldest first; scored_at: when they were last
    seen."""

    digest: str = ""
    searched_at: float = 0.0
    moves: dict[str, tuple[tuple[float, int], ...]] = {}
    prices: dict[str, tuple[tuple[float, int], ...]] = {}
    reasons: dict[str, Reason] = {}
    horizon: Horizon | None = None
    searched: tuple[int, ...] = ()
    horizon_at: float = 0.0
    scores: dict[str, tuple[tuple[float, float], ...]] = {}
    scored_at: float = 0.0


DRAIN_FOR = 7 * 86_400.0
"""Seconds for which an operator's request to drain a managed pool counts."""


class Memory(msgspec.Struct, frozen=True, omit_defaults=True, rename={"breaker": "brake"}):
    """One cluster's memory. operations: only the open ones. acting_since: the first pass that acts
    after others may have acted; 0.0: unknown, or passes do not act. watching_since: the first that
    does not act after passes that did, or after a time without passes."""

    groups: dict[str, GroupMemory] = {}
    nodes: dict[str, NodeMemory] = {}
    unregistered: dict[str, float] = {}  # instance id -> first seen without a Node
    templates: dict[str, LearntTemplate] = {}
    operations: tuple[Operation, ...] = ()
    last_scale_up: float = 0.0
    last_scale_down: float = 0.0
    last_scale_down_failure: float = 0.0
    first_seen: float = 0.0
    acting_since: float = 0.0
    watching_since: float = 0.0
    breaker: BreakerState = BreakerState()
    rules: dict[str, RuleMemory] = {}  # `<rule key>@<pool>`
    # the last good version of each HorizontalNodeAutoscaler, by its key
    rule_objects: dict[str, RuleObject] = {}
    replacements: dict[str, Replacement] = {}  # by id; failed ones until their back-off is over
    consolidation: ConsolidationMemory = ConsolidationMemory()
    released_until: float = 0.0  # set by an operator (`outscaler release`); no pass writes it
    # managed pool -> when an operator asked to delete its empty groups; no pass writes it
    prunes: dict[str, float] = {}
    # the same for the nodes of its groups that retire
    drains: dict[str, float] = {}
