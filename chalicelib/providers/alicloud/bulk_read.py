"""How far a pass goes on asking when answers fail.

One group that cannot be read stops no other; but an API that answers nobody is not asked five hundred times, each with
its attempts and its timeouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from chalicelib.providers.alicloud.api import IDS, AlicloudApi
from chalicelib.providers.alicloud.error_mapping import is_denied
from chalicelib.providers.alicloud.models import ScalingGroup, ScalingInstance
from chalicelib.providers.alicloud.pagination import MOVED, pages_of
from chalicelib.providers.alicloud.size_bounds import STOPPED
from chalicelib.providers.errors import ProviderError, Throttled, Transient, Unauthorized

T = TypeVar("T")

_ANY_NUMBER = 0
_WORTH = 20  # calls; so many may go to the groups one by one before one list of the whole account is looked at


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
    api: AlicloudApi, asking: Asking, ids: Sequence[str], pages: int
) -> tuple[dict[str, ScalingGroup], dict[str, str]]:
    """The groups by id, and of those that could not be read why; raises ProviderError where that are all. pages: of
    instances, by the number of nodes, so that one booking (budget.py) is enough for the whole pass."""
    lots = [ids[at : at + IDS] for at in range(0, len(ids), IDS)]
    api.expect(len(lots) + min(len(ids), _WORTH) + pages)
    found: dict[str, ScalingGroup] = {}
    unread: dict[str, str] = {}
    for lot in lots:
        try:
            found |= asking.ask(lambda lot=lot: api.groups(lot))  # type: ignore[misc]
        except ProviderError as error:
            unread |= dict.fromkeys(lot, f"could not be read: {error.error_class}: {error.message}")
            if len(unread) == len(ids):
                raise
    return found, unread


def read_instances(
    api: AlicloudApi, asking: Asking, groups: Sequence[ScalingGroup]
) -> dict[str, list[ScalingInstance]]:
    """The instances of many small groups by one list of the whole account, where that takes fewer calls than asking
    for each group; those groups only that have as many in it as they say themselves, for all others the caller asks.

    Never raises: what goes wrong here is met again, and told, when the groups are asked for one by one.
    """
    one_by_one = sum(pages_of(each.total_capacity) for each in groups)
    if one_by_one <= _WORTH:
        return {}
    try:
        listed = asking.ask(lambda: api.all_instances(one_by_one // 2))
    except ProviderError:
        listed = None
    found: dict[str, list[ScalingInstance]] = {each.scaling_group_id: [] for each in groups}
    for instance in listed or ():
        if instance.scaling_group_id in found:
            found[instance.scaling_group_id].append(instance)
    agreed = {
        each.scaling_group_id: found[each.scaling_group_id]
        for each in groups
        if listed is not None and _agrees(each, found[each.scaling_group_id])
    }
    api.expect(sum(pages_of(each.total_capacity) for each in groups if each.scaling_group_id not in agreed))
    return agreed


def _agrees(group: ScalingGroup, instances: Sequence[ScalingInstance]) -> bool:
    """Whether the list has as many as the group counts: not where machines come and go between the two answers, nor
    where the group does not count itself. Whether stopped ones are among TotalCapacity is not documented."""
    stopped = sum(each.lifecycle_state == STOPPED for each in instances)
    return stopped == group.stopped_capacity and len(instances) - group.total_capacity in {0, stopped}


def _most(error: ProviderError) -> int:
    """How many in a row may fail so before the rest is not asked for. Permissions may be given group by group, and a
    list that changes says nothing of the next one."""
    rows = (
        (is_denied(error), 5),
        (isinstance(error, Throttled | Unauthorized), 1),
        (isinstance(error, Transient) and error.code != MOVED, 3),
    )
    return next((most for applies, most in rows if applies), _ANY_NUMBER)
