"""Clusters for the tests of `outscaler doctor`: a simulated API server, rights of
infra/kubernetes, and a context.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import yaml

from chalicelib.cli.doctor.finding import DoctorContext, Finding
from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.connect import connect
from chalicelib.cluster.listed_resources import RESOURCES
from chalicelib.cluster.live_cluster import read_live_cluster
from chalicelib.model.errors import BadInput
from chalicelib.model.group import Instance, NodeGroup
from chalicelib.model.snapshot import ObservedGroups, Snapshot
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.policy.settings.mode import Mode
from infra.emulators.kube.auth import MASTERS, RbacRule, User, granted
from infra.emulators.kube.crds import KARPENTER, load
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from tests.source_trees import ROOT

NOW = 1_800_000_000.0
ACCOUNT = "system:serviceaccount:kube-system:outscaler"
_PLACES = {each.kind: (each.plural, each.group) for each in RESOURCES} | {
    "Deployment": ("deployments", "apps"),
    "Lease": ("leases", "coordination.k8s.io"),
    "ConfigMap": ("configmaps", ""),
    "Secret": ("secrets", ""),
    "NodePool": ("nodepools", "karpenter.sh"),
}
ACTIVE = Policy(name="prod", mode=Mode.ACTIVE, providers={"exoscale": {"zone": "ch-gva-2"}})
SHADOW = msgspec.structs.replace(ACTIVE, mode=Mode.SHADOW)


def manifests(*files: str) -> list[dict[str, Any]]:
    """The documents of files in infra/kubernetes."""
    texts = [(ROOT / "infra" / "kubernetes" / file).read_text("utf-8") for file in files]
    return [document for text in texts for document in yaml.safe_load_all(text)]


def rules_of(*files: str) -> list[RbacRule]:
    """What files in infra/kubernetes grant to the account of Outscaler, one
    for each rule of a role."""
    return granted(manifests(*files), ACCOUNT)


@contextmanager
def cluster(
    objects: Sequence[Mapping[str, Any]] = (), rules: Sequence[RbacRule] | None = None
) -> Iterator[tuple[ApiServer, KubeClient]]:
    """A server with these objects, and a client with these rules (None: everything)."""
    store = ObjectStore(lambda: NOW)
    if any(each["kind"] == "NodePool" for each in objects):
        load(store, KARPENTER)
    for each in objects:
        plural, group = _PLACES[str(each["kind"])]
        store.load(plural, [copy.deepcopy(dict(each))], group)
    users = (User("admin", "token-of-admin", (MASTERS,)), User(ACCOUNT, "token-of-account"))
    with ApiServer(store, users=users, rbac={ACCOUNT: rules or ()}) as server:
        yield server, client(server, "admin" if rules is None else ACCOUNT)


def client(server: ApiServer, user: str) -> KubeClient:
    access = KubernetesAccess(kubeconfig_secret="kubeconfig")
    config = server.kubeconfig(user)
    return connect(
        access, lambda _: config, clock=lambda: NOW, sleep=lambda _: None, jitter=lambda: 0.5
    )


def context(kube: KubeClient | None, policy: Policy = ACTIVE, **fields: Any) -> DoctorContext:
    """A context; the snapshot is read unless it is given."""
    if kube is not None and "snapshot" not in fields:
        fields["snapshot"] = read_live_cluster(policy.name, kube, lambda _: ObservedGroups(), NOW)
    return DoctorContext(
        policy=policy, clock=lambda: NOW, read_secret=no_secret, workload=kube, **fields
    )


def no_secret(name: str) -> str:
    raise BadInput(f"secret {name}", "is not read from here", "name a file for it")


def grouped(snapshot: Snapshot, group: str = "web", **fields: Any) -> Snapshot:
    """The snapshot with one group of all its nodes."""
    instances = tuple(
        Instance(id=node.provider_id or node.name, node=node.name) for node in snapshot.nodes
    )
    made = NodeGroup(
        group, "exoscale", **{"max": 10, "target": len(instances), "instances": instances, **fields}
    )
    return msgspec.structs.replace(snapshot, groups=(*snapshot.groups, made))


def with_options(policy: Policy, **options: Any) -> Policy:
    return msgspec.structs.replace(policy, options=Options(**options))


def told(check: Callable[[DoctorContext], Iterable[Finding]], given: DoctorContext) -> list[str]:
    """`DR04 error` for each finding of a check."""
    return [f"{each.id} {each.severity}" for each in check(given)]
