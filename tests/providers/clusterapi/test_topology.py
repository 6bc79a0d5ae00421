"""Selection of the cluster for each request, as a table.
tests/providers/clusterapi/test_capi_topologies.py tests the same over two API servers."""

from __future__ import annotations

import pytest

from chalicelib.cluster.connect import connect
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.operation import OperationKind
from chalicelib.model.secret import SecretUnavailable
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.providers.clusterapi.provider import build
from chalicelib.providers.clusterapi.settings import CapiManagement, to_management
from chalicelib.providers.kit.base import Connection
from chalicelib.providers.kit.errors import InvalidRequest, ProviderError, Throttled, Transient
from chalicelib.providers.kit.services import ProviderServices
from tests.cases import each_row
from tests.providers.clusterapi.management import operation

# Upstream's inputs: C --cloud-config, K --kubeconfig, A authoritative, I a
# configured in-cluster endpoint.
C, K, INSIDE = CapiManagement(secret="C"), "K", "I"
APART = {"kubeconfigSecret": "C", "clusterName": "c"}


def ways(c: bool, k: bool, a: bool, i: bool) -> tuple[CapiManagement, KubernetesAccess]:
    return (
        CapiManagement(secret="C" if c else "", authoritative=a),
        KubernetesAccess(
            kubeconfig_secret=K if k else "", in_cluster_kubeconfig_secret=INSIDE if i else ""
        ),
    )


def secret_read(access: KubernetesAccess) -> str:
    """Returns the secret that the connection is built with."""
    read: list[str] = []

    def reader(name: str) -> str:
        read.append(name)
        raise OutscalerError("seen")

    with pytest.raises(OutscalerError):
        connect(access, reader, clock=lambda: 0.0, sleep=lambda _: None).request("GET", "/version")
    [name] = set(read)
    return name


@each_row(
    ("c", "k", "a", "i", "management", "workload"),
    [
        (False, False, False, True, INSIDE, INSIDE),  # a joined cluster, in-cluster credentials
        (False, False, True, True, INSIDE, INSIDE),
        (True, False, False, True, "C", INSIDE),  # runs in the workload cluster
        (True, False, True, True, "C", INSIDE),
        (False, True, True, True, INSIDE, K),  # runs in the management cluster
        (True, True, False, False, "C", K),  # runs anywhere, two kubeconfigs
        (True, True, True, False, "C", K),
        (True, True, True, True, "C", K),
        (False, True, False, False, K, K),  # runs anywhere, one kubeconfig for both
        (False, True, False, True, K, K),
    ],
)
def test_capi_five_cluster_topologies(
    c: bool, k: bool, a: bool, i: bool, management: str, workload: str
) -> None:
    settings, access = ways(c, k, a, i)
    assert secret_read(access) == workload
    assert secret_read(to_management(settings, access) or access) == management


def test_capi_authoritative_without_a_management_cluster_names_what_is_missing() -> None:
    with pytest.raises(BadInput) as raised:
        to_management(*ways(c=False, k=True, a=True, i=False))
    assert raised.value.place == "spec.kubernetes.inClusterKubeconfigSecret"
    assert "providers.clusterapi.kubeconfigSecret" in raised.value.remedy


@each_row("authoritative", [False, True])
def test_capi_missing_access_to_the_workload_cluster_names_what_is_missing(
    authoritative: bool,
) -> None:
    _, access = ways(c=True, k=False, a=authoritative, i=False)
    with pytest.raises(BadInput, match="does not say how to reach the cluster") as raised:
        connect(access, str, clock=lambda: 0.0)
    assert "inClusterKubeconfigSecret" in raised.value.remedy


def test_capi_eks_cluster_or_a_file_replaces_a_kubeconfig_secret() -> None:
    for access in (KubernetesAccess(eks_cluster="e"), KubernetesAccess(kubeconfig_file="f")):
        assert to_management(CapiManagement(), access) is None
        with pytest.raises(BadInput):
            to_management(CapiManagement(authoritative=True), access)
        assert to_management(C, access) == KubernetesAccess(kubeconfig_secret="C")


def test_capi_context_and_insecure_tls_consent_apply_to_their_own_cluster() -> None:
    access = KubernetesAccess(
        kubeconfig_secret=K,
        context="of-k",
        allow_insecure_tls=True,
        in_cluster_kubeconfig_secret=INSIDE,
    )
    assert to_management(CapiManagement(file="C", context="of-c"), access) == KubernetesAccess(
        kubeconfig_file="C", context="of-c", allow_insecure_tls=True
    )
    assert to_management(CapiManagement(authoritative=True), access) == KubernetesAccess(
        in_cluster_kubeconfig_secret=INSIDE, allow_insecure_tls=True
    )


def connection(
    settings: dict[str, str], access: KubernetesAccess, means: ProviderServices | None = None
) -> Connection:
    return Connection(
        "c", settings, (), str, object(), lambda: 0.0, access, means or ProviderServices()
    )


def test_capi_management_cluster_is_opened_once_at_its_first_use() -> None:
    opened: list[KubernetesAccess] = []

    def connected(access: KubernetesAccess) -> object:
        opened.append(access)
        raise OutscalerError("not now")

    means = ProviderServices(connect=connected)
    # called over the existing connection, which is not a client here
    with pytest.raises(AttributeError):
        build(connection({}, KubernetesAccess(kubeconfig_secret=K), means)).observe(())
    provider = build(connection(APART, KubernetesAccess(kubeconfig_secret=K), means))
    assert opened == []
    with pytest.raises(InvalidRequest):
        provider.observe(())
    assert opened == [KubernetesAccess(kubeconfig_secret="C")]


class CapiTopologyRefusedError(OutscalerError):
    status, retry_after = 429, 7.0


@each_row(
    ("error", "cls"),
    [
        (SecretUnavailable("secret C: throttled"), Transient),  # temporary
        (BadInput("kubeconfig secret C", "is empty", "write one"), InvalidRequest),
        (OutscalerError("another cluster cannot be reached from here"), InvalidRequest),
        (CapiTopologyRefusedError("slow down"), Throttled),
    ],
)
def test_capi_errors_of_management_cluster_access_have_their_class(
    error: OutscalerError, cls: type[ProviderError]
) -> None:
    def refused(access: KubernetesAccess) -> object:
        raise error

    means = ProviderServices(connect=refused)
    provider = build(connection(APART, KubernetesAccess(kubeconfig_secret=K), means))
    with pytest.raises(cls, match="management cluster cannot be reached"):
        provider.observe(())
    with pytest.raises(cls):
        provider.cancel_delete(operation(OperationKind.DELETE_NODES, 2, 1, 0))
