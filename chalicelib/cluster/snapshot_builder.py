"""Holds one cluster's objects as the model needs them, and builds a snapshot from them at any time.

Each object is added as it is read, and its JSON is released; a change of one object is one update.
The result does not depend on the order in which objects came, nor on objects that came and went: a
pass that follows changes must plan what a pass that reads everything plans.

One malformed object among many becomes a gap with its place; a document that is not JSON at all
is the caller's error. A malformed pod that is bound to a node makes that node's usage unknown,
and the gap names the node.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec

from chalicelib.cluster import api_types
from chalicelib.cluster.api_types import bounded_selector
from chalicelib.cluster.class_table import RESIZED, ClassTable, Malformed, PodFold, key_of
from chalicelib.cluster.input_limits import share_out
from chalicelib.cluster.node_decoding import node_from_wire, unreadable_node, unreadable_object
from chalicelib.cluster.storage import CLAIMS, FOLDS, NAMESPACE, PRIORITIES, own_claims, storage_of
from chalicelib.model.api_groups import CONTROLLER_GROUPS, METADATA, is_foreign
from chalicelib.model.errors import MALFORMED, BadInput
from chalicelib.model.node import Node
from chalicelib.model.pod import Owner, Pod, PodClass
from chalicelib.model.scaling_rules import RuleObject
from chalicelib.model.snapshot import (
    Controller,
    DaemonSet,
    MissingData,
    ObservedGroups,
    PodDisruptionBudget,
    Snapshot,
)
from chalicelib.policy.horizontal_node_autoscaler import KIND as RULE_OBJECT
from chalicelib.policy.horizontal_node_autoscaler import read_object

_TYPES: dict[str, type[Any]] = {
    "Pod": api_types.ApiPod,
    "Node": api_types.ApiNode,
    "PodDisruptionBudget": api_types.ApiBudget,
    "Namespace": api_types.ApiNamespace,
    **dict.fromkeys(CONTROLLER_GROUPS, api_types.ApiController),
    **{kind: api_type for kind, (api_type, _) in FOLDS.items()},
}
# Decoders are made once, because making one takes longer than decoding an object.
LISTINGS: dict[str, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(api_types.Listing[api_type])  # type: ignore[valid-type]
    for kind, api_type in _TYPES.items()
}
_OBJECTS = {kind: msgspec.json.Decoder(api_type) for kind, api_type in _TYPES.items()}
_HEAD, _ITEMS = msgspec.json.Decoder(api_types.Head), msgspec.json.Decoder(list[msgspec.Raw])
_KIND = msgspec.json.Decoder(api_types.ApiObject)
_FOREIGN = "of another API group"  # in place of a kind: its name is that of a built-in kind
_WRITTEN_KIND = re.compile(rb'"kind":\s*"(\w+)"')
_NULL = b"null"
_NO_GROUPS = ObservedGroups()
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
# characters of a bad object's name, and of its problem, that are kept
_LONGEST_NAME, _LONGEST_DETAIL = 300, 500


def wire_type(kind: str) -> type[Any]:
    """Return the API type of a kind; raises KeyError for a kind that is not read."""
    return _TYPES[kind]


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector: decoding creates millions of objects without cycles, and the
    collector would make it four times slower."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class FoldedObjects:
    """One cluster's objects by kind and key_of, as they are folded. namespace: where Outscaler's
    own ConfigMaps are looked up (options.namespace)."""

    def __init__(self, namespace: str = NAMESPACE) -> None:
        self.table = ClassTable()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.budgets: dict[str, PodDisruptionBudget] = {}
        self.controllers: dict[str, dict[str, Controller]] = {
            kind: {} for kind in CONTROLLER_GROUPS
        }
        self.daemonsets: dict[str, DaemonSet] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.malformed: dict[tuple[str, str], MissingData] = {}
        self._namespace = namespace
        self._pod_fold = PodFold(self.table)
        self.by_kind: dict[str, dict[str, Any]] = {
            "Pod": self.pods,
            "Node": self.nodes,
            "PodDisruptionBudget": self.budgets,
            "Namespace": self.namespaces,
            **self.controllers,
            **{kind: {} for kind in FOLDS},
        }

    def holds(self, kind: str, namespace: str, name: str) -> bool:
        """Return whether there is an object of this name, usable or not."""
        key = key_of(namespace, name)
        return key in self.by_kind[kind] or (kind, key) in self.malformed

    def count(self, kind: str) -> int:
        """Return the number of objects of a kind, the malformed ones included."""
        objects = self.by_kind[kind]
        return len(objects) + sum(
            1 for bad_kind, key in self.malformed if bad_kind == kind and key not in objects
        )

    def forget(self, kind: str) -> None:
        """Drop all objects of one kind."""
        if kind in self.by_kind:
            self.by_kind[kind].clear()
        if kind == "DaemonSet":
            self.daemonsets.clear()
        self.malformed = {key: gap for key, gap in self.malformed.items() if key[0] != kind}

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Drop one object."""
        key = key_of(namespace, name)
        self.by_kind[kind].pop(key, None)
        if kind == "DaemonSet":
            self.daemonsets.pop(key, None)
        self.malformed.pop((kind, key), None)

    def fold(
        self, kind: str, items: Sequence[Any], malformed: Malformed, *, resizing: bool = True
    ) -> None:
        """Add decoded objects of one kind. resizing: whether pods among them may
        be in an in-place resize."""
        if kind == "Pod":
            self._pod_fold.fold(items, self.pods, malformed, resizing=resizing)
            return
        own: dict[str, Callable[[Any], None]] = {
            "Node": self._add_node,
            "PodDisruptionBudget": self._add_budget,
            "Namespace": self._add_namespace,
            "DaemonSet": self._add_daemonset,
        }
        add = own.get(kind) or partial(
            self._add_storage if kind in FOLDS else self._add_controller, kind
        )
        for at, item in enumerate(items):
            try:
                add(item)
            except MALFORMED as error:
                malformed(at, error)

    def note_malformed(self, kind: str, place: str, detail: str, raw: bytes) -> None:
        """Record a gap that names a malformed object as far as its bytes allow."""
        rest = unreadable_object(raw)
        if kind == "Node" and (node := unreadable_node(rest)) is not None:
            self.nodes.setdefault(key_of("", node.name), node)
        node_name = rest.node if kind == "Pod" else rest.name if kind == "Node" else ""
        key = key_of(rest.namespace, rest.name) if rest.name else place
        self.malformed[kind, key] = MissingData(
            kind=kind,
            name=rest.key[:_LONGEST_NAME],
            place=place,
            node=node_name,
            detail=detail[:_LONGEST_DETAIL],
        )

    def _add_storage(self, kind: str, item: Any) -> None:
        meta = item.metadata
        if kind != "ConfigMap" or (meta.namespace, meta.name) == (self._namespace, PRIORITIES):
            self.by_kind[kind][key_of(meta.namespace, meta.name)] = FOLDS[kind][1](item)

    def _add_node(self, item: api_types.ApiNode) -> None:
        self.nodes[key_of("", item.metadata.name)] = node_from_wire(item)

    def _add_budget(self, item: api_types.ApiBudget) -> None:
        status, meta = item.status, item.metadata
        self.budgets[key_of(meta.namespace, meta.name)] = PodDisruptionBudget(
            meta.namespace,
            meta.name,
            bounded_selector(item.spec.selector),
            status.disruptions_allowed,
            item.spec.unhealthy_pod_eviction_policy or "",
            whole=status.current_healthy >= status.desired_healthy > 0,
            required=status.required,
        )

    def _add_namespace(self, item: api_types.ApiNamespace) -> None:
        self.namespaces[key_of("", item.metadata.name)] = item.metadata.labels or {}

    def _add_controller(self, kind: str, item: api_types.ApiController) -> None:
        meta = item.metadata
        references = meta.owner_references or ()
        owner = next(
            (Owner(r.kind, r.name, r.uid, r.api_version) for r in references if r.controller), None
        )
        self.controllers[kind][key_of(meta.namespace, meta.name)] = Controller(
            kind, meta.namespace, meta.name, meta.uid, item.spec.replicas, owner
        )

    def _add_daemonset(self, item: api_types.ApiController) -> None:
        meta, template = item.metadata, item.spec.template
        owner = msgspec.json.encode(
            [
                {
                    "kind": "DaemonSet",
                    "name": meta.name,
                    "uid": meta.uid,
                    "apiVersion": "apps/v1",
                    "controller": True,
                }
            ]
        )
        spec, labels = bytes(template.spec) or b"{}", bytes(template.metadata.labels)
        cls = self.table.intern(meta.namespace, spec, labels, owner, template.metadata.annotations)
        key = key_of(meta.namespace, meta.name)
        self.daemonsets[key] = DaemonSet(meta.namespace, meta.name, meta.uid, cls)
        self.controllers["DaemonSet"][key] = Controller(
            "DaemonSet", meta.namespace, meta.name, meta.uid
        )


