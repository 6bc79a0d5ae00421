"""Following lists: what leads to reading one of them, or all of them, again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec
import pytest
import yaml

from chalicelib.cluster import list_state, watch
from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.connect import connect
from chalicelib.cluster.errors import ClusterError
from chalicelib.cluster.list_state import LONGEST
from chalicelib.cluster.live_cluster import CONNECTED_FOR, KeptLists, ReadResult, read_live_cluster
from chalicelib.model.read_scope import ReadScope
from chalicelib.model.snapshot import ObservedGroups, Snapshot
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from infra.emulators.kube.auth import User
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.server import ApiServer
from tests.contract.kube_api.cluster import NOW, RBAC, filled_store, node, pod
from tests.property.cluster_history import UNTIL_ENDED

MUCH = 10**9


@dataclass
class FollowedCluster:
    """A cluster, and a process that keeps its lists."""

    server: ApiServer
    moment: float = 0.0
    most: int = MUCH
    user: str = "admin"
    results: list[ReadResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept = KeptLists(self.most, lambda: self.moment, quiet=UNTIL_ENDED)

    def client(self) -> KubeClient:
        config = self.server.kubeconfig(self.user)
        access = KubernetesAccess(kubeconfig_secret="config")
        return connect(
            access, lambda _: config, clock=lambda: NOW, sleep=lambda _: None, jitter=lambda: 0.5
        )

    def read(self, name: str = "prod") -> Snapshot:
        kube = self.kept.client(name, self.client())
        return read_live_cluster(
            name, kube, lambda _: ObservedGroups(), NOW, kept=self.kept, report=self.results.append
        )

    @property
    def last(self) -> ReadResult:
        return self.results[-1]


@pytest.fixture
def cluster() -> Iterator[FollowedCluster]:
    users = [User("admin", "one", ("system:masters",)), User("other", "two", ("system:masters",))]
    with ApiServer(filled_store(), users=users, rbac=RBAC, longest_watch=0) as server:
        yield FollowedCluster(server)


def names(snapshot: Snapshot) -> list[str]:
    return [each.name for each in snapshot.nodes]


def test_second_pass_reads_what_has_changed_and_little_more(cluster: FollowedCluster) -> None:
    cluster.read()
    cluster.server.store.create("pods", pod("new"))
    before = len(cluster.server.requests)
    assert "new" in {each.name for each in cluster.read().pods}
    assert cluster.last == ReadResult(ReadScope.CHANGES, folded=1)
    paths = [each.path for each in cluster.server.requests[before:]]
    assert len(paths) <= 20
    assert not [each for each in paths if "limit=1000" in each]


def test_process_without_kept_lists_reads_everything(cluster: FollowedCluster) -> None:
    snapshot = read_live_cluster(
        "prod", cluster.client(), lambda _: ObservedGroups(), NOW, report=cluster.results.append
    )
    assert names(snapshot) == ["n0", "n1", "n2"]
    assert cluster.last.scope is ReadScope.FULL


def older(cluster: FollowedCluster) -> None:
    cluster.moment += LONGEST


def other_account(cluster: FollowedCluster) -> None:
    cluster.user = "other"


def dropped(cluster: FollowedCluster) -> None:
    cluster.kept.drop("prod")


@pytest.mark.parametrize("happens", [older, other_account, dropped])
def test_kept_lists_are_not_followed(
    cluster: FollowedCluster, happens: Callable[[FollowedCluster], None]
) -> None:
    cluster.read()
    happens(cluster)
    assert names(cluster.read()) == ["n0", "n1", "n2"]
    assert cluster.last.scope is ReadScope.FULL


def test_server_that_was_restored_from_a_backup_is_read_again(cluster: FollowedCluster) -> None:
    backup = cluster.server.store.backup()
    cluster.server.store.create("nodes", node("n9"))
    assert names(cluster.read()) == ["n0", "n1", "n2", "n9"]
    cluster.server.store.restore(backup)
    assert names(cluster.read()) == ["n0", "n1", "n2"]
    assert cluster.last.scope is ReadScope.FULL
    assert "has not reached the version" in cluster.last.reason


def test_lost_deletion_is_found_by_the_number_of_objects(cluster: FollowedCluster) -> None:
    cluster.read()
    cluster.server.store.remove("nodes", "n1")
    cluster.server.faults.add(KubeFault(path="/nodes.*watch=1", edit=lambda _: b""))
    assert names(cluster.read()) == ["n0", "n2"]
    assert cluster.last.reread == {"Node": "3 objects, 2 on the server"}


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        pytest.param(KubeFault(edit=lambda piece: piece * 2), "does not follow", id="doubled"),
        pytest.param(KubeFault(edit=lambda piece: piece[:-9]), "cut short", id="cut"),
        pytest.param(
            KubeFault(edit=lambda piece: piece.replace(b"ADDED", b"NEWS")),
            "does not fit",
            id="new type",
        ),
        pytest.param(
            KubeFault(edit=lambda piece: piece and b"{\n"), "cannot be decoded", id="not JSON"
        ),
        pytest.param(KubeFault(truncate=0), "cut short", id="broken connection"),
        pytest.param(KubeFault(close=True, times=2), "", id="no answer"),
        pytest.param(KubeFault(status=500), "500", id="error"),
    ],
)
def test_list_whose_changes_do_not_fit_is_read_again_alone(
    cluster: FollowedCluster, fault: KubeFault, why: str
) -> None:
    cluster.read()
    cluster.server.store.create("nodes", node("n9"))
    cluster.server.faults.add(msgspec.structs.replace(fault, path="/nodes.*watch=1"))
    assert names(cluster.read()) == ["n0", "n1", "n2", "n9"]
    assert cluster.last.scope is ReadScope.CHANGES
    assert list(cluster.last.reread) == ["Node"]
    assert why in cluster.last.reread["Node"]


def test_compacted_version_is_read_again(cluster: FollowedCluster) -> None:
    cluster.read()
    cluster.server.store.create("nodes", node("n9"))
    cluster.server.store.forget("nodes")
    assert names(cluster.read()) == ["n0", "n1", "n2", "n9"]
    assert cluster.last.reread == {"Node": "the server no longer knows the version"}


def test_watch_that_is_refused_as_expired_is_read_again_alone(cluster: FollowedCluster) -> None:
    """410 as the status of the answer, and not within it."""
    cluster.read()
    cluster.server.store.create("nodes", node("n9"))
    cluster.server.faults.add(KubeFault(path="/nodes.*watch=1", status=410))
    assert names(cluster.read()) == ["n0", "n1", "n2", "n9"]
    assert (cluster.last.scope, list(cluster.last.reread)) == (ReadScope.CHANGES, ["Node"])
    cluster.server.store.create("nodes", node("n10"))
    assert names(cluster.read()) == ["n0", "n1", "n10", "n2", "n9"]
    assert cluster.last == ReadResult(ReadScope.CHANGES, folded=1)


def test_watch_that_brings_more_than_a_list_is_read_as_a_list(
    cluster: FollowedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.read()
    cluster.server.store.create("nodes", node("n9"))
    monkeypatch.setattr(watch, "LONGEST", 300)
    assert names(cluster.read()) == ["n0", "n1", "n2", "n9"]
    assert list(cluster.last.reread) == ["Node"]


def test_lists_of_another_release_are_not_followed(
    cluster: FollowedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.read()
    monkeypatch.setattr(list_state, "__version__", "9.9.9")
    cluster.read()
    assert cluster.last.scope is ReadScope.FULL


def test_account_that_may_not_watch_lists_in_every_pass(cluster: FollowedCluster) -> None:
    cluster.read()
    cluster.server.faults.add(KubeFault(path="/replicasets.*watch=1", status=403, times=-1))
    cluster.read()
    before = len(cluster.server.requests)
    cluster.read()
    asked = [each.path for each in cluster.server.requests[before:] if "/replicasets" in each.path]
    assert cluster.last.reread == {"ReplicaSet": "not watched"}
    assert asked == ["/apis/apps/v1/replicasets?limit=1000"]


def test_failed_pass_leaves_nothing_to_follow(cluster: FollowedCluster) -> None:
    cluster.read()
    cluster.server.store.forget("nodes")
    cluster.server.faults.add(KubeFault(path="/nodes", status=500, times=-1))
    with pytest.raises(ClusterError):
        cluster.read()
    cluster.server.faults.clear()
    assert names(cluster.read()) == ["n0", "n1", "n2"]
    assert cluster.last.scope is ReadScope.FULL


def test_clusters_used_longest_ago_are_dropped_where_memory_ends(cluster: FollowedCluster) -> None:
    cluster.read("a")
    [size] = cluster.kept.sizes().values()
    cluster.kept = KeptLists(2 * size, lambda: cluster.moment, quiet=UNTIL_ENDED)
    for name in ("a", "b", "a", "c"):
        cluster.read(name)
    assert cluster.kept.clusters() == ("a", "c")


def test_other_clusters_make_room_for_a_full_read(cluster: FollowedCluster) -> None:
    for name in ("a", "b", "c"):
        cluster.read(name)
    sizes = cluster.kept.sizes()
    cluster.kept.limit("a", sizes["a"] + sizes["c"])
    assert cluster.kept.clusters() == ("a", "c")
    cluster.kept.limit("a", 0)
    assert cluster.kept.clusters() == ("a",)


def test_connections_are_kept_for_a_while(cluster: FollowedCluster) -> None:
    first = cluster.client()
    read_live_cluster("prod", first, lambda _: ObservedGroups(), NOW, kept=cluster.kept)
    cluster.moment += CONNECTED_FOR - 1
    assert cluster.kept.client("prod", cluster.client()) is first
    cluster.moment += 2
    assert cluster.kept.client("prod", cluster.client()) is not first


def test_classes_of_pods_that_are_gone_lead_to_a_full_read(cluster: FollowedCluster) -> None:
    cluster.read()
    for number in range(1_100):
        cluster.server.store.create("pods", pod(f"p{number}", app=f"app-{number}"))
    cluster.read()
    cluster.read()
    assert [each.scope for each in cluster.results] == [
        ReadScope.FULL,
        ReadScope.CHANGES,
        ReadScope.FULL,
    ]


def test_kubeconfig_of_another_server_is_another_access(cluster: FollowedCluster) -> None:
    config = yaml.safe_load(cluster.server.kubeconfig())
    config["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"
    access = KubernetesAccess(kubeconfig_secret="config")
    elsewhere = connect(
        access,
        lambda _: yaml.safe_dump(config),
        clock=lambda: NOW,
        sleep=lambda _: None,
        jitter=lambda: 0.5,
    )
    assert elsewhere.access() != cluster.client().access()
