"""The resources that the simulated API server serves: a table of built-in ones, and
custom ones from their CRDs.

A row contains what discovery shows and what the write rules need (namespaced, generation,
subresources). Verbs and short names follow recorded discovery documents.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import msgspec

from infra.emulators.kube import status
from infra.emulators.kube.objects import KubeObject

FULL = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CUSTOM = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


class Version(msgspec.Struct, frozen=True):
    """One version of a resource. schema: openAPIV3Schema of a custom one, None for any content.
    scale: the CRD's paths (`specReplicasPath`, `statusReplicasPath`, `labelSelectorPath`), None
    without scale subresource."""

    name: str
    schema: dict[str, Any] | None = None
    scale: dict[str, str] | None = None
    status: bool = False


class ServedResource(msgspec.Struct, frozen=True):
    """A served resource. versions: preferred first. storage: the version in which
    objects are stored. alias: the (group, plural) whose objects it shows;
    events.k8s.io shows the core events."""

    group: str
    plural: str
    kind: str
    versions: tuple[Version, ...]
    storage: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = FULL
    generation: bool = False
    native: bool = True
    singular: str = ""
    list_kind: str = ""
    alias: tuple[str, str] | None = None

    @property
    def api_version(self) -> str:
        return self.at(self.storage)

    def at(self, version: str) -> str:
        return f"{self.group}/{version}" if self.group else version

    def version(self, name: str) -> Version | None:
        return next((each for each in self.versions if each.name == name), None)


_SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".spec.selector",
}

# group, versions, plural, kind, flags (N namespaced, S status, C scale, G
# generation), short names, categories
_TABLE: tuple[tuple[str, str, str, str, str, str, str], ...] = (
    ("", "v1", "configmaps", "ConfigMap", "N", "cm", ""),
    ("", "v1", "endpoints", "Endpoints", "N", "ep", ""),
    ("", "v1", "events", "Event", "N", "ev", ""),
    ("", "v1", "limitranges", "LimitRange", "N", "limits", ""),
    ("", "v1", "namespaces", "Namespace", "S", "ns", ""),
    ("", "v1", "nodes", "Node", "S", "no", ""),
    ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", "NS", "pvc", ""),
    ("", "v1", "persistentvolumes", "PersistentVolume", "S", "pv", ""),
    ("", "v1", "pods", "Pod", "NSG", "po", "all"),
    ("", "v1", "podtemplates", "PodTemplate", "NG", "", ""),
    ("", "v1", "replicationcontrollers", "ReplicationController", "NSCG", "rc", "all"),
    ("", "v1", "resourcequotas", "ResourceQuota", "NS", "quota", ""),
    ("", "v1", "secrets", "Secret", "N", "", ""),
    ("", "v1", "serviceaccounts", "ServiceAccount", "N", "sa", ""),
    ("", "v1", "services", "Service", "NS", "svc", "all"),
    ("apiregistration.k8s.io", "v1", "apiservices", "APIService", "S", "", "api-extensions"),
    ("apps", "v1", "controllerrevisions", "ControllerRevision", "N", "", ""),
    ("apps", "v1", "daemonsets", "DaemonSet", "NSG", "ds", "all"),
    ("apps", "v1", "deployments", "Deployment", "NSCG", "deploy", "all"),
    ("apps", "v1", "replicasets", "ReplicaSet", "NSCG", "rs", "all"),
    ("apps", "v1", "statefulsets", "StatefulSet", "NSCG", "sts", "all"),
    ("events.k8s.io", "v1", "events", "Event", "N", "ev", ""),
    ("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", "", "", ""),
    (
        "authorization.k8s.io",
        "v1",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        "",
        "",
        "",
    ),
    ("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", "", "", ""),
    (
        "autoscaling",
        "v2,v1",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        "NS",
        "hpa",
        "all",
    ),
    ("batch", "v1", "cronjobs", "CronJob", "NSG", "cj", "all"),
    ("batch", "v1", "jobs", "Job", "NSG", "", "all"),
    (
        "certificates.k8s.io",
        "v1",
        "certificatesigningrequests",
        "CertificateSigningRequest",
        "S",
        "csr",
        "",
    ),
    ("networking.k8s.io", "v1", "ingresses", "Ingress", "NSG", "ing", ""),
    ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", "NG", "netpol", ""),
    ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", "NSG", "pdb", ""),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", "", "", ""),
    ("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", "", "", ""),
    ("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", "N", "", ""),
    ("rbac.authorization.k8s.io", "v1", "roles", "Role", "N", "", ""),
    ("storage.k8s.io", "v1", "csidrivers", "CSIDriver", "", "", ""),
    ("storage.k8s.io", "v1", "csinodes", "CSINode", "", "", ""),
    ("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", "N", "", ""),
    ("storage.k8s.io", "v1", "storageclasses", "StorageClass", "", "sc", ""),
    ("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", "S", "", ""),
    (
        "admissionregistration.k8s.io",
        "v1",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        "G",
        "",
        "api-extensions",
    ),
    (
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        "SG",
        "crd,crds",
        "api-extensions",
    ),
    ("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", "G", "pc", ""),
    ("coordination.k8s.io", "v1", "leases", "Lease", "N", "", ""),
    ("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", "", "", ""),
    ("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", "NG", "", ""),
    ("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", "G", "", ""),
    ("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", "NS", "", ""),
    ("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", "N", "", ""),
    ("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", "G", "", ""),
    ("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", "SG", "", ""),
)

_VERBS = {
    ("", "namespaces"): tuple(verb for verb in FULL if verb != "deletecollection"),
    ("authentication.k8s.io", "selfsubjectreviews"): ("create",),
    ("authorization.k8s.io", "selfsubjectaccessreviews"): ("create",),
    ("authorization.k8s.io", "selfsubjectrulesreviews"): ("create",),
}


@functools.cache
def _builtin() -> tuple[ServedResource, ...]:
    return tuple(_rows())


def _rows() -> Iterator[ServedResource]:
    for group, names, plural, kind, flags, short, categories in _TABLE:
        scale = _SCALE if "C" in flags else None
        versions = tuple(
            Version(name, scale=scale, status="S" in flags) for name in names.split(",")
        )
        yield ServedResource(
            group=group,
            plural=plural,
            kind=kind,
            versions=versions,
            storage=versions[0].name,
            namespaced="N" in flags,
            generation="G" in flags,
            short_names=tuple(short.split(",")) if short else (),
            categories=(categories,) if categories else (),
            verbs=_VERBS.get((group, plural), FULL),
            singular=kind.lower(),
            list_kind=f"{kind}List",
            alias=("", "events") if group == "events.k8s.io" else None,
        )


class Registry:
    """The resources of one server. It changes only when a CRD is added or removed."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], ServedResource] = {}
        self._served: frozenset[tuple[str, str]] = frozenset()
        self._groups: dict[str, tuple[str, ...]] = {}

    @classmethod
    def builtin(cls) -> Registry:
        registry = cls()
        registry._by_name = {(resource.group, resource.plural): resource for resource in _builtin()}
        registry._count()
        return registry

    def add(self, resource: ServedResource) -> None:
        self._by_name[(resource.group, resource.plural)] = resource
        self._count()

    def drop(self, plural: str, group: str) -> None:
        self._by_name.pop((group, plural), None)
        self._count()

    def _count(self) -> None:
        self._served = frozenset(
            (resource.group, version.name)
            for resource in list(self._by_name.values())
            for version in resource.versions
        )
        found: dict[str, dict[str, None]] = {}
        for resource in list(self._by_name.values()):
            if resource.group:
                found.setdefault(resource.group, {}).update(
                    dict.fromkeys(v.name for v in resource.versions)
                )
        self._groups = {group: tuple(versions) for group, versions in found.items()}

    def find(self, plural: str, group: str) -> ServedResource | None:
        """Return the resource with that name, None if it is not served."""
        return self._by_name.get((group, plural))

    def stored(self, plural: str, group: str) -> ServedResource:
        """Return the resource under which its objects are stored. Raises ApiError
        404 if it is not served."""
        found = self.find(plural, group)
        if found is None:
            raise status.no_such_path()
        return found

    def groups(self) -> dict[str, tuple[str, ...]]:
        return dict(self._groups)

    def serves(self, group: str, version: str) -> bool:
        return (group, version) in self._served

    def of(self, group: str, version: str) -> list[ServedResource]:
        return [
            each
            for each in list(self._by_name.values())
            if each.group == group and each.version(version)
        ]


