"""The calls that this provider makes, and nothing of why (clusterapi.md §4). All go through the cluster's own client.

The client is met as a Protocol (kube_api.py), and its errors by their status.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from chalicelib.model.errors import MALFORMED, OutscalerError
from chalicelib.providers.clusterapi.annotations import CapiAnnotations
from chalicelib.providers.clusterapi.cluster_object import CapiCluster
from chalicelib.providers.clusterapi.models import CapiMachine, CapiResource, Scale
from chalicelib.providers.errors import NotFound, ProviderError, Transient, Unauthorized
from chalicelib.providers.http_statuses import class_for
from chalicelib.providers.kube_protocol import KubeApi

MERGE_PATCH = "application/merge-patch+json"
DEPLOYMENT, SET, POOL, MACHINE = "MachineDeployment", "MachineSet", "MachinePool", "Machine"
CLUSTER = "Cluster"
PLURALS = {
    DEPLOYMENT: "machinedeployments",
    SET: "machinesets",
    POOL: "machinepools",
    MACHINE: "machines",
    CLUSTER: "clusters",
}

T = TypeVar("T")


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class CapiApi:
    """The calls of one API group and version. Every method raises ProviderError and nothing else.

    kube: the management cluster; workload: the cluster of the Nodes, where that is another one.
    """

    def __init__(self, kube: KubeApi, keys: CapiAnnotations, version: str, workload: KubeApi | None = None) -> None:
        self._kube, self._keys, self._workload = kube, keys, workload or kube
        self._base = f"/apis/{keys.group}/{version}"

    def _path(self, kind: str, namespace: str, *rest: str) -> str:
        scope = f"/namespaces/{namespace}" if namespace else ""
        return "/".join((f"{self._base}{scope}/{PLURALS[kind]}", *rest))

    def objects(self, kind: str, namespace: str) -> list[msgspec.Raw]:
        """All objects of a kind, in a namespace or ("") in all, undecoded: one bad object must not hide the others."""
        return self._all(self._path(kind, namespace))

    def resource(self, kind: str, namespace: str, name: str) -> CapiResource:
        """One MachineDeployment or MachineSet."""
        return decode(ask(self._kube, "GET", self._path(kind, namespace, name)), CapiResource)

    def machine(self, namespace: str, name: str) -> CapiMachine:
        """One Machine."""
        return decode(ask(self._kube, "GET", self._path(MACHINE, namespace, name)), CapiMachine)

    def cluster_paused(self, namespace: str, name: str) -> bool:
        """Whether the Cluster's spec pauses all that belongs to it (D29); False where that may not be read."""
        try:
            return decode(ask(self._kube, "GET", self._path(CLUSTER, namespace, name)), CapiCluster).paused
        except (NotFound, Unauthorized):
            return False

    def scale(self, kind: str, namespace: str, name: str) -> Scale:
        """The live size, with the version that a change of it must still find."""
        return decode(ask(self._kube, "GET", self._path(kind, namespace, name, "scale")), Scale)

    def set_scale(self, kind: str, namespace: str, name: str, replicas: int, resource_version: str) -> None:
        """Set the size if nobody changed the resource since resource_version; raises Conflict if somebody did (D13),
        Transient where the answer does not say that it was done: a proxy's page with status 200 sets nothing."""
        body = {"metadata": {"resourceVersion": resource_version}, "spec": {"replicas": replicas}}
        answer = decode(ask(self._kube, "PATCH", self._path(kind, namespace, name, "scale"), body), Scale)
        if answer.spec.replicas != replicas:
            raise Transient(f"{kind} {namespace}/{name}: the API server's answer has another size than was set")

    def mark(self, machine: CapiMachine, value: str | None) -> None:
        """Write the delete-machine annotation, or (None) take it off; only on this very Machine, not on a namesake.

        Raises Transient where the answer does not say that it was done: whoever lowers the size next relies on it.
        """
        body = {"metadata": {"uid": machine.metadata.uid, "annotations": {self._keys.delete_machine: value}}}
        path = self._path(MACHINE, machine.metadata.namespace, machine.metadata.name)
        answer = decode(ask(self._kube, "PATCH", path, body), CapiMachine)
        if answer.mark(self._keys) != value:
            raise Transient(f"{MACHINE} {machine.handle}: the API server's answer does not have the mark that was set")

    def nodes(self) -> list[msgspec.Raw]:
        """The workload cluster's Nodes, undecoded; asked for only where the caller was not given them."""
        return self._all("/api/v1/nodes", self._workload)

    def _all(self, path: str, kube: KubeApi | None = None) -> list[msgspec.Raw]:
        items: list[msgspec.Raw] = []
        with _translated("LIST", path):
            for page in (kube or self._kube).list_pages(path):
                if page.first:
                    items = []
                items.extend(decode(page.body, _List).items or ())
        return items


def decode(body: bytes | msgspec.Raw, kind: type[T]) -> T:
    """JSON as that type; raises Transient for what is cut off or is no such object."""
    try:
        return msgspec.json.decode(body, type=kind)
    except MALFORMED as error:
        raise Transient(f"the API server's answer cannot be read as {kind.__name__.strip('_')}: {error}") from None


def ask(kube: KubeApi, method: str, path: str, body: object | None = None) -> bytes:
    """One call, a body as a merge patch; raises ProviderError."""
    with _translated(method, path):
        if body is None:
            return kube.request(method, path)
        return kube.request(method, path, body=body, content_type=MERGE_PATCH)


@contextmanager
def _translated(method: str, path: str) -> Iterator[None]:
    """The client's errors as this tree's, by their status; other errors of ours pass."""
    try:
        yield
    except ProviderError:
        raise
    except OutscalerError as error:
        if not hasattr(error, "status"):
            raise
        raise _as_provider_error(error, f"{method} {path}") from error


def _as_provider_error(error: OutscalerError, call: str) -> ProviderError:
    status = getattr(error, "status", None)
    # 410 is about an old list here, not about a thing that is gone.
    cls = Transient if status == 410 else class_for(status)
    retry_after = float(getattr(error, "retry_after", 0.0) or 0.0)
    return cls(f"{call}: {error}", code=str(getattr(error, "reason", "") or status or ""), retry_after=retry_after)
