"""The Kubernetes API calls that this provider makes, all through the cluster's own client, whose
errors are mapped by status; the decisions are elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from chalicelib.model.errors import MALFORMED, OutscalerError
from chalicelib.providers.clusterapi.models import (
    CapiAnnotations,
    CapiCluster,
    CapiMachine,
    CapiResource,
    Scale,
)
from chalicelib.providers.kit.errors import (
    InvalidRequest,
    NotFound,
    ProviderError,
    Transient,
    Unauthorized,
    class_for,
)
from chalicelib.providers.kit.services import KubeApi

MERGE_PATCH = "application/merge-patch+json"
DEPLOYMENT, SET, POOL, MACHINE = "MachineDeployment", "MachineSet", "MachinePool", "Machine"
CLUSTER, HEALTH_CHECK = "Cluster", "MachineHealthCheck"
PLURALS = {
    kind: f"{kind.lower()}s" for kind in (DEPLOYMENT, SET, POOL, MACHINE, CLUSTER, HEALTH_CHECK)
}
VERSION = re.compile(r"v[0-9]+(?:(?:alpha|beta)[0-9]+)?\Z")

T = TypeVar("T")


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class CapiApi:
    """The calls of one API group and version. Every method raises only ProviderError. kube: the
    management cluster; workload_api: the cluster of the Nodes, if it is another one."""

    def __init__(
        self,
        kube: KubeApi,
        annotations: CapiAnnotations,
        version: str,
        workload_api: KubeApi | None = None,
    ) -> None:
        self._kube, self._keys, self._workload = kube, annotations, workload_api or kube
        self._base = f"/apis/{annotations.group}/{version}"

    def _path(self, kind: str, namespace: str, *rest: str) -> str:
        scope = f"/namespaces/{namespace}" if namespace else ""
        return "/".join((f"{self._base}{scope}/{PLURALS[kind]}", *rest))

    def objects(self, kind: str, namespace: str) -> list[msgspec.Raw]:
        """Return all objects of a kind, in a namespace or ("") in all, undecoded, so one malformed
        object does not hide the others."""
        return self._all(self._path(kind, namespace))

    def resource(self, kind: str, namespace: str, name: str) -> CapiResource:
        """Return one MachineDeployment, MachineSet or MachinePool."""
        return self._object(CapiResource, kind, namespace, name)

    def machine(self, namespace: str, name: str) -> CapiMachine:
        """Return one Machine."""
        return self._object(CapiMachine, MACHINE, namespace, name)

    def cluster_paused(self, namespace: str, name: str) -> bool:
        """Return whether the Cluster's spec pauses everything that belongs to it; False without
        the permission to read it."""
        try:
            return self._object(CapiCluster, CLUSTER, namespace, name).paused
        except (NotFound, Unauthorized):
            return False

    def scale(self, kind: str, namespace: str, name: str) -> Scale:
        """Return the current size, with the resourceVersion that a change of it must still find."""
        return self._object(Scale, kind, namespace, name, "scale")

    def set_scale(
        self, kind: str, namespace: str, name: str, replicas: int, resource_version: str
    ) -> None:
        """Set the size if the resource is still at resource_version. Raises Conflict if it was
        changed, Transient if the response does not confirm the write: a proxy's page with
        status 200 sets nothing."""
        body = {"metadata": {"resourceVersion": resource_version}, "spec": {"replicas": replicas}}
        path = self._path(kind, namespace, name, "scale")
        with _translated("PATCH", path):
            answer = decode(
                self._kube.request("PATCH", path, body=body, content_type=MERGE_PATCH), Scale
            )
        if answer.spec.replicas != replicas:
            raise Transient(
                f"{kind} {namespace}/{name}: the API server's answer has another size than was set"
            )

    def mark(self, machine: CapiMachine, value: str | None) -> None:
        """Set the delete-machine annotation, or (None) remove it, only on this very Machine and not
        on one of the same name. Raises Transient if the response does not confirm the write,
        because lowering the size relies on it."""
        body = {
            "metadata": {
                "uid": machine.metadata.uid,
                "annotations": {self._keys.delete_machine: value},
            }
        }
        path = self._path(MACHINE, machine.metadata.namespace, machine.metadata.name)
        answer = decode(ask(self._kube, "PATCH", path, body), CapiMachine)
        if answer.mark(self._keys) != value:
            raise Transient(
                f"{MACHINE} {machine.handle}: the API server's answer does not have the mark that "
                "was set"
            )

    def nodes(self) -> list[msgspec.Raw]:
        """Return the workload cluster's Nodes, undecoded; called only if the
        caller was not given them."""
        return self._all("/api/v1/nodes", self._workload)

    def _object(self, shape: type[T], kind: str, *path: str) -> T:
        return decode(ask(self._kube, "GET", self._path(kind, *path)), shape)

    def _all(self, path: str, kube: KubeApi | None = None) -> list[msgspec.Raw]:
        items: list[msgspec.Raw] = []
        with _translated("LIST", path):
            for page in (kube or self._kube).list_pages(path):
                if page.first:
                    items = []
                items.extend(decode(page.body, _List).items or ())
        return items


def decode(body: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Decode JSON as that type; raises Transient if it is truncated or not such an object."""
    try:
        return msgspec.json.decode(body, type=kind)
    except MALFORMED as error:
        raise Transient(
            f"the API server's answer cannot be read as {kind.__name__.strip('_')}: {error}"
        ) from None


