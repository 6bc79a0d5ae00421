"""Builds a snapshot from documents: each object is added to the model as it is read, and its JSON is released.

One malformed object among many becomes a gap with its place; a document that is not JSON at all is the caller's error.
A malformed pod that is bound to a node makes that node's usage unknown, and the gap names the node.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import msgspec

from chalicelib.model.api_groups import CONTROLLER_GROUPS, METADATA, is_foreign
from chalicelib.model.errors import MALFORMED, BadInput
from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.snapshot import DaemonSet, MissingData, Snapshot
from chalicelib.policy.horizontal_node_autoscaler import KIND as RULE_OBJECT
from chalicelib.snapshot.folded_objects import FoldedObjects
from chalicelib.snapshot.horizontal_node_autoscalers import RuleObjects, is_one
from chalicelib.snapshot.input_limits import share_out
from chalicelib.snapshot.object_decoders import FOREIGN, HEAD, LISTINGS, OBJECTS, RAWS, first_kind, kind_of
from chalicelib.snapshot.pod_fold import RESIZED
from chalicelib.snapshot.storage import CLAIMS, NAMESPACE

_NULL = b"null"
_ORDER = (
    "Node",
    "Pod",
    "DaemonSet",
    "ReplicaSet",
    "StatefulSet",
    "Job",
    "ReplicationController",
    "PodDisruptionBudget",
    "Namespace",
    CLAIMS,
    "PersistentVolume",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "CSIStorageCapacity",
)
_RANK = {kind: rank for rank, kind in enumerate(_ORDER)}
_CLASS, _DETAIL = attrgetter("cls"), attrgetter("name", "place", "detail")


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
    """Collects one cluster's objects: add documents, and request a snapshot at any time.

    namespace: where Outscaler's own ConfigMaps are looked up (options.namespace). numbered: whether the place of a
    malformed object is its number in its document, as in a file; the pages of a live list have no lasting numbers.
    """

    def __init__(self, namespace: str = NAMESPACE, *, numbered: bool = True) -> None:
        self.objects = FoldedObjects(namespace)
        self._numbered = numbered
        self._rules = RuleObjects()
        self._gaps: list[MissingData] = []
        self._listed: set[str] = set()
        self._seen: set[str] = set()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes read so far, sorted by name."""
        return tuple(node for _, node in sorted(self.objects.nodes.items()))

    @property
    def kinds(self) -> frozenset[str]:
        """Return the kinds that were listed, or of which an object was seen, well-formed or not."""
        return frozenset(self._listed | self._seen)

    def reset(self, kind: str) -> None:
        """Drop all objects of one kind: a list that expired half-way is restarted (kube/client.list_pages)."""
        if kind == RULE_OBJECT:
            self._rules.forget()
        self.objects.forget(kind)
        self._listed.discard(kind)
        self._gaps = [g for g in self._gaps if g.kind != kind]

    @property
    def claims(self) -> bool:
        """Return whether any pod has a volume claim, so that storage matters."""
        return any(volume.claim or volume.template for cls in self.objects.table.classes for volume in cls.volumes)

    def mark_absent(self, kind: str) -> None:
        """Record that there are no objects of a kind: the cluster does not serve it, or it is not used."""
        self._listed.add(kind)
        if kind == RULE_OBJECT:
            self._rules.listed()

    def listing_state(self) -> tuple[tuple[MissingData, ...], frozenset[str], frozenset[str]]:
        """Return what is known beside the objects: gaps of whole lists, kinds that were listed, and kinds of which an
        object was seen."""
        return tuple(self._gaps), frozenset(self._listed), frozenset(self._seen)

    def restore_listing_state(self, gaps: Iterable[MissingData], listed: Iterable[str], seen: Iterable[str]) -> None:
        """Add what listing_state returned to an empty builder."""
        self._gaps.extend(gaps)
        self._listed.update(listed)
        self._seen.update(seen)

    def forget_listing_state(self) -> None:
        """Drop what listing_state returns, for another one to be restored."""
        self._gaps.clear()
        self._listed.clear()
        self._seen.clear()

    def gap(self, gap: MissingData) -> None:
        """Record data that could not be read."""
        self._gaps.append(gap)

    def add_page(self, body: bytes, place: str, kind: str = "", listing: Any = None) -> None:
        """Read a document: a List of anything, a typed list such as PodList, or one object.

        kind: the kind of the items if the document does not name it (the API's own lists do not repeat it per item).
        listing: the document as LISTINGS[kind] decodes it, where that is done already.
        Raises BadInput if the document is not JSON or is truncated.
        """
        with collector_paused():
            try:
                if self._listing(body, kind or first_kind(body), kind, place, listing):
                    return
                head = HEAD.decode(body)
                kind = kind or (head.kind.removesuffix("List") if head.kind.endswith("List") else "")
                if is_foreign(kind, head.api_version):
                    return
                self._listed.add(kind)
                if is_one(kind):
                    self._rules.listed()
                if len(head.items) == len(_NULL) and bytes(head.items) == _NULL:
                    return  # how Go writes an empty list
                if not head.items:
                    self.add_object(msgspec.Raw(body), kind, place)
                    return
                for at, item in enumerate(RAWS.decode(head.items)):
                    numbered = self._numbered or kind == RULE_OBJECT
                    self.add_object(item, kind, f"{place}: items[{at}]" if numbered else place)
            except msgspec.ValidationError as error:
                raise BadInput(
                    place,
                    f"is not a Kubernetes object or List ({error})",
                    "save it with: kubectl get nodes,pods -A -o json",
                ) from None
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise BadInput(place, f"is not complete JSON ({error})", "fetch it again; nothing was used") from None

    def add_object(self, raw: msgspec.Raw, kind: str, place: str) -> None:
        """Read one object. kind: of its list, "" if that names none."""
        kind = kind_of(raw) or kind
        if kind == FOREIGN:
            return
        if not kind:
            self._gaps.append(_nameless(place))
            return
        if not self.objects.knows(kind) and not is_one(kind):
            return
        kind = kind if self.objects.knows(kind) else RULE_OBJECT
        self._seen.add(kind)
        try:
            if kind == RULE_OBJECT:
                self._rules.fold(raw)
                return
            one = OBJECTS[kind].decode(raw)
        except MALFORMED as error:
            self.objects.note_malformed(kind, place, str(error), bytes(raw))
            return
        self.objects.fold(
            kind, (one,), lambda _, error: self.objects.note_malformed(kind, place, str(error), bytes(raw))
        )

    def _listing(self, body: bytes, likely: str, kind: str, place: str, listing: Any = None) -> bool:
        """Read a list at once if it is one and all its items are well-formed and of this kind, and return True;
        otherwise do nothing."""
        if likely not in LISTINGS:
            return False
        if listing is None:
            try:
                listing = LISTINGS[likely].decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return False  # the error is found item by item
        named = listing.kind.removesuffix("List") if listing.kind.endswith("List") else ""
        named = "" if listing.api_version == METADATA else named
        if not kind and named and named != likely:
            return self._listing(body, named, named, place)
        kind = kind or named
        if is_foreign(kind, listing.api_version):
            return True  # a list of another API group's objects: nothing in it is used
        if not listing.items or not (kind or all(item.kind == likely for item in listing.items)):
            return False
        self._listed.add(kind)
        versions = {item.api_version for item in listing.items}
        foreign = {version for version in versions if is_foreign(likely, version)}
        if len(foreign) < len(versions):
            self._seen.add(likely)
        items = listing.items if not foreign else [each for each in listing.items if each.api_version not in foreign]
        texts: list[msgspec.Raw] = []

        def malformed(at: int, error: Exception) -> None:
            """A bad item is named by its own text, because it was decoded only in part."""
            nonlocal texts
            texts = texts or RAWS.decode(HEAD.decode(body).items)
            if foreign:
                at = next(number for number, each in enumerate(listing.items) if each is items[at])
            where = f"{place}: items[{at}]" if self._numbered else place
            self.objects.note_malformed(likely, where, str(error), bytes(texts[at]))

        self.objects.fold(likely, items, malformed, resizing=likely == "Pod" and RESIZED in body)
        return True

    def snapshot(
        self, cluster: str, taken_at: float, groups: tuple[NodeGroup, ...] = (), gaps: Iterable[MissingData] = ()
    ) -> Snapshot:
        """Return everything held now, in an order and with numbers of classes that depend neither on the order of
        reading nor on objects that are gone. gaps: of the groups."""
        held = self.objects
        pods = self._settled()
        daemonsets = [each for _, each in sorted(held.daemonsets.items())]
        pods, daemonsets, classes = _numbered(pods, daemonsets, held.table.classes)
        controllers = {kind for kind, mine in held.controllers.items() if mine}
        return Snapshot(
            cluster=cluster,
            taken_at=taken_at,
            nodes=self.nodes,
            pods=tuple(pods),
            classes=share_out(classes),
            groups=tuple(sorted(groups, key=lambda group: group.id)),
            budgets=tuple(each for _, each in sorted(held.budgets.items())),
            controllers=tuple(each for _, mine in sorted(held.controllers.items()) for _, each in sorted(mine.items())),
            controller_kinds=tuple(sorted(controllers | self._listed & set(CONTROLLER_GROUPS))),
            daemonsets=tuple(daemonsets),
            namespaces={key.partition("\0")[2]: labels for key, labels in sorted(held.namespaces.items())},
            storage=held.storage.storage(),
            rule_objects=self._rules.all(),
            priorities=held.storage.priorities,
            gaps=(*self._missing(), *gaps),
        )

    def _missing(self) -> list[MissingData]:
        """Return what could not be read, in the order of the kinds; kinds without a place in it keep their order."""
        objects = sorted(self.objects.malformed.values(), key=_DETAIL)
        return sorted([*self._gaps, *objects], key=lambda gap: _RANK.get(gap.kind, len(_RANK)))

    def _settled(self) -> list[Pod]:
        """Return the pods, sorted by namespace and name. Pending pods with ephemeral volumes are resolved, once all
        claims are known: see StorageFolder.own_claim."""
        held = self.objects
        classes = held.table.classes
        keys = sorted(held.pods)
        pods = list(map(held.pods.__getitem__, keys))
        own = {at for at, cls in enumerate(classes) if any(volume.template for volume in cls.volumes)}
        if not own or CLAIMS not in self.kinds:
            return pods
        for at, pod in enumerate(pods):
            if pod.cls in own and not pod.node:
                cls = held.table.add(held.storage.own_claim(pod, classes[pod.cls]))
                pods[at] = msgspec.structs.replace(pod, cls=cls)
        return pods


