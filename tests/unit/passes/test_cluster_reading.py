"""How a pass reads its cluster: changes, everything, or both to compare them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.aws.object_bucket import BucketFailure
from chalicelib.cluster.connect import connect
from chalicelib.cluster.list_archive import ListArchive
from chalicelib.cluster.live_cluster import KeptLists
from chalicelib.model.read_scope import ReadScope
from chalicelib.model.snapshot import ObservedGroups, Snapshot
from chalicelib.passes.cluster_reading import connected, observe, share_lists
from chalicelib.policy.settings.cluster_policy import ClusterReading, Policy
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.runtime.runtime import Runtime, build
from infra.emulators.aws_services import QuickServices
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.server import ApiServer
from tests.contract.kube_api.cluster import NOW, running
from tests.property.cluster_history import UNTIL_ENDED, ClusterHistory


def without_first(piece: bytes) -> bytes:
    """Return the lines of a watch without that of node n0."""
    return b"".join(line for line in piece.splitlines(keepends=True) if b'"name":"n0"' not in line)


LOST = KubeFault(path="/nodes.*watch=1", edit=without_first)


class _Nowhere:
    def send(self, queue: str, body: bytes, delay: int) -> None:
        """Discards messages."""


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with running(longest_watch=0) as started:
        yield started


@pytest.fixture
def runtime(server: ApiServer) -> Runtime:
    services, config = QuickServices(), server.kubeconfig()
    made = build(
        clock=lambda: NOW,
        store=services.dynamodb.store(services.table, clock=lambda: NOW),
        sender=_Nowhere(),
        read_secret=lambda _: "",
        connect=lambda _: connect(
            KubernetesAccess(kubeconfig_secret="config"),
            lambda _: config,
            clock=lambda: NOW,
            sleep=lambda _: None,
            jitter=lambda: 0.5,
        ),
    )
    kept = KeptLists(10**9, lambda: 0.0, quiet=UNTIL_ENDED)
    return replace(made, kept_lists=lambda: kept)


def read(runtime: Runtime, reading: ClusterReading) -> tuple[Snapshot, ReadScope]:
    policy = Policy("prod", reading=reading)
    return observe(policy, connected(policy, 0, runtime), lambda _: ObservedGroups(), runtime)


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return the lines of the log."""
    return [
        {**each.__dict__, "level": each.levelname, "message": each.getMessage()}
        for each in caplog.records
    ]


