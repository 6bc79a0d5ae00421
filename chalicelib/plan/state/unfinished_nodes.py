"""Young nodes that are ready and not finished: what they lack so far of what a new node of their
group has. See docs/reference/node-groups.md "Unfinished nodes".

    a node of a group that is ready
      ► older than maxNodeStartupTime      as it is
      ► younger                            compared with the template that its
                                           group has without young nodes
          ► lacks a label, has nothing of a resource, or has a taint that will go
                                           unfinished: for pods that need the
                                           difference it is still coming

Where the template is no copy of an older node, the young node that has most is such a template too:
nodes that were bought together are not finished at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from chalicelib.model.memory import Memory, Undelivered
from chalicelib.model.node import OWN_TAINTS, Node, Taint
from chalicelib.model.resources import CPU, MEMORY, PODS
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.predicates import BLOCKING
from chalicelib.plan.state.interruptions import INTERRUPTION_TAINTS
from chalicelib.plan.state.node_labels import own_keys
from chalicelib.plan.state.node_templates import (
    BETA_LABELS,
    COPY,
    PASSING_TAINTS,
    PROVIDER,
    TEMPLATE_LABEL,
    Newcomers,
    Template,
    settled,
)
from chalicelib.plan.state.readiness import STATUS_PREFIX, Bucket, is_startup_taint
from chalicelib.plan.state.zones import SEVERAL_ZONES, zone_label
from chalicelib.policy.settings.cluster_options import Options

# A node that has one of these is on its way out, or somebody has set it apart.
_NOT_PASSING = frozenset({
    "node.kubernetes.io/unschedulable", "node.kubernetes.io/unreachable",
    "cloud.google.com/impending-node-termination", "NodeWithImpairedVolumes", *OWN_TAINTS,
    "node.cluster.x-k8s.io/outdated-revision", *INTERRUPTION_TAINTS,
})  # fmt: skip
# Whoever has too little of these is a smaller node. Kubelets register all other resources later:
# local storage, huge pages, and what plugins report.
_OF_EVERY_NODE = frozenset({CPU, MEMORY, PODS})
_NO_DIFFERENCE = {TEMPLATE_LABEL, SEVERAL_ZONES}  # no real node has these labels

Members = Mapping[str, Sequence[Node]]
"""Group id -> its nodes."""
TemplatesOf = Callable[[Members, Newcomers | None], Mapping[str, Template]]
"""(members, newcomers) -> the templates of these groups, as if they had no other nodes."""


class ObservedNodes(msgspec.Struct, frozen=True):
    """The nodes of all groups, as a pass sees them. startup_times: group -> maxNodeStartupTime.
    memory: before the pass."""

    snapshot: Snapshot
    members: Members
    buckets: Mapping[str, Bucket]
    startup_times: Mapping[str, float]
    memory: Memory
    options: Options
    now: float

    def ready(self, nodes: Iterable[Node]) -> list[Node]:
        """Return the nodes that are ready."""
        return [node for node in nodes if self.buckets[node.name] is Bucket.READY]

    def working(self, nodes: Iterable[Node]) -> list[Node]:
        """Return the nodes whose kubelet is ready, whatever else keeps them from being ready."""
        stays = {Bucket.READY, Bucket.UNREADY}
        return [
            node for node in nodes if self.buckets[node.name] in stays and _kubelet_is_ready(node)
        ]

    def younger(self, group: str, seconds: float = 0.0) -> list[Node]:
        """Return the nodes of a group that are young, or ceased to be less than these seconds
        ago."""
        oldest = self.now - self.startup_times[group] - seconds
        return [node for node in self.members[group] if node.created > oldest]


class Unfinished(msgspec.Struct, frozen=True):
    """What a node lacks: keys of labels, names of resources; and its taints that will go."""

    labels: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    taints: tuple[Taint, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.labels or self.resources or self.taints)

    def with_more(self, more_unfinished: Unfinished) -> Unfinished:
        """Return what either of the two lists."""
        return Unfinished(
            tuple(sorted({*self.labels, *more_unfinished.labels})),
            tuple(sorted({*self.resources, *more_unfinished.resources})),
            tuple(dict.fromkeys((*self.taints, *more_unfinished.taints))),
        )


class Expected(msgspec.Struct, frozen=True):
    """What a new node of a group has. template: None where nothing is known. taints: keys of taints
    that somebody says its nodes keep."""

    template: Template | None
    taints: frozenset[str]

    def node(self, node: Node) -> Node | None:
        """Return what this node is compared with: in a group in several zones, the
        new node of its own zone."""
        if self.template is None:
            return None
        return self.template.in_zones.get(zone_label(node), self.template.node)


def expected_nodes(
    observed: ObservedNodes, members: Members, templates: Mapping[str, Template]
) -> dict[str, Expected]:
    """Return what new nodes of these groups have, by these templates, and by what their vendors and
    what was learnt say of taints."""
    vendors = {group.id: group.template for group in observed.snapshot.groups}
    result = {}
    for group in members:
        template, learnt = templates.get(group), observed.memory.templates.get(group)
        vendor = vendors.get(group)
        sources = [vendor] if vendor is not None else []
        sources += [learnt.node] if learnt is not None else []
        sources += [template.node] if template is not None else []
        stated = frozenset(taint.key for node in sources for taint in node.taints)
        result[group] = Expected(template, stated)
    return result


def difference(node: Node, expected: Expected, options: Options) -> Unfinished:
    """Return what a node lacks of a new node of its group. Labels of one node are no difference."""
    template = expected.node(node)
    stated = (
        frozenset(taint.key for taint in template.taints)
        if template is not None
        else frozenset[str]()
    )

    def passes(taint: Taint) -> bool:
        if taint.effect not in BLOCKING or taint.key in _NOT_PASSING or taint.key in stated:
            return False
        return _is_known_to_pass(taint.key, options) or (
            template is not None and taint.key not in expected.taints
        )

    taints = tuple(taint for taint in node.taints if passes(taint))
    if template is None:
        return Unfinished(taints=taints)
    labels = (
        template.labels.keys() - node.labels.keys() - own_keys(template.labels) - _NO_DIFFERENCE
    )
    if expected.template is not None and expected.template.source == PROVIDER:
        labels -= {old for new, old in BETA_LABELS if new in node.labels}
    resources = (
        resource
        for resource, amount in template.allocatable.items()
        if resource not in _OF_EVERY_NODE and amount > 0 and node.allocatable.get(resource, 0) <= 0
    )
    return Unfinished(tuple(sorted(labels)), tuple(sorted(resources)), taints)


def completed(node: Node, unfinished: Unfinished, expected: Expected) -> Node:
    """Return a node as it will be."""
    template = expected.node(node) or node
    amounts = {name: template.allocatable[name] for name in unfinished.resources}
    return msgspec.structs.replace(
        node,
        labels={**node.labels, **{key: template.labels[key] for key in unfinished.labels}},
        allocatable={**node.allocatable, **amounts},
        capacity={**amounts, **node.capacity},
        taints=tuple(taint for taint in node.taints if taint not in unfinished.taints),
    )


class YoungNodes(msgspec.Struct, frozen=True):
    """The young nodes of all groups. unfinished: node -> what it lacks; newcomers:
    what templates need of them."""

    unfinished: Mapping[str, Unfinished]
    newcomers: Newcomers


def young_nodes(
    observed: ObservedNodes,
    undelivered: Mapping[str, Mapping[str, Undelivered]],
    templates_of: TemplatesOf,
) -> YoungNodes:
    """Compare the young nodes of each group. undelivered: group -> what is not
    expected of its new nodes now."""
    young = {group: nodes for group in observed.members if (nodes := observed.younger(group))}
    if not young:
        return YoungNodes({}, Newcomers(undelivered=undelivered))
    names = frozenset(node.name for nodes in young.values() for node in nodes)
    comparison = _Comparison(observed.options)

    def compare(members: Members) -> dict[str, Expected]:
        known = Newcomers(undelivered=undelivered)
        expected = expected_nodes(
            observed, members, templates_of(members, known) if members else {}
        )
        for group in members:
            comparison.compare(ready[group], expected[group])
        return expected

    ready = {group: observed.ready(nodes) for group, nodes in young.items()}
    older = {
        group: [node for node in observed.members[group] if node.name not in names]
        for group in young
    }
    beside: dict[str, list[Node]] = {}
    for group, expected in compare(older).items():
        is_copy = expected.template is not None and expected.template.source == COPY
        model = None if is_copy else comparison.model(ready[group], observed.now)
        if model is not None:
            beside[group] = [*older[group], model]
    compare(beside)
    return YoungNodes(comparison.unfinished, Newcomers(names, comparison.completed, undelivered))


class _Comparison:
    """What is known of the nodes that were compared so far."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.unfinished: dict[str, Unfinished] = {}
        self.completed: dict[str, Node] = {}

    def compare(self, nodes: Iterable[Node], expected: Expected) -> None:
        """Compare nodes with what new ones have."""
        for node in nodes:
            lacks = difference(node, expected, self._options)
            if lacks:
                self.unfinished[node.name] = lacks.with_more(
                    self.unfinished.get(node.name, Unfinished())
                )
                self.completed[node.name] = completed(
                    self.completed.get(node.name, node), lacks, expected
                )

    def model(self, nodes: Sequence[Node], now: float) -> Node | None:
        """Return the finished node that has most, if it can show others what a new one has."""
        if len(nodes) <= 1:
            return None
        finished = (
            node
            for node in nodes
            if node.name not in self.unfinished and settled(node, now, self._options)
        )
        return min(finished, key=lambda node: (-_parts(node), node.name), default=None)


def _parts(node: Node) -> int:
    """Return how many labels and extended resources a node has."""
    return len(node.labels) + sum(
        "/" in name and amount > 0 for name, amount in node.allocatable.items()
    )


def _kubelet_is_ready(node: Node) -> bool:
    ready = node.condition("Ready")
    return ready is not None and ready.status == "True"


def _is_known_to_pass(key: str, options: Options) -> bool:
    if key in PASSING_TAINTS or key in options.status_taint or key.startswith(STATUS_PREFIX):
        return True
    return is_startup_taint(key, options)