VERSION: KubeObject = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.3",
    "gitCommit": "0" * 40,
    "gitTreeState": "clean",
    "buildDate": "2026-08-21T00:00:00Z",
    "goVersion": "go1.26.6",
    "compiler": "gc",
    "platform": "linux/amd64",
}
_EDIT = ["get", "patch", "update"]
# subresources other than status and scale: resource -> (name, kind, group, version)
_MORE = {("", "pods"): (("binding", "Binding", "", ""), ("eviction", "Eviction", "policy", "v1"))}


def api_versions() -> KubeObject:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def _group(name: str, versions: tuple[str, ...]) -> KubeObject:
    shown = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": shown, "preferredVersion": shown[0]}


def group_list(registry: Registry) -> KubeObject:
    groups = [_group(name, versions) for name, versions in registry.groups().items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> KubeObject | None:
    """Return /apis/{group}, None if it is not served."""
    versions = registry.groups().get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions else None


def _entries(resource: ServedResource, version: Version) -> list[KubeObject]:
    main: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        main["shortNames"] = list(resource.short_names)
    if resource.categories:
        main["categories"] = list(resource.categories)
    found = [main]
    below: list[tuple[str, str, str, str, list[str]]] = [
        (name, kind, group_name, version_name, ["create"])
        for name, kind, group_name, version_name in _MORE.get((resource.group, resource.plural), ())
    ]
    if version.status:
        below.append(("status", resource.kind, "", "", _EDIT))
    if version.scale:
        below.append(("scale", "Scale", "autoscaling", "v1", _EDIT))
    for name, kind, group_name, version_name, verbs in below:
        entry = {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.namespaced,
        }
        if group_name:
            entry |= {"group": group_name, "version": version_name}
        found.append({**entry, "kind": kind, "verbs": list(verbs)})
    return found


def resource_list(registry: Registry, group_name: str, version: str) -> KubeObject | None:
    """Return /api/v1 or /apis/{group}/{version}, None if it is not served."""
    resources = registry.of(group_name, version)
    if not resources:
        return None
    entries = [
        entry
        for resource in resources
        for served in resource.versions
        if served.name == version
        for entry in _entries(resource, served)
    ]
    document: KubeObject = {"kind": "APIResourceList"}
    if group_name:
        document["apiVersion"] = "v1"
    name = f"{group_name}/{version}" if group_name else version
    return {**document, "groupVersion": name, "resources": entries}
