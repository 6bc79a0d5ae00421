"""Removal by instance id, twenty at a time, with an answer for each (alicloud.md §3.5, §5; defects 2 and 3).

Every call reads the group's instances first and goes on from there, so it may be repeated and cut off anywhere:

    placeholders among the targets             lower the desired capacity, never below what exists
    absent, or Removing                        removed
    protected, or attached by hand             not asked for; the others are, and then it has failed for these
    asked for, its activity is running         come back
    asked for, its activity has failed         failed, with the activity's class
    living                                     asked for, if the group stays at or above its minimum

Somebody may have lowered the desired capacity below what is there, which ESS will then take away. Those that we remove
are part of that: the number is not lowered for them once more, or others would go that nobody has named.

ESS takes one request at a time per group, so the second twenty wait for the first. What it does not want to remove it
names in its answer (IgnoredInstances); that one is already gone is no failure.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.alicloud.context import AlicloudContext, client_token
from chalicelib.providers.alicloud.delete_failed import check_nodes, spare_the_joined, take_back
from chalicelib.providers.alicloud.error_mapping import is_busy, is_gone
from chalicelib.providers.alicloud.instances import unremovable
from chalicelib.providers.alicloud.models import Accepted, ScalingGroup, ScalingInstance
from chalicelib.providers.alicloud.scale_up import ACTIVITY, growing_wait
from chalicelib.providers.alicloud.scaling_activities import failed, failure, running
from chalicelib.providers.alicloud.size_bounds import held, range_of, surplus, target_of
from chalicelib.providers.alicloud.targets import AlicloudTargets, check_membership, listed_in, lives, read_targets
from chalicelib.providers.errors import Conflict, InvalidRequest, NotFound, ProviderError

LOT = 20
STEP, SPARE = "remove", "spare"
ASKED, REFUSED, LATE = "asked", "refused", "late"
_LOOK_AGAIN = 5.0
_LATE_POLLS = 6  # looks at a group whose activity says that all is done, before it is not believed


def remove(context: AlicloudContext, operation: Operation) -> Outcome:
    """Remove exactly the targets; raises ProviderError. Nothing was written if a target is not the group's."""
    targets = read_targets(operation)
    group = context.group(operation.spec.group)
    # How many machines there are is asked only where a number is to be lowered; else a large group costs one call.
    listed = listed_in(context, operation.spec.group, () if targets.placeholders else targets.instances)
    removal = _Removal(context, operation, group, listed, targets)
    if not operation.status.data:
        check_membership(context, operation, targets, listed)
    if operation.spec.kind is OperationKind.DELETE_INSTANCES and removal.to_ask:
        spare_the_joined(context, removal.to_ask)
    if targets.placeholders and (conflict := take_back(context, operation, group, listed, targets)):
        return conflict
    return removal.run()


def release(context: AlicloudContext, operation: Operation) -> bool:
    """Nothing is prepared at ESS before it is asked, so this only says whether any target is still there and not
    leaving; raises ProviderError."""
    targets = read_targets(operation)
    listed = listed_in(context, operation.spec.group, targets.instances) if targets.instances else {}
    if any(lives(name, listed) for name in targets.instances):
        return True
    if not targets.placeholders:
        return False
    try:
        return target_of(context.group(operation.spec.group)) >= operation.spec.from_size
    except NotFound:
        return False


