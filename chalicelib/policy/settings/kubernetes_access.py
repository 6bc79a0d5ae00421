"""spec.kubernetes: how to reach the cluster."""

from typing import Annotated, ClassVar

import msgspec

from chalicelib.policy.value_types import BOOLEAN, FILE, PLAIN_NAME, SECRET, text


class KubernetesAccess(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """spec.kubernetes: a kubeconfig in a secret or a file, or an EKS cluster by name."""

    document_order: ClassVar = (
        "kubeconfigSecret",
        "kubeconfigFile",
        "eksCluster",
        "inClusterKubeconfigSecret",
        "context",
        "region",
        "watcherSecret",
        "allowInsecureTls",
    )

    kubeconfig_secret: Annotated[
        str, SECRET, "Secret that holds a kubeconfig with a token or a client certificate."
    ] = ""
    kubeconfig_file: Annotated[
        str, FILE, "Kubeconfig file; for commands on a workstation only."
    ] = ""
    context: Annotated[
        str, PLAIN_NAME, "Context of the kubeconfig; its current one if not given."
    ] = ""
    eks_cluster: Annotated[
        str,
        text("an EKS cluster's name", r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"),
        "EKS cluster, reached with the function's own AWS identity.",
    ] = ""
    region: Annotated[
        str,
        text("an AWS region", r"[a-z]{2}(-[a-z]+)+-[0-9]", "something like eu-central-2"),
        "AWS region of the EKS cluster; the function's own if not given.",
    ] = ""
    allow_insecure_tls: Annotated[
        bool, BOOLEAN, "Obey insecure-skip-tls-verify in the kubeconfig; refused otherwise."
    ] = False
    in_cluster_kubeconfig_secret: Annotated[
        str,
        SECRET,
        "What upstream calls in-cluster, which does not exist for a Lambda function: kubeconfig of "
        "this cluster if none of the above is given, otherwise of clusterapi's management cluster "
        "(see its cloudConfigAuthoritative).",
    ] = ""
    watcher_secret: Annotated[
        str,
        SECRET,
        "Secret with which outscaler-watcher seals what it reads in the cluster; passes then use "
        "what it posts. Its name continues the use kubeconfig, such as "
        "PREFIX/NAME/kubeconfig-watcher.",
    ] = ""

    @property
    def has_own_way(self) -> bool:
        """Return whether one of the first three kinds of access is set."""
        return bool(self.kubeconfig_secret or self.kubeconfig_file or self.eks_cluster)
