"""Tests how the account's servers become Nodes of a simulated cluster, which are admitted, and
which Nodes stay untouched."""

from __future__ import annotations

import base64

import pytest

from infra.emulators.cherryservers.account import CherryCloud
from infra.emulators.cherryservers.attached_account import (
    UNINITIALIZED,
    CherryNodeRegistration,
    CherryRegistrationOptions,
)
from infra.emulators.cherryservers.models import (
    NEVER_JOINS,
    NOT_DEPLOYED,
    CherryDurations,
    CherryServer,
    Order,
)
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.controllers.manager import ClusterSimulation
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore

SCRIPT = (
    "kubeadm join --token nf8atf.kwfs1t15pjmhk7n4 203.0.113.10:6443\n# "
    "--node-labels=pool=workers,team=web\n"
)
TIMES = CherryDurations(deploy=100.0, fail=20.0, terminate=10.0)


def token_secret(**data: str) -> KubeObject:
    held = {
        "token-id": "nf8atf",
        "token-secret": "kwfs1t15pjmhk7n4",
        "usage-bootstrap-authentication": "true",
        **data,
    }
    return {
        "metadata": {"name": "bootstrap-token-nf8atf", "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in held.items()},
    }


class CherryJoiningFixture:
    """A cluster and an account that advance together."""

    def __init__(self, ways: CherryRegistrationOptions | None = None) -> None:
        self.clock = ManualClock(1_800_000_000.0)
        self.store = ObjectStore(self.clock)
        self.cloud = CherryCloud(self.clock, times=TIMES)
        self.cluster = ClusterSimulation(
            self.store, self.clock, more=[CherryNodeRegistration(self.cloud, self.store, ways)]
        )

    def order(
        self, hostname: str, script: str = SCRIPT, *, cluster: str = "ours", size: int = 0
    ) -> CherryServer:
        return self.cloud.order(
            10001,
            Order(
                "e5_1620v4",
                "eu_nord_1",
                hostname,
                tags={"k8s-cluster": cluster, "k8s-nodepool": "workers"},
                user_data=base64.b64encode(script.encode()).decode(),
                os_partition_size=size,
            ),
        )

    def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.cluster.step()

    def nodes(self) -> dict[str, KubeObject]:
        return {node["metadata"]["name"]: node for node in self.store.list("nodes")}


def test_cherry_deployed_server_becomes_a_ready_node_named_by_its_hostname() -> None:
    bed = CherryJoiningFixture(CherryRegistrationOptions(boot=30.0))
    server = bed.order("k8s-a", size=60)
    bed.after(129.0)
    assert not bed.nodes()
    bed.after(1.0)
    assert "taints" in bed.nodes()["k8s-a"]["spec"]
    bed.after(20.0)
    node = bed.nodes()["k8s-a"]
    assert {"type": "Ready", "status": "True"}.items() <= node["status"]["conditions"][-1].items()
    assert node["spec"] == {"providerID": f"cherryservers://{server.id}"}
    labels = node["metadata"]["labels"]
    assert (
        labels["node.kubernetes.io/instance-type"],
        labels["topology.kubernetes.io/region"],
    ) == (
        "e5_1620v4",
        "eu_nord_1",
    )
    assert (labels["pool"], labels["team"], labels["kubernetes.io/hostname"]) == (
        "workers",
        "web",
        "k8s-a",
    )
    assert "topology.kubernetes.io/zone" not in labels
    assert (node["status"]["capacity"]["cpu"], node["status"]["capacity"]["memory"]) == (
        "4",
        f"{32 * 2**20}Ki",
    )
    assert node["status"]["capacity"]["ephemeral-storage"] == f"{60 * 2**20}Ki"


def test_cherry_node_may_have_a_bare_provider_id_and_no_pool_label() -> None:
    bed = CherryJoiningFixture(CherryRegistrationOptions(prefix="", reserve={"cpu": "100m"}))
    server = bed.cloud.add_server("workers")
    bed.after(0.0)
    node = bed.nodes()[server.hostname]
    assert node["spec"]["providerID"] == str(server.id)
    assert "pool" not in node["metadata"]["labels"]
    assert node["status"]["allocatable"]["cpu"] == "3900m"


def test_cherry_cloud_controller_may_run_after_the_kubelet() -> None:
    bed = CherryJoiningFixture(CherryRegistrationOptions(boot=0.0, adopt=60.0))
    server = bed.order("k8s-a")
    bed.after(100.0)
    node = bed.nodes()["k8s-a"]
    assert "providerID" not in node["spec"]
    assert UNINITIALIZED["key"] in {taint["key"] for taint in node["spec"]["taints"]}
    assert "node.kubernetes.io/instance-type" not in node["metadata"]["labels"]
    assert node["metadata"]["labels"]["pool"] == "workers"
    bed.after(60.0)
    node = bed.nodes()["k8s-a"]
    assert node["spec"] == {"providerID": f"cherryservers://{server.id}"}
    assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "e5_1620v4"
    assert {"type": "Ready", "status": "True"}.items() <= node["status"]["conditions"][-1].items()


@pytest.mark.parametrize(
    ("held", "script", "enters"),
    [
        ({}, SCRIPT, True),
        (None, SCRIPT, False),
        ({"token-secret": "another000000000"}, SCRIPT, False),
        ({"expiration": "2027-01-15T08:01:00Z"}, SCRIPT, False),  # a minute after the order
        ({"expiration": "2027-01-15T09:00:00Z"}, SCRIPT, True),
        ({"usage-bootstrap-authentication": "false"}, SCRIPT, False),
        ({}, "echo no token here\n", False),
        ({}, "", False),
    ],
    ids=[
        "good",
        "unknown",
        "wrong secret",
        "expired",
        "in time",
        "not for this",
        "none",
        "nothing",
    ],
)
def test_cherry_only_servers_with_a_known_bootstrap_token_join(
    held: dict[str, str] | None, script: str, enters: bool
) -> None:
    bed = CherryJoiningFixture(CherryRegistrationOptions(check_token=True, boot=30.0))
    if held is not None:
        bed.store.create("secrets", token_secret(**held))
    bed.order("k8s-a", script)
    bed.after(140.0)
    assert (set(bed.nodes()) == {"k8s-a"}) is enters
    bed.after(600.0)
    assert bool(bed.nodes()) is enters


def test_cherry_failed_never_joining_and_foreign_servers_have_no_node() -> None:
    bed = CherryJoiningFixture()
    bed.cloud.spoil("workers", NOT_DEPLOYED)
    bed.cloud.spoil("workers", NEVER_JOINS)
    for name in ("broken", "silent", "fine"):
        bed.order(name)
    bed.order("theirs", cluster="theirs")
    bed.after(600.0)
    assert set(bed.nodes()) == {"fine"}


def test_cherry_only_the_node_of_a_deleted_server_is_deleted() -> None:
    bed = CherryJoiningFixture(CherryRegistrationOptions(boot=0.0))
    bed.store.create(
        "nodes", {"metadata": {"name": "of-another-provider"}, "spec": {"providerID": "kind://x"}}
    )
    first, second, third = (bed.cloud.add_server("workers") for _ in range(3))
    bed.after(0.0)
    bed.cloud.vanish(first.id)
    bed.cloud.terminate(second)
    bed.after(0.0)
    assert set(bed.nodes()) == {second.hostname, third.hostname, "of-another-provider"}
    bed.after(10.0)
    assert set(bed.nodes()) == {third.hostname, "of-another-provider"}


def test_cherry_older_of_two_servers_with_one_hostname_is_the_node() -> None:
    bed = CherryJoiningFixture(CherryRegistrationOptions(boot=0.0))
    first, _ = (bed.cloud.add_server("workers", hostname="twin") for _ in range(2))
    bed.after(0.0)
    (node,) = bed.nodes().values()
    assert node["spec"]["providerID"] == f"cherryservers://{first.id}"
