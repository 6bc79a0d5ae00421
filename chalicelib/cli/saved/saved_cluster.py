"""Reads a cluster saved as files: the output of `kubectl get … -A -o json` or `-o yaml`, or of
`kubectl cluster-info dump`, and a manifest of its node groups.

`outscaler plan --snapshot DIR` uses this; it needs no AWS and no cluster. saved_files.py says which
files are read; manifest.json (or --node-groups FILE) lists the groups. A node
belongs to the group named by the host part of its providerID: `example://general-a/general-a-0`. If
the vendor's ids do not contain the group, a group lists its `nodes` by name or gives their
`nodeLabels`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from chalicelib.cli.saved.saved_files import (
    STDIN,
    SavedFile,
    SavedFiles,
    Unreadable,
    loaded,
    pages,
    saved_files,
)
from chalicelib.cluster import api_types
from chalicelib.cluster.node_decoding import node_from_wire
from chalicelib.cluster.snapshot_builder import SnapshotBuilder
from chalicelib.cluster.storage import NAMESPACE
from chalicelib.model.errors import BadInput
from chalicelib.model.group import GroupOptions, Instance, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.snapshot import MissingData, ObservedGroups, Snapshot
from chalicelib.net.bounded_files import content

_PROVIDER = "file"


# Kinds that a saved cluster should have: words that identify them in a file name (an empty mixed
# List has no kind), and the verdicts that are less certain without them. No verdicts: without
# that kind there is no plan.
_CONTROLLED = ("BlockedByPod ControllerNotFound", "BlockedByPod MinReplicasReached")
KINDS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("Node", ("node",), ()),
    ("Pod", ("pods",), ()),
    ("ReplicaSet", ("replicaset", "workload"), _CONTROLLED),
    (
        "DaemonSet",
        ("daemonset", "workload"),
        ("scale-up: DaemonSet pods on new nodes", *_CONTROLLED),
    ),
    ("PodDisruptionBudget", ("pdb", "disruption"), ("BlockedByPod NotEnoughPdb",)),
)
_CLAIMED = (
    ("PersistentVolumeClaim", ("pvc", "claim")),
    ("PersistentVolume", ("volumes", "cluster-scoped")),
    ("StorageClass", ("storageclass", "cluster-scoped")),
)
_OF_CLAIMS = "scale-up: pods with claims on volumes"
# What `kubectl cluster-info dump` saves of no cluster, with the verdicts that are less certain.
_NOT_DUMPED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("PodDisruptionBudget", ("BlockedByPod NotEnoughPdb",)),
    ("PersistentVolumeClaim", (_OF_CLAIMS,)),
    ("PersistentVolume", (_OF_CLAIMS,)),
    ("StorageClass", (_OF_CLAIMS,)),
    ("CSINode", (_OF_CLAIMS,)),
    ("Namespace", ("scale-up: pods with namespace selectors",)),
    ("StatefulSet", _CONTROLLED),
    ("Job", _CONTROLLED),
)
_FEW_NAMESPACES = 2  # of a dump without -A: kube-system and the current one
_PROVIDERS = (_PROVIDER, "alicloud", "clusterapi", "cherryservers", "exoscale", "huaweicloud")


class SavedGroup(msgspec.Struct, forbid_unknown_fields=True):
    """A node group of a manifest. nodes: names of its members; nodeLabels: labels of its
    members."""

    id: str
    min: int = 0
    max: int = 0
    size: int | None = None
    provider: str = _PROVIDER
    priority: int = 0
    price: float = 0.0
    currency: str = ""
    billedPer: float = 1.0  # noqa: N815 - the document's own word
    spot: bool = False
    zeroOrMax: bool = False  # noqa: N815 - the document's own word
    nodes: tuple[str, ...] = ()
    nodeLabels: dict[str, str] = {}  # noqa: N815 - the document's own word
    template: api_types.ApiNode | None = None


class _Manifest(msgspec.Struct):
    nodeGroups: list[msgspec.Raw]  # noqa: N815 - the document's own word


def read(
    source: Path,
    *,
    node_groups: Path | None,
    cluster: str,
    taken_at: float,
    namespace: str = NAMESPACE,
    draft: Callable[[Sequence[Node]], bytes] | None = None,
) -> Snapshot:
    """Return the snapshot saved in a folder, a file or standard input; raises BadInput naming the
    file and place.

    namespace: options.namespace. draft: makes the manifest of a source that has none, which is
    otherwise refused.
    """
    manifest = node_groups or _folder(source) / "manifest.json"
    builder = SnapshotBuilder(namespace)
    gaps = capture_gaps(source)
    files = saved_files(source, manifest, captured=_is_capture(source))
    for file in files.files:
        _add(builder, file)
    for gap in gaps:
        builder.gap(gap)
    _note_absent(builder, source, files, frozenset(gap.kind for gap in gaps))
    if draft is not None and node_groups is None and not manifest.exists():
        own = groups_of(draft(builder.nodes), "the drafted groups", builder.nodes)
    else:
        own = groups(manifest, builder.nodes)
    return builder.snapshot(cluster, taken_at, ObservedGroups(own))


def _folder(source: Path) -> Path:
    return source.parent if source == STDIN or source.is_file() else source


def _is_capture(source: Path) -> bool:
    return source.is_dir() and _capture_info(source) is not None


def _add(builder: SnapshotBuilder, file: SavedFile) -> None:
    for page in pages(file):
        if isinstance(page, Unreadable):
            builder.add_unreadable(page.kind, page.place, page.detail, page.known)
            continue
        try:
            builder.add_page(page.body, page.place)
        except BadInput as error:
            if not page.single:
                raise
            builder.add_unreadable("", page.place, error.problem, b"{}")


def _note_absent(
    builder: SnapshotBuilder, source: Path, files: SavedFiles, reported: frozenset[str]
) -> None:
    """Record the kinds that no file holds. Raises BadInput where there is no plan without one."""

    def is_absent(kind: str, words: Sequence[str] = ()) -> bool:
        """Whether no file holds objects of the kind, is named after it, or reports
        that it could not be read."""
        named = any(word in file.name.lower() for file in files.files for word in words)
        return kind not in builder.kinds | reported and not named

    for kind, words, weakens in KINDS:
        if not weakens and is_absent(kind, words):
            remedy = "save them too: outscaler capture DIR"
            raise BadInput(str(source), f"holds no {kind}", remedy)
    if files.namespaces is not None:
        absent = [(kind, weakens) for kind, weakens in _NOT_DUMPED if is_absent(kind)]
        if absent:
            builder.gap(_dump_gap(absent, files.namespaces))
        return
    for kind, words, weakens in KINDS:
        if is_absent(kind, words):
            detail = "no file holds any: either there are none, or they were not saved"
            builder.gap(MissingData(kind=kind, detail=detail, affected_decisions=weakens))
    claimed = [kind for kind, words in _CLAIMED if is_absent(kind, words)]
    # one gap for all kinds of storage, which matter only if a pod has a volume claim
    if claimed and builder.claims:
        detail = (
            f"no file holds any {' or '.join(claimed)}: either there are none, or they were not "
            "saved"
        )
        builder.gap(MissingData(kind=claimed[0], affected_decisions=(_OF_CLAIMS,), detail=detail))


def _dump_gap(
    absent: Sequence[tuple[str, tuple[str, ...]]], namespaces: Sequence[str]
) -> MissingData:
    """Return one gap for all that a dump lacks."""
    names = ", ".join(f"{kind}s" if kind[-1] != "s" else f"{kind}es" for kind, _ in absent)
    detail = f"kubectl cluster-info dump saves no {names}: the plan goes on without them"
    if len(namespaces) <= _FEW_NAMESPACES:
        detail += (
            f"; it has pods of {' and '.join(namespaces)} only: dump with -A for all namespaces"
        )
    weakens = tuple(dict.fromkeys(word for _, words in absent for word in words))
    return MissingData(kind=absent[0][0], detail=detail, affected_decisions=weakens)


def read_nodes(source: Path) -> tuple[Node, ...]:
    """Return the nodes saved in a folder, a file or standard input, sorted by name; raises BadInput
    naming the file and place.

    Files whose names contain `node` are read first, and the others only if these hold none.
    """
    capture_gaps(source)  # refuses an incomplete capture
    builder = SnapshotBuilder(NAMESPACE)
    source_files = saved_files(
        source, _folder(source) / "manifest.json", captured=_is_capture(source)
    )
    for file in sorted(source_files.files, key=lambda file: "node" not in file.name):
        if "node" not in file.name and builder.nodes:
            break
        _add(builder, file)
    if "Node" not in builder.kinds:
        remedy = "save the cluster: outscaler capture DIR"
        if source.is_dir():
            remedy = f"save the cluster into it: outscaler capture {source}"
        raise BadInput(str(source), "holds no Node", remedy)
    return builder.nodes


# -- node groups -----------------------------------------------------------------------------------


def groups(path: Path, nodes: Sequence[Node]) -> tuple[NodeGroup, ...]:
    """Return the node groups that a manifest lists, with these nodes as their
    members; raises BadInput."""
    if not path.exists():
        problem = "does not exist, so the node groups are unknown"
        raise BadInput(
            str(path), problem, f"draft it from the nodes: outscaler groups {path.parent} > {path}"
        )
    return groups_of(loaded(path, path.name), path.name, nodes)


def groups_of(manifest: bytes, name: str, nodes: Sequence[Node]) -> tuple[NodeGroup, ...]:
    """Return the groups of a manifest's JSON, with these nodes as their members. name: of the
    file, for errors. Raises BadInput."""
    try:
        raws = msgspec.json.decode(manifest, type=_Manifest).nodeGroups
    except msgspec.ValidationError as error:
        remedy = (
            'write {"nodeGroups": [{"id": …, "min": …, "max": …, "size": …, "template": Node}]}'
        )
        raise BadInput(name, f"is not a manifest of node groups ({error})", remedy) from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        # ValueError: an infinite number
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise BadInput(name, f"is not complete JSON ({reason})", "fetch it again") from None
    nodes_by_group: dict[str, list[Node]] = {}
    for node in nodes:
        nodes_by_group.setdefault(group_of(node), []).append(node)
    nodes = [node for members in nodes_by_group.values() for node in members]
    by_id: dict[str, NodeGroup] = {}
    for at, raw in enumerate(raws):
        place = f"{name}: nodeGroups[{at}]"
        group = _group(raw, place, nodes)
        if group.id in by_id:
            raise BadInput(
                f"{place}.id",
                f"{group.id!r} is given twice",
                "give every node group an id of its own",
            )
        by_id[group.id] = group
    return tuple(by_id.values())


def group_of(node: Node) -> str:
    """Return the group that a saved node names in its providerID,
    `scheme://group/…`; "" if it names none."""
    _, scheme, rest = node.provider_id.partition("://")
    return rest.partition("/")[0] if scheme else ""


def is_member(node: Node, group: SavedGroup) -> bool:
    """Return whether a node belongs to a group, by the manifest's data on the group's nodes,
    otherwise by the node's own providerID."""
    if group.nodes or group.nodeLabels:
        labelled = bool(group.nodeLabels) and group.nodeLabels.items() <= node.labels.items()
        return node.name in group.nodes or labelled
    return group_of(node) == group.id


