"""Servers deleted by us within the last hour, as a list that all functions share."""

from __future__ import annotations

from chalicelib.providers.cherryservers.instances import DeletedServers
from chalicelib.providers.kit.services import NullCache
from tests.providers.emulated import KeptCache


def test_deleted_server_is_remembered_for_an_hour() -> None:
    shared_cache, now = KeptCache(), [1000.0]
    DeletedServers(shared_cache, 1, lambda: now[0]).add([7, 8])
    assert DeletedServers(shared_cache, 1, lambda: now[0]).among([7, 8, 9]) == {7, 8}
    assert DeletedServers(shared_cache, 2, lambda: now[0]).among([7, 8, 9]) == frozenset()
    now[0] += 3599
    DeletedServers(shared_cache, 1, lambda: now[0]).add([9])
    assert DeletedServers(shared_cache, 1, lambda: now[0]).among([7, 9]) == {7, 9}
    now[0] += 2
    assert DeletedServers(shared_cache, 1, lambda: now[0]).among([7, 9]) == {9}


class _Racing(KeptCache):
    """Another write wins the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 1

    def put(self, key: str, value: bytes, seconds: float) -> None:
        if self.lost:
            self.lost -= 1
            return
        super().put(key, value, seconds)


def test_deleted_servers_row_overwritten_by_others_is_written_again() -> None:
    shared_cache = _Racing()
    DeletedServers(shared_cache, 1, lambda: 1.0).add([7])
    assert DeletedServers(shared_cache, 1, lambda: 1.0).among([7]) == {7}


def test_deleted_servers_empty_record_writes_nothing_and_cache_is_optional() -> None:
    shared_cache = KeptCache()
    DeletedServers(shared_cache, 1, lambda: 1.0).add([])
    assert shared_cache.rows == {}
    bare = DeletedServers(NullCache(), 1, lambda: 1.0)
    bare.add([7])
    assert bare.among([7]) == frozenset()


def test_deleted_servers_unreadable_row_counts_as_empty() -> None:
    shared_cache = KeptCache()
    shared_cache.rows["cherryservers/deleted/1"] = b"\xff{"
    gone = DeletedServers(shared_cache, 1, lambda: 1.0)
    assert gone.among([7]) == frozenset()
    gone.add([7])
    assert gone.among([7]) == {7}