class SnapshotBuilder:
    """Collects one cluster's objects: add documents, and request a snapshot at any time.

    namespace: where Outscaler's own ConfigMaps are looked up (options.namespace). numbered: whether
    the place of a malformed object is its number in its document, as in a file; the pages of a live
    list have no lasting numbers.
    """

    def __init__(self, namespace: str = NAMESPACE, *, numbered: bool = True) -> None:
        self.objects = FoldedObjects(namespace)
        self._numbered = numbered
        # by namespace and name; None: not read
        self._rule_objects: dict[str, RuleObject] | None = None
        self._gaps: list[MissingData] = []
        self._listed: set[str] = set()
        self._seen: set[str] = set()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes read so far, sorted by name."""
        return _sorted(self.objects.nodes)

    @property
    def kinds(self) -> frozenset[str]:
        """Return the kinds that were listed, or of which an object was seen, well-formed or not."""
        return frozenset(self._listed | self._seen)

    def reset(self, kind: str) -> None:
        """Drop all objects of one kind: a list that expired half-way is restarted
        (cluster/client.list_pages)."""
        if kind == RULE_OBJECT:
            self._rule_objects = None
        self.objects.forget(kind)
        self._listed.discard(kind)
        self._gaps = [gap for gap in self._gaps if gap.kind != kind]

    @property
    def claims(self) -> bool:
        """Return whether any pod has a volume claim, so that storage matters."""
        return any(
            volume.claim or volume.template
            for cls in self.objects.table.classes
            for volume in cls.volumes
        )

    def mark_absent(self, kind: str) -> None:
        """Record that there are no objects of a kind: the cluster does not
        serve it, or it is not used."""
        self._listed.add(kind)
        if _is_rule_object(kind):
            self._rule_objects = self._rule_objects or {}

    def listing_state(self) -> tuple[tuple[MissingData, ...], frozenset[str], frozenset[str]]:
        """Return what is known beside the objects: gaps of whole lists, kinds that were listed, and
        kinds of which an object was seen."""
        return tuple(self._gaps), frozenset(self._listed), frozenset(self._seen)

    def restore_listing_state(
        self, gaps: Iterable[MissingData], listed: Iterable[str], seen: Iterable[str]
    ) -> None:
        """Replace it by what listing_state returned."""
        self._gaps, self._listed, self._seen = list(gaps), set(listed), set(seen)

    def gap(self, gap: MissingData) -> None:
        """Record data that could not be read."""
        self._gaps.append(gap)

    def add_page(self, body: bytes, place: str, kind: str = "", listing: Any = None) -> None:
        """Read a document: a List of anything, a typed list such as PodList, or one object.

        kind: the kind of the items if the document does not name it (the API's own lists
        do not repeat it per item). listing: the document as LISTINGS[kind] decodes it,
        where that is done already.
        Raises BadInput if the document is not JSON or is truncated.
        """
        with collector_paused():
            try:
                if self._add_listing(body, kind or _first_kind(body), kind, place, listing):
                    return
                head = _HEAD.decode(body)
                kind = kind or (
                    head.kind.removesuffix("List") if head.kind.endswith("List") else ""
                )
                if is_foreign(kind, head.api_version):
                    return
                self.mark_absent(kind)
                if len(head.items) == len(_NULL) and bytes(head.items) == _NULL:
                    return  # how Go writes an empty list
                if not head.items:
                    self.add_object(msgspec.Raw(body), kind, place)
                    return
                for at, item in enumerate(_ITEMS.decode(head.items)):
                    numbered = self._numbered or kind == RULE_OBJECT
                    self.add_object(item, kind, f"{place}: items[{at}]" if numbered else place)
            except msgspec.ValidationError as error:
                problem = f"is not a Kubernetes object or List ({error})"
                raise BadInput(
                    place, problem, "save it with: kubectl get nodes,pods -A -o json"
                ) from None
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise BadInput(
                    place, f"is not complete JSON ({error})", "fetch it again; nothing was used"
                ) from None

    def add_object(self, raw: msgspec.Raw, kind: str, place: str) -> None:
        """Read one object. kind: of its list, "" if that names none."""
        kind = _kind_of(raw) or kind
        if kind == _FOREIGN:
            return
        if not kind:
            detail = "is no Kubernetes object: it has no kind"
            self._gaps.append(MissingData(kind="object", place=place, detail=detail))
            return
        if kind not in self.objects.by_kind:
            if not _is_rule_object(kind):
                return
            kind = RULE_OBJECT
        self._seen.add(kind)

        def malformed(_: int, error: Exception) -> None:
            self.objects.note_malformed(kind, place, str(error), bytes(raw))

        try:
            if kind == RULE_OBJECT:
                self._add_rule_object(raw)
                return
            item = _OBJECTS[kind].decode(raw)
        except MALFORMED as error:
            malformed(0, error)
            return
        self.objects.fold(kind, (item,), malformed)

    def add_unreadable(self, kind: str, place: str, detail: str, known: bytes) -> None:
        """Record an object whose text could not be decoded. known: JSON with the names that it
        has."""
        if kind in self.objects.by_kind:
            self._seen.add(kind)
            self.objects.note_malformed(kind, place, detail, known)
        else:
            gap = MissingData(kind=kind or "object", place=place, detail=detail[:_LONGEST_DETAIL])
            self._gaps.append(gap)

    def _add_rule_object(self, raw: msgspec.Raw) -> None:
        """Add a HorizontalNodeAutoscaler. An invalid one is not a gap but a rejected object,
        which is reported to its owner (policy/horizontal_node_autoscaler.py). Raises BadInput for
        an object without a name."""
        rule_object = read_object(msgspec.json.decode(raw))
        if not rule_object.name:
            problem = "; ".join(rule_object.problems) or "is missing"
            raise BadInput("metadata.name", problem, "give the object a name")
        self._rule_objects = {**(self._rule_objects or {}), rule_object.key: rule_object}

    def _add_listing(
        self, body: bytes, likely: str, kind: str, place: str, listing: Any = None
    ) -> bool:
        """Read a list at once if it is one and all its items are well-formed and of this kind, and
        return True; otherwise do nothing."""
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
            return self._add_listing(body, named, named, place)
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
        items = (
            listing.items
            if not foreign
            else [item for item in listing.items if item.api_version not in foreign]
        )
        texts: list[msgspec.Raw] = []

        def malformed(at: int, error: Exception) -> None:
            """A bad item is named by its own text, because it was decoded only in part."""
            nonlocal texts
            texts = texts or _ITEMS.decode(_HEAD.decode(body).items)
            if foreign:
                at = next(number for number, item in enumerate(listing.items) if item is items[at])
            where = f"{place}: items[{at}]" if self._numbered else place
            self.objects.note_malformed(likely, where, str(error), bytes(texts[at]))

        self.objects.fold(likely, items, malformed, resizing=likely == "Pod" and RESIZED in body)
        return True

    def snapshot(
        self,
        cluster: str,
        taken_at: float,
        observed: ObservedGroups = _NO_GROUPS,
    ) -> Snapshot:
        """Return everything held now, in an order and with numbers of classes that depend neither
        on the order of reading nor on objects that are gone."""
        objects = self.objects
        daemonsets: Sequence[DaemonSet] = _sorted(objects.daemonsets)
        pods, daemonsets, classes = _numbered(
            self._pods_with_claims(), daemonsets, objects.table.classes
        )
        controllers = {kind for kind, by_name in objects.controllers.items() if by_name}
        malformed = sorted(objects.malformed.values(), key=_DETAIL)
        missing = sorted([*self._gaps, *malformed], key=lambda gap: _RANK.get(gap.kind, len(_RANK)))
        return Snapshot(
            cluster=cluster,
            taken_at=taken_at,
            nodes=self.nodes,
            pods=tuple(pods),
            classes=share_out(classes),
            groups=tuple(sorted(observed.groups, key=attrgetter("id"))),
            budgets=_sorted(objects.budgets),
            controllers=tuple(
                each
                for _, by_name in sorted(objects.controllers.items())
                for each in _sorted(by_name)
            ),
            controller_kinds=tuple(sorted(controllers | self._listed & set(CONTROLLER_GROUPS))),
            daemonsets=tuple(daemonsets),
            namespaces={
                key.partition("\0")[2]: labels for key, labels in sorted(objects.namespaces.items())
            },
            storage=storage_of(objects.by_kind),
            rule_objects=None if self._rule_objects is None else _sorted(self._rule_objects),
            priorities=next(iter(objects.by_kind["ConfigMap"].values()), None),
            gaps=(*missing, *observed.gaps),
            candidates=tuple(sorted(observed.candidates, key=attrgetter("id"))),
            selections=observed.selections,
        )

    def _pods_with_claims(self) -> list[Pod]:
        """Return the pods, sorted by namespace and name. Pending pods with ephemeral volumes are
        resolved, once all claims are known: see storage.own_claims."""
        objects = self.objects
        classes = objects.table.classes
        keys = sorted(objects.pods)
        pods = list(map(objects.pods.__getitem__, keys))
        ephemeral = {
            at for at, cls in enumerate(classes) if any(volume.template for volume in cls.volumes)
        }
        if not ephemeral or CLAIMS not in self.kinds:
            return pods
        for at, pod in enumerate(pods):
            if pod.cls in ephemeral and not pod.node:
                cls = objects.table.add(own_claims(pod, classes[pod.cls], objects.by_kind[CLAIMS]))
                pods[at] = msgspec.structs.replace(pod, cls=cls)
        return pods


def _sorted(objects: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the objects in the order of their keys."""
    return tuple(item for _, item in sorted(objects.items()))


