"""A watcher posts what it reads to the real webhook, and passes see the
cluster without reading it.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from chalicelib.cluster.list_archive import LARGEST, SILENT_FOR, STOPPED_AFTER
from chalicelib.cluster.list_state import LONGEST
from chalicelib.cluster.live_cluster import read_live_cluster
from chalicelib.cluster.watcher_post import LARGEST_POST, MOST_PARTS, WatcherPost
from chalicelib.model.errors import OutscalerError
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.snapshot import ObservedGroups, Snapshot
from chalicelib.model.timestamps import format_time
from chalicelib.passes.cluster_reading import observe
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import ClusterReading, Policy
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.runtime.runtime import install
from infra.emulators.certificates import CertificateAuthority
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from infra.emulators.scripted_http_server import HttpScript, Reply, Seen
from infra.watcher.settings import WatcherSettings
from infra.watcher.watcher import ClusterWatcher, NotPosted, sender
from tests.functional.app_client import HMAC, AppClient, line
from tests.property.cluster_history import NOW, UNTIL_ENDED, ClusterHistory, client_of

SECRET = "a-random-text-for-tests-of-32-chars"
AUTHORITY = CertificateAuthority("webhook")
UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4"}
    ],
}


class WatchedCluster:
    """A cluster whose watcher posts over TLS to the deployment of `desk`. lost:
    whether posts get no answer."""

    def __init__(self, desk: AppClient, server: ApiServer, folder: Path) -> None:
        self.desk, self.server, self.folder, self.lost = desk, server, folder, False
        self.desk.runtime = replace(desk.runtime, lists=str(folder / "lists"))
        install(self.desk.runtime)
        self.name = desk.cluster()
        self.kubernetes = {
            "kubeconfigSecret": f"outscaler/{self.name}/kubeconfig",
            "watcherSecret": f"outscaler/{self.name}/kubeconfig-watcher",
        }
        desk.apply(self.name, spec={"kubernetes": self.kubernetes})
        self.set_secret(SECRET)
        self.kube = client_of(server)
        self.reads_before = 0
        self.webhook = ""

    def set_secret(self, text: str) -> None:
        """Change the secret of passes."""
        self.desk.put_secret(self.kubernetes["watcherSecret"], text)

    def watcher(self, url: str, ahead: float = 0.0) -> ClusterWatcher:
        """Start a watcher that posts there. ahead: seconds by which its clock is fast."""
        secrets = self.secrets()
        address = f"{url}/clusters/{self.name}/events"
        settings = WatcherSettings(
            self.name, address, "", secrets, Options().namespace, 10.0, str(self.authorities())
        )
        post = sender(settings, self.desk.clock)
        clock = self.desk.clock
        kube = client_of(self.server)
        return ClusterWatcher(
            settings, kube, post, clock=lambda: clock() + ahead, monotonic=clock, quiet=UNTIL_ENDED
        )

    def secrets(self) -> Path:
        """Return the folder with the watcher's secrets."""
        made = self.folder / "secrets"
        made.mkdir(exist_ok=True)
        (made / "webhook").write_text(msgspec.json.encode({"hmac": HMAC}).decode())
        (made / "watcher").write_text(f"{SECRET}\n")
        return made

    def authorities(self) -> Path:
        """Return a file with the authority of the webhook."""
        made = self.folder / "authorities.pem"
        made.write_bytes(AUTHORITY.pem)
        return made

    def answer(self, seen: Seen) -> Reply:
        """Answer a post as the deployment does, or not at all."""
        if self.lost:
            return Reply(hang_up=True)
        reply = self.desk.client.http.post(seen.path, headers=dict(seen.headers), body=seen.body)
        return Reply(reply.status_code, reply.body)

    def seen(
        self, memory: Memory | None = None, reading: ClusterReading = ClusterReading.CHANGES
    ) -> Snapshot:
        """Return the cluster as a pass sees it."""
        access = KubernetesAccess(
            kubeconfig_secret=self.kubernetes["kubeconfigSecret"],
            watcher_secret=self.kubernetes["watcherSecret"],
        )
        policy = Policy(self.name, kubernetes=access, reading=reading)
        self.reads_before = len(self.server.requests)
        return observe(
            policy, self.kube, lambda _: ObservedGroups(), self.desk.runtime, memory or Memory()
        )[0]

    def was_read(self) -> bool:
        """Return whether the last pass asked the cluster's API."""
        return len(self.server.requests) > self.reads_before

    def is_seen(self, memory: Memory | None = None) -> bool:
        """Return whether a pass sees the cluster as it is."""
        found = self.seen(memory)
        there = read_live_cluster(
            self.name, client_of(self.server), lambda _: ObservedGroups(), found.taken_at
        )
        return msgspec.json.encode(found) == msgspec.json.encode(there)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(ObjectStore(lambda: NOW, seed=1), longest_watch=0) as started:
        yield started


