"""`providers.clusterapi` of the policy (policy/vendors/clusterapi.py): what is discovered, where
the objects of Cluster API are, and the rules about several settings.

Discovery specs are upstream's `--node-group-auto-discovery=clusterapi:…`. Parsing is as strict as
upstream's: nothing is trimmed or guessed. Specs are matched against the scalable resource only,
never against the MachineSets and Machines below it, which do not inherit its labels.

The objects are in the workload cluster, or in a separate management cluster. Upstream derives this
from two flags, a switch and the pod it runs in. A Lambda function runs in no cluster, so
"in-cluster" is a kubeconfig that the policy names. Missing input is reported and never guessed
(docs/providers/clusterapi.md "Management cluster").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.label_syntax import is_label_key, is_label_value
from chalicelib.model.secret import SecretNotGiven, SecretUnavailable
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.policy.vendors.clusterapi import CapiSection
from chalicelib.policy.vendors.settings import typed
from chalicelib.providers.clusterapi.models import (
    CapiAnnotations,
)
from chalicelib.providers.kit.errors import (
    NOT_GIVEN,
    InvalidRequest,
    ProviderError,
    Transient,
    Unauthorized,
    class_for,
)
from chalicelib.providers.kit.services import Identified, KubeApi

PLACE = "providers.clusterapi"
_MOST_PATTERNS = 100

# -- discovery

_DISCOVERER = "clusterapi"
_REMEDY = (
    "write clusterapi:namespace=NAME,clusterName=NAME,label=value with any of the parts left out"
)


class Spec(msgspec.Struct, frozen=True):
    """One spec, of which all parts must match. An empty namespace or
    cluster is not a restriction."""

    namespace: str = ""
    cluster: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    def matches(self, namespace: str, cluster: str, labels: Mapping[str, str]) -> bool:
        """Whether the spec selects a resource in this namespace, of this
        cluster and with these labels."""
        return (
            self.namespace in {"", namespace}
            and self.cluster in {"", cluster}
            and all(labels.get(key) == value for key, value in self.labels)
        )


EVERYTHING = (Spec(),)


def parse_spec(text: str, place: str) -> Spec:
    """Parse `clusterapi:namespace=blue,color=red`. Raises BadInput naming
    place for an invalid spec."""
    discoverer, colon, rest = text.partition(":")
    if not colon or ":" in rest:
        raise BadInput(place, f"{text!r} does not have exactly one ':'", _REMEDY)
    if discoverer != _DISCOVERER:
        raise BadInput(
            place, f"{text!r} is for the discoverer {discoverer!r}, not {_DISCOVERER!r}", _REMEDY
        )
    parts = {"namespace": "", "clusterName": ""}
    labels = []
    for key, value in _pairs(rest, place):
        if key not in parts:
            labels.append(_label(key, value, place))
        elif is_label_value(value):
            parts[key] = value  # the last one applies
        else:
            # upstream accepts any text and then finds nothing; an invalid
            # name here is a typing error
            raise BadInput(place, f"{value!r} cannot be a {key}", _REMEDY)
    return Spec(parts["namespace"], parts["clusterName"], tuple(labels))


def parse_labels(text: str, place: str) -> tuple[tuple[str, str], ...]:
    """Parse `color=blue,shape=square` as label requirements; every key is a
    label here, also `namespace`."""
    return tuple(_label(key, value, place) for key, value in _pairs(text, place))


def _pairs(text: str, place: str) -> Iterator[tuple[str, str]]:
    for pair in filter(None, text.split(",")):
        key, equals, value = pair.partition("=")
        if not equals or "=" in value:
            raise BadInput(place, f"{pair!r} does not have exactly one '='", _REMEDY)
        yield key, value


def _label(key: str, value: str, place: str) -> tuple[str, str]:
    if not is_label_key(key):
        raise BadInput(place, f"{key!r} cannot be the key of a label", _REMEDY)
    if not is_label_value(value):
        raise BadInput(place, f"{value!r} cannot be the value of a label", _REMEDY)
    return key, value


def any_matches(
    specs: Sequence[Spec], namespace: str, cluster: str, labels: Mapping[str, str]
) -> bool:
    """Whether any of the specs matches."""
    return any(spec.matches(namespace, cluster, labels) for spec in specs)


def scope(specs: Sequence[Spec]) -> tuple[str, ...]:
    """Return the namespaces to list: the union over all specs, or ("",), the whole
    cluster, if any spec names none."""
    namespaces = {spec.namespace for spec in specs}
    return ("",) if "" in namespaces else tuple(sorted(namespaces))


def cluster_names(specs: Sequence[Spec]) -> frozenset[str] | None:
    """Return the clusters that the specs name; None if one of them names none."""
    names = frozenset(spec.cluster for spec in specs)
    return None if "" in names else names


# -- the management cluster

_IN_CLUSTER = "spec.kubernetes.inClusterKubeconfigSecret"


class CapiManagement(msgspec.Struct, frozen=True):
    """The access settings of the management cluster. secret, file, context: upstream's
    --cloud-config. authoritative: --clusterapi-cloud-config-authoritative; without a
    --cloud-config, the workload cluster's kubeconfig is not used for the management cluster."""

    secret: str = ""
    file: str = ""
    context: str = ""
    authoritative: bool = False

    @property
    def named(self) -> bool:
        """Whether it has its own kubeconfig."""
        return bool(self.secret or self.file)