class _FullPlace:
    """A bucket that takes nothing. error: what it raises."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def put(self, path: str, data: bytes) -> None:
        raise self._error

    def get(self, path: str, largest: int) -> bytes:
        raise BucketFailure("s3://b: AccessDenied")


@pytest.mark.parametrize("error", [BucketFailure("s3://b: SlowDown"), RuntimeError("unknown")])
def test_pass_goes_on_without_the_place_of_shared_lists(
    error: Exception, runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    archive = ListArchive(_FullPlace(error), lambda: NOW, lambda: 0.0)
    kept = KeptLists(10**9, lambda: 0.0, quiet=UNTIL_ENDED, archive=archive)
    broken = replace(runtime, kept_lists=lambda: kept)
    with caplog.at_level(logging.WARNING):
        assert read(broken, ClusterReading.CHANGES)[1] is ReadScope.FULL
        share_lists(Policy("prod"), broken)
    assert "lists not stored" in caplog.text


def relabelled(server: ApiServer, name: str = "n0") -> None:
    """Change a node in a way that no count shows."""
    found = server.store.get("nodes", name)
    assert found is not None
    found["metadata"]["labels"]["zone"] = "elsewhere"
    server.store.update("nodes", found)


def test_second_pass_of_a_process_reads_changes(runtime: Runtime) -> None:
    assert [read(runtime, ClusterReading.CHANGES)[1] for _ in range(2)] == [
        ReadScope.FULL,
        ReadScope.CHANGES,
    ]


@pytest.mark.parametrize("reading", [ClusterReading.FULL, ClusterReading.VERIFY])
def test_policy_decides_that_every_pass_reads_everything(
    runtime: Runtime, reading: ClusterReading
) -> None:
    assert [read(runtime, reading)[1] for _ in range(2)] == [ReadScope.FULL, ReadScope.FULL]


def test_verification_of_equal_reads_logs_nothing(
    runtime: Runtime, server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    read(runtime, ClusterReading.VERIFY)
    relabelled(server)
    with caplog.at_level(logging.ERROR):
        snapshot, _ = read(runtime, ClusterReading.VERIFY)
    assert snapshot.nodes[0].labels["zone"] == "elsewhere"
    assert "do not add up" not in caplog.text


def test_difference_between_both_reads_is_an_error_and_everything_is_read(
    runtime: Runtime, server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    read(runtime, ClusterReading.VERIFY)
    relabelled(server)
    relabelled(server, "n1")
    server.faults.add(LOST)
    with caplog.at_level(logging.ERROR):
        snapshot, _ = read(runtime, ClusterReading.VERIFY)
    assert snapshot.nodes[0].labels["zone"] == "elsewhere"
    assert "do not add up" in caplog.text
    assert read(runtime, ClusterReading.CHANGES)[1] is ReadScope.FULL


def test_verification_of_a_busy_cluster_finds_no_difference(
    runtime: Runtime, server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Pods, the classes among them, change between the read of the changes and that of the
    lists."""
    for namespace in server.store.list("namespaces"):
        server.store.remove("namespaces", namespace["metadata"]["name"])
    history = ClusterHistory(server.store, 5)
    read(runtime, ClusterReading.VERIFY)
    passes = 0

    def goes_on(_: object) -> ObservedGroups:
        """Happens after the changes are read, and before the lists are."""
        history.happen(20)
        return ObservedGroups()

    for _ in range(12):
        history.happen(20)
        snapshot, _ = observe(
            Policy("prod", reading=ClusterReading.VERIFY),
            connected(Policy("prod"), 0, runtime),
            goes_on,
            runtime,
        )
        passes += bool(snapshot.nodes)
    assert passes == 12
    assert [each["message"] for each in logged(caplog)] == ["cluster read"] * 13
    assert runtime.kept_lists is not None
    assert runtime.kept_lists().clusters() == ("prod",)


def test_compacted_lists_are_not_compared_and_are_kept(
    runtime: Runtime, server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    read(runtime, ClusterReading.VERIFY)
    relabelled(server)

    def compacted(_: object) -> ObservedGroups:
        relabelled(server, "n1")
        server.store.forget("nodes")
        return ObservedGroups()

    policy = Policy("prod", reading=ClusterReading.VERIFY)
    snapshot, _ = observe(policy, connected(policy, 0, runtime), compacted, runtime)
    assert snapshot.nodes[0].labels["zone"] == "elsewhere"
    *_, last = logged(caplog)
    assert (last["message"], last["kinds"]) == (
        "lists not verified",
        {"Node": "not comparable: compacted"},
    )
    assert runtime.kept_lists is not None
    assert runtime.kept_lists().clusters() == ("prod",)


def test_pass_goes_on_where_its_lists_cannot_be_verified(
    runtime: Runtime, server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    read(runtime, ClusterReading.VERIFY)
    server.faults.add(KubeFault(path="resourceVersionMatch=Exact", status=500, times=-1))
    assert read(runtime, ClusterReading.VERIFY)[0].nodes
    assert logged(caplog)[-1]["message"] == "changes not verified"


def test_differences_name_the_objects(
    runtime: Runtime, server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    read(runtime, ClusterReading.VERIFY)
    relabelled(server)
    relabelled(server, "n1")
    server.faults.add(LOST)
    read(runtime, ClusterReading.VERIFY)
    assert [each["differences"] for each in logged(caplog) if each["level"] == "ERROR"] == [
        ("Node: n0",)
    ]