def _is_rule_object(kind: str) -> bool:
    """Return whether a kind is HorizontalNodeAutoscaler, in any spelling, of a
    single object or a list."""
    return kind.casefold().removesuffix("list") == RULE_OBJECT.casefold()


def _kind_of(raw: msgspec.Raw) -> str:
    """Return the kind that an item names, _FOREIGN if it is not the built-in
    one, "" if it names none."""
    try:
        item = _KIND.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    if item.api_version == METADATA:
        return ""
    return _FOREIGN if is_foreign(item.kind, item.api_version) else item.kind


def _first_kind(body: bytes) -> str:
    """Guess the common kind of a list's items, from where the API writes the kind of a list and of
    its first item; the caller verifies each item."""
    kinds = (match.group(1).decode() for match in _WRITTEN_KIND.finditer(body, 0, 2048))
    return next((kind.removesuffix("List") for kind in kinds if kind != "List"), "")


def _numbered(
    pods: list[Pod], daemonsets: Sequence[DaemonSet], classes: Sequence[PodClass]
) -> tuple[list[Pod], Sequence[DaemonSet], list[PodClass]]:
    """Return the same with classes numbered in the order of their first pod, then
    of their first DaemonSet."""
    used = dict.fromkeys(map(_CLASS, pods))
    used.update(dict.fromkeys(map(_CLASS, daemonsets)))
    order = list(used)
    used_classes = [classes[at] for at in order]
    if order == list(range(len(order))):
        return pods, daemonsets, used_classes
    new = {old: number for number, old in enumerate(order)}
    daemonsets = [msgspec.structs.replace(each, cls=new[each.cls]) for each in daemonsets]
    return [_with_class(pod, new[pod.cls]) for pod in pods], daemonsets, used_classes


def _with_class(pod: Pod, cls: int) -> Pod:
    """Return the pod with another class. Spelled out, because msgspec.structs.replace
    takes five times as long."""
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
        pod.started,
        pod.refused_at,
    )
