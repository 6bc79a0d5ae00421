"""Finds and removes what Outscaler has written into a cluster, for `outscaler uninstall`.

Everything of Outscaler can be recognised in the cluster itself: taints with a note, annotations
with our prefix, delete marks with our value, and bootstrap tokens with our label. The policy only
says where to look, so that no right is needed but those of the roles that the policy needs anyway.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.errors import ClusterError, Forbidden, NotFound
from chalicelib.cluster.objects import clear_node
from chalicelib.model.errors import MALFORMED
from chalicelib.model.node import DELETION_CANDIDATE, LEAVING_MARKS, TO_BE_DELETED
from chalicelib.model.operation import ANNOTATION_PREFIX, OPERATION_ANNOTATION
from chalicelib.providers.cherryservers.tokens import IDS, LABEL, PATH, TYPE
from chalicelib.providers.clusterapi.api import MACHINE, CapiApi, discover
from chalicelib.providers.clusterapi.models import MARK_PREFIX, CapiAnnotations, CapiMachine
from chalicelib.providers.kit.errors import InvalidRequest, ProviderError

T = TypeVar("T")
_MARKS = frozenset(LEAVING_MARKS)
EXPIRED = "expired"
"""What is said of a bootstrap token that may not be deleted: no machine can join with it any
more."""
_NAMESPACE = "kube-system"
_LONG_AGO = "2000-01-01T00:00:00Z"


class Leftover(msgspec.Struct, frozen=True):
    """Something of Outscaler in the cluster. kind: Node, Machine or Secret; name: with the
    namespace where it has one; what: taints, annotations and cordons, by name."""

    kind: str
    name: str
    what: tuple[str, ...]


class NotRemoved(msgspec.Struct, frozen=True):
    """Something that could not be read or removed, and why."""

    kind: str
    name: str
    why: str


class _CleanupMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    resource_version: str = ""
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class _CleanupTaint(msgspec.Struct, frozen=True):
    key: str = ""


class _CleanupSpec(msgspec.Struct, frozen=True):
    taints: tuple[_CleanupTaint, ...] | None = None


class _CleanupObject(msgspec.Struct, frozen=True):
    """A Node or a Secret."""

    metadata: _CleanupMeta
    spec: _CleanupSpec = _CleanupSpec()


class _RawItems(msgspec.Struct, frozen=True):
    items: tuple[msgspec.Raw, ...] | None = None


class ClusterCleanup:
    """What is ours in one cluster.

    soft: also soft taints, which no note tells from those of another autoscaler; marks of nodes
    that leave are ours alone and always go. foreign: also hard
    taints without a note. management_client: of the cluster with Machines; None: the cluster
    itself. group: Cluster API's API group. namespaces: where Machines are looked for, ("",) for
    all, () for none. tokens: whether bootstrap tokens are looked for.
    """

    def __init__(
        self,
        kube: KubeClient,
        *,
        soft: bool,
        foreign: bool,
        management_client: KubeClient | None = None,
        group: str = "",
        namespaces: Sequence[str] = ("",),
        tokens: bool = True,
    ) -> None:
        self._cluster, self._management = kube, management_client or kube
        self._soft, self._foreign = _MARKS | ({DELETION_CANDIDATE} if soft else set()), foreign
        self._keys = CapiAnnotations(group) if group else CapiAnnotations()
        self._namespaces, self._token_ids = namespaces, IDS if tokens else ()
        self.failures: list[NotRemoved] = []

    def found(self) -> tuple[Leftover, ...]:
        """Read what is there. What cannot be read is in `failures`, and the rest is still read."""
        self.failures.clear()
        api = self._machine_api()
        mark = (self._keys.delete_machine,)
        machines = [Leftover(MACHINE, machine.handle, mark) for machine in self._machines(api)]
        tokens = [
            Leftover("Secret", f"{_NAMESPACE}/{token.metadata.name}", (LABEL,))
            for token in self._tokens()
        ]
        return (*self._nodes(), *machines, *tokens)

    def removed(self) -> tuple[Leftover, ...]:
        """Remove what is there and return it. One object that cannot be changed
        does not stop the others."""
        self.failures.clear()
        removed = []
        for node in tuple(self._nodes()):
            with self._each("Node", node.name):
                what = clear_node(
                    self._cluster,
                    node.name,
                    hard=TO_BE_DELETED,
                    soft=self._soft,
                    foreign=self._foreign,
                )
                removed += [Leftover("Node", node.name, what)] if what else []
        api = self._machine_api()
        for machine in tuple(self._machines(api)):
            with self._each(MACHINE, machine.handle):
                assert api is not None
                api.mark(machine, None)
                removed.append(Leftover(MACHINE, machine.handle, (self._keys.delete_machine,)))
        for token in tuple(self._tokens()):
            name = f"{_NAMESPACE}/{token.metadata.name}"
            with self._each("Secret", name):
                removed.append(Leftover("Secret", name, (self._delete_token(token),)))
        return tuple(removed)

    @contextmanager
    def _each(self, kind: str, name: str) -> Iterator[None]:
        """Note a failure about one object; one that is gone is none."""
        try:
            yield
        except NotFound:
            pass
        except ClusterError as error:
            self.failures.append(NotRemoved(kind, name, error.message))
        except ProviderError as error:
            self.failures.append(NotRemoved(kind, name, str(error)))

    def _nodes(self) -> Iterator[Leftover]:
        items: list[msgspec.Raw] = []
        try:
            for page in self._cluster.list_pages("/api/v1/nodes"):
                items = [] if page.first else items
                items += (_decoded(page.body, _RawItems) or _RawItems()).items or ()
        except ClusterError as error:
            self.failures.append(NotRemoved("Node", "all", error.message))
        for item in items:
            node = _decoded(item, _CleanupObject)
            if node is None:
                continue
            notes = node.metadata.annotations or {}
            keys = self._soft | (
                {TO_BE_DELETED} if self._foreign or OPERATION_ANNOTATION in notes else set()
            )
            what = [taint.key for taint in node.spec.taints or () if taint.key in keys]
            what += sorted(note for note in notes if note.startswith(ANNOTATION_PREFIX))
            if what:
                yield Leftover("Node", node.metadata.name, tuple(what))

    def _machine_api(self) -> CapiApi | None:
        """Return the API of Machines; None where there is none, or none is looked for."""
        if not self._namespaces:
            return None
        try:
            served = discover(self._management, self._keys.group, "", kinds=False)
        except InvalidRequest:
            return None  # a cluster without Cluster API
        except ProviderError as error:
            self.failures.append(NotRemoved(MACHINE, "all", str(error)))
            return None
        return CapiApi(self._management, self._keys, served.version)

    def _machines(self, api: CapiApi | None) -> Iterator[CapiMachine]:
        for namespace in self._namespaces if api is not None else ():
            items: Sequence[msgspec.Raw] = ()
            with self._each(MACHINE, namespace or "all"):
                assert api is not None
                items = tuple(api.objects(MACHINE, namespace))
            for item in items:
                machine = _decoded(item, CapiMachine)
                if machine is not None and (machine.mark(self._keys) or "").startswith(MARK_PREFIX):
                    yield machine

    def _tokens(self) -> Iterator[_CleanupObject]:
        for token_id in self._token_ids:
            name = f"bootstrap-token-{token_id}"
            secret = None
            with self._each("Secret", f"{_NAMESPACE}/{name}"):
                secret = _decoded(self._cluster.get(f"{PATH}/{name}"), _CleanupObject)
            if secret is not None and LABEL in (secret.metadata.labels or {}):
                yield secret

    def _delete_token(self, secret: _CleanupObject) -> str:
        """Delete a token, or end it where only its change is allowed, as by
        rbac-bootstrap-tokens.yaml: the cluster's token cleaner then deletes it. Returns what was
        done. Raises ClusterError."""
        name = secret.metadata.name
        try:
            self._cluster.request("DELETE", f"{PATH}/{name}")
        except Forbidden:
            texts = {"token-id": name.removeprefix("bootstrap-token-"), "expiration": _LONG_AGO}
            meta = {
                "name": name,
                "namespace": _NAMESPACE,
                "resourceVersion": secret.metadata.resource_version,
            }
            body = {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": TYPE,
                "metadata": {**meta, "labels": secret.metadata.labels},
                "data": {
                    key: base64.b64encode(text.encode()).decode() for key, text in texts.items()
                },
            }
            self._cluster.request("PUT", f"{PATH}/{name}", body=body)
            return EXPIRED
        return LABEL


def _decoded(body: bytes | msgspec.Raw, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(body, type=kind)
    except MALFORMED:
        return None