@pytest.fixture
def history(server: ApiServer) -> ClusterHistory:
    made = ClusterHistory(server.store, 1)
    made.happen(40)
    return made


@pytest.fixture
def watched(
    desk: AppClient, server: ApiServer, history: ClusterHistory, tmp_path: Path
) -> WatchedCluster:
    return WatchedCluster(desk, server, tmp_path)


@pytest.fixture
def webhook(watched: WatchedCluster) -> Iterator[str]:
    with HttpScript(watched.answer, tls=AUTHORITY.server("127.0.0.1")) as started:
        watched.webhook = started.url
        yield started.url


@pytest.fixture
def watcher(watched: WatchedCluster, webhook: str) -> ClusterWatcher:
    return watched.watcher(webhook)


def test_pass_sees_what_the_watcher_sees_and_does_not_read(
    watched: WatchedCluster, history: ClusterHistory, watcher: ClusterWatcher
) -> None:
    for count in (0, 12, 1, 30):
        history.happen(count)
        watcher.turn()
        seen = watched.seen()
        assert not watched.was_read()
        there = read_live_cluster(
            watched.name, client_of(watched.server), lambda _: ObservedGroups(), seen.taken_at
        )
        assert msgspec.json.encode(seen) == msgspec.json.encode(there)
        watched.desk.clock.advance(10.0)


@pytest.mark.parametrize("seed", range(3))
def test_lost_posts_are_made_good_by_the_next_one(
    seed: int, watched: WatchedCluster, history: ClusterHistory, watcher: ClusterWatcher
) -> None:
    draws = random.Random(seed)
    for _ in range(12):
        watched.lost = draws.random() < 0.4
        history.happen(draws.choice((1, 5)))
        if watched.lost:
            with suppress(NotPosted):  # nothing is posted where nothing has changed
                watcher.turn()
        else:
            watcher.turn()
            assert watched.is_seen()
        watched.desk.clock.advance(draws.choice((5.0, 200.0)))


def test_change_that_the_watcher_lost_is_found_by_counts(
    watched: WatchedCluster, server: ApiServer, watcher: ClusterWatcher
) -> None:
    watcher.turn()
    server.faults.add(KubeFault(path="/nodes.*watch=1", edit=lambda _: b""))
    node = server.store.list("nodes", None)[0]["metadata"]["name"]
    server.store.remove("nodes", node)
    watcher.turn()
    assert node not in {each.name for each in watched.seen().nodes}
    assert not watched.was_read()


def _latest(watched: WatchedCluster) -> Path:
    return watched.folder / "lists" / "watched" / watched.name / "latest"


def _damaged(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:-3] + b"\0\0\0")


def _base_damaged(watched: WatchedCluster) -> None:
    [base] = [each for each in _latest(watched).parent.iterdir() if each.name != "latest"]
    _damaged(base)


def _with_head(watched: WatchedCluster, base: str = "", parts: str = "") -> None:
    """Change the line before the changes, which is not sealed."""
    head, _, changes = _latest(watched).read_bytes().partition(b"\n")
    name, count, received = head.decode().split()
    _latest(watched).write_bytes(f"{base or name} {parts or count} {received}\n".encode() + changes)


def _another_base(watched: WatchedCluster) -> None:
    """Post another base in the place of the one that the changes belong to: its seal is right."""
    changes = _latest(watched).read_bytes()
    watched.desk.clock.advance(1.0)
    watched.watcher(watched.webhook).turn()
    new = _latest(watched).read_bytes().split()[0].decode()
    _latest(watched).write_bytes(changes)
    _with_head(watched, base=new)


