"""Lists that one process stores are followed by another, or not used at all."""

from __future__ import annotations

import hashlib
import hmac
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from chalicelib.cluster import list_archive, list_state
from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.list_archive import (
    LARGEST,
    LARGEST_UNPACKED,
    SAVED_EVERY,
    ListArchive,
    list_place,
    seal_key,
)
from chalicelib.cluster.list_state import LONGEST, ListOrigin
from chalicelib.cluster.listed_resources import RESOURCES
from chalicelib.cluster.live_cluster import KeptLists, ReadResult, read_live_cluster
from chalicelib.model.errors import OutscalerError
from chalicelib.model.read_scope import ReadScope
from chalicelib.model.snapshot import ObservedGroups, Snapshot
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from tests.property.cluster_history import NOW, UNTIL_ENDED, ClusterHistory, client_of

TEMPLATE = {"template": {"spec": {"containers": [{"name": "main", "image": "i"}]}}}
SHAPES: dict[str, dict[str, Any]] = {
    "DaemonSet": {"spec": TEMPLATE},
    "ReplicaSet": {"spec": TEMPLATE},
    "StatefulSet": {"spec": TEMPLATE},
    "ReplicationController": {"spec": TEMPLATE},
    "Job": {"spec": TEMPLATE},
    "PersistentVolumeClaim": {"spec": {"accessModes": ["ReadWriteOnce"]}},
    "StorageClass": {"provisioner": "disk.example"},
    "CSIStorageCapacity": {"storageClassName": "fast"},
}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(ObjectStore(lambda: NOW, seed=1), longest_watch=0) as started:
        yield started


@pytest.fixture(autouse=True)
def history(server: ApiServer) -> ClusterHistory:
    made = ClusterHistory(server.store, 1)
    made.happen(40)
    return made


