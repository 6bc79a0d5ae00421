"""What the interruptions of spot groups cost, when such groups are bought, and how
many nodes they may have.

For shares a pool is the vendor's pool of a group, and all groups without one are a pool together.
The price of risk is `h · λ · D · 24h` per hour: h is the share of a group's nodes that is
interrupted in an hour, λ · D what the disruption of an average node of the pool is worth by the
score of consolidation. See docs/reference/spot.md "Risk".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction

from chalicelib.model.group import NodeGroup
from chalicelib.model.join_summary import nearest_rank
from chalicelib.model.memory import HOUR, GroupMemory, InterruptionNotice, InterruptionRisk
from chalicelib.model.node import Node
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.prices import Price
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.interruptions import REBALANCE_TAINT
from chalicelib.plan.state.spot_groups import vendor_pool
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.spot import RebalanceAction, Spot
from chalicelib.policy.timeouts import provision_time

HALF_LIFE = 7 * 24 * HOUR
"""Seconds after which what was learnt of a group counts half."""
LONGEST_STEP = 24 * HOUR
"""Seconds that one pass counts at most: after a longer time Outscaler or its clock had
stopped, or its clock jumped."""
PAID_OVER = 24
"""Hours over which the disruption of an interruption is spread, as all costs of a
move that are paid once."""


def spot_groups(state: ClusterState) -> frozenset[str]:
    """Return the ids of the spot groups; none without spec.spot."""
    if state.policy.spot is None:
        return frozenset()
    return frozenset(name for name, group in state.groups.items() if group.group.spot)


# --- risk


def next_risk(group: NodeGroupState, state: ClusterState) -> InterruptionRisk | None:
    """Return what is known of a group's interruptions after this pass, the same object while
    nothing has changed and the last count is younger than an hour. A node with a notice that is
    gone was interrupted; one that is an ordinary node again was not. Groups that are not spot only
    have the notices of their nodes."""
    before = group.memory.risk
    now = state.now
    notices = {
        name: announcement.notice
        for name, announcement in sorted(state.announced.items())
        if announcement.group == group.id
    }
    if not group.group.spot:
        known = InterruptionRisk(notices=notices) if notices else None
        return before if before == known else known
    if before is None:
        return _first_risk(notices, group, state)
    interrupted = sum(name not in state.buckets for name in before.notices)
    elapsed = min(max(0.0, now - before.counted_at), LONGEST_STEP)
    same_nodes = len(group.nodes) == before.nodes and not interrupted
    if same_nodes and notices == before.notices:
        if elapsed < HOUR and before.counted_at <= now:
            return before
        if not group.nodes and before.hours < 1 and before.interruptions < 0.01:
            return before  # nothing left to forget
    decay = 0.5 ** (elapsed / HALF_LIFE)
    node_hours = before.nodes * elapsed / HOUR
    seen_at = [notice.seen_at for notice in notices.values()]
    return InterruptionRisk(
        interruptions=round(before.interruptions * decay + interrupted, 6),
        hours=round(before.hours * decay + node_hours, 6),
        counted_at=now,
        nodes=len(group.nodes),
        last_notice=max([min(before.last_notice, now), *seen_at]),
        notices=notices,
    )


def _first_risk(
    notices: Mapping[str, InterruptionNotice], group: NodeGroupState, state: ClusterState
) -> InterruptionRisk | None:
    if not notices and not group.nodes:
        return None
    last = max((notice.seen_at for notice in notices.values()), default=0.0)
    return InterruptionRisk(
        counted_at=state.now, nodes=len(group.nodes), last_notice=last, notices=dict(notices)
    )


def hazard(group: NodeGroup, memory: GroupMemory) -> Fraction:
    """Return the expected interruptions per hour of one node: (1 + I) / (720 + T). A vendor's rate
    stands in place of the 1."""
    return (memory.risk or InterruptionRisk()).hazard(group.interruption_rate)


def risk_premium(group: NodeGroupState, state: ClusterState) -> int:
    """Return what the risk of interruptions adds to the hourly price of a node, in millionths of
    the currency; 0 for a group that is not spot or has no price.

    λ · D of an average node is the average price of the pool's nodes divided by the aggressiveness.
    A pool without a priced node counts as one node of the group."""
    if group.id not in spot_groups(state):
        return 0
    return round(hazard(group.group, group.memory) * interruption_price(group, state))


def interruption_price(group: NodeGroupState, state: ClusterState) -> Fraction:
    """Return λ · D · 24h of an average node of the group's pool, in millionths of the currency."""
    aggressiveness = Fraction(str(state.policy.consolidation.aggressiveness))
    return _average_price(group, state) / aggressiveness * PAID_OVER