class _Removal:
    """One call's way through the table."""

    def __init__(
        self,
        context: AlicloudContext,
        operation: Operation,
        group: ScalingGroup,
        listed: Mapping[str, ScalingInstance],
        targets: AlicloudTargets,
    ) -> None:
        self._context, self._operation, self._group = context, operation, group
        self._targets = targets
        living = [name for name in targets.instances if lives(name, listed)]
        self._refused = {name: why for name, why in _known(operation, REFUSED).items() if name in living}
        self._refused |= {name: why for name in living if (why := unremovable(listed[name]))}
        self._living = [name for name in living if name not in self._refused]
        self._asked = [name for name in operation.status.data.get(ASKED, "").split(",") if name in self._living]

    @property
    def to_ask(self) -> list[str]:
        """What this call will ask ESS to remove, besides what it was asked for before."""
        return [] if self._asked else self._living

    def run(self) -> Outcome:
        """Pending until no target lives."""
        if not self._living:
            return self._end()
        if self._asked:
            return self._follow()
        self._permitted()
        spare = surplus(self._group)
        if spare:  # it may be our own request that has lowered the number already
            self._context.check_idle(self._operation.spec.group)
        lot = self._living[: min(LOT, spare) if spare else LOT]
        if self._operation.spec.kind is OperationKind.DELETE_NODES:
            check_nodes(self._context, self._operation, lot)
        token = client_token(self._operation, STEP if not spare else SPARE, *sorted(lot))
        try:
            accepted = self._context.api.remove(self._operation.spec.group, lot, token=token, decrease=not spare)
        except ProviderError as error:
            if is_busy(error) and self._operation.status.data:
                return InProgress(
                    2 * _LOOK_AGAIN, STEP, dict(self._operation.status.data), "another activity is under way"
                )
            if is_gone(error) and self._some_gone(lot):
                return InProgress(_LOOK_AGAIN, STEP, self._data([], Accepted()), error.message)
            raise
        return self._answered(lot, accepted)

    def _some_gone(self, lot: list[str]) -> bool:
        """Whether one of them went away since it was listed: then the others are asked for without it."""
        fresh = listed_in(self._context, self._operation.spec.group, lot)
        return not all(lives(name, fresh) for name in lot)

    def _end(self, code: str = "") -> Outcome:
        gone = len(self._targets.instances) - len(self._refused) + len(self._targets.placeholders)
        facts: dict[str, str | int] = {"removed": gone, "group": self._operation.spec.group}
        if not self._refused:
            return Succeeded(facts)
        text = "; ".join(f"{name}: {why}" for name, why in sorted(self._refused.items()))
        return Failed("InvalidRequest", f"{self._operation.spec.group}: {text}", code, facts=facts)

    def _follow(self) -> Outcome:
        """What was asked for still lives: the activity says whether it will go."""
        name = self._operation.status.data.get(ACTIVITY, "")
        found = self._context.api.activities(self._operation.spec.group, ids=[name]) if name else []
        asked = ", ".join(self._asked)
        if found and failed(found[0]):
            why = failure(found[0])
            text = f"{self._operation.spec.group}: {asked} could not be removed: {why.message}"
            return Failed(why.cls, text, why.code, facts={ACTIVITY: name})
        pause, data, _ = growing_wait(self._operation)
        if running(found):
            return InProgress(pause, STEP, data, f"scaling activity {name} removes {asked}")
        late = data.get(LATE, "") + "."
        if len(late) > _LATE_POLLS:
            text = f"{self._operation.spec.group}: ESS says that {asked} was removed and lists it still"
            return Failed("Unknown", text, facts={ACTIVITY: name})
        return InProgress(pause, STEP, {**data, LATE: late}, f"ESS has not begun to remove {asked}")

    def _permitted(self) -> None:
        """Raises InvalidRequest where the group may not be touched, or would fall below its minimum. With an activity
        under way the numbers may be those of our own request already, so they are no reason to give up (Conflict)."""
        if reason := held(self._group):
            raise InvalidRequest(reason)
        if self._operation.spec.kind is OperationKind.DELETE_INSTANCES:
            return
        bounds = range_of(self._context.bounds(self._operation.spec.group), self._group)
        left = target_of(self._group) - max(0, len(self._living) - surplus(self._group))
        if left < bounds.min:
            self._context.check_idle(self._operation.spec.group)
            raise InvalidRequest(f"{self._operation.spec.group}: {left} would be below the minimum {bounds.min}")

    def _answered(self, lot: list[str], accepted: Accepted) -> Outcome:
        ignored = {each.instance_id: each for each in accepted.ignored_instances or () if each.instance_id in lot}
        for name, why in ignored.items():
            error = ProviderError(why.message, code=why.code)
            if is_busy(error):
                raise Conflict(f"{name}: {why.message or why.code}", code=why.code)
            if not is_gone(error):
                self._refused[name] = f"{why.code}: {why.message}" if why.message else why.code
        if ignored and all(name in self._refused for name in self._living):
            return self._end(next(iter(ignored.values())).code)
        return InProgress(_LOOK_AGAIN, STEP, self._data([name for name in lot if name not in self._refused], accepted))

    def _data(self, lot: list[str], accepted: Accepted) -> dict[str, str]:
        data = {ASKED: ",".join(lot), ACTIVITY: accepted.scaling_activity_id}
        refused = msgspec.json.encode(self._refused).decode() if self._refused else ""
        return {**data, REFUSED: refused} if refused else data


def _known(operation: Operation, key: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(operation.status.data.get(key) or "{}", type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeError):
        return {}
