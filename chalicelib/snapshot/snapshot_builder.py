"""Builds a snapshot from documents: each object is added to the model as it is read, and its JSON is released.

One malformed object among many becomes a gap with its place; a document that is not JSON at all is the caller's error.
A malformed pod that is bound to a node makes that node's usage unknown, and the gap names the node.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from chalicelib.model.api_groups import CONTROLLER_GROUPS, is_foreign
from chalicelib.model.errors import MALFORMED, BadInput
from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.pod import Owner, Pod
from chalicelib.model.snapshot import Budget, Controller, DaemonSet, MissingData, Snapshot
from chalicelib.model.timestamps import parse_time
from chalicelib.policy.horizontal_node_autoscaler import KIND as RULE_OBJECT
from chalicelib.snapshot import api_types, unreadable_objects
from chalicelib.snapshot.horizontal_node_autoscalers import RuleObjects, is_one
from chalicelib.snapshot.in_place_resize import held_requests
from chalicelib.snapshot.input_limits import share_out
from chalicelib.snapshot.node_decoding import node_from_wire
from chalicelib.snapshot.pod_classes import ClassTable
from chalicelib.snapshot.selectors import bounded
from chalicelib.snapshot.storage import CLAIMS, FOLDS, NAMESPACE, StorageFolder

_HEAD = msgspec.json.Decoder(api_types.Head)
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])
_KIND = msgspec.json.Decoder(api_types.KindOnly)
_WRITTEN_KIND = re.compile(rb'"kind":\s*"(\w+)"')
_CONDITIONS = msgspec.json.Decoder(list[api_types.PodCondition] | None)
_NO_CONDITION = api_types.PodCondition()
_NULL = b"null"
_FOREIGN = "of another API group"
_RESIZED = b'"PodResize'  # prefix of the pod conditions that indicate a resize
_LONGEST_NAME, _LONGEST_DETAIL = 300, 500  # characters of a bad object's name, and of its problem, that are kept


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector: decoding creates millions of objects without cycles, and the collector would make it
    four times slower."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class SnapshotBuilder:
    """Collects one cluster's objects: add all documents, then request the snapshot once.

    namespace: where Outscaler's own ConfigMaps are looked up (options.namespace).
    """

    def __init__(self, namespace: str = NAMESPACE) -> None:
        self._table = ClassTable()
        self._storage = StorageFolder(namespace)
        self._nodes: dict[str, Node] = {}
        # by namespace and name, joined by a separator that sorts before all other characters
        self._pods: dict[str, Pod] = {}
        self._budgets: list[Budget] = []
        self._controllers: list[Controller] = []
        self._daemonsets: list[DaemonSet] = []
        self._namespaces: dict[str, dict[str, str]] = {}
        self._rules = RuleObjects()
        self._gaps: list[MissingData] = []
        self._listed: set[str] = set()
        self._seen: set[str] = set()
        self._resizing = False

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes read so far, sorted by name."""
        return tuple(self._nodes[name] for name in sorted(self._nodes))

    @property
    def kinds(self) -> frozenset[str]:
        """Return the kinds that were listed, or of which an object was seen, well-formed or not."""
        return frozenset(self._listed | self._seen)

    def reset(self, kind: str) -> None:
        """Drop all objects of one kind: a list that expired half-way is restarted (kube/client.list_pages)."""
        if kind == "Pod":
            self._pods.clear()
        elif kind == "Node":
            self._nodes.clear()
        elif kind == "PodDisruptionBudget":
            self._budgets.clear()
        elif kind == "Namespace":
            self._namespaces.clear()
        elif kind == "DaemonSet":
            self._daemonsets.clear()
        elif kind == RULE_OBJECT:
            self._rules.forget()
        self._storage.forget(kind)
        self._controllers = [c for c in self._controllers if c.kind != kind]
        self._gaps = [g for g in self._gaps if g.kind != kind]

    @property
    def claims(self) -> bool:
        """Return whether any pod has a volume claim, so that storage matters."""
        return any(volume.claim or volume.template for cls in self._table.classes for volume in cls.volumes)

    def mark_absent(self, kind: str) -> None:
        """Record that there are no objects of a kind: the cluster does not serve it, or it is not used."""
        self._listed.add(kind)
        if kind == RULE_OBJECT:
            self._rules.listed()

    def gap(self, gap: MissingData) -> None:
        """Record data that could not be read."""
        self._gaps.append(gap)

    def add_page(self, body: bytes, place: str, kind: str = "") -> None:
        """Read a document: a List of anything, a typed list such as PodList, or one object.

        kind: the kind of the items if the document does not name it (the API's own lists do not repeat it per item).
        Raises BadInput if the document is not JSON or is truncated.
        """
        with collector_paused():
            try:
                self._resizing = _RESIZED in body
                if self._listing(body, kind or _first_kind(body), kind, place):
                    return
                head = _HEAD.decode(body)
                kind = kind or (head.kind.removesuffix("List") if head.kind.endswith("List") else "")
                if is_foreign(kind, head.api_version):
                    return
                self._listed.add(kind)
                if is_one(kind):
                    self._rules.listed()
                if len(head.items) == len(_NULL) and bytes(head.items) == _NULL:
                    return  # how Go writes an empty list
                if not head.items:
                    self._one(msgspec.Raw(body), kind, place)
                    return
                for at, item in enumerate(_RAWS.decode(head.items)):
                    self._one(item, kind, f"{place}: items[{at}]")
            except msgspec.ValidationError as error:
                raise BadInput(
                    place,
                    f"is not a Kubernetes object or List ({error})",
                    "save it with: kubectl get nodes,pods -A -o json",
                ) from None
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise BadInput(place, f"is not complete JSON ({error})", "fetch it again; nothing was used") from None

    def _listing(self, body: bytes, likely: str, kind: str, place: str) -> bool:
        """Read a list at once if it is one and all its items are well-formed and of this kind, and return True;
        otherwise do nothing."""
        if likely not in _FOLDS:
            return False
        decoder, fold = _FOLDS[likely]
        try:
            listing = decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False  # the error is found item by item
        named = listing.kind.removesuffix("List") if listing.kind.endswith("List") else ""
        if not kind and named and named != likely:
            return self._listing(body, named, named, place)
        kind = kind or named
        if is_foreign(kind, listing.api_version):
            return True  # a list of another API group's objects: nothing in it is used
        if not listing.items or not (kind or all(item.kind == likely for item in listing.items)):
            return False
        self._listed.add(kind)
        if not all(is_foreign(likely, item.api_version) for item in listing.items):
            self._seen.add(likely)
        self._each(fold, listing.items, body, likely, place)
        return True

    def _one(self, raw: msgspec.Raw, kind: str, place: str) -> None:
        kind = _kind_of(raw) or kind
        if kind == _FOREIGN:
            return
        if not kind:
            self._malformed("object", place, "is no Kubernetes object: it has no kind", raw)
            return
        if kind not in _FOLDS and not is_one(kind):
            return
        kind = kind if kind in _FOLDS else RULE_OBJECT
        self._seen.add(kind)
        try:
            if kind == RULE_OBJECT:
                self._rules.fold(raw)
                return
            _FOLDS[kind][1](self, _ONE[kind].decode(raw))
        except MALFORMED as error:
            self._malformed(kind, place, str(error), raw)

    def _each(self, fold: _Fold, objects: Iterable[Any], body: bytes, kind: str, place: str) -> None:
        """Read the items of a decoded list; a bad one is named by its own text, because it was decoded only in part."""
        texts: list[msgspec.Raw] = []
        for at, item in enumerate(objects):
            try:
                if not is_foreign(kind, item.api_version):
                    fold(self, item)
            except MALFORMED as error:
                texts = texts or _RAWS.decode(_HEAD.decode(body).items)
                self._malformed(kind, f"{place}: items[{at}]", str(error), texts[at])

    def _malformed(self, kind: str, place: str, detail: str, raw: msgspec.Raw) -> None:
        """Record a gap that names the object as far as its bytes allow."""
        left = unreadable_objects.of(bytes(raw))
        if kind == "Node" and (node := unreadable_objects.node(left)) is not None:
            self._nodes.setdefault(node.name, node)
        node_name = left.node if kind == "Pod" else left.name if kind == "Node" else ""
        self._gaps.append(
            MissingData(
                kind=kind, name=left.key[:_LONGEST_NAME], place=place, node=node_name, detail=detail[:_LONGEST_DETAIL]
            )
        )

    def snapshot(self, cluster: str, taken_at: float, groups: tuple[NodeGroup, ...] = ()) -> Snapshot:
        """Return everything read so far, in an order that does not depend on the order of reading."""
        self._settle_claims()
        return Snapshot(
            cluster=cluster,
            taken_at=taken_at,
            nodes=self.nodes,
            pods=tuple(self._pods[key] for key in sorted(self._pods)),
            classes=share_out(self._table.classes),
            groups=tuple(sorted(groups, key=lambda group: group.id)),
            budgets=tuple(sorted(self._budgets, key=lambda b: (b.namespace, b.name))),
            controllers=tuple(sorted(self._controllers, key=lambda c: (c.kind, c.namespace, c.name))),
            controller_kinds=tuple(sorted({c.kind for c in self._controllers} | self._listed & set(CONTROLLER_GROUPS))),
            daemonsets=tuple(sorted(self._daemonsets, key=lambda d: (d.namespace, d.name))),
            namespaces=dict(sorted(self._namespaces.items())),
            storage=self._storage.storage(),
            rule_objects=self._rules.all(),
            priorities=self._storage.priorities,
            gaps=tuple(self._gaps),
        )

    def _settle_claims(self) -> None:
        """Resolve pending pods with ephemeral volumes, once all claims are known: see StorageFolder.own_claim."""
        if CLAIMS not in self.kinds:
            return
        own = {at for at, cls in enumerate(self._table.classes) if any(volume.template for volume in cls.volumes)}
        for key, pod in sorted(self._pods.items()) if own else ():
            if pod.cls in own and not pod.node:
                cls = self._table.add(self._storage.own_claim(pod, self._table.classes[pod.cls]))
                self._pods[key] = msgspec.structs.replace(pod, cls=cls)

    # one method per kind, in the order of the table below

    def _pod(self, item: api_types.ApiPod) -> None:
        meta, status = item.metadata, item.status
        if status.phase in {"Succeeded", "Failed"}:
            return  # never listed; the live reader excludes them at the server
        namespace, spec = meta.namespace or "default", bytes(item.spec)
        cls, node = self._table.bound(namespace, spec, meta.labels, bytes(meta.owner_references), meta.annotations)
        condition = _NO_CONDITION
        if not node and status.conditions:
            for candidate in _CONDITIONS.decode(status.conditions) or ():
                if candidate.type == "PodScheduled":
                    condition = candidate
        if self._resizing and node and _RESIZED in bytes(status.conditions):
            cls = self._table.at_least(cls, held_requests(spec, status.container_statuses))
        grace = meta.deletion_grace_period_seconds
        self._pods[f"{namespace}\0{meta.name}"] = Pod(
            namespace,
            meta.name,
            meta.uid,
            cls,
            node,
            status.nominated_node_name,
            status.phase,
            parse_time(meta.creation_timestamp) if meta.creation_timestamp else 0.0,
            parse_time(meta.deletion_timestamp) if meta.deletion_timestamp else 0.0,
            30.0 if grace is None else float(grace),
            condition.status,
            condition.reason,
            condition.message,
            bool(node) and _unready(bytes(status.conditions)),
        )

    def _node(self, item: api_types.ApiNode) -> None:
        self._nodes[item.metadata.name] = node_from_wire(item)

    def _budget(self, item: api_types.ApiBudget) -> None:
        status = item.status
        self._budgets.append(
            Budget(
                item.metadata.namespace,
                item.metadata.name,
                bounded(item.spec.selector),
                status.disruptions_allowed,
                item.spec.unhealthy_pod_eviction_policy or "",
                whole=status.current_healthy >= status.desired_healthy > 0,
            )
        )

    def _namespace(self, item: api_types.ApiNamespace) -> None:
        self._namespaces[item.metadata.name] = item.metadata.labels or {}

    def _controller(self, item: api_types.ApiController, kind: str) -> None:
        meta = item.metadata
        references = meta.owner_references or ()
        owner = next((Owner(r.kind, r.name, r.uid, r.api_version) for r in references if r.controller), None)
        self._controllers.append(Controller(kind, meta.namespace, meta.name, meta.uid, item.spec.replicas, owner))

    def _daemonset(self, item: api_types.ApiController) -> None:
        meta, template = item.metadata, item.spec.template
        owner = msgspec.json.encode(
            [{"kind": "DaemonSet", "name": meta.name, "uid": meta.uid, "apiVersion": "apps/v1", "controller": True}]
        )
        cls = self._table.intern(
            meta.namespace,
            bytes(template.spec) or b"{}",
            bytes(template.metadata.labels),
            owner,
            template.metadata.annotations,
            b"",
        )
        self._daemonsets.append(DaemonSet(meta.namespace, meta.name, meta.uid, cls))
        self._controllers.append(Controller("DaemonSet", meta.namespace, meta.name, meta.uid))


