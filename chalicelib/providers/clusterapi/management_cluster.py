"""Locates the objects of Cluster API: in the workload cluster, or in a separate management cluster.

Upstream derives this from two flags, a switch and the pod it runs in. A Lambda function runs in no cluster, so
"in-cluster" is a kubeconfig that the policy names. Missing input is reported and never guessed
(docs/providers/clusterapi.md "Management cluster").
"""

from __future__ import annotations

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.policy import KubernetesAccess

_IN_CLUSTER = "spec.kubernetes.inClusterKubeconfigSecret"


class CapiManagement(msgspec.Struct, frozen=True):
    """The access settings of the management cluster. secret, file, context: upstream's --cloud-config.

    authoritative: --clusterapi-cloud-config-authoritative; without a --cloud-config, the workload cluster's kubeconfig
    is not used for the management cluster.
    """

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
    is authoritative; the in-cluster one. Raises BadInput naming the missing input.
    """
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
