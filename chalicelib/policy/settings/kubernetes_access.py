"""spec.kubernetes: how to reach the cluster."""

from __future__ import annotations

import msgspec


class KubernetesAccess(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """How to reach the cluster: a kubeconfig in a secret or a file, or an EKS cluster by name.

    in_cluster_kubeconfig_secret: access to the cluster in which Cluster Autoscaler would run, if
    that is a different one; used if there is no other access. context: of kubeconfig_secret or
    kubeconfig_file. watcher_secret: with which a watcher in the cluster seals the lists that it
    posts; empty where there is none.
    """

    kubeconfig_secret: str = ""
    kubeconfig_file: str = ""
    context: str = ""
    eks_cluster: str = ""
    region: str = ""
    allow_insecure_tls: bool = False
    in_cluster_kubeconfig_secret: str = ""
    watcher_secret: str = ""

    @property
    def has_own_way(self) -> bool:
        """Return whether one of the first three kinds of access is set."""
        return bool(self.kubeconfig_secret or self.kubeconfig_file or self.eks_cluster)