_Fold = Callable[[SnapshotBuilder, Any], None]


def _unready(conditions: bytes) -> bool:
    """Return whether a pod's condition Ready is False; most pods have no false condition, and are not decoded."""
    if b'"False"' not in conditions:
        return False
    return any(each.type == "Ready" and each.status == "False" for each in _CONDITIONS.decode(conditions) or ())


def _controller_fold(kind: str) -> _Fold:
    return lambda folder, item: folder._controller(item, kind)


def _storage_fold(kind: str) -> _Fold:
    return lambda folder, item: folder._storage.fold(kind, item)


_FOLDS: dict[str, tuple[msgspec.json.Decoder[Any], _Fold]] = {
    "Pod": (msgspec.json.Decoder(api_types.Listing[api_types.ApiPod]), SnapshotBuilder._pod),
    "Node": (msgspec.json.Decoder(api_types.Listing[api_types.ApiNode]), SnapshotBuilder._node),
    "PodDisruptionBudget": (msgspec.json.Decoder(api_types.Listing[api_types.ApiBudget]), SnapshotBuilder._budget),
    "Namespace": (msgspec.json.Decoder(api_types.Listing[api_types.ApiNamespace]), SnapshotBuilder._namespace),
    **{
        kind: (msgspec.json.Decoder(api_types.Listing[wired]), _storage_fold(kind))  # type: ignore[valid-type]
        for kind, (wired, _) in FOLDS.items()
    },
    "DaemonSet": (msgspec.json.Decoder(api_types.Listing[api_types.ApiController]), SnapshotBuilder._daemonset),
    **{
        kind: (msgspec.json.Decoder(api_types.Listing[api_types.ApiController]), _controller_fold(kind))
        for kind in ("ReplicaSet", "ReplicationController", "StatefulSet", "Job")
    },
}
_ONE: dict[str, msgspec.json.Decoder[Any]] = {
    "Pod": msgspec.json.Decoder(api_types.ApiPod),
    "Node": msgspec.json.Decoder(api_types.ApiNode),
    "PodDisruptionBudget": msgspec.json.Decoder(api_types.ApiBudget),
    "Namespace": msgspec.json.Decoder(api_types.ApiNamespace),
    **{
        kind: msgspec.json.Decoder(api_types.ApiController)
        for kind in ("DaemonSet", "ReplicaSet", "ReplicationController", "StatefulSet", "Job")
    },
    **{kind: msgspec.json.Decoder(wired) for kind, (wired, _) in FOLDS.items()},
}


def wire_type(kind: str) -> type[Any]:
    """Return the API type of a kind; raises KeyError for a kind that is not read."""
    found: type[Any] = _ONE[kind].type
    return found


def _kind_of(raw: msgspec.Raw) -> str:
    """Return the kind that an item names, `_FOREIGN` if it is not the built-in one, "" if it names none."""
    try:
        item = _KIND.decode(raw)
        return _FOREIGN if is_foreign(item.kind, item.api_version) else item.kind
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def _first_kind(body: bytes) -> str:
    """Guess the common kind of a list's items, from where the API writes the kind of a list and of its first item; the
    caller verifies each item."""
    kinds = (match.group(1).decode() for match in _WRITTEN_KIND.finditer(body, 0, 2048))
    return next((kind.removesuffix("List") for kind in kinds if kind != "List"), "")