_MONTH = 31 * 86400.0  # seconds


def _group(raw: msgspec.Raw, place: str, nodes: Sequence[Node]) -> NodeGroup:
    try:
        spec = msgspec.json.decode(raw, type=SavedGroup)
    except msgspec.ValidationError as error:
        raise BadInput(place, str(error), "a group has id, min, max, size and template") from None
    if spec.provider not in _PROVIDERS:
        remedy = f"one of {', '.join(_PROVIDERS[1:])}"
        raise BadInput(f"{place}.provider", f"{spec.provider!r} is not a provider", remedy)
    if spec.min < 0 or spec.max < spec.min:
        problem = (
            f"{spec.max} is below min {spec.min}"
            if spec.min >= 0
            else f"min {spec.min} is negative"
        )
        raise BadInput(f"{place}.max", problem, "bounds are whole numbers with 0 <= min <= max")
    if spec.price < 0:
        raise BadInput(
            f"{place}.price", f"{spec.price:g} is negative", "write what a node costs per hour"
        )
    if spec.currency and re.fullmatch(r"[A-Z]{3}", spec.currency) is None:
        raise BadInput(
            f"{place}.currency",
            f"{spec.currency[:20]!r} is not a code of a currency",
            "write it like EUR",
        )
    if not 1.0 <= spec.billedPer <= _MONTH:
        raise BadInput(
            f"{place}.billedPer",
            f"{spec.billedPer:g} s is no unit of bills",
            "write 3600 for an hour",
        )
    members = [node for node in nodes if is_member(node, spec)]
    # two Nodes may claim one machine
    machines = len({node.provider_id or f"node {node.name}" for node in members})
    size = machines if spec.size is None else spec.size
    if size < 0 or (size > 0 and not members):
        named = ", ".join(sorted({group_of(node) for node in nodes} - {""})) or "none"
        problem = f"{spec.id!r} has size {size}, but no node's providerID names it"
        raise BadInput(
            f"{place}.id",
            problem,
            f"groups that nodes name: {named}; a group without nodes has size 0",
        )
    if size < machines:
        problem = f"{size} is below the {machines} nodes that are members of {spec.id!r}"
        raise BadInput(
            f"{place}.size", problem, f"leave size out to count them, or write at least {machines}"
        )
    try:
        template = node_from_wire(spec.template) if spec.template else None
    except BadInput as error:
        raise BadInput(f"{place}.template.{error.place}", error.problem, error.remedy) from None
    if (
        template
        and spec.template
        and not (spec.template.status and spec.template.status.allocatable)
    ):
        # Only the capacity is given: the planner computes it
        # (plan/state/node_templates.with_allocatable).
        template = msgspec.structs.replace(template, allocatable={})
    return NodeGroup(
        id=spec.id,
        provider=spec.provider,
        min=spec.min,
        max=spec.max,
        target=size,
        priority=spec.priority,
        instances=tuple(
            Instance(id=node.provider_id, handle=node.provider_id, node=node.name)
            for node in members
        ),
        template=template,
        template_error="" if template else "the manifest gives no template",
        options=GroupOptions(zero_or_max=spec.zeroOrMax),
        price=spec.price,
        currency=spec.currency,
        billed_per=spec.billedPer,
        spot=spec.spot,
    )