def to_management(management: CapiManagement, access: KubernetesAccess) -> KubernetesAccess | None:
    """Return the access to the management cluster; None if it is the workload cluster, over the
    same connection. access: to the workload cluster. The order is: its own kubeconfig; that of the
    workload cluster, unless the setting is authoritative; the in-cluster one. Raises BadInput
    naming the missing input."""
    if management.named:
        return KubernetesAccess(
            kubeconfig_secret=management.secret,
            kubeconfig_file=management.file,
            context=management.context,
            allow_insecure_tls=access.allow_insecure_tls,
        )
    if not (management.authoritative and access.has_own_way):
        return None
    if not access.in_cluster_kubeconfig_secret:
        raise BadInput(
            _IN_CLUSTER,
            "is missing: providers.clusterapi.cloudConfigAuthoritative keeps spec.kubernetes for "
            "the workload cluster, "
            "and nothing else says where the management cluster is",
            "name its kubeconfig there or in providers.clusterapi.kubeconfigSecret, or take "
            "cloudConfigAuthoritative "
            "out",
        )
    return KubernetesAccess(
        in_cluster_kubeconfig_secret=access.in_cluster_kubeconfig_secret,
        allow_insecure_tls=access.allow_insecure_tls,
    )


# -- the settings


class CapiSettings(CapiSection, frozen=True):
    """The settings of the policy. specs: what to discover, any may match."""

    specs: tuple[Spec, ...] = EVERYTHING

    @property
    def keys(self) -> CapiAnnotations:
        """The labels and annotations of the API group."""
        return CapiAnnotations(self.group)

    @property
    def management(self) -> CapiManagement:
        """The access to the management cluster."""
        return CapiManagement(
            self.kubeconfig_secret,
            self.kubeconfig_file,
            self.context,
            self.cloud_config_authoritative,
        )


def read_settings(settings: Mapping[str, str]) -> CapiSettings:
    """Return the settings of a policy's texts; raises BadInput, or
    InputErrors for several mistakes."""
    capi = typed(CapiSettings, settings, (_specs, _few_patterns, _check_management))
    return msgspec.structs.replace(capi, specs=_specs(msgspec.structs.asdict(capi)))


def read_names(settings: Mapping[str, str]) -> CapiSettings:
    """Return only what names this cluster and the management cluster, whatever else is wrong.
    Raises BadInput if the specs are."""
    attributes = {"namespace": "namespace", "clusterName": "cluster_name", "labels": "labels"}
    names: dict[str, Any] = {name: settings.get(key, "") for key, name in attributes.items()}
    discovery = tuple(settings.get("autoDiscovery", "").split())
    return CapiSettings(
        auto_discovery=discovery,
        specs=_specs(names | {"auto_discovery": discovery}),
        kubeconfig_secret=settings.get("kubeconfigSecret", ""),
        kubeconfig_file=settings.get("kubeconfigFile", ""),
        context=settings.get("context", ""),
        cloud_config_authoritative=settings.get("cloudConfigAuthoritative") == "true",
    )


