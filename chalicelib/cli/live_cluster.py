"""Reads the live cluster for `plan` and `explain` with the operator's own kubeconfigs.

A command on a workstation may not read the deployment's secrets. A file on the command line
replaces each kubeconfig that the policy keeps in Secrets Manager, and `--secret NAME=FILE` replaces
the vendors' credentials.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from chalicelib.cli.deployment_settings import on_this_machine, settings_here
from chalicelib.cli.kubeconfig_files import plugin_logins, read_kubeconfig
from chalicelib.cli.policy_files import load_document, read_document
from chalicelib.cli.policy_files import place_of as place_of_document
from chalicelib.model.errors import BadInput
from chalicelib.model.policy_permissions import Deployment
from chalicelib.model.secret import SecretNotGiven, place_of
from chalicelib.model.snapshot import Snapshot
from chalicelib.net.bounded_files import text
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess

if TYPE_CHECKING:
    from chalicelib.cluster.client import KubeClient
    from chalicelib.model.node import Node
    from chalicelib.model.snapshot import ObservedGroups
    from chalicelib.providers.kit.base import Provider

    GroupReader = Callable[[Sequence[Node]], ObservedGroups]

_CLUSTER_API = "clusterapi"


class OpenedCluster(msgspec.Struct, frozen=True):
    """Connections of a policy, by files of the command line. providers: empty
    where the policy has none."""

    policy: Policy
    kube: KubeClient
    providers: tuple[Provider, ...]

    def read(self, now: float, groups: GroupReader | None = None) -> Snapshot:
        """Return a snapshot. groups: reads the node groups, None for the
        providers. Raises ClusterError."""
        from chalicelib.cluster.live_cluster import read_live_cluster
        from chalicelib.cluster.node_groups import read_node_groups
        from chalicelib.policy.horizontal_node_autoscaler import obeyed

        return read_live_cluster(
            self.policy.name,
            self.kube,
            groups or (lambda nodes: read_node_groups(self.providers, nodes)),
            now,
            namespace=self.policy.options.namespace,
            rules=obeyed(self.policy),
        )


def live(args: argparse.Namespace, policy: Policy, now: float) -> Snapshot:
    """Return a snapshot of a live cluster; groups come from --node-groups, or from the policy's
    providers. Raises BadInput."""
    from chalicelib.cli.saved import saved_cluster
    from chalicelib.model.snapshot import ObservedGroups

    if args.node_groups is not None:
        opened = open_cluster(args, policy, providers=False)
        return opened.read(
            now, lambda nodes: ObservedGroups(saved_cluster.groups(args.node_groups, nodes))
        )
    if not policy.providers:
        raise BadInput(
            "--kubeconfig",
            "says nothing about node groups",
            "add --node-groups FILE, or --policy FILE with providers",
        )
    return open_cluster(args, policy).read(now)


def open_cluster(
    args: argparse.Namespace,
    policy: Policy,
    *,
    providers: bool = True,
    deployment: Deployment | None = None,
) -> OpenedCluster:
    """Connect to the cluster and the providers of a policy, by --kubeconfig, --context,
    --management-kubeconfig and --secret. deployment: what policies may name, None for what is known
    without AWS. Raises BadInput."""
    from chalicelib.cluster.kubeconfig import POLICY_CONTEXT
    from chalicelib.policy.secret_names import observing
    from chalicelib.providers.kit.services import ProviderServices
    from chalicelib.providers.registry import providers as for_policy

    read_secret = secret_files(args.secret, policy)

    def connected(access: KubernetesAccess) -> KubeClient:
        by_line = bool(args.context) and access.kubeconfig_file == str(args.kubeconfig)
        return _connected(access, read_secret, "--context" if by_line else POLICY_CONTEXT)

    policy = with_kubeconfigs(
        policy, args.kubeconfig, args.context or "", args.management_kubeconfig
    )
    kube = connected(policy.kubernetes)
    if not providers:
        return OpenedCluster(policy, kube, ())
    services = ProviderServices(
        connect=connected, deployment=on_this_machine(deployment or settings_here().deployment)
    )
    return OpenedCluster(
        policy, kube, tuple(for_policy(observing(policy), kube, read_secret, time.time, services))
    )


def connected_by_file(kubeconfig: Path, context: str) -> KubeClient:
    """Connect to the cluster of a kubeconfig file without a policy. context: "" for the file's
    current one. Raises BadInput."""
    return _connected(
        KubernetesAccess(kubeconfig_file=str(kubeconfig), context=context),
        secret_files(()),
        "--context",
    )


def add_management_namespace(parser: argparse.ArgumentParser) -> None:
    """Add where the objects of Cluster API are, for roles that may read one namespace only."""
    parser.add_argument(
        "--management-namespace",
        metavar="NAME",
        action="append",
        default=[],
        help="the namespace of Cluster API's objects; may be repeated (default: all)",
    )
    parser.add_argument(
        "--policy",
        metavar="FILE",
        help="a policy document that names the namespaces, or - for standard input",
    )


def management_namespaces(args: argparse.Namespace, policy: Policy | None) -> tuple[str, ...]:
    """Return the namespaces of Cluster API's objects: ("",) for all, () where the policy
    has none. Raises BadInput."""
    from chalicelib.cli.doctor.needed_rules import capi_namespaces

    if args.management_namespace or policy is None:
        return tuple(args.management_namespace) or ("",)
    return capi_namespaces(policy)


def policy_of(args: argparse.Namespace) -> Policy | None:
    """Return the policy of --policy, None where it is not given. Raises BadInput, OSError."""
    if not args.policy:
        return None
    return load_document(read_document(args.policy), place_of_document(args.policy))[0]


def connected_management(args: argparse.Namespace, policy: Policy) -> KubeClient | None:
    """Connect to the management cluster of Cluster API, by --management-kubeconfig,
    --kubeconfig and --secret; None where the policy has none, or where it is the workload
    cluster. Raises BadInput."""
    from chalicelib.cli.doctor.needed_rules import management_access
    from chalicelib.cluster.kubeconfig import POLICY_CONTEXT

    if args.management_kubeconfig is not None:
        return connected_by_file(args.management_kubeconfig, "")
    access = management_access(with_kubeconfigs(policy, args.kubeconfig, args.context or "", None))
    return (
        None
        if access is None
        else _connected(access, secret_files(args.secret, policy), POLICY_CONTEXT)
    )


def _connected(
    access: KubernetesAccess, read_secret: Callable[[str], str], context_place: str
) -> KubeClient:
    from chalicelib.cluster.connect import connect

    return connect(
        access,
        read_secret,
        clock=time.time,
        files=True,
        context_place=context_place,
        plugins=plugin_logins(time.time),
        read_file=read_kubeconfig,
    )


def with_kubeconfigs(
    policy: Policy, kubeconfig: Path, context: str, management: Path | None
) -> Policy:
    """Return the policy with its connections replaced by the kubeconfig files of the command line.

    kubeconfig: for the scaled cluster; management: for the cluster that holds Cluster API's
    objects, None to keep the policy's setting. Raises BadInput where the policy has no provider
    that uses a management cluster.
    """
    none = {"kubeconfig_secret": "", "eks_cluster": "", "region": ""}
    access = msgspec.structs.replace(
        policy.kubernetes, kubeconfig_file=str(kubeconfig), context=context, **none
    )
    own_way, settings = policy.kubernetes.has_own_way, policy.providers.get(_CLUSTER_API)
    policy = msgspec.structs.replace(policy, kubernetes=access)
    if settings is None:
        if management is not None:
            problem = f"belongs to the provider {_CLUSTER_API}, and the policy has none"
            raise BadInput("--management-kubeconfig", problem, "take it out")
        return policy
    if management is not None:
        replaced = {"kubeconfigSecret", "observeSecret", "context"}
        settings = {key: value for key, value in settings.items() if key not in replaced}
        settings["kubeconfigFile"] = str(management)
    elif not own_way:
        # The in-cluster kubeconfig connects to both clusters, and the file replaces it for both.
        settings = {
            key: value for key, value in settings.items() if key != "cloudConfigAuthoritative"
        }
    return msgspec.structs.replace(policy, providers={**policy.providers, _CLUSTER_API: settings})


def add_secret_files(parser: argparse.ArgumentParser) -> None:
    """Add the files that replace secrets of the policy."""
    parser.add_argument(
        "--secret",
        metavar="NAME=FILE",
        action="append",
        default=[],
        help="a file that replaces a secret of the policy; may be repeated",
    )


def secret_files(arguments: Sequence[str], policy: Policy | None = None) -> Callable[[str], str]:
    """Return a reader of secrets that come from files. arguments: `NAME=FILE` each; raises BadInput
    for any other form. policy: says whose each secret is.

    The reader raises SecretNotGiven for any other secret, and BadInput for a file that cannot be
    read; it never quotes a secret.
    """
    from chalicelib.policy.secret_names import named_by

    files: dict[str, Path] = {}
    paths = {name: path for path, name, _ in named_by(policy)} if policy is not None else {}
    for pair in arguments:
        name, equals, path = pair.partition("=")
        if not (name and equals and path):
            raise BadInput(
                "--secret",
                "is not NAME=FILE",
                "write the secret's name as in the policy, and a file: NAME=FILE",
            )
        files[name] = Path(path)

    def read(name: str) -> str:
        if name not in files:
            path = paths.get(name, ())
            whose = f" of {path[1]}" if path[:1] == ("providers",) else ""
            of_management = path[1:2] in (("clusterapi",), ("inClusterKubeconfigSecret",))
            option = ", or --management-kubeconfig FILE" if of_management else ""
            remedy = f"commands read no secrets: add --secret {name}=FILE{option}"
            raise SecretNotGiven(f"{place_of(name)}{whose}", "is not given", remedy)
        try:
            return text(files[name])
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise BadInput(
                f"--secret {name}={files[name]}", f"cannot be read: {why}", "name a readable file"
            ) from None

    return read
