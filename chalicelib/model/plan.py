"""The plan: what is changed, and the reasons for everything that is not.

A plan carries a verdict for every pending pod class, every group and every node;
cli/plan_document.py makes the JSON of `outscaler plan` from it.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.managed_group import MachineChoice
from chalicelib.model.operation import Operation
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import MissingData


class ScaleUp(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"from_size": "from", "to_size": "to"}
):
    """A group that grows from one size to another, for these pods (namespace/name). rules: keys of
    the rules that want nodes of it; headroom: names of the headroom that needs them. choice: of a
    group of its own, what is bought; opens: the vendor does not have the group yet; price: of all
    its new nodes an hour, where there is a choice, 0.0: unknown; currency: of it."""

    group: str
    provider: str
    from_size: int
    to_size: int
    max: int
    pods: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    headroom: tuple[str, ...] = ()
    replacement: str = ""  # id of the replacement whose nodes it buys
    choice: MachineChoice | None = None
    opens: bool = False
    price: float = 0.0
    currency: str = ""

    @property
    def nodes(self) -> int:
        """Return how many nodes are bought."""
        return self.to_size - self.from_size


class Contest(msgspec.Struct, frozen=True):
    """A number of places for the pods in `among`, whichever of them the scheduler chooses."""

    places: int
    among: tuple[str, ...]


class PodPlacement(msgspec.Struct, frozen=True, omit_defaults=True):
    """Pods and their expected place: on `node` (existing or upcoming), or on the number-th new node
    (from 1) of `group` in this plan. promised: whether each of these pods gets a place in every
    tried order of the scheduler; if not, one_place_among lists the pods with which they compete,
    and the number of places. lacks: what the pods need and the node, which is young, does not have
    yet, in words; then they are promised nothing."""

    pods: tuple[str, ...]
    node: str = ""
    group: str = ""
    number: int = 0
    promised: bool = True
    one_place_among: Contest | None = None
    lacks: tuple[str, ...] = ()


class UnschedulablePods(msgspec.Struct, frozen=True, omit_defaults=True):
    """Unplaced pods of one class, with the reasons per group: those groups first in whose way the
    least stands (reasons/no_place.py). nodes: number of existing nodes; against: how many of these
    each scheduler predicate rejects, in the scheduler's way of counting. one_place_among: the pods
    of the plan whose places these may get instead, if there are any. nearest: the number of groups
    at the beginning of `reasons` that are equally near; 0 in plans of earlier releases. more: by
    managed pool, how many groups that could be opened `reasons` leaves out."""

    pods: tuple[str, ...]
    reasons: dict[str, tuple[Reason, ...]] = {}
    nodes: int = 0
    against: tuple[tuple[Reason, int], ...] = ()
    one_place_among: Contest | None = None
    nearest: int = 0
    more: dict[str, int] = {}


class IgnoredPods(msgspec.Struct, frozen=True, omit_defaults=True):
    """Pods that are not considered, with the reason."""

    pods: tuple[str, ...]
    reason: Reason


class GroupVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node group in this pass: its possible scale-up, and why it was skipped, if it was."""

    group: str
    provider: str
    min: int
    max: int
    target: int
    ready: int = 0
    upcoming: int = 0
    option_nodes: int = 0
    option_pods: int = 0
    waste: float | None = None
    skipped: Reason | None = None
    healthy: bool = True
    counts: dict[str, int] = {}  # nodes by readiness bucket (plan/state/readiness.Bucket values)
    unregistered: int = 0  # instances without a node, except the long-unregistered ones
    long_unregistered: int = 0
    in_progress: bool = False  # requested nodes have not arrived yet
    backoff: Reason | None = None  # GROUP_BACKOFF: until, error, code
    candidates: int = 0  # number of its unneeded nodes
    # of a new node per hour in millionths, where the policy weighs prices; 0: unknown
    price: int = 0
    expected_price: int = 0  # by which it was weighed
    # owner and pods for which its upcoming nodes were bought
    coming_for: tuple[tuple[str, int], ...] = ()


