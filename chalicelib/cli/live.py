"""The live cluster that `plan` and `explain` are asked about, read by a person's own kubeconfigs.

A command on a desk may read no secrets: what the policy keeps in Secrets Manager is named by a file here.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.policy import KubernetesAccess, Policy
from chalicelib.model.snapshot import Snapshot

if TYPE_CHECKING:
    from chalicelib.kube.client import Cluster

_CLUSTER_API = "clusterapi"


def live(args: argparse.Namespace, policy: Policy, now: float) -> Snapshot:
    """A snapshot of a live cluster; groups come from --node-groups, or from the policy's providers. Raises BadInput."""
    from chalicelib.kube.connect import connect
    from chalicelib.providers.means import Means
    from chalicelib.providers.registry import providers as for_policy
    from chalicelib.snapshot import files
    from chalicelib.snapshot.live import take
    from chalicelib.snapshot.observe import observe

    def connected(access: KubernetesAccess) -> Cluster:
        return connect(access, _no_secrets, clock=time.time)

    policy = by_hand(policy, args.kubeconfig, args.context or "", args.management_kubeconfig)
    kube = connected(policy.kubernetes)
    if args.node_groups is not None:
        return take(policy.name, kube, lambda nodes: (files.groups(args.node_groups, nodes), ()), now,
                    namespace=policy.options.namespace)
    if not policy.providers:
        raise BadInput("--kubeconfig", "says nothing about node groups",
                       "add --node-groups FILE, or --policy FILE with providers")
    providers = for_policy(policy, kube, _no_secrets, time.time, Means(connect=connected))
    return take(policy.name, kube, lambda nodes: observe(providers, nodes), now,
                namespace=policy.options.namespace)


def by_hand(policy: Policy, kubeconfig: Path, context: str, management: Path | None) -> Policy:
    """The policy with the ways to its clusters as the command line names them, by files instead of secrets.

    kubeconfig: the cluster that is scaled; management: where Cluster API's objects are, None as the policy says.
    Raises BadInput where the policy has no provider that management could belong to.
    """
    access = msgspec.structs.replace(policy.kubernetes, kubeconfig_secret="", kubeconfig_file=str(kubeconfig),
                                     context=context, eks_cluster="", region="")
    settings = policy.providers.get(_CLUSTER_API)
    if settings is None and management is not None:
        raise BadInput("--management-kubeconfig", f"belongs to the provider {_CLUSTER_API}, and the policy has none",
                       "take it out")
    if settings is None:
        return msgspec.structs.replace(policy, kubernetes=access)
    if management is not None:
        kept = {key: value for key, value in settings.items() if key not in {"kubeconfigSecret", "context"}}
        settings = {**kept, "kubeconfigFile": str(management)}
    elif not policy.kubernetes.has_own_way:
        # The in-cluster kubeconfig is the way to both clusters, and the file stands for it.
        settings = {key: value for key, value in settings.items() if key != "cloudConfigAuthoritative"}
    return msgspec.structs.replace(policy, kubernetes=access, providers={**policy.providers, _CLUSTER_API: settings})


def _no_secrets(name: str) -> str:
    raise BadInput(f"secret {name}", "is not read from here",
                   "name files instead of secrets when planning by hand; --management-kubeconfig is one")