# -- the folder of a capture -----------------------------------------------------------------------

INFO, CAPTURED_AT = "capture-info", "captured-at"
_CAPTURE_KIND = "outscaler/capture"
_MOST_BYTES = 2**20
_TEMPORARY = ".outscaler-capture-"


class _UnreadList(msgspec.Struct, frozen=True):
    kind: str
    detail: str
    name: str = ""
    place: str = ""
    weakens: tuple[str, ...] = ()


class _CaptureInfo(msgspec.Struct, frozen=True):
    kind: str
    complete: bool
    notRead: tuple[_UnreadList, ...] = ()  # noqa: N815 - the document's own word


def claim_folder(folder: Path) -> None:
    """Check that a capture may be written to a folder: it does not exist, is empty, or is a
    capture. Raises BadInput, OSError."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise BadInput(str(folder), "is not a directory", "name a folder that does not exist yet")
    others = [path.name for path in folder.iterdir() if not path.name.startswith(_TEMPORARY)]
    if others and _capture_info(folder) is None:
        raise BadInput(
            str(folder),
            "is not empty, and `outscaler capture` did not make it",
            "name a folder that does not exist yet",
        )


def write_capture(
    folder: Path, files: Mapping[str, bytes], stale: frozenset[str], gaps: tuple[MissingData, ...]
) -> None:
    """Write these files, readable only by their owner. stale: names of an older capture's files to
    remove. Other files of the folder, such as manifest.json, stay. Raises OSError."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for remainder in folder.glob(f"{_TEMPORARY}*"):
        remainder.unlink(missing_ok=True)
    _replace(folder / INFO, _encoded(_CaptureInfo(_CAPTURE_KIND, complete=False)))
    for name in sorted(stale - files.keys()):
        (folder / name).unlink(missing_ok=True)
    for name, data in files.items():
        _replace(folder / name, data)
    lists = tuple(
        _UnreadList(gap.kind, gap.detail, gap.name, gap.place, gap.affected_decisions)
        for gap in gaps
    )
    _replace(folder / INFO, _encoded(_CaptureInfo(_CAPTURE_KIND, complete=True, notRead=lists)))