def _too_long(watched: WatchedCluster) -> None:
    with _latest(watched).open("r+b") as file:
        file.truncate(LARGEST + 1)


UNUSABLE: dict[str, Callable[[WatchedCluster], object]] = {
    "silent": lambda watched: watched.desk.clock.advance(SILENT_FOR + 1),
    "stopped": lambda watched: watched.desk.clock.advance(STOPPED_AFTER + 1),
    "the changes are damaged": lambda watched: _damaged(_latest(watched)),
    "the base is damaged": _base_damaged,
    "nothing is stored": lambda watched: _latest(watched).unlink(),
    "no parts": lambda watched: _with_head(watched, parts="0"),
    "more parts than are posted": lambda watched: _with_head(watched, parts=str(MOST_PARTS + 1)),
    "a part that is not there": lambda watched: _with_head(watched, parts="2"),
    "a path in the place of a base": lambda watched: _with_head(watched, base="../" * 10 + "00"),
    "changes of another base": _another_base,
    "longer than is read": _too_long,
    "no post at all": lambda watched: _latest(watched).write_bytes(b"{}"),
    "another secret": lambda watched: watched.set_secret(SECRET[::-1]),
    "a short secret": lambda watched: watched.set_secret("short"),
}


WORTH_A_WARNING = set(UNUSABLE) - {"silent"}


@pytest.mark.parametrize("case", UNUSABLE)
def test_pass_reads_the_cluster_where_posts_cannot_be_used(
    case: str,
    watched: WatchedCluster,
    history: ClusterHistory,
    watcher: ClusterWatcher,
    caplog: pytest.LogCaptureFixture,
) -> None:
    watcher.turn()
    history.happen(5)
    UNUSABLE[case](watched)
    with caplog.at_level(logging.INFO):
        assert watched.is_seen()
    assert watched.was_read()
    [record] = [
        each for each in caplog.records if "lists of the watcher not used" in each.getMessage()
    ]
    assert (record.levelno == logging.WARNING) is (case in WORTH_A_WARNING)


def test_posts_from_before_the_last_operation_are_not_used(
    watched: WatchedCluster, watcher: ClusterWatcher, caplog: pytest.LogCaptureFixture
) -> None:
    watcher.turn()
    now = watched.desk.clock()
    for memory in (Memory(last_scale_down=now), Memory(groups={"g": GroupMemory(last_add=now)})):
        watched.seen(memory)
        assert watched.was_read()
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
    watched.seen(Memory(last_scale_up=now - 10))
    assert not watched.was_read()


@pytest.mark.parametrize("reading", [ClusterReading.FULL, ClusterReading.VERIFY])
def test_policy_decides_that_passes_read_the_cluster_themselves(
    reading: ClusterReading, watched: WatchedCluster, watcher: ClusterWatcher
) -> None:
    watcher.turn()
    watched.seen(reading=reading)
    assert watched.was_read()


@pytest.mark.parametrize("age", [0.0, 1.0, 60.0])
def test_pod_that_cannot_be_scheduled_begins_one_pass_at_once(
    age: float, watched: WatchedCluster, watcher: ClusterWatcher
) -> None:
    for pod in watched.server.store.list("pods", None):
        watched.server.store.remove("pods", pod["metadata"]["name"], pod["metadata"]["namespace"])
    created = format_time(watched.desk.clock() - age)
    meta = {"name": "waiting", "namespace": "app", "creationTimestamp": created}
    watched.server.store.load(
        "pods", [{"metadata": meta, "spec": {"containers": []}, "status": UNSCHEDULABLE}]
    )
    watcher.turn()
    woken = watched.desk.outbox.scans()
    assert [(message.cluster, after) for message, after in woken] == [(watched.name, 0)]
    watched.desk.clock.advance(30.0)
    watcher.turn()
    assert watched.desk.outbox.scans() == woken


def test_watch_of_pods_begins_the_next_turn(
    watched: WatchedCluster, watcher: ClusterWatcher
) -> None:
    watcher.turn()
    version = str(watched.server.store.version)
    pod = {
        "metadata": {"name": "waiting", "namespace": "app"},
        "spec": {"containers": []},
        "status": UNSCHEDULABLE,
    }
    watched.server.store.create("pods", pod)
    watcher.watch_pods(version, seconds=1)
    assert watcher.urgent.is_set()


