"""How far a pass goes on asking when answers fail.

One group that cannot be read stops no other; but an API that answers nobody is not asked five hundred times, each with
its attempts and its timeouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from chalicelib.providers.alicloud.api import IDS, Api
from chalicelib.providers.alicloud.codes import is_denied
from chalicelib.providers.alicloud.pages import MOVED, SIZE
from chalicelib.providers.alicloud.wire import ScalingGroup
from chalicelib.providers.errors import ProviderError, Throttled, Transient, Unauthorized

T = TypeVar("T")

_ANY_NUMBER = 0


class Asking:
    """The questions of one pass, and how many of them in a row have failed."""

    def __init__(self) -> None:
        self._stopped: ProviderError | None = None
        self._row = 0

    def ask(self, question: Callable[[], T]) -> T:
        """The answer. Raises ProviderError; once enough of them were of a kind that the next question would meet as
        well, without asking."""
        if self._stopped is not None:
            raise self._stopped
        try:
            answer = question()
        except ProviderError as error:
            most = _most(error)
            self._row = self._row + 1 if most else 0
            if most and self._row >= most:
                self._stopped = error
            raise
        self._row = 0
        return answer


def read_groups(
    api: Api, asking: Asking, ids: Sequence[str], pages: int
) -> tuple[dict[str, ScalingGroup], dict[str, str]]:
    """The groups by id, and of those that could not be read why; raises ProviderError where that are all. pages: of
    instances, by the number of nodes, so that one booking (budget.py) is enough for the whole pass."""
    lots = [ids[at:at + IDS] for at in range(0, len(ids), IDS)]
    api.expect(len(lots) + len(ids) + pages)
    found: dict[str, ScalingGroup] = {}
    unread: dict[str, str] = {}
    for lot in lots:
        try:
            found |= asking.ask(lambda lot=lot: api.groups(lot))  # type: ignore[misc]
        except ProviderError as error:
            unread |= dict.fromkeys(lot, f"could not be read: {error.cls}: {error.message}")
            if len(unread) == len(ids):
                raise
    api.expect(sum(each.total_capacity // SIZE for each in found.values()) - pages)
    return found, unread


def _most(error: ProviderError) -> int:
    """How many in a row may fail so before the rest is not asked for. Permissions may be given group by group, and a
    list that changes says nothing of the next one."""
    rows = (
        (is_denied(error), 5),
        (isinstance(error, Throttled | Unauthorized), 1),
        (isinstance(error, Transient) and error.code != MOVED, 3),
    )
    return next((most for applies, most in rows if applies), _ANY_NUMBER)