def _specs(given: Mapping[str, Any]) -> tuple[Spec, ...]:
    discovery = given.get("auto_discovery", ())
    keys = {"namespace": "namespace", "cluster_name": "clusterName", "labels": "labels"}
    conflicting = [key for attribute, key in keys.items() if given.get(attribute)]
    if discovery and conflicting:
        raise BadInput(
            f"{PLACE}.{conflicting[0]}",
            "conflicts with autoDiscovery",
            "use one of the two: put the namespace, the cluster and the labels into the specs",
        )
    if discovery:
        # one that could not be read is reported already
        discovery = discovery if isinstance(discovery, tuple) else ()
        return tuple(parse_spec(spec, f"{PLACE}.autoDiscovery") for spec in discovery)
    labels = parse_labels(given.get("labels", ""), f"{PLACE}.labels")
    return (Spec(given.get("namespace", ""), given.get("cluster_name", ""), labels),)


def unnamed(settings: CapiSettings, access: KubernetesAccess | None) -> BadInput | None:
    """Return the error if a separate management cluster is used and the settings do not name this
    cluster; None otherwise.

    A management cluster holds other clusters too, and the Nodes' own claims must not choose among
    them. access: access to a management cluster separate from the Nodes', None if there is none."""
    if access is None or cluster_names(settings.specs) is not None:
        return None
    if settings.auto_discovery:
        return BadInput(
            f"{PLACE}.autoDiscovery",
            "has a spec without clusterName, and the management cluster may hold other clusters",
            "write clusterName=NAME into each spec, and namespace=NAME",
        )
    return BadInput(
        f"{PLACE}.clusterName",
        "is missing, and the management cluster may hold other clusters",
        "write the name of the Cluster object, and its namespace as namespace",
    )


def _few_patterns(given: Mapping[str, Any]) -> None:
    patterns = given.get("sync_machine_labels", ())
    if isinstance(patterns, tuple) and len(patterns) > _MOST_PATTERNS:
        raise BadInput(
            f"{PLACE}.syncMachineLabels",
            f"has {len(patterns)} patterns",
            f"write at most {_MOST_PATTERNS}",
        )


def _check_management(given: Mapping[str, Any]) -> None:
    secret, file = "kubeconfig_secret" in given, "kubeconfig_file" in given
    if secret and file:
        raise BadInput(
            f"{PLACE}.kubeconfigFile", "conflicts with kubeconfigSecret", "keep one of the two"
        )
    if "context" in given and not (secret or file):
        raise BadInput(
            f"{PLACE}.context",
            "belongs to a kubeconfig of the management cluster, and none is named here",
            "add kubeconfigSecret, or write the context into spec.kubernetes",
        )
    if "observe_secret" in given and not secret:
        raise BadInput(
            f"{PLACE}.observeSecret",
            "is given without kubeconfigSecret, which is used for changes",
            "add kubeconfigSecret, or take it out",
        )


# -- the connection


class Reach:
    """The connection to the management cluster, opened at its first use: a provider that cannot be
    built counts as misconfigured, and its planned operations fail permanently, but a secret that
    AWS cannot return at the moment is only a temporary error. access: None if it is the workload
    cluster. connect: creates the client."""

    def __init__(
        self,
        workload_api: KubeApi,
        access: KubernetesAccess | None,
        connect: Callable[[KubernetesAccess], object],
    ) -> None:
        self.workload, self._access, self._connect = workload_api, access, connect
        self._management = workload_api if access is None else None

    def management(self) -> KubeApi:
        """Return the client, the same one each time. Raises ProviderError: Transient if the secret
        cannot be read now, InvalidRequest if its contents are wrong."""
        if self._management is None:
            assert self._access is not None
            try:
                self._management = cast(KubeApi, self._connect(self._access))
            except ProviderError:
                raise
            except OutscalerError as error:
                if isinstance(error, SecretNotGiven):
                    raise Unauthorized(str(error), code=NOT_GIVEN) from error
                first_line = str(error).partition("\n")[0]
                text = f"the management cluster cannot be reached: {first_line}"
                if isinstance(error, SecretUnavailable):
                    raise Transient(text) from error
                if not hasattr(error, "status"):
                    raise InvalidRequest(text) from error
                retry_after = float(getattr(error, "retry_after", 0.0) or 0.0)
                raise class_for(error.status)(text, retry_after=retry_after) from error
        return self._management

    def identity(self) -> str:
        """Return the management cluster's identity (providers/kit/services.py); empty if
        its client reports none."""
        client = self.management()
        return client.identity if isinstance(client, Identified) else ""
