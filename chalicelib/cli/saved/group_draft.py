"""Drafts the manifest of node groups from the nodes of a saved cluster, so that a
first plan needs no typing.

Nodes show which groups exist, by labels and owners that the vendors set, and how many members they
have. They do not show bounds, so these are guesses, and groups without a node are missing.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.cli.saved.saved_cluster import SavedGroup, group_of, is_member
from chalicelib.cluster.node_decoding import OWNER_KIND, OWNER_NAME, OWNER_NAMESPACE
from chalicelib.model.node import OWN_TAINTS, Node, Taint
from chalicelib.model.quantity import format_amount

LEAST_MAX = 10
"""The drafted maximum is twice the size, and at least this."""
CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_PASSING = (*OWN_TAINTS, "node.cluster.x-k8s.io/uninitialized")
_PASSING_PREFIXES = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
# Labels that say where a node is or what runs on it: another group's next node may have the same.
_PLACES = ("topology.", "failure-domain.", "kubernetes.io/", "beta.kubernetes.io/")
# The suffix that Cluster API gives a MachineSet of a MachineDeployment: five to ten
# characters without vowels.
_SUFFIX = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5,10}$")
_CHERRY = "cherryservers://"


class _Source(msgspec.Struct, frozen=True):
    """One way to determine a node's group. group: the group's id, or ""; label: the
    label that names it, if any."""

    group: Callable[[Node], str]
    label: str = ""


class _AllNodes(msgspec.Struct, frozen=True):
    """All nodes, and the number of nodes that have each label with each value."""

    nodes: Sequence[Node]
    counts: Mapping[tuple[str, str], int]


class Draft(msgspec.Struct, frozen=True):
    """manifest: the document that saved_cluster.groups reads; control_plane: number of nodes that
    are left out; listed: ids of groups that no label distinguishes, whose nodes are listed by name;
    bounded: number of groups whose bounds are known and not guessed."""

    manifest: dict[str, Any]
    control_plane: int
    listed: tuple[str, ...]
    bounded: int


def draft(nodes: Sequence[Node], bounds: Mapping[str, tuple[int, int]] | None = None) -> Draft:
    """Return the manifest of the groups of these nodes, sorted by id; never raises.
    bounds: known (min, max) by id."""
    workers = [node for node in nodes if not _is_control_plane(node)]
    shared = Counter(pair for node in workers for pair in _own_labels(node).items())
    all_nodes = _AllNodes(nodes, Counter(pair for node in nodes for pair in node.labels.items()))
    members_by_source: dict[tuple[int, str], list[Node]] = {}
    for node in workers:
        members_by_source.setdefault(_group(node, shared), []).append(node)
    entries: list[dict[str, Any]] = []
    names: set[str] = set()
    bounded = 0
    for (at, value), members in sorted(members_by_source.items(), key=lambda item: item[1][0].name):
        label: dict[str, str] = {}
        if at < len(_SOURCES):
            proposed_name = value
            if _SOURCES[at].label:
                label = {_SOURCES[at].label: value}
        else:
            proposed_name = _type(members[0]) or "nodes"
        name = _unused_name(proposed_name, names)
        names.add(name)
        least = 0
        most = max(2 * len(members), LEAST_MAX)
        if bounds and name in bounds:
            least, most = bounds[name]
            bounded += 1
        selection = _selection(name, label, members, all_nodes)
        template = _template(name, members)
        entries.append({"id": name, "min": least, "max": most, **selection, "template": template})
    entries.sort(key=lambda entry: str(entry["id"]))
    listed = tuple(entry["id"] for entry in entries if "nodes" in entry)
    return Draft({"nodeGroups": entries}, len(nodes) - len(workers), listed, bounded)


def _selection(
    name: str, label: Mapping[str, str], members: Sequence[Node], all_nodes: _AllNodes
) -> dict[str, Any]:
    """Return how the manifest tells the members: nothing if their providerID names
    the group, otherwise by labels, otherwise by name. The first way is used that
    selects exactly these nodes."""
    member_names = {node.name for node in members}
    common = _common(_own_labels(node) for node in members)
    own = {key for key, value in common.items() if all_nodes.counts[key, value] == len(members)}
    types = [key for key in _TYPES if key in own]
    others = [key for key in common if key in own and not key.startswith(_PLACES)]
    ways: list[dict[str, str]] = [dict(label)]
    ways += [{key: common[key]} for key in (types + others)[:1]]
    if common:
        ways.append(common)
    for labels in ways:
        group = SavedGroup(id=name, nodeLabels=labels)
        selected_names = {node.name for node in all_nodes.nodes if is_member(node, group)}
        if selected_names == member_names:
            return {"nodeLabels": labels} if labels else {}
    return {"nodes": sorted(member_names)}


def _template(name: str, members: Sequence[Node]) -> dict[str, Any]:
    """Return a node that every member can stand for: labels and taints common to all, the
    smallest of each resource."""
    resources = sorted(set.intersection(*(set(node.allocatable) for node in members)))
    smallest = {key: min(node.allocatable[key] for node in members) for key in resources}
    lasting = [taint for taint in members[0].taints if _is_lasting(taint)]
    shared = [taint for taint in lasting if all(taint in node.taints for node in members)]
    labels = _common(_own_labels(node) for node in members)
    template: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"template-{name}", "labels": labels},
    }
    if shared:
        template["spec"] = {"taints": [_taint(taint) for taint in shared]}
    allocatable = {key: _amount(key, amount) for key, amount in smallest.items()}
    template["status"] = {"allocatable": allocatable}
    return template


def _taint(taint: Taint) -> dict[str, str]:
    data = {"key": taint.key}
    if taint.value:
        data["value"] = taint.value
    data["effect"] = taint.effect
    return data


def _is_lasting(taint: Taint) -> bool:
    """Return whether a taint belongs to the group and not to the present state of one node."""
    return taint.key not in _PASSING and not taint.key.startswith(_PASSING_PREFIXES)


def _amount(resource: str, amount: int) -> str:
    """Return an exact quantity."""
    if resource == "cpu":
        return format_amount(resource, amount)
    return f"{amount // 1024}Ki" if amount and amount % 1024 == 0 else str(amount)


def _common(label_maps: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the labels that all have with equal values, sorted by key."""
    pairs = set.intersection(*(set(labels.items()) for labels in label_maps))
    return dict(sorted(pairs))