def _average_price(group: NodeGroupState, state: ClusterState) -> Fraction:
    """Return the average price of the nodes of a group's pool. The nodes of a group cost the
    same."""
    book = state.prices
    pool = vendor_pool(group.group) or group.id
    total = nodes = own = 0
    for other in state.groups.values():
        if (vendor_pool(other.group) or other.id) != pool:
            continue
        example = next(iter(other.nodes), None)
        if example is None and other.template is not None:
            example = other.template.node
        price = book.of_node(example, other.group) if example is not None else None
        if isinstance(price, Price):
            total += price.amount * len(other.nodes)
            nodes += len(other.nodes)
            if other.id == group.id:
                own = price.amount
    return Fraction(total, nodes) if nodes else Fraction(own)


# --- avoiding a group, and returning to it


def avoided_until(group: NodeGroupState, state: ClusterState) -> float:
    """Return until when a spot group is bought only if nothing else fits; 0.0: it is not
    avoided."""
    last = _last_notice(group, state)
    if state.policy.spot is None or not group.group.spot or not last:
        return 0.0
    until = last + state.policy.spot.avoid_after_interruption
    return until if until > state.now else 0.0


def returns_at(group: NodeGroupState, state: ClusterState) -> float:
    """Return when consolidation may buy of a spot group again after its last failure
    or interruption; 0.0: now."""
    if state.policy.spot is None or not group.group.spot:
        return 0.0
    failed = group.memory.backoff.last_failed if group.memory.backoff is not None else 0.0
    last = max(min(failed, state.now), _last_notice(group, state))
    until = avoided_until(group, state)
    if last:
        until = max(last + state.policy.spot.return_after, until)
    return until if until > state.now else 0.0


def _last_notice(group: NodeGroupState, state: ClusterState) -> float:
    """Return when a node of the group was last announced to go, in this
    pass included; 0.0: never."""
    last = min(group.memory.risk.last_notice, state.now) if group.memory.risk is not None else 0.0
    if not state.announced:
        return last
    announced = [node.name for node in group.nodes if node.name in state.announced]
    return max([last, *(state.announced[name].notice.seen_at for name in announced)])


# --- recommendations of the vendor


def recommended(state: ClusterState) -> frozenset[str]:
    """Return the nodes that their vendor recommends to leave, if the policy prefers to; they
    are never evacuated for it."""
    if state.policy.spot is None or state.policy.spot.rebalance is not RebalanceAction.PREFER:
        return frozenset()
    names = [node.name for node in state.snapshot.nodes if node.taint(REBALANCE_TAINT) is not None]
    return frozenset(name for name in names if name in state.group_of) - state.leaving


# --- how many


