"""Locates the objects of Cluster API: in the workload cluster, or in a separate management cluster.

Upstream derives this from two flags, a switch and the pod it runs in. A Lambda function runs in no cluster, so
"in-cluster" is a kubeconfig that the policy names. Missing input is reported and never guessed
(docs/providers/clusterapi.md "Management cluster").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import msgspec

from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.policy import KubernetesAccess
from chalicelib.model.secret import SecretUnavailable
from chalicelib.providers.errors import InvalidRequest, ProviderError, Transient, class_for
from chalicelib.providers.services import Identified, KubeApi

_IN_CLUSTER = "spec.kubernetes.inClusterKubeconfigSecret"


class CapiManagement(msgspec.Struct, frozen=True):
    """The access settings of the management cluster. secret, file, context: upstream's --cloud-config. authoritative:
    --clusterapi-cloud-config-authoritative; without a --cloud-config, the workload cluster's kubeconfig is not used for
    the management cluster."""

    secret: str = ""
    file: str = ""
    context: str = ""
    authoritative: bool = False

    @property
    def named(self) -> bool:
        """Whether it has its own kubeconfig."""
        return bool(self.secret or self.file)


def to_management(management: CapiManagement, access: KubernetesAccess) -> KubernetesAccess | None:
    """Return the access to the management cluster; None if it is the workload cluster, over the same connection.
    access: to the workload cluster. The order is: its own kubeconfig; that of the workload cluster, unless the setting
    is authoritative; the in-cluster one. Raises BadInput naming the missing input."""
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
            "is missing: providers.clusterapi.cloudConfigAuthoritative keeps spec.kubernetes for the workload cluster, "
            "and nothing else says where the management cluster is",
            "name its kubeconfig there or in providers.clusterapi.kubeconfigSecret, or take cloudConfigAuthoritative "
            "out",
        )
    return KubernetesAccess(
        in_cluster_kubeconfig_secret=access.in_cluster_kubeconfig_secret, allow_insecure_tls=access.allow_insecure_tls
    )


class Reach:
    """The connection to the management cluster, opened at its first use: a provider that cannot be built counts as
    misconfigured, and its planned operations fail permanently, but a secret that AWS cannot return at the moment is
    only a temporary error. access: None if it is the workload cluster. connect: creates the client."""

    def __init__(
        self, workload_api: KubeApi, access: KubernetesAccess | None, connect: Callable[[KubernetesAccess], object]
    ) -> None:
        self.workload, self._access, self._connect = workload_api, access, connect
        self._management = workload_api if access is None else None

    def management(self) -> KubeApi:
        """Return the client, the same one each time. Raises ProviderError: Transient if the secret cannot be read now,
        InvalidRequest if its contents are wrong."""
        if self._management is None:
            assert self._access is not None
            try:
                self._management = cast(KubeApi, self._connect(self._access))
            except ProviderError:
                raise
            except OutscalerError as error:
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
        """Return the management cluster's identity (kube_protocol.py); empty if its client reports none."""
        client = self.management()
        return client.identity if isinstance(client, Identified) else ""
