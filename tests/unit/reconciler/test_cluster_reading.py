"""How a pass reads its cluster: changes, everything, or both to compare them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from chalicelib.aws.object_bucket import BucketFailure
from chalicelib.kube.connect import connect
from chalicelib.model.policy import ClusterReading, KubernetesAccess, Policy
from chalicelib.model.read_scope import ReadScope
from chalicelib.model.snapshot import Snapshot
from chalicelib.reconciler.cluster_reading import connected, differences, observe, share_lists
from chalicelib.runtime.runtime import Runtime, build
from chalicelib.snapshot.kept_lists import KeptLists
from chalicelib.snapshot.list_archive import ListArchive
from infra.emulators.aws_services import QuickServices
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.server import ApiServer
from tests.contract.kube_api.cluster import NOW, running
from tests.property.cluster_history import UNTIL_ENDED

LOST = KubeFault(path="/nodes.*watch=1", edit=lambda _: b"")


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
    return observe(policy, connected(policy, runtime), lambda _: ((), ()), runtime)


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
    kept = KeptLists(10**9, lambda: 0.0, quiet=UNTIL_ENDED, archive=ListArchive(_FullPlace(error), lambda: NOW))
    broken = replace(runtime, kept_lists=lambda: kept)
    with caplog.at_level(logging.WARNING):
        assert read(broken, ClusterReading.CHANGES)[1] is ReadScope.FULL
        share_lists(Policy("prod"), broken)
    assert "lists not stored" in caplog.text


def relabelled(server: ApiServer) -> None:
    """Change a node in a way that no count shows."""
    found = server.store.get("nodes", "n0")
    assert found is not None
    found["metadata"]["labels"]["zone"] = "elsewhere"
    server.store.update("nodes", found)


def test_second_pass_of_a_process_reads_changes(runtime: Runtime) -> None:
    assert [read(runtime, ClusterReading.CHANGES)[1] for _ in range(2)] == [ReadScope.FULL, ReadScope.CHANGES]


@pytest.mark.parametrize("reading", [ClusterReading.FULL, ClusterReading.VERIFY])
def test_policy_decides_that_every_pass_reads_everything(runtime: Runtime, reading: ClusterReading) -> None:
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


def test_difference_between_both_reads_is_an_error_and_the_full_one_is_used(
    runtime: Runtime, server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    read(runtime, ClusterReading.VERIFY)
    relabelled(server)
    server.faults.add(LOST)
    with caplog.at_level(logging.ERROR):
        snapshot, _ = read(runtime, ClusterReading.VERIFY)
    assert snapshot.nodes[0].labels["zone"] == "elsewhere"
    assert "do not add up" in caplog.text
    assert read(runtime, ClusterReading.CHANGES)[1] is ReadScope.FULL


def test_differences_name_the_objects(runtime: Runtime, server: ApiServer) -> None:
    before, _ = read(runtime, ClusterReading.FULL)
    relabelled(server)
    after, _ = read(runtime, ClusterReading.FULL)
    later = msgspec.structs.replace(before, taken_at=NOW + 1)
    assert differences(before, later) == ()
    assert differences(before, after) == ("nodes: n0",)
