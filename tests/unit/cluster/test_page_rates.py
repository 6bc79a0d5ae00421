"""Pages are compressed unless the line is local and plain pages were measured to be much faster."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from chalicelib.cluster.list_reader import FASTER, FIRST, PROBE, PageRates
from chalicelib.cluster.live_cluster import KeptLists, read_live_cluster
from chalicelib.model.snapshot import ObservedGroups
from chalicelib.net.addresses import are_private
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from tests.property.cluster_history import NOW, UNTIL_ENDED, client_of

MB = 10**6


def rates(*, local: bool, plain: float, packed: float) -> PageRates:
    made = PageRates(local=local)
    made.note(compressed=True, size=MB, seconds=MB / packed)
    made.note(compressed=False, size=MB, seconds=MB / plain)
    return made


@pytest.mark.parametrize(
    ("local", "plain", "packed", "compressed"),
    [
        (True, FASTER * 50 * MB, 50 * MB, False),
        (True, FASTER * 50 * MB - 1, 50 * MB, True),
        (True, 10 * MB, 80 * MB, True),
        (False, 500 * MB, 50 * MB, True),
    ],
)
def test_form_of_pages_follows_the_measured_rates(
    local: bool, plain: float, packed: float, compressed: bool
) -> None:
    assert rates(local=local, plain=plain, packed=packed).compressed is compressed


def test_pages_are_compressed_until_both_forms_are_known() -> None:
    made = PageRates(local=True)
    assert made.compressed
    made.note(compressed=False, size=MB, seconds=0.001)
    assert made.compressed


def test_short_pages_and_impossible_times_are_not_measured() -> None:
    made = rates(local=True, plain=200 * MB, packed=50 * MB)
    made.note(compressed=True, size=1_000, seconds=1e-9)
    made.note(compressed=True, size=MB, seconds=0.0)
    assert not made.compressed


def test_rates_follow_a_line_that_changes() -> None:
    made = rates(local=True, plain=200 * MB, packed=50 * MB)
    for _ in range(5):
        made.note(compressed=False, size=MB, seconds=0.1)
    assert made.compressed


@pytest.mark.parametrize(
    ("host", "private"),
    [
        ("10.1.2.3", True),
        ("192.168.0.1", True),
        ("127.0.0.1", True),
        ("fd00::1", True),
        ("8.8.8.8", False),
        ("2606:4700::1111", False),
        ("", False),
    ],
)
def test_private_addresses(host: str, private: bool) -> None:
    assert are_private(host) is private


@pytest.mark.parametrize(
    ("found", "private"),
    [
        (["10.0.0.1"], True),
        (["fe80::1%eth0"], True),
        (["10.0.0.1", "8.8.8.8"], False),
        ([], False),
        (["?"], False),
    ],
)
def test_name_is_private_if_all_its_addresses_are(found: list[str], private: bool) -> None:
    assert are_private("api.example", lambda _: found) is private


def test_name_that_does_not_resolve_is_not_private() -> None:
    def fails(name: str) -> list[str]:
        raise OSError(name)

    assert not are_private("api.example", fails)


def test_one_page_of_a_long_list_has_the_other_form_and_both_are_read_right() -> None:
    with ApiServer(ObjectStore(lambda: NOW, seed=1), longest_watch=0) as server:
        spec = {"containers": [{"name": "main", "image": "x" * 1_000}]}
        server.store.load(
            "pods",
            [
                {
                    "metadata": {"name": f"p{at}", "namespace": "default"},
                    "spec": spec,
                    "status": {"phase": "Running"},
                }
                for at in range(3_000)
            ],
        )
        kept = KeptLists(10**9, lambda: 0.0, quiet=UNTIL_ENDED)
        kube = client_of(server)
        snapshot = read_live_cluster("prod", kube, lambda _: ObservedGroups(), NOW, kept=kept)
        asked = [(parse_qs(urlsplit(each.path).query), each) for each in server.requests]
        pages = [
            (int(query["limit"][0]), each.gzip)
            for query, each in asked
            if each.path.startswith("/api/v1/pods?") and query["limit"] != ["1"]
        ]
        assert kept.rates("prod", kube).measures
    assert len(snapshot.pods) == 3_000
    assert pages[0] == (FIRST, True)
    assert pages.count((PROBE, False)) == 1