class Processes:
    """Processes with one archive in a folder, and one clock."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.skew = folder, ManualClock(NOW), 0.0
        self.results: list[ReadResult] = []

    def start(self) -> KeptLists:
        archive = ListArchive(
            list_place(str(self.folder)), lambda: self.clock() + self.skew, self.clock
        )
        return KeptLists(10**9, self.clock, quiet=UNTIL_ENDED, archive=archive)

    def read(self, kube: KubeClient, kept: KeptLists | None) -> Snapshot:
        return read_live_cluster(
            "prod", kube, lambda _: ObservedGroups(), NOW, kept=kept, report=self.results.append
        )

    def pass_of(self, kube: KubeClient, kept: KeptLists) -> Snapshot:
        found = self.read(kube, kept)
        kept.save("prod")
        return found


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(tmp_path)


def test_process_that_has_not_read_a_cluster_follows_what_another_has_stored(
    server: ApiServer, history: ClusterHistory, processes: Processes
) -> None:
    processes.pass_of(client_of(server), processes.start())
    history.happen(10)
    second = processes.read(client_of(server), processes.start())
    full = processes.read(client_of(server), None)
    assert msgspec.json.encode(second) == msgspec.json.encode(full)
    assert [(each.scope, each.stored) for each in processes.results] == [
        (ReadScope.FULL, False),
        (ReadScope.CHANGES, True),
        (ReadScope.FULL, False),
    ]


@pytest.mark.parametrize("seed", range(4))
def test_passes_of_several_processes_read_what_a_full_read_gives(
    seed: int, processes: Processes
) -> None:
    draws = random.Random(seed)
    with ApiServer(ObjectStore(lambda: NOW, seed=seed), longest_watch=0) as server:
        history, several = ClusterHistory(server.store, seed), [processes.start() for _ in range(3)]
        for _ in range(12):
            history.happen(draws.choice((0, 1, 6, 15)))
            found = processes.pass_of(client_of(server), draws.choice(several))
            assert msgspec.json.encode(found) == msgspec.json.encode(
                processes.read(client_of(server), None)
            )
            processes.clock.advance(60.0)
    ours = processes.results[::2]
    assert sum(each.scope is ReadScope.CHANGES for each in ours) == len(ours) - 2
    assert any(each.stored for each in ours)


def _cut(data: bytes) -> bytes:
    return data[:-1]


def _changed(data: bytes) -> bytes:
    return data[:100] + bytes([data[100] ^ 1]) + data[101:]


@pytest.mark.parametrize("damage", [_cut, _changed, lambda _: b"", lambda _: b"no lists"])
def test_damaged_lists_are_not_used(
    damage: Callable[[bytes], bytes], server: ApiServer, processes: Processes
) -> None:
    processes.pass_of(client_of(server), processes.start())
    file = processes.folder / "prod.lists"
    file.write_bytes(damage(file.read_bytes()))
    processes.read(client_of(server), processes.start())
    assert processes.results[-1].scope is ReadScope.FULL
    assert "stored lists" in processes.results[-1].reason


def _sealed(plain: bytes, key: bytes) -> bytes:
    """Return lists with a seal that is right."""
    body = zlib.compress(plain, 9)
    return hmac.digest(key, body, "sha256") + body


@pytest.mark.parametrize(
    ("plain", "problem"),
    [
        (b"\0" * 1_000_001, "its length is wrong"),
        # a list of four billion elements in five bytes
        (b"\xdd\xff\xff\xff\xff", "cannot be decoded"),
        (b"\x91" * 100_000, "cannot be decoded"),  # as deep as it is long
        (b"", "cannot be decoded"),
    ],
    ids=["unpacks to too much", "claims too many", "too deep", "nothing"],
)
def test_sealed_lists_of_a_hostile_size_are_not_used(
    plain: bytes,
    problem: str,
    server: ApiServer,
    processes: Processes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert LARGEST_UNPACKED < 2**30, "a function has no more memory"
    monkeypatch.setattr(list_archive, "LARGEST_UNPACKED", 1_000_000)
    processes.pass_of(client_of(server), processes.start())
    file = processes.folder / "prod.lists"
    key = seal_key("prod", ListOrigin(client_of(server).access(), "kube-system False"))
    file.write_bytes(_sealed(plain, key))
    processes.read(client_of(server), processes.start())
    assert processes.results[-1].scope is ReadScope.FULL
    assert problem in processes.results[-1].reason


def test_file_of_lists_that_is_too_long_is_not_read(
    server: ApiServer, processes: Processes
) -> None:
    processes.pass_of(client_of(server), processes.start())
    with (processes.folder / "prod.lists").open("r+b") as file:
        file.truncate(LARGEST + 1)
    processes.read(client_of(server), processes.start())
    assert processes.results[-1].scope is ReadScope.FULL
    assert "too large" in processes.results[-1].reason


def test_lists_that_are_too_large_are_not_stored(
    server: ApiServer, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_archive, "LARGEST", 1000)
    kept = processes.start()
    saved = []
    for seconds in (0.0, SAVED_EVERY, LONGEST - SAVED_EVERY):
        processes.clock.advance(seconds)
        processes.read(client_of(server), kept)
        saved.append(kept.save("prod"))
    assert saved == [0, 0, 0]
    assert list(processes.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("module", "name"), [(list_state, "__version__"), (list_archive, "_FORMAT")]
)
def test_lists_of_another_release_or_form_are_not_used(
    module: ModuleType,
    name: str,
    server: ApiServer,
    processes: Processes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    list_archive._form.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(module, name, "9.9.9")
        processes.pass_of(client_of(server), processes.start())
    list_archive._form.cache_clear()
    processes.read(client_of(server), processes.start())
    assert processes.results[-1].scope is ReadScope.FULL
    assert "another server, account or release" in processes.results[-1].reason


def test_stored_lists_whose_version_the_server_has_compacted_are_read_again_alone(
    server: ApiServer, history: ClusterHistory, processes: Processes
) -> None:
    processes.pass_of(client_of(server), processes.start())
    history.happen(10)
    server.store.forget("pods")
    second = processes.read(client_of(server), processes.start())
    assert msgspec.json.encode(second) == msgspec.json.encode(
        processes.read(client_of(server), None)
    )
    result = processes.results[1]
    assert (result.scope, result.stored) == (ReadScope.CHANGES, True)
    assert result.reread == {"Pod": "the server no longer knows the version"}


def test_deletion_lost_by_stored_lists_is_found_by_the_number_of_objects(
    server: ApiServer, processes: Processes
) -> None:
    first = processes.pass_of(client_of(server), processes.start())
    server.store.remove("nodes", first.nodes[0].name)
    server.faults.add(KubeFault(path="/nodes.*watch=1", edit=lambda _: b""))
    second = processes.read(client_of(server), processes.start())
    assert {node.name for node in second.nodes} == {node.name for node in first.nodes[1:]}
    result = processes.results[-1]
    assert (result.stored, list(result.reread)) == (True, ["Node"])
    assert "on the server" in result.reread["Node"]


def test_lists_of_another_server_or_account_are_not_used(
    server: ApiServer, processes: Processes
) -> None:
    processes.pass_of(client_of(server), processes.start())
    with ApiServer(ObjectStore(lambda: NOW, seed=2), longest_watch=0) as other:
        processes.read(client_of(other), processes.start())
    assert processes.results[-1].scope is ReadScope.FULL


def test_lists_of_another_cluster_are_not_used(server: ApiServer, processes: Processes) -> None:
    processes.pass_of(client_of(server), processes.start())
    (processes.folder / "prod.lists").rename(processes.folder / "test.lists")
    archive = ListArchive(list_place(str(processes.folder)), processes.clock, processes.clock)
    origin = ListOrigin(client_of(server).access(), "kube-system False")
    with pytest.raises(OutscalerError, match="another server"):
        archive.load("test", origin, "kube-system")


@pytest.mark.parametrize("later", [600.0, -600.0])
def test_lists_that_are_too_old_or_of_the_future_are_not_used(
    later: float, server: ApiServer, processes: Processes
) -> None:
    processes.pass_of(client_of(server), processes.start())
    processes.skew = later
    processes.read(client_of(server), processes.start())
    assert processes.results[-1].scope is ReadScope.FULL


def test_everything_is_read_ten_minutes_after_the_last_full_read_of_any_process(
    server: ApiServer, processes: Processes
) -> None:
    scopes = []
    for _ in range(12):
        processes.pass_of(client_of(server), processes.start())
        scopes.append(processes.results[-1].scope)
        processes.clock.advance(60.0)
    assert [number for number, each in enumerate(scopes) if each is ReadScope.FULL] == [0, 10]


def test_lists_are_saved_at_most_once_in_a_while(server: ApiServer, processes: Processes) -> None:
    kept = processes.start()
    saved = []
    for seconds in (0.0, SAVED_EVERY / 2, SAVED_EVERY / 2):
        processes.clock.advance(seconds)
        processes.read(client_of(server), kept)
        saved.append(kept.save("prod") > 0)
    assert saved == [True, False, True]


def test_lists_that_the_last_pass_has_not_read_are_not_saved(
    server: ApiServer, processes: Processes
) -> None:
    kept = processes.start()
    processes.read(client_of(server), kept)
    processes.clock.advance(SAVED_EVERY + 1)
    assert kept.save("prod") == 0


def test_old_lists_are_dropped_also_where_no_pass_takes_lists(
    server: ApiServer, processes: Processes
) -> None:
    kept = processes.start()
    processes.read(client_of(server), kept)
    processes.clock.advance(LONGEST)
    kept.limit("other", 10**9)
    assert kept.clusters() == ()


def test_every_kind_of_object_that_passes_follow_is_stored(
    server: ApiServer, processes: Processes
) -> None:
    for each in RESOURCES:
        if each.kind in ("Node", "Pod", "Namespace"):
            continue
        meta = {"name": "one", "namespace": "app"}
        server.store.create(
            each.plural, {"metadata": meta, **SHAPES.get(each.kind, {})}, each.group
        )
    first, second = processes.start(), processes.start()
    processes.pass_of(client_of(server), first)
    processes.read(client_of(server), second)
    assert processes.results[-1] == ReadResult(ReadScope.CHANGES, stored=True)
    ours, theirs = (
        (lists := kept.kept("prod")) and lists.builder.objects for kept in (first, second)
    )
    assert ours
    assert theirs
    counts = {each.kind: (ours.count(each.kind), theirs.count(each.kind)) for each in RESOURCES}
    assert {kind: pair for kind, pair in counts.items() if pair[0] != pair[1] or not pair[0]} == {}


def test_stored_lists_hold_nothing_that_the_planner_does_not_read(
    server: ApiServer, processes: Processes
) -> None:
    container = {
        "name": "main",
        "image": "private",
        "env": [{"name": "PASSWORD", "value": "hunter2"}],
    }
    server.store.create(
        "pods",
        {
            "metadata": {"name": "p", "namespace": "app"},
            "spec": {"containers": [container]},
            "status": {},
        },
    )
    processes.pass_of(client_of(server), processes.start())
    plain = zlib.decompress(
        (processes.folder / "prod.lists").read_bytes()[hashlib.sha256().digest_size :]
    )
    assert b"safe_to_evict" in plain
    assert not [each for each in (b"hunter2", b"PASSWORD", b"private") if each in plain]


def test_instants_of_pods_survive_stored_lists_and_renumbered_classes(
    server: ApiServer, processes: Processes
) -> None:
    refusal = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    statuses: dict[str, dict[str, Any]] = {
        "other": {},
        "refused": {"conditions": [{**refusal, "lastTransitionTime": "2026-11-21T07:20:54Z"}]},
        "odd": {"conditions": [{**refusal, "lastTransitionTime": "soon"}]},
        "held": {"startTime": "2026-11-21T07:20:55Z"},
    }
    for name, status in statuses.items():
        spec: dict[str, Any] = {"containers": [{"name": "main"}], "priority": len(name)}
        notes = {}
        if name == "held":
            spec["nodeName"], notes = "n", {"karpenter.sh/do-not-disrupt": "30m"}
        meta = {"name": name, "namespace": "app", "annotations": notes}
        server.store.create("pods", {"metadata": meta, "spec": spec, "status": status})
    first, second = processes.start(), processes.start()
    processes.pass_of(client_of(server), first)
    server.store.delete("pods", "other", "app")
    for kept in (first, second):
        pods = {pod.name: pod for pod in processes.read(client_of(server), kept).pods}
        assert pods["refused"].refused_at == 1795245654.0
        assert pods["odd"].refused_at == 0.0
        assert pods["held"].started == 1795245655.0