def capture_gaps(folder: Path) -> tuple[MissingData, ...]:
    """Return the lists that could not be read when the folder was captured; () if it is not a
    capture. Raises BadInput for an incomplete capture."""
    info = _capture_info(folder)
    if info is None:
        return ()
    if not info.complete:
        raise BadInput(
            str(folder),
            "is an incomplete capture, because it was interrupted",
            "capture the cluster again",
        )
    return tuple(
        MissingData(
            gap.kind, gap.detail, name=gap.name, place=gap.place, affected_decisions=gap.weakens
        )
        for gap in info.notRead
    )


def _capture_info(folder: Path) -> _CaptureInfo | None:
    path = folder / INFO
    if not path.is_file():
        return None
    try:
        info = msgspec.json.decode(content(path, _MOST_BYTES), type=_CaptureInfo)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return info if info.kind == _CAPTURE_KIND else None


def _encoded(info: _CaptureInfo) -> bytes:
    return msgspec.json.format(msgspec.json.encode(info), indent=1) + b"\n"


def _replace(path: Path, data: bytes) -> None:
    """Write a file completely or not at all: under another name, which is then renamed."""
    temporary = path.with_name(f"{_TEMPORARY}{os.getpid()}-{path.name}.tmp")
    try:
        with os.fdopen(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
        ) as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
