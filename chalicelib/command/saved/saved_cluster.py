"""Reads a cluster saved as files: the output of `kubectl get … -A -o json`, and a manifest of its node groups.

`outscaler plan --snapshot DIR` uses this; it needs no AWS and no cluster. Any *.json or *.json.gz with Lists or single
objects is read; manifest.json (or --node-groups FILE) lists the groups. A node belongs to the group named by the host
part of its providerID: `example://general-a/general-a-0`. If the vendor's ids do not contain the group, a group lists
its `nodes` by name or gives their `nodeLabels`.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from chalicelib.command.saved import capture_folder
from chalicelib.model.errors import BadInput
from chalicelib.model.group import GroupOptions, Instance, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.snapshot import MissingData, Snapshot
from chalicelib.net.bounded_files import MOST_OBJECTS, content
from chalicelib.snapshot import api_types
from chalicelib.snapshot.node_decoding import node_from_wire
from chalicelib.snapshot.snapshot_builder import SnapshotBuilder
from chalicelib.snapshot.storage import NAMESPACE

_PROVIDER = "file"


# Kinds that a saved cluster should have: words that identify them in a file name (an empty mixed List has no kind),
# and the verdicts that are less certain without them. No verdicts: without that kind there is no plan.
_CONTROLLED = ("BlockedByPod ControllerNotFound", "BlockedByPod MinReplicasReached")
KINDS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("Node", ("node",), ()),
    ("Pod", ("pods",), ()),
    ("ReplicaSet", ("replicaset", "workload"), _CONTROLLED),
    ("DaemonSet", ("daemonset", "workload"), ("scale-up: DaemonSet pods on new nodes", *_CONTROLLED)),
    ("PodDisruptionBudget", ("pdb", "disruption"), ("BlockedByPod NotEnoughPdb",)),
)
_CLAIMED = (
    ("PersistentVolumeClaim", ("pvc", "claim")),
    ("PersistentVolume", ("volumes", "cluster-scoped")),
    ("StorageClass", ("storageclass", "cluster-scoped")),
)
_PROVIDERS = (_PROVIDER, "alicloud", "clusterapi", "cherryservers", "exoscale", "huaweicloud")


class SavedGroup(msgspec.Struct, forbid_unknown_fields=True):
    """A node group of a manifest. nodes: names of its members; nodeLabels: labels of its members."""

    id: str
    min: int = 0
    max: int = 0
    size: int | None = None
    provider: str = _PROVIDER
    priority: int = 0
    price: float = 0.0
    zeroOrMax: bool = False  # noqa: N815 - the document's own word
    nodes: tuple[str, ...] = ()
    nodeLabels: dict[str, str] = {}  # noqa: N815 - the document's own word
    template: api_types.ApiNode | None = None


class _Manifest(msgspec.Struct):
    nodeGroups: list[msgspec.Raw]  # noqa: N815 - the document's own word


def read(
    directory: Path, *, node_groups: Path | None, cluster: str, taken_at: float, namespace: str = NAMESPACE
) -> Snapshot:
    """Return the snapshot saved in a directory; raises BadInput naming the file and place. namespace:
    options.namespace."""
    manifest = node_groups or directory / "manifest.json"
    folder = SnapshotBuilder(namespace)
    documents = _documents(directory, manifest)
    gaps = capture_folder.missing(directory)
    for path in documents:
        folder.add_page(_load(path), path.name)
    for gap in gaps:
        folder.gap(gap)
    _what_is_missing(folder, directory, documents, frozenset(gap.kind for gap in gaps))
    return folder.snapshot(cluster, taken_at, groups(manifest, folder.nodes))


def read_nodes(directory: Path) -> tuple[Node, ...]:
    """Return the nodes saved in a directory, sorted by name; raises BadInput naming the file and place.

    Files whose names contain `node` are read first, and the others only if these hold none.
    """
    capture_folder.missing(directory)  # refuses an incomplete capture
    folder = SnapshotBuilder(NAMESPACE)
    documents = sorted(_documents(directory, directory / "manifest.json"), key=lambda path: "node" not in path.name)
    for path in documents:
        if "node" not in path.name and folder.nodes:
            break
        folder.add_page(_load(path), path.name)
    if "Node" not in folder.kinds:
        raise BadInput(str(directory), "holds no Node", f"save the cluster into it: outscaler capture {directory}")
    return folder.nodes


def _what_is_missing(
    builder: SnapshotBuilder, directory: Path, documents: Sequence[Path], known: frozenset[str]
) -> None:
    """Require that nodes and pods were saved, even if there are none; any other missing kind is a gap. known: kinds
    that the capture itself reports."""
    for kind, words, weakens in KINDS:
        if kind in builder.kinds | known or any(word in path.name.lower() for path in documents for word in words):
            continue
        if not weakens:
            raise BadInput(str(directory), f"holds no {kind}", "save them too: outscaler capture DIR")
        builder.gap(
            MissingData(
                kind=kind,
                detail="no file holds any: either there are none, or they were not saved",
                affected_decisions=weakens,
            )
        )
    _what_claims_need(builder, documents, known)


def _what_claims_need(builder: SnapshotBuilder, documents: Sequence[Path], known: frozenset[str]) -> None:
    """Add one gap for all storage kinds that were not saved, if any pod has a volume claim; otherwise they do not
    matter."""
    absent = [
        kind
        for kind, words in _CLAIMED
        if kind not in builder.kinds | known
        and not any(word in path.name.lower() for path in documents for word in words)
    ]
    if absent and builder.claims:
        kinds = " or ".join(absent)
        builder.gap(
            MissingData(
                kind=absent[0],
                affected_decisions=("scale-up: pods with claims on volumes",),
                detail=f"no file holds any {kinds}: either there are none, or they were not saved",
            )
        )


def _documents(directory: Path, manifest: Path) -> list[Path]:
    if not directory.is_dir():
        raise BadInput(str(directory), "is not a directory", "give the folder that holds nodes.json, pods.json …")
    found = [
        path
        for path in sorted(directory.iterdir())
        if path.name.endswith((".json", ".json.gz")) and path.is_file() and path.resolve() != manifest.resolve()
    ]
    if not found:
        raise BadInput(
            str(directory),
            "holds no *.json or *.json.gz",
            f"save the cluster into it: outscaler capture {directory}",
        )
    return [p for p in found if p.name != "manifest.json"]


def _load(path: Path) -> bytes:
    try:
        return content(path, MOST_OBJECTS)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(path.name, f"is not a complete gzip file ({error})", "fetch it again") from None
    except OSError as error:
        raise BadInput(str(path), error.strerror or "cannot be read", "give a file that can be read") from None


def groups(path: Path, nodes: Sequence[Node]) -> tuple[NodeGroup, ...]:
    """Return the node groups that a manifest lists, with these nodes as their members; raises BadInput."""
    try:
        raws = msgspec.json.decode(_manifest(path), type=_Manifest).nodeGroups
    except msgspec.ValidationError as error:
        raise BadInput(
            path.name,
            f"is not a manifest of node groups ({error})",
            'write {"nodeGroups": [{"id": …, "min": …, "max": …, "size": …, "template": Node}]}',
        ) from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # ValueError: an infinite number
        why = "nested too deeply" if isinstance(error, RecursionError) else error
        raise BadInput(path.name, f"is not complete JSON ({why})", "fetch it again") from None
    members: dict[str, list[Node]] = {}
    for node in nodes:
        members.setdefault(group_of(node), []).append(node)
    found: dict[str, NodeGroup] = {}
    for at, raw in enumerate(raws):
        place = f"{path.name}: nodeGroups[{at}]"
        group = _group(raw, place, members)
        if group.id in found:
            raise BadInput(f"{place}.id", f"{group.id!r} is given twice", "give every node group an id of its own")
        found[group.id] = group
    return tuple(found.values())


def _manifest(path: Path) -> bytes:
    if not path.exists():
        raise BadInput(
            str(path),
            "does not exist, so the node groups are unknown",
            f"draft it from the nodes: outscaler groups {path.parent} > {path}",
        )
    return _load(path)


def group_of(node: Node) -> str:
    """Return the group that a saved node names in its providerID, `scheme://group/…`; "" if it names none."""
    _, scheme, rest = node.provider_id.partition("://")
    return rest.partition("/")[0] if scheme else ""


def is_member(node: Node, group: SavedGroup) -> bool:
    """Return whether a node belongs to a group, by the manifest's data on the group's nodes, otherwise by the node's
    own providerID."""
    if group.nodes or group.nodeLabels:
        labelled = bool(group.nodeLabels) and group.nodeLabels.items() <= node.labels.items()
        return node.name in group.nodes or labelled
    return group_of(node) == group.id


def _template(item: api_types.ApiNode) -> Node:
    """Return a group's template; its allocatable is empty if only the capacity is given, and the planner computes it
    (plan/state/node_templates.with_allocatable)."""
    node = node_from_wire(item)
    known = item.status is not None and item.status.allocatable
    return node if known else msgspec.structs.replace(node, allocatable={})


def _group(raw: msgspec.Raw, place: str, members: dict[str, list[Node]]) -> NodeGroup:
    try:
        spec = msgspec.json.decode(raw, type=SavedGroup)
    except msgspec.ValidationError as error:
        raise BadInput(place, str(error), "a group has id, min, max, size and template") from None
    if spec.provider not in _PROVIDERS:
        raise BadInput(
            f"{place}.provider", f"{spec.provider!r} is not a provider", f"one of {', '.join(_PROVIDERS[1:])}"
        )
    if spec.min < 0 or spec.max < spec.min:
        problem = f"{spec.max} is below min {spec.min}" if spec.min >= 0 else f"min {spec.min} is negative"
        raise BadInput(f"{place}.max", problem, "bounds are whole numbers with 0 <= min <= max")
    if spec.price < 0:
        raise BadInput(f"{place}.price", f"{spec.price:g} is negative", "write what a node costs per hour")
    mine = [node for nodes in members.values() for node in nodes if is_member(node, spec)]
    machines = len({node.provider_id or f"node {node.name}" for node in mine})  # two Nodes may claim one machine
    size = machines if spec.size is None else spec.size
    if size < 0 or (size > 0 and not mine):
        known = ", ".join(sorted(name for name in members if name)) or "none"
        raise BadInput(
            f"{place}.id",
            f"{spec.id!r} has size {size}, but no node's providerID names it",
            f"groups that nodes name: {known}; a group without nodes has size 0",
        )
    if size < machines:
        raise BadInput(
            f"{place}.size",
            f"{size} is below the {machines} nodes that are members of {spec.id!r}",
            f"leave size out to count them, or write at least {machines}",
        )
    try:
        template = _template(spec.template) if spec.template else None
    except BadInput as error:
        raise BadInput(f"{place}.template.{error.place}", error.problem, error.remedy) from None
    return NodeGroup(
        id=spec.id,
        provider=spec.provider,
        min=spec.min,
        max=spec.max,
        target=size,
        priority=spec.priority,
        instances=tuple(Instance(id=node.provider_id, handle=node.provider_id, node=node.name) for node in mine),
        template=template,
        template_error="" if template else "the manifest gives no template",
        options=GroupOptions(zero_or_max=spec.zeroOrMax),
        price=spec.price,
    )