class Removal(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node to be removed. kind: empty | drain. destinations: where the simulation placed each
    evicted pod. replacement: id of the replacement to which it belongs. leaves_at: when its vendor
    takes it back, 0.0 if it does not."""

    node: str
    group: str
    kind: str
    evict: tuple[str, ...] = ()
    destinations: dict[str, str] = {}
    reason: DisruptionReason = DisruptionReason.UNNEEDED
    replacement: str = ""
    leaves_at: float = 0.0


class Restart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sick node that its provider restarts. evict: the pods that leave it first. condition: by
    which it is sick, as type=status."""

    node: str
    group: str
    condition: str
    evict: tuple[str, ...] = ()


class GroupClosing(msgspec.Struct, frozen=True, omit_defaults=True):
    """An empty group that Outscaler has made and deletes. makes_room_for: groups that are opened in
    its place."""

    group: str
    provider: str
    makes_room_for: tuple[str, ...] = ()


class Repair(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"from_size": "from", "to_size": "to"}
):
    """A repair of a group. kind: discard (these instances) | shrink (a
    target above what exists)."""

    group: str
    kind: str
    from_size: int
    to_size: int
    reason: Reason
    instances: tuple[str, ...] = ()


class TaintUpdate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A taint of ours to add to or remove from a node independently of operations. action:
    soften (add the soft taint)
    | unsoften | cleanup (remove a hard taint whose operation is over) | mark (the node has exactly
    the first `level` of LEAVING_MARKS, with `value`). cordoned: uncordon too."""

    node: str
    action: str
    cordoned: bool = False
    level: int = 0
    value: str = ""


class NodeVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a node stays; pod: the pod that blocks its removal, if one does."""

    node: str
    reason: Reason
    pod: str = ""


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """Counts of nodes by readiness, and whether the cluster may be scaled."""

    healthy: bool = True
    registered: int = 0
    ready: int = 0
    unready: int = 0
    not_started: int = 0
    being_deleted: int = 0
    unregistered: int = 0
    upcoming: int = 0
    suspended: int = 0
    resource_unready: int = 0  # of unready: those without a device that their label announces
    long_unregistered: int = 0
    removing: int = 0  # nodes in removal
    cpu: int = 0  # capacity of all nodes: millicores, bytes
    memory: int = 0
    sick_zones: tuple[str, ...] = ()


class RuleVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule on one pool in this pass. nodes: how many it adds; reason: why none (or no
    more). due: the occurrence of a cron rule that this concerns. rate: the measured
    allocation rate, in percent."""

    rule: str
    pool: str
    source: str = ""
    nodes: int = 0
    due: float = 0.0
    rate: float | None = None
    reason: Reason | None = None


class HeadroomVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """Headroom in this pass, in virtual pods: wanted, available on existing or upcoming nodes, and
    on nodes that this pass adds. reasons: by group, why the rest has no room."""

    name: str
    wanted: int
    held: int = 0
    added: int = 0
    reasons: dict[str, Reason] = {}


class MovePurchase(msgspec.Struct, frozen=True, omit_defaults=True):
    """Nodes of a group that a move buys. price: of one node and hour."""

    group: str
    nodes: int
    price: float


class Move(msgspec.Struct, frozen=True, omit_defaults=True):
    """A consolidation: nodes that go, what is bought for their pods first, and why it is worth it.
    price: of the nodes that go; saves: price without the purchases; gain: saves without the price
    of the disruption and what is paid once; all per hour. score: the gain's share by the rule of
    docs/reference/consolidation.md "Score". state: "shadow", "begins" (operations of this plan), or
    the state of its replacement. replacement: its id, "" if it buys nothing. currency: "" if
    unknown."""

    nodes: tuple[str, ...]
    purchases: tuple[MovePurchase, ...]
    price: float
    saves: float
    disruption: float
    gain: float
    score: float
    state: str
    pool: str = ""
    replacement: str = ""
    currency: str = ""


class PoolCost(msgspec.Struct, frozen=True, omit_defaults=True):
    """One pool as consolidation sees it. price: of all its priced nodes per hour;
    disruption: of all their pods; rate: what one disruption must bring per hour.
    unpriced: nodes without a price."""

    pool: str
    price: float
    disruption: float
    rate: float
    unpriced: int = 0
    currency: str = ""


class HorizonReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where consolidation ends if nothing changes. since: when it was decided, epoch seconds.
    levels: node -> number of its marks (0: none, marks are not written); price: an hour, of all
    priced nodes now; end: the same when the marked nodes have gone. going: the nodes that go.
    marked: how many nodes have their marks; gone: how many have left since."""

    id: str
    since: float
    price: float
    end: float
    levels: dict[str, int] = {}
    going: tuple[str, ...] = ()
    marked: int = 0
    currency: str = ""
    gone: int = 0


class ConsolidationReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What consolidation found in this pass. verdicts: one reason for each node that is not
    consolidated now. gap: how far the result may be from the best one, as a share of the bound;
    None if nothing was searched. horizon: None if none stands."""

    mode: str
    moves: tuple[Move, ...] = ()
    verdicts: tuple[NodeVerdict, ...] = ()
    pools: tuple[PoolCost, ...] = ()
    gap: float | None = None
    horizon: HorizonReport | None = None


class EndedReplacement(msgspec.Struct, frozen=True, omit_defaults=True):
    """A replacement that this pass ended. nodes: all its old ones. new_nodes: those
    that it bought, as far as known. saves: per hour. why: it failed; until: its nodes
    are not replaced again before."""

    id: str
    nodes: tuple[str, ...]
    new_nodes: tuple[str, ...] = ()
    saves: float = 0.0
    why: Reason | None = None
    until: float = 0.0


class LifecycleVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node that should go although it is needed. why: it is sick (`repair`), too old or outdated;
    since: when it became due, epoch seconds; while it is not sick for long enough, since when it is
    sick. held: what holds it; None: it goes now."""

    node: str
    why: DisruptionReason
    since: float
    held: Reason | None = None


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """The complete plan. id is derived from the inputs, so a replay has the same id."""

    id: str
    cluster: str
    at: float
    scale_ups: tuple[ScaleUp, ...] = ()
    unschedulable: tuple[UnschedulablePods, ...] = ()
    fits_existing: tuple[str, ...] = ()
    promises: tuple[PodPlacement, ...] = ()  # a place for every pod of scale_ups and fits_existing
    ignored: tuple[IgnoredPods, ...] = ()
    removals: tuple[Removal, ...] = ()
    repairs: tuple[Repair, ...] = ()
    restarts: tuple[Restart, ...] = ()
    closings: tuple[GroupClosing, ...] = ()
    marks: tuple[TaintUpdate, ...] = ()
    paused: Reason | None = None  # what blocks all removals in this pass
    unneeded: tuple[str, ...] = ()
    unremovable: tuple[NodeVerdict, ...] = ()
    groups: tuple[GroupVerdict, ...] = ()
    operations: tuple[Operation, ...] = ()  # new ones, to be saved and dispatched
    rules: tuple[RuleVerdict, ...] = ()
    headroom: tuple[HeadroomVerdict, ...] = ()
    health: Health = Health()
    gaps: tuple[MissingData, ...] = ()
    notes: tuple[Reason, ...] = ()  # what limited the whole pass: cooldowns, limits, time budget
    consolidation: ConsolidationReport | None = None  # None: it is off
    lifecycle: tuple[LifecycleVerdict, ...] = ()
    ended_replacements: tuple[EndedReplacement, ...] = ()

    @property
    def rests(self) -> list[Reason]:
        """The notes on groups whose new nodes are no better than those that they replace."""
        return [note for note in self.notes if note.code is ReasonCode.RENEWAL_RESTS]

    @property
    def waits_for_pods(self) -> float:
        """Return the seconds from `at` after which to look again at the pods that the plan waits
        for; 0.0 if it waits for none."""
        codes = (ReasonCode.WAITING_FOR_MORE, ReasonCode.WAITING_FOR_SCHEDULER)
        waits = (pods.reason.params for pods in self.ignored if pods.reason.code in codes)
        return next((float(params.get("left", 0.0)) for params in waits), 0.0)
