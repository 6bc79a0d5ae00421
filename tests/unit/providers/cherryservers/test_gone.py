"""The servers that we deleted within the hour, as all functions know them."""

from __future__ import annotations

from chalicelib.providers.cherryservers.deleted_servers import DeletedServers
from chalicelib.providers.services import NullCache
from tests.unit.providers.cherryservers.fake_api import MemoryShelf


def test_what_was_noted_is_known_for_an_hour() -> None:
    shelf, now = MemoryShelf(), [1000.0]
    DeletedServers(shelf, 1, lambda: now[0]).add([7, 8])
    assert DeletedServers(shelf, 1, lambda: now[0]).among([7, 8, 9]) == {7, 8}
    assert DeletedServers(shelf, 2, lambda: now[0]).among([7, 8, 9]) == frozenset()
    now[0] += 3599
    DeletedServers(shelf, 1, lambda: now[0]).add([9])
    assert DeletedServers(shelf, 1, lambda: now[0]).among([7, 9]) == {7, 9}
    now[0] += 2
    assert DeletedServers(shelf, 1, lambda: now[0]).among([7, 9]) == {9}


class _Racing(MemoryShelf):
    """Somebody else's write wins the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 1

    def put(self, key: str, value: bytes, seconds: float) -> None:
        if self.lost:
            self.lost -= 1
            return
        super().put(key, value, seconds)


def test_a_row_that_somebody_else_has_written_over_is_written_again() -> None:
    shelf = _Racing()
    DeletedServers(shelf, 1, lambda: 1.0).add([7])
    assert DeletedServers(shelf, 1, lambda: 1.0).among([7]) == {7}


def test_nothing_noted_writes_nothing_and_no_shelf_is_no_error() -> None:
    shelf = MemoryShelf()
    DeletedServers(shelf, 1, lambda: 1.0).add([])
    assert shelf.rows == {}
    bare = DeletedServers(NullCache(), 1, lambda: 1.0)
    bare.add([7])
    assert bare.among([7]) == frozenset()


def test_a_row_that_cannot_be_read_is_an_empty_one() -> None:
    shelf = MemoryShelf()
    shelf.rows["cherryservers/deleted/1"] = b"\xff{"
    gone = DeletedServers(shelf, 1, lambda: 1.0)
    assert gone.among([7]) == frozenset()
    gone.add([7])
    assert gone.among([7]) == {7}
