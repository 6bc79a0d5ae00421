"""Reads groups and instances in bulk and stops after repeated failures.

One unreadable group does not affect the others. An API that does not respond is not called five hundred times, each
with its retries and timeouts.
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
_WORTH = 20  # calls; above this number, one list of the whole account is tried instead of one call per group


class Asking:
    """The requests of one pass, with a count of consecutive failures."""

    def __init__(self) -> None:
        self._stopped: ProviderError | None = None
        self._row = 0

    def ask(self, question: Callable[[], T]) -> T:
        """Return the response; raises ProviderError.

        After enough consecutive failures that the next request would also meet, raises without sending it."""
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
    """Return the groups by id, and the reason for each that could not be read. Raises ProviderError if none could be
    read.

    pages: expected pages of instances, from the number of nodes, so that one reservation (rate_limit.py) covers the
    whole pass."""
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
    """Return the instances of many small groups from one list of the whole account, if that takes fewer calls.

    Contains only groups for which the list agrees with the group's own count; the caller reads the others one by one.
    Never raises: an error here recurs, and is reported, when the groups are read one by one.
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
    """Whether the list has as many instances as the group reports.

    They differ if instances appear or disappear between the two responses, or if the group reports no count. Whether
    TotalCapacity includes stopped instances is not documented."""
    stopped = sum(each.lifecycle_state == STOPPED for each in instances)
    return stopped == group.stopped_capacity and len(instances) - group.total_capacity in {0, stopped}


def _most(error: ProviderError) -> int:
    """Return how many consecutive failures of this kind stop the remaining requests; 0 for any number.

    Permissions may be granted per group, and one inconsistent list does not predict the next."""
    rows = (
        (is_denied(error), 5),
        (isinstance(error, Throttled | Unauthorized), 1),
        (isinstance(error, Transient) and error.code != MOVED, 3),
    )
    return next((most for applies, most in rows if applies), _ANY_NUMBER)