def _own_labels(node: Node) -> dict[str, str]:
    """Return the labels without those that identify the node itself."""
    machine = node.provider_id.rpartition("/")[2]
    instance = node.provider_id.rpartition(".")[2]
    identity = {node.name, machine, instance} - {""}
    labels: dict[str, str] = {}
    for key, value in node.labels.items():
        names_node = key.endswith("/hostname") or value in identity
        if not names_node and not key.startswith("node-role.kubernetes.io/"):
            labels[key] = value
    return labels


def _is_control_plane(node: Node) -> bool:
    owner = node.annotations.get(OWNER_KIND, "")
    return any(label in node.labels for label in CONTROL_PLANE) or owner.endswith("ControlPlane")


def _group(node: Node, shared: Mapping[tuple[str, str], int]) -> tuple[int, str]:
    """Return the index of the first source that names a group, and the group; otherwise the type
    and the labels that the node shares with another one."""
    for at, source in enumerate(_SOURCES):
        if name := source.group(node):
            return at, name
    own_labels = sorted(_own_labels(node).items())
    shared_labels = [(key, value) for key, value in own_labels if shared[key, value] > 1]
    machine_type = _type(node)
    size = ""
    if not machine_type:
        gibibytes = node.capacity.get("memory", 0) >> 30
        size = f"{node.capacity.get('cpu', 0)} {gibibytes}"
    return len(_SOURCES), msgspec.json.encode([machine_type, size, shared_labels]).decode()


def _type(node: Node) -> str:
    return next((node.labels[key] for key in _TYPES if node.labels.get(key)), "")


def _owner(node: Node) -> str:
    """Return the Cluster API object above a node, as the provider names it: a MachineSet with a
    generated suffix stands for its MachineDeployment."""
    kind = node.annotations.get(OWNER_KIND, "")
    name = node.annotations.get(OWNER_NAME, "")
    if not (kind and name):
        return ""
    namespace = node.annotations.get(OWNER_NAMESPACE) or "default"
    suffix = _SUFFIX.search(name)
    if kind == "MachineSet" and suffix:
        return f"MachineDeployment/{namespace}/{name[: suffix.start()]}"
    return f"{kind}/{namespace}/{name}"


def _provider_id_group(node: Node) -> str:
    """Return the group that the providerID names; "" if its first part is the machine itself."""
    path = node.provider_id.partition("://")[2]
    has_parts = path.partition("/")[2]
    return group_of(node) if has_parts else ""


def _cherry_pool(node: Node) -> str:
    return node.labels.get("pool", "") if node.provider_id.startswith(_CHERRY) else ""


def _labelled(label: str) -> _Source:
    return _Source(lambda node: node.labels.get(label, ""), label)


# The first that names a group is used. `pool` is a common label of users, too: on other clouds
# the providerID precedes.
_SOURCES: tuple[_Source, ...] = (
    _labelled("cce.cloud.com/cce-nodepool"),
    _labelled("node.exoscale.net/nodepool-id"),
    _labelled("alibabacloud.com/nodepool-id"),
    _Source(_owner),
    _Source(_cherry_pool, "pool"),
    _Source(_provider_id_group),
    _labelled("pool"),
)


def _unused_name(name: str, names: set[str]) -> str:
    """Return the name, with a number if another group has it."""
    numbered = (name if number == 1 else f"{name}-{number}" for number in itertools.count(1))
    return next(candidate for candidate in numbered if candidate not in names)
