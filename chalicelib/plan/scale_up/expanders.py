"""The expanders: filters that choose one of several options, in a chain.

Here: options, the expanders, their table and the chain. `random` is the last choice of
every chain. Not here: `least-cost`, which weighs all groups and pods at once (least_cost);
the search asks it first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from math import inf, tanh

import msgspec

from chalicelib.model.node import Node
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, MEMORY, Amounts
from chalicelib.model.snapshot import PriorityConfig
from chalicelib.plan.prices import (
    MICRO,
    Rates,
    has_gpu,
    node_price,
    pod_rates,
    unpriced,
)
from chalicelib.plan.scale_up.expected_prices import expected_prices
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.spot_market import late_groups
from chalicelib.policy.go_patterns import pattern
from chalicelib.policy.settings.node_prices import NodePrices

RANDOM, LEAST_COST = "random", "least-cost"

# up to this many nodes in the cluster: this many cores
_PREFERRED = ((2, 1), (6, 2), (20, 4), (60, 8), (200, 16))
_PREFERRED_BEYOND = 32
_STABILISER = {CPU: 500, MEMORY: 500 * 2**20}
_GPU_UNFITNESS = 1000.0
_ABSENT_FACTOR = 2.0

PriorityRules = tuple[tuple[int, tuple[str, ...]], ...]
MOST_PATTERN_STEPS = 1_000_000_000
"""Instructions of all patterns times bytes of all names of a pass: two seconds at worst, where
ordinary patterns take milliseconds."""
_LOWEST = -1  # start value of Cluster Autoscaler's search: lower priorities never win
_SLOW_PATTERNS = (
    "its patterns take too long to be looked for in the names of the node groups: write simpler "
    "ones"
)


class Option(msgspec.Struct, frozen=True):
    """A scale-up option: a group, a number of new nodes, and the pods they would take.

    pods: class -> number of its pods. requested: total requests of those pods, cpu in millicores.
    preference: how well soft preferences of the pods are met, higher is better; decides among
    otherwise equal options. order:
    classes in the order in which they were packed.
    """

    group: str
    nodes: int
    pods: dict[int, int]
    template: Node
    requested: dict[str, int]
    preference: float = 0.0
    order: tuple[int, ...] = ()

    @property
    def pod_count(self) -> int:
        """Return the total number of pods."""
        return sum(self.pods.values())


class ExpanderContext(msgspec.Struct, frozen=True):
    """What an expander may use besides the options, so that none depends on the cluster
    state; constant within a pass.

    cluster_nodes: nodes in the cluster, from which the price expander derives the preferred size of
    new ones. priorities: None if the cluster has no such ConfigMap; then group_priorities apply
    (group id -> priority, 0 if missing). group_prices: hourly price of a node of a group by its
    provider, or of a spot group by the policy (group id -> price, unknown if missing).
    price_errors: why a provider's price is missing (group id -> text). expected_prices:
    what is weighed in place of
    prices (group id -> hourly price), for groups with a price, where the policy wants
    it, and for spot groups.
    group_aliases: further names of a group (group id -> names). group_ranks: preference
    among equal groups, higher
    is preferred (group id -> rank, 0 if missing). group_pools: the pool that a group shares with
    others (group id -> pool id). absent: groups that would have to be created first. late: groups
    whose nodes come too late for pods of a node that its vendor takes back. variant_of: variant of
    a group in several zones -> the group. managed: the policy has managed pools.
    for_base: nodes are bought that stay on demand (spot.onDemandBase)."""

    seed: int = 0
    cluster_nodes: int = 0
    prices: NodePrices | None = None
    priorities: PriorityConfig | None = None
    group_priorities: dict[str, int] = {}
    group_prices: dict[str, float] = {}
    price_errors: dict[str, str] = {}
    expected_prices: dict[str, float] = {}
    group_aliases: dict[str, tuple[str, ...]] = {}
    group_ranks: dict[str, int] = {}
    group_pools: dict[str, str] = {}
    absent: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()
    variant_of: dict[str, str] = {}
    managed: bool = False
    for_base: bool = False

    def group(self, option: Option) -> str:
        """Return the group of an option, also of one of a variant."""
        return self.variant_of.get(option.group, option.group)

    def price_of(self, group: str, template_node: Node) -> float | None:
        """Return the hourly price by which a new node of a group is
        weighed, None if it is unknown."""
        group = self.variant_of.get(group, group)
        expected = self.expected_prices.get(group)
        if expected is not None:
            return expected
        return node_price(template_node, self.prices, self.group_prices.get(group, 0.0))


Filtered = tuple[list[Option], tuple[Reason, ...]]
Expander = Callable[[Sequence[Option], ExpanderContext], Filtered]
"""(options, context) -> the best options, in the order given, and notes for the plan. Expanders
are pure: a chain called twice gives the same answer."""


def expander_context(state: ClusterState, seed: int) -> ExpanderContext:
    """Return the expander context of a pass; seed: for expanders that draw at random."""
    prices = state.policy.prices
    groups = {group.id: group.group for group in state.groups.values()}
    book = state.prices
    fee = prices.node if prices is not None else 0.0
    own: dict[str, float] = {}
    special: dict[str, float] = {}
    pools: dict[str, str] = {}
    for name, group in groups.items():
        price = book.own(group)
        if price:
            own[name] = price
        is_special = (group.spot and book.spot) or group.managed is not None
        if is_special and group.template:
            listed = book.hourly(group.template, group)
            if listed is not None:
                special[name] = listed
                own[name] = listed - fee
        if group.pool is not None:
            pools[name] = group.pool.id
    expected = {name: price.amount / MICRO for name, price in expected_prices(state).items()}
    errors = {name: book.foreign(group) or group.price_error for name, group in groups.items()}
    return ExpanderContext(
        seed=seed,
        cluster_nodes=len(state.snapshot.nodes),
        prices=prices,
        priorities=state.snapshot.priorities,
        group_priorities={name: group.priority for name, group in groups.items()},
        group_prices=own,
        price_errors={name: error for name, error in errors.items() if error},
        expected_prices=special | expected,
        group_aliases={name: group.aliases for name, group in groups.items() if group.aliases},
        group_ranks={name: group.rank for name, group in groups.items() if group.rank},
        group_pools=pools,
        late=late_groups(state),
        managed=bool(state.policy.managed_pools),
    )


# -- most-pods, least-waste, least-nodes


def keep_most_pods(options: Sequence[Option], _: ExpanderContext) -> Filtered:
    """most-pods: return all options with the largest pod count."""
    most = max(option.pod_count for option in options)
    return [option for option in options if option.pod_count == most], ()


def waste(option: Option) -> float:
    """Return the unused share of cpu plus the unused share of memory, between
    0 (nothing unused) and 2."""
    total = 0.0
    capacity_of_node = _capacity(option.template)
    for name in (CPU, MEMORY):
        capacity = capacity_of_node.get(name, 0) * option.nodes
        requested = option.requested.get(name, 0)
        if capacity > 0:
            total += (capacity - requested) / capacity
    return total


def _capacity(node: Node) -> Amounts:
    return node.capacity or node.allocatable


def keep_least_waste(options: Sequence[Option], _: ExpanderContext) -> Filtered:
    """least-waste: return the options with the smallest waste over the new nodes' whole capacity;
    only exact equality is a tie."""
    wasted = [waste(option) for option in options]
    return _with_value(options, wasted, min(wasted)), ()


def keep_fewest_nodes(options: Sequence[Option], _: ExpanderContext) -> Filtered:
    """least-nodes: return all options with the smallest node count, of any type; options
    without a node are dropped."""
    real = [option for option in options if option.nodes > 0]
    least = min((option.nodes for option in real), default=0)
    return [option for option in real if option.nodes == least], ()


# -- price: compares the cost of the nodes with the value of the pods, and prefers nodes of a
# suitable size. A large node suits a large cluster but not a small one, and the size matters less
# when many nodes are added at once. Nodes with GPUs are for pods that cannot run elsewhere. All of
# that is one score; the smallest wins.


def keep_best_price(options: Sequence[Option], context: ExpanderContext) -> Filtered:
    """price: return the options with the smallest score. An option without a price is dropped with
    a NO_PRICE note; the result may be empty."""
    prices = context.prices
    own = [context.group_prices.get(context.group(option), 0.0) for option in options]
    rates = pod_rates(prices, [option.template for option in options], own)
    best: list[Option] = []
    least = inf
    notes: list[Reason] = []
    for option in options:
        price = context.price_of(option.group, option.template)
        if rates is None or price is None:
            group = context.group(option)
            detail = context.price_errors.get(group) or unpriced(option.template, prices)
            notes.append(Reason.of(ReasonCode.NO_PRICE, group=group, detail=detail))
            continue
        score = price_score(option, price, rates, context)
        if score < least:
            best, least = [], score
        if score == least:
            best.append(option)
    return best, tuple(notes)


def preferred_cores(cluster_nodes: int) -> int:
    """Return how many cores a node should have in a cluster of this many nodes."""
    return next((cores for most, cores in _PREFERRED if cluster_nodes <= most), _PREFERRED_BEYOND)


def price_score(option: Option, price: float, rates: Rates, context: ExpanderContext) -> float:
    """Return S * (P_nodes + p_stab) / (P_pods + p_stab), doubled for a group that does not exist
    yet. price: of one node."""
    stabiliser = rates.of(_STABILISER)
    nodes = price * option.nodes + stabiliser
    pods = rates.of(option.requested) + stabiliser
    if pods > 0:
        ratio = nodes / pods
    else:  # reached only with a price list of zeros: a node that still has a cost is worse
        ratio = inf if nodes > 0 else 1.0
    factor = _ABSENT_FACTOR if context.group(option) in context.absent else 1.0
    return _unfitness(option, context) * ratio * factor


def _unfitness(option: Option, context: ExpanderContext) -> float:
    """Return 1 for a node of the preferred size and more for a larger distance from it; the effect
    shrinks as more nodes are added at once."""
    if has_gpu(option.template):
        return _GPU_UNFITNESS
    preferred = preferred_cores(context.cluster_nodes) * 1000
    own = max(_capacity(option.template).get(CPU, 0), 1)
    distance = max(preferred / own, own / preferred) - 1
    effect = 1 - tanh((option.nodes - 1) / 15)
    return distance * effect + 1


def keep_cheapest_pods(options: Sequence[Option], context: ExpanderContext) -> Filtered:
    """Return the options with the lowest price for each of their pods; all options if none has a
    price. For an on-demand base, what counts is the price of a node: the other pods go to spot."""
    costs = []
    for option in options:
        price = context.price_of(option.group, option.template)
        share = 1.0 if context.for_base else option.nodes / max(1, option.pod_count)
        costs.append(inf if price is None else price * share)
    return _with_value(options, costs, min(costs)), ()


# -- priority: priorities come from the cluster's ConfigMap `cluster-autoscaler-priority-expander`
# or, if there is none, from the policy's nodeGroups. Among groups of the highest priority, the rank
# that a vendor's pool gives its flavours decides. An invalid ConfigMap filters nothing, because a
# partially understood ranking is worse than none.


def keep_highest_priority(options: Sequence[Option], context: ExpanderContext) -> Filtered:
    """priority: return the options of the highest priority, all of them if
    no priority is configured."""
    config = context.priorities
    if config is None:
        groups_of_options = [context.group(option) for option in options]
        ranks = [
            (context.group_priorities.get(group, 0), context.group_ranks.get(group, 0))
            for group in groups_of_options
        ]
        return _with_value(options, ranks, max(ranks)), ()
    # Sorted, so that all calls of a pass are equal. Users write the name that they see,
    # which need not be the id.
    groups = sorted({*context.group_priorities, *map(context.group, options)})
    names = tuple((group, (group, *context.group_aliases.get(group, ()))) for group in groups)
    priority_of = None if config.problem else _priority_of_groups(config.rules, names)
    if priority_of is None:
        detail = config.problem or _SLOW_PATTERNS
        return list(options), (Reason.of(ReasonCode.PRIORITY_CONFIG_INVALID, detail=detail),)
    priorities = [priority_of.get(context.group(option)) for option in options]
    matches = [priority for priority in priorities if priority is not None]
    highest = max(matches, default=_LOWEST - 1)
    if highest < _LOWEST:
        return list(options), (Reason.of(ReasonCode.PRIORITY_NO_MATCH),)
    notes = tuple(
        Reason.of(ReasonCode.PRIORITY_NOT_MATCHED, group=context.group(option))
        for option, priority in zip(options, priorities, strict=True)
        if priority is None
    )
    return _with_value(options, priorities, highest), notes


def _with_value(options: Sequence[Option], values: Sequence[object], value: object) -> list[Option]:
    """Return the options with this value. values: of each option."""
    return [option for option, own in zip(options, values, strict=True) if own == value]


@lru_cache(maxsize=16)
def _priority_of_groups(
    rules: PriorityRules, groups: tuple[tuple[str, tuple[str, ...]], ...]
) -> dict[str, int] | None:
    """Return group -> the highest priority with a pattern found anywhere in one of its names
    (READ ONLY); groups without a match are missing. None: matching would take too long. groups:
    each with all its names.

    Raises BadInput for an invalid pattern; policy/priority_configmap.py rejects such rules earlier.
    """
    patterns = [
        (priority, [pattern(text) for text in texts])
        for priority, texts in sorted(rules, reverse=True)
    ]
    instructions = sum(compiled.size for _, several in patterns for compiled in several)
    name_bytes = sum(len(name.encode(errors="replace")) for _, names in groups for name in names)
    if instructions * name_bytes > MOST_PATTERN_STEPS:
        return None
    priority_of = {}
    for group, names in groups:
        for priority, several in patterns:
            if any(compiled.found_in(name) for compiled in several for name in names):
                priority_of[group] = priority
                break
    return priority_of


# -- the chain

EXPANDERS: dict[str, Expander] = {
    "most-pods": keep_most_pods,
    "least-waste": keep_least_waste,
    "least-nodes": keep_fewest_nodes,
    "price": keep_best_price,
    "priority": keep_highest_priority,
}


_OWN_EXPANDERS: dict[str, Expander] = {"cheapest-pods": keep_cheapest_pods}
"""Those that a policy cannot name."""


def choose_option(
    options: Sequence[Option], chain: Sequence[str], context: ExpanderContext
) -> tuple[Option | None, tuple[Reason, ...]]:
    """Return the option to take, None if none is left, and notes for Plan.notes (the same notes
    on every call of a pass).

    As in Cluster Autoscaler, the chain ends as soon as one option is left, a single option is also
    passed to the expanders, and an expander that rejects all options leaves none. Before the chain,
    the flavours of a pool are ranked. Among equal options, the one that meets most soft preferences
    is taken, and of those one whose nodes are ready before a node at risk leaves. Remaining ties
    are drawn by the seed if the chain ends in `random`; otherwise the lowest group id wins, so that
    a plan is predictable. Cluster Autoscaler always draws at random there. An unknown expander name
    is skipped with EXPANDER_SKIPPED.
    """
    by_group = sorted(options, key=lambda option: option.group)
    best = _without_needless_flavours(by_group, context)
    unknown = [name for name in chain if name not in {*EXPANDERS, RANDOM, LEAST_COST}]
    detail = "not available in this version"
    notes = [
        Reason.of(ReasonCode.EXPANDER_SKIPPED, expander=name, detail=detail) for name in unknown
    ]
    filters = [name for name in chain if name in EXPANDERS]
    decides_nothing = not filters and RANDOM not in chain
    if decides_nothing or (chain and chain[-1] == LEAST_COST):
        # Among machines of all sizes and prices, what is wasted says little.
        by_price = bool(chain) and chain[-1] == LEAST_COST and context.managed
        filters.append("cheapest-pods" if by_price else "least-waste")  # upstream's default
    for name in filters:
        if not best:
            break
        best, reported = (_OWN_EXPANDERS | EXPANDERS)[name](best, context)
        notes += reported
        if len(best) == 1:
            break
    if not best:
        return None, tuple(notes)
    most = max(option.preference for option in best)
    equal = [option for option in best if option.preference == most]
    in_time = [option for option in equal if context.group(option) not in context.late]
    equal = in_time or equal
    chosen = random_option(equal, context.seed) if RANDOM in chain else equal[0]
    return chosen, tuple(notes)


def _without_needless_flavours(options: Sequence[Option], context: ExpanderContext) -> list[Option]:
    """Return the options, in the given order, without those that a higher-ranked option of the same
    pool makes unnecessary because it takes pods of the same classes.

    Expanders compare pods, waste and cost between pools. Within a pool the user has ordered the
    flavours, and expanders must not override that order. The preferred option need not take as
    many pods: the rest is searched again in the same pass, and then the next flavour is used. It is
    used at once where the preferred one is out of stock or backed off. Between pools, ranks matter
    only to the expander `priority`; `least-cost` ignores them.
    """
    ranks, pools = context.group_ranks, context.group_pools
    if not ranks or not pools:
        return list(options)
    by_pool: dict[str, list[Option]] = {}
    for option in options:
        by_pool.setdefault(pools.get(context.group(option), ""), []).append(option)

    def is_needless(option: Option) -> bool:
        group = context.group(option)
        pool, rank = pools.get(group, ""), ranks.get(group, 0)
        if not pool:
            return False
        preferred = (other for other in by_pool[pool] if ranks.get(context.group(other), 0) > rank)
        return any(option.pods.keys() <= other.pods.keys() for other in preferred)

    return [option for option in options if not is_needless(option)]


def random_option(options: Sequence[Option], seed: int) -> Option:
    """Return one of the options; over all seeds each is equally likely. The draw depends only on
    the seed and the groups' ids: the order of the options does not matter, and dropping a group
    changes nothing among the others."""

    def lot(option: Option) -> tuple[bytes, str]:
        text = f"{seed}\n{option.group}".encode("utf-8", "surrogatepass")
        return blake2b(text, digest_size=8).digest(), option.group

    return min(options, key=lot)