def ask(kube: KubeApi, method: str, path: str, body: object | None = None) -> bytes:
    """Send one request, with a body as a merge patch; raises ProviderError."""
    with _translated(method, path):
        if body is None:
            return kube.request(method, path)
        return kube.request(method, path, body=body, content_type=MERGE_PATCH)


@contextmanager
def _translated(method: str, path: str) -> Iterator[None]:
    """Map the client's errors to provider errors by status; Outscaler's other
    errors are raised unchanged."""
    try:
        yield
    except ProviderError:
        raise
    except OutscalerError as error:
        if not hasattr(error, "status"):
            raise
        # 410 means an expired list here, not a resource that is gone.
        cls = Transient if error.status == 410 else class_for(error.status)
        retry_after = float(getattr(error, "retry_after", 0.0) or 0.0)
        code = str(getattr(error, "reason", "") or error.status or "")
        raise cls(f"{method} {path}: {error}", code=code, retry_after=retry_after) from error


# -- discovery of the served versions and kinds


class ApiVersion(msgspec.Struct, frozen=True):
    """A version of an API group."""

    version: str = ""


class ApiGroup(msgspec.Struct, rename="camel"):
    """An answer of /apis/GROUP."""

    versions: list[ApiVersion] | None = None
    preferred_version: ApiVersion = ApiVersion()


class ServedKind(msgspec.Struct):
    """A kind that a version of an API group serves; name: its plural."""

    name: str = ""
    kind: str = ""


class ServedList(msgspec.Struct):
    """An answer of /apis/GROUP/VERSION."""

    resources: list[ServedKind] | None = None


class Served(msgspec.Struct, frozen=True):
    """The version to use, and the kinds of the API group, None if they were not requested."""

    version: str
    kinds: frozenset[str] | None = None


def discover(kube: KubeApi, group: str, wanted: str, *, kinds: bool = True) -> Served:
    """Return the version to use, the wanted one or the one the server prefers, and its kinds. kinds
    False saves a call if only the version is needed. A wanted version is verified, because with one
    that is not served every object would seem to be gone. Raises InvalidRequest if group or version
    is not served."""
    version = wanted
    if not version:
        missing = (
            f"this cluster does not serve the API group {group}; install Cluster API there, name "
            "the group it uses in "
            "providers.clusterapi.group, or the cluster it is in with "
            "providers.clusterapi.kubeconfigSecret"
        )
        served = _served(kube, f"/apis/{group}", ApiGroup, missing)
        version = served.preferred_version.version or next(
            (each.version for each in served.versions or ()), ""
        )
        if not VERSION.match(version):
            but = f" but {version[:40]!r}" if version else ""
            raise InvalidRequest(f"the API group {group} serves no version{but}")
    if not (kinds or wanted):
        return Served(version)
    missing = (
        f"this cluster does not serve {group}/{version}; leave providers.clusterapi.version out, "
        "or name one of those "
        "that `kubectl api-versions` lists"
    )
    resources = _served(kube, f"/apis/{group}/{version}", ServedList, missing).resources or ()
    return Served(version, frozenset(each.kind for each in resources if "/" not in each.name))


def _served(kube: KubeApi, path: str, shape: type[T], missing: str) -> T:
    try:
        return decode(ask(kube, "GET", path), shape)
    except NotFound:
        raise InvalidRequest(missing) from None