def test_base_is_posted_again_after_ten_minutes(
    watched: WatchedCluster, watcher: ClusterWatcher
) -> None:
    watcher.turn()
    _base_damaged(watched)
    watched.desk.clock.advance(LONGEST + 1)
    watcher.turn()
    watched.seen()
    assert not watched.was_read()


def test_watcher_with_a_wrong_clock_is_not_newer_than_its_posts(
    watched: WatchedCluster, webhook: str
) -> None:
    clock, fast = watched.desk.clock, watched.watcher(webhook, ahead=25.0)
    fast.turn()
    clock.advance(SILENT_FOR + 1)
    watched.seen()
    assert watched.was_read()


GOOD = WatcherPost("changes", "0" * 32, 1, b"sealed").body()


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        (GOOD, 202, ""),
        (GOOD.replace(b"watcher/1", b"watcher/1 2"), 400, "not a valid post"),
        (GOOD.replace(b"0" * 32, b"../" * 10 + b"00"), 400, "not a valid post"),
        (GOOD.replace(b" 1 -\n", f" {MOST_PARTS + 1} -\n".encode()), 400, "not a valid post"),
        (GOOD.replace(b" 1 -\n", b" 0 -\n"), 400, "not a valid post"),
        (
            GOOD.replace(b" changes ", b" base ").replace(b" 1 -\n", b" 16 -\n"),
            400,
            "not a valid post",
        ),
        (GOOD + b"%", 400, "is not base64"),
        (GOOD + b"A" * LARGEST_POST, 413, "less at a time"),
    ],
)
def test_post_is_stored_or_refused_with_a_reason(
    body: bytes, status: int, problem: str, watched: WatchedCluster
) -> None:
    reply = watched.desk.post(watched.name, body)
    assert reply.status_code == status
    assert problem in (line(reply) if problem else "")
    assert _latest(watched).exists() is (status == 202)


def test_post_without_a_valid_signature_is_not_stored(watched: WatchedCluster) -> None:
    reply = watched.desk.post(
        watched.name, GOOD, watched.desk.signed(watched.name, GOOD, key="not-the-right-value")
    )
    assert reply.status_code == 401
    assert not _latest(watched).exists()


def test_post_is_refused_where_nothing_would_use_it(watched: WatchedCluster) -> None:
    watched.desk.apply(watched.name)
    watched.desk.clock.advance(61)
    reply = watched.desk.post(watched.name, GOOD)
    assert (reply.status_code, "watcherSecret: is not set" in line(reply)) == (400, True)
    install(replace(watched.desk.runtime, lists=""))
    reply = watched.desk.post(watched.name, GOOD)
    assert (reply.status_code, "ShareLists" in line(reply)) == (400, True)


def test_post_that_cannot_be_stored_is_refused_as_temporary(watched: WatchedCluster) -> None:
    (watched.folder / "lists").write_text("a file where a folder is needed")
    reply = watched.desk.post(watched.name, GOOD)
    assert (reply.status_code, "try again" in line(reply)) == (503, True)
    (watched.folder / "lists").unlink()
    assert watched.desk.post(watched.name, GOOD).status_code == 202


def test_places_of_posts_are_few(watched: WatchedCluster) -> None:
    for at in range(200):
        base = random.Random(at).randbytes(16).hex()
        assert (
            watched.desk.post(
                watched.name, WatcherPost("base", base, 0, bytes([at])).body()
            ).status_code
            == 202
        )
    assert len(list(_latest(watched).parent.iterdir())) == 16


def test_base_that_was_not_posted_is_posted_again(
    watched: WatchedCluster, watcher: ClusterWatcher
) -> None:
    watched.lost = True
    with pytest.raises(OutscalerError):
        watcher.turn()
    watched.lost = False
    watcher.turn()
    watched.seen()
    assert not watched.was_read()


def test_unchanged_post_is_repeated_after_twenty_seconds(
    watched: WatchedCluster, watcher: ClusterWatcher
) -> None:
    stored = []
    for _ in range(4):
        watcher.turn()
        stored.append(_latest(watched).read_bytes())
        watched.desk.clock.advance(10.0)
    assert [one == other for one, other in pairwise(stored)] == [True, False, True]
    assert watched.is_seen()
