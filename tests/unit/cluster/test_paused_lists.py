"""Lists of a server that pauses for so long that silence says nothing: they
are compared by versions.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from chalicelib.cluster.list_reader import FIRST
from chalicelib.cluster.listed_resources import RESOURCES, ListedResource
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.server import ApiServer
from tests.contract.kube_api.cluster import filled_store
from tests.property.paused_cluster import (
    CLUSTER_WIDE,
    PAUSE,
    SILENT,
    PausingCluster,
    changed,
    written,
)
from tests.property.pausing_server import FollowedServer, PausingServer, VirtualTime

CSI_NODE = next(resource for resource in RESOURCES if resource.kind == "CSINode")
MOST_READ_AGAIN = 4  # of 15 lists
PASSES = 20


@pytest.fixture
def cluster() -> Iterator[PausingCluster]:
    store = filled_store()
    for resource in RESOURCES:
        store.create(resource.plural, written(resource, "first"), resource.group)
    with ApiServer(store, longest_watch=0) as server:
        server.faults.add(SILENT)
        cluster = PausingCluster(server)
        cluster.read()
        yield cluster


def test_no_list_without_changes_is_read_again_where_the_server_pauses(
    cluster: PausingCluster,
) -> None:
    assert [cluster.read_again() for _ in range(PASSES)] == [[]] * PASSES


def test_process_that_learns_of_the_pauses_reads_the_lists_once(cluster: PausingCluster) -> None:
    cluster.lists.object_versions.records = False
    for resource in RESOURCES:
        cluster.lists.object_versions.forget(resource.kind)
    assert [len(cluster.read_again()) for _ in range(3)] == [len(RESOURCES), 0, 0]


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
@pytest.mark.parametrize("what", ["changed", "added", "removed"])
def test_change_that_a_paused_watch_has_not_brought_is_never_missed(
    cluster: PausingCluster, resource: ListedResource, what: str
) -> None:
    namespace = "" if resource.kind in CLUSTER_WIDE else "app"
    if what == "changed":
        changed(cluster, resource)
    elif what == "added":
        cluster.server.store.create(resource.plural, written(resource, "second"), resource.group)
    else:
        cluster.server.store.remove(resource.plural, "first", namespace, resource.group)
    assert cluster.read_again() == [resource.kind]


def test_fewer_than_5_of_15_lists_are_read_again_while_two_change(cluster: PausingCluster) -> None:
    nodes, pods, *_ = RESOURCES
    for _ in range(PASSES):
        changed(cluster, nodes)
        changed(cluster, pods)
        assert cluster.read_again() == ["Node", "Pod"]


def test_list_that_is_quiet_again_is_compared_again(cluster: PausingCluster) -> None:
    changed(cluster, RESOURCES[0])
    assert [cluster.read_again() for _ in range(3)] == [["Node"], ["Node"], []]


def test_list_that_has_differed_is_read_at_once_without_a_comparison(
    cluster: PausingCluster,
) -> None:
    changed(cluster, RESOURCES[0])
    cluster.read_again()
    changed(cluster, RESOURCES[0])
    before = len(cluster.server.requests)
    cluster.read()
    lists = [
        each.path
        for each in cluster.server.requests[before:]
        if each.path == "/api/v1/nodes?limit=1000"
    ]
    assert len(lists) == 1


def test_long_list_that_differs_again_and_again_is_compared_less_often(
    cluster: PausingCluster,
) -> None:
    for number in range(FIRST):
        cluster.server.store.create("csinodes", written(CSI_NODE, f"more-{number}"), CSI_NODE.group)
    cluster.read()
    compared: list[int] = []
    for number in range(24):
        if compared and compared[-1] == number - 1:
            changed(cluster, CSI_NODE)
        if "CSINode" not in cluster.read_again():
            compared.append(number)
    apart = [later - earlier for earlier, later in itertools.pairwise(compared)]
    assert apart == sorted(apart)
    assert apart[-1] > apart[0]


@pytest.mark.parametrize("status", [403, 404, 410])
def test_list_that_cannot_be_compared_is_read_in_full(cluster: PausingCluster, status: int) -> None:
    cluster.server.faults.add(KubeFault(path=r"/csinodes\?limit", status=status))
    assert cluster.read_again() == ["CSINode"]


def test_changes_that_a_paused_watch_has_brought_are_followed() -> None:
    """Where most changes arrive in time, the list of pods is read again in few
    passes, and never outdated."""
    draws, time = random.Random(5), VirtualTime()
    server = PausingServer(time, 300, lambda: PAUSE if draws.random() < 0.02 else 0.0005)
    process = FollowedServer(server, time)
    process.pace.note(PAUSE)
    read_again = [process.run(3).reread for _ in range(PASSES)]
    assert process.missed == 0
    assert len(read_again[0]) == len(RESOURCES)
    assert max(len(kinds) for kinds in read_again[1:]) <= MOST_READ_AGAIN
    assert sum("Pod" in kinds for kinds in read_again[1:]) < PASSES / 2
