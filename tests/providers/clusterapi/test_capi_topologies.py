"""The five ways to reach the two clusters, over two API servers.

Nodes are read only from the workload cluster; sizes are written to the management cluster. The
servers have different RBAC rules, so that a request to the wrong one is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.connect import connect
from chalicelib.model.errors import OutscalerError
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Succeeded
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.providers.kit.base import Connection, Provider
from chalicelib.providers.kit.errors import InvalidRequest, ProviderError
from chalicelib.providers.kit.services import ProviderServices
from chalicelib.providers.registry import build, providers
from infra.emulators.kube.auth import RbacRule
from tests.providers.clusterapi.management import Management, fill, management, operation
from tests.providers.clusterapi.objects import GROUP, Json, cluster, deployment, node

CAPI = RbacRule(verbs=("*",), groups=(GROUP,), resources=("*",))
NAMED = {"clusterName": "c1", "namespace": "default"}
NODES = RbacRule(verbs=("list",), groups=("",), resources=("nodes",))


class Two:
    """A management and a workload cluster. secrets: name -> kubeconfig of one of them."""

    def __init__(self, manager: Management, worker: Management) -> None:
        self.manager, self.worker = manager, worker
        self.of = {"manager": manager, "worker": worker}
        self.secrets: dict[str, str] = {}
        self.opened: list[str] = []

    def connect(self, access: KubernetesAccess) -> KubeClient:
        return connect(
            access, self.read, clock=self.manager.clock, sleep=lambda _: None, jitter=lambda: 0.5
        )

    def read(self, name: str) -> str:
        if name not in self.secrets:
            raise OutscalerError(f"there is no secret {name}")
        self.opened.append(name)
        return self.secrets[name]

    def provider(
        self, settings: dict[str, str], access: KubernetesAccess, **secrets: str
    ) -> Provider:
        """Builds the provider as a reconcile pass does. secrets: name -> `manager` or `worker`."""
        self.secrets = {
            name: self.of[which].server.kubeconfig(self.of[which].user)
            for name, which in secrets.items()
        }
        connection = Connection(
            "test",
            settings,
            (),
            self.read,
            self.connect(access),
            self.manager.clock,
            access,
            ProviderServices(connect=self.connect),
        )
        return build("clusterapi", connection)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    nothing: Path = tmp_path_factory.mktemp("no-crds")
    with management([CAPI]) as manager, management([NODES], crds=nothing) as worker:
        worker.join(*fill(manager, 2, joined=2))
        manager.add(cluster(), cluster("c2"), deployment("foreign", cluster="c2"))
        for each in manager.store.list("nodes"):
            manager.store.delete("nodes", each["metadata"]["name"])
        yield Two(manager, worker)


@pytest.mark.parametrize(
    ("settings", "access", "secrets"),
    [
        (
            {"kubeconfigSecret": "C", **NAMED},
            KubernetesAccess(in_cluster_kubeconfig_secret="I"),
            {"C": "manager", "I": "worker"},
        ),
        (
            {"cloudConfigAuthoritative": "true", **NAMED},
            KubernetesAccess(kubeconfig_secret="K", in_cluster_kubeconfig_secret="I"),
            {"K": "worker", "I": "manager"},
        ),
        (
            {"kubeconfigSecret": "C", **NAMED},
            KubernetesAccess(kubeconfig_secret="K"),
            {"C": "manager", "K": "worker"},
        ),
        (
            {"kubeconfigSecret": "C", "cloudConfigAuthoritative": "true", **NAMED},
            KubernetesAccess(kubeconfig_secret="K", in_cluster_kubeconfig_secret="I"),
            {"C": "manager", "K": "worker", "I": "worker"},
        ),
    ],
    ids=["in the workload cluster", "in the management cluster", "anywhere", "C with A"],
)
def test_capi_sizes_go_to_management_cluster_and_nodes_come_from_workload_cluster(
    two: Two, settings: dict[str, str], access: KubernetesAccess, secrets: dict[str, str]
) -> None:
    provider = two.provider(settings, access, **secrets)
    [group] = provider.observe(
        [node("n-0", "c:///i-0", of="m-0"), node("n-1", "c:///i-1", of="m-1")]
    ).groups
    assert [each.node for each in group.instances] == ["n-0", "n-1"]
    before = two.manager.size()
    two.manager.requests()
    assert isinstance(
        provider.scale_up(operation(OperationKind.SCALE_UP, before, before + 1)), Succeeded
    )
    assert two.manager.size() == before + 1
    # The Machine has no nodeRef although its Node has joined. Only the workload cluster knows that,
    # so the size must not decrease.
    unnoticed(two.manager, "m-1")
    two.worker.requests()
    assert isinstance(
        provider.decrease_target(operation(OperationKind.DECREASE_TARGET, before + 1, 2)), Succeeded
    )
    assert two.manager.size() == 2
    assert two.worker.requests() == ["GET /api/v1/nodes 200"]
    assert not [
        each for each in two.manager.requests() if "nodes" in each or each.endswith(("403", "404"))
    ]


def unnoticed(there: Management, name: str) -> None:
    """The management cluster has lost the Node: no nodeRef, the providerID stays."""
    found: Json | None = there.store.get("machines", name, "default", GROUP)
    assert found is not None
    there.store.update("machines", {**found, "status": {}}, GROUP)


@pytest.mark.parametrize(
    ("settings", "access"),
    [
        ({}, KubernetesAccess(in_cluster_kubeconfig_secret="one")),
        (
            {"cloudConfigAuthoritative": "true"},
            KubernetesAccess(in_cluster_kubeconfig_secret="one"),
        ),
        ({}, KubernetesAccess(kubeconfig_secret="one")),
    ],
    ids=["joined cluster", "joined cluster with A", "one kubeconfig"],
)
def test_capi_single_cluster_for_both_roles_uses_one_connection(
    settings: dict[str, str], access: KubernetesAccess
) -> None:
    with management() as there:
        nodes = fill(there, 1)
        both = Two(there, there)
        [group] = both.provider(settings, access, one="manager").observe(nodes).groups
        assert both.opened == ["one"]
    assert group.target == 1


def test_capi_workload_cluster_used_as_management_cluster_names_the_setting(two: Two) -> None:
    provider = two.provider({}, KubernetesAccess(kubeconfig_secret="K"), K="worker")
    with pytest.raises(InvalidRequest, match=r"providers\.clusterapi\.kubeconfigSecret"):
        provider.observe([])


def test_capi_unreachable_management_cluster_stops_only_this_provider(two: Two) -> None:
    """The policy's other providers are built and called; this one reports the error."""
    from chalicelib.policy.settings.cluster_policy import Policy

    policy = Policy(
        "test",
        kubernetes=KubernetesAccess(kubeconfig_secret="K"),
        providers={"clusterapi": {"cloudConfigAuthoritative": "true"}},
    )
    [provider] = providers(
        policy, object(), two.read, two.manager.clock, ProviderServices(connect=two.connect)
    )
    with pytest.raises(ProviderError, match="inClusterKubeconfigSecret"):
        provider.observe([])


class Rotated:
    """A secret reader that still returns the previous credential."""

    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = old, new

    def __call__(self, name: str) -> str:
        return self._old

    def fresh(self, name: str) -> str:
        return self._new


@pytest.mark.parametrize(
    "settings", [{"kubeconfigSecret": "C"}, {"cloudConfigAuthoritative": "true"}]
)
def test_capi_rotated_management_credential_is_read_again(
    two: Two, settings: dict[str, str]
) -> None:
    good = two.manager.server.kubeconfig(two.manager.user)
    reader = Rotated(good.replace("token-of", "yesterdays-token-of"), good)
    access = KubernetesAccess(kubeconfig_secret="K", in_cluster_kubeconfig_secret="I")

    def managed(way: KubernetesAccess) -> KubeClient:
        return connect(way, reader, clock=two.manager.clock, sleep=lambda _: None)

    two.secrets = {"K": two.worker.server.kubeconfig(two.worker.user)}
    connection = Connection(
        "test",
        {**settings, **NAMED},
        (),
        two.read,
        two.connect(access),
        two.manager.clock,
        access,
        ProviderServices(connect=managed),
    )
    assert (
        len(build("clusterapi", connection).observe([node("n-0", "c:///i-0", of="m-0")]).groups)
        == 1
    )