def _numbered(
    pods: list[Pod], daemonsets: list[DaemonSet], classes: Sequence[PodClass]
) -> tuple[list[Pod], list[DaemonSet], list[PodClass]]:
    """Return the same with classes numbered in the order of their first pod, then of their first DaemonSet."""
    used = dict.fromkeys(map(_CLASS, pods))
    used.update(dict.fromkeys(map(_CLASS, daemonsets)))
    order = list(used)
    kept = [classes[at] for at in order]
    if order == list(range(len(order))):
        return pods, daemonsets, kept
    new: Mapping[int, int] = {was: now for now, was in enumerate(order)}
    return [_with_class(pod, new[pod.cls]) for pod in pods], [_of_class(each, new) for each in daemonsets], kept


def _with_class(pod: Pod, cls: int) -> Pod:
    """Return the pod with another class. Spelled out, because msgspec.structs.replace takes five times as long."""
    if pod.cls == cls:
        return pod
    return Pod(
        pod.namespace,
        pod.name,
        pod.uid,
        cls,
        pod.node,
        pod.nominated,
        pod.phase,
        pod.created,
        pod.deleted,
        pod.deletion_grace,
        pod.scheduled,
        pod.scheduled_reason,
        pod.scheduled_message,
        pod.unready,
    )


def _of_class(daemonset: DaemonSet, new: Mapping[int, int]) -> DaemonSet:
    return msgspec.structs.replace(daemonset, cls=new[daemonset.cls])


def _nameless(place: str) -> MissingData:
    return MissingData(kind="object", place=place, detail="is no Kubernetes object: it has no kind")