class SpotShares:
    """How many nodes the groups of each pool have, without those that are leaving, and what
    maxShare and onDemandBase leave. size: group id -> nodes, changed by `add` as a pass buys."""

    def __init__(self, state: ClusterState) -> None:
        settings = state.policy.spot or Spot()
        self.share = Fraction(str(settings.max_share))
        self.base = settings.on_demand_base
        self.spot = spot_groups(state)
        self.pool_of = {name: vendor_pool(group.group) for name, group in state.groups.items()}
        removed: set[str] = set()
        for operation in state.memory.operations:
            if operation.is_open:
                removed.update(target.node for target in operation.spec.targets)
        at_risk = Counter(state.group_of[name] for name in state.at_risk if name not in removed)
        self.size = {
            name: max(0, group.target - group.leaving - at_risk[name])
            for name, group in state.groups.items()
        }

    def copy(self) -> SpotShares:
        """Return a copy for trial calculations."""
        other = SpotShares.__new__(SpotShares)
        other.__dict__.update(self.__dict__)
        other.size = dict(self.size)
        return other

    def add(self, group: str, nodes: int) -> None:
        """Count nodes that are bought."""
        self.size[group] = self.size.get(group, 0) + nodes

    def of_pool(self, pool: str, *, on_demand: bool = False) -> int:
        """Return how many nodes a pool has. on_demand: only those."""
        groups = [name for name, own in self.pool_of.items() if own == pool]
        if on_demand:
            groups = [name for name in groups if name not in self.spot]
        return sum(self.size[name] for name in groups)

    def allowance(self, group: str) -> tuple[int, Reason] | None:
        """Return how many more nodes a spot group may have by maxShare, and why not more; None: no
        limit. The first node of a group is always allowed."""
        if group not in self.spot or self.share >= 1:
            return None
        nodes = self.size[group]
        of_pool = self.of_pool(self.pool_of[group])
        room = (self.share * of_pool - nodes) / (1 - self.share)
        reason = Reason.of(ReasonCode.SPOT_SHARE, share=float(self.share), nodes=nodes, of=of_pool)
        return max(0, 1 - nodes, room.numerator // room.denominator), reason

    def lacking_base(self) -> dict[str, int]:
        """Return pool -> nodes that it lacks on demand, of pools with a spot group."""
        if self.base <= 0:
            return {}
        pools = {self.pool_of[name] for name in self.spot}
        lacking = {pool: self.base - self.of_pool(pool, on_demand=True) for pool in sorted(pools)}
        return {pool: nodes for pool, nodes in lacking.items() if nodes > 0}

    def base_reason(self) -> Reason:
        """Return why a spot group is passed over, or a node stays on demand."""
        return Reason.of(ReasonCode.ON_DEMAND_BASE, base=self.base)


# --- nodes that are ready in time


def usual_ready_time(group: NodeGroupState, policy: Policy) -> float:
    """Return the seconds from a request until a new node is usually ready: the median of the last
    ones (nearest rank), otherwise the time that it may take."""
    known = known_ready_time(group)
    return provision_time(group.group, policy.options) if known is None else known


def known_ready_time(group: NodeGroupState) -> float | None:
    """Return the median of the seconds until its last new nodes were ready, None where none has
    joined yet."""
    joins = group.memory.joins
    median = nearest_rank(sorted(joins.ready), 50) if joins is not None else None
    return None if median is None else float(median)


def late_groups(state: ClusterState) -> frozenset[str]:
    """Return the groups whose new nodes are usually ready after the first of
    the nodes at risk has left."""
    first = min((notice.leaves_at for notice in state.at_risk.values()), default=None)
    if first is None:
        return frozenset()
    return frozenset(
        name
        for name, group in state.groups.items()
        if state.now + usual_ready_time(group, state.policy) > first
    )


# --- nodes that were bought on demand because spot groups were not to be had


def next_fallback(
    group: NodeGroupState, bought: Iterable[str], fallback: Iterable[str], now: float
) -> float:
    """Return GroupMemory.fallback_since after this pass. bought: groups that the pass scales up;
    fallback: those whose pods a spot group would have taken that is backed off or avoided."""
    if group.id in bought:
        return now if group.id in fallback else 0.0
    return group.memory.fallback_since


def is_fallback(node: Node, group: NodeGroupState | None, state: ClusterState) -> bool:
    """Return whether a node was bought on demand because spot groups were not to be had: it was
    marked before, or it was created within the provision time after such a purchase of its group.
    group: None if it is not known now."""
    before = state.memory.nodes.get(node.name)
    if state.policy.spot is None or (group is not None and group.group.spot):
        return False
    if group is None or (before is not None and before.fallback):
        return before is not None and before.fallback
    since = group.memory.fallback_since
    if not since:
        return False
    return since <= node.created <= since + provision_time(group.group, state.options)
