"""The tick: finds the clusters that are due and the operations that are stuck,
and sends their messages.

Messages must not accumulate. A message per slot is sent ahead, so a stalled queue could fill with
messages for the same cluster. One marker per cluster prevents this (store/leases.py): it is set
before the messages of one tick are sent, removed when the first of them acquires the cluster's
lease, and while it is set, ticks send nothing.

- There is one marker for all slots, because markers per slot never show that the
  *cluster* is already queued.
- It expires LOST_AFTER seconds after its last slot, because a message may be lost (or be
  in the dead-letter queue).
- A cluster whose passes are on time needs none: no earlier tick has sent a message for
  its next slot (is_late).
- This is enough: at most two ticks' messages wait per cluster, and one more per LOST_AFTER. Late
  and repeated ones find a newer pass and stop after one read (is_superseded); those that arrive
  during a pass find the lease taken.

Clusters are independent of each other: a failure for one is logged, and the next one is processed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from chalicelib.model.errors import OutscalerError
from chalicelib.operations.stuck import resend_operations
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.runtime.active_policy import in_force
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.messages import RECONCILE, Cause, ReconcileMessage, encode
from chalicelib.runtime.mode_guard import permitted
from chalicelib.runtime.runtime import Runtime
from chalicelib.runtime.senders import NotSent, whole_delay
from chalicelib.store.errors import StoreError
from chalicelib.store.leases import ScanState
from chalicelib.store.policies import not_used

if TYPE_CHECKING:
    from chalicelib.store import StoredPolicy

#: Seconds after which an undelivered message counts as lost. Longer than a pass,
#: shorter than a redelivery.
LOST_AFTER = 180.0
#: Seconds in which an alarm expects a pass (infra/aws/alarms.py), if the scan interval of
#: a cluster is not longer.
EXPECTED_WITHIN = 240.0
#: Seconds from one tick to the next.
MINUTE = 60.0
#: A slot this close to a tick belongs to that tick, not to the one before: it would be unclear
#: whether its pass had begun.
MARGIN = 5.0
_ROUNDING = 0.001  # seconds that the sum of an instant and a few seconds may be off by


class Report(msgspec.Struct, frozen=True):
    """Results of one tick. failed: clusters that could not be processed;
    the reason is in the log."""

    clusters: int
    queued: tuple[str, ...] = ()
    swept: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    def facts(self) -> dict[str, object]:
        """Return the report as JSON values."""
        facts: dict[str, object] = msgspec.json.decode(msgspec.json.encode(self))
        return facts


def run(runtime: Runtime) -> Report:
    """Run one tick over all clusters. Raises NewerSchema where a newer release has
    written the table, StoreError where neither the schema nor the list of clusters can be
    read; then nothing was sent."""
    runtime.store.schema.check()
    documents = runtime.store.policies.all_current()
    _notice_old_place(documents, runtime)
    policies: list[Policy] = []
    queued: list[str] = []
    swept: list[str] = []
    failed: set[str] = set()
    for stored in documents:
        with _contained(stored.name, "policy", failed):
            policies.append(in_force(stored, runtime.clock(), runtime.deployment))
    planning = [policy for policy in policies if permitted(policy).plan]
    states = _scan_states(planning, runtime)
    for policy in planning:
        with _contained(policy.name, "schedule", failed):
            if queue_scans(policy, states.get(policy.name), runtime):
                queued.append(policy.name)
    for stored in documents:
        with _contained(stored.name, "switch", failed):
            _take_back_after_schedule(stored, runtime)
    # In every mode, and where the policy cannot be read: the executor cancels and rolls back
    # operations that were already started, under the last readable policy.
    opened = runtime.store.operations.look_at_each([stored.name for stored in documents])
    for stored in documents:
        with _contained(stored.name, "sweep", failed):
            swept.extend(resend_operations(stored.name, opened[stored.name], runtime))
    report = Report(len(documents), tuple(queued), tuple(swept), tuple(sorted(failed)))
    expected = sum(
        permitted(policy).plan and policy.scan_interval <= EXPECTED_WITHIN for policy in policies
    )
    logger.info(
        "tick",
        clusters=report.clusters,
        queued=len(queued),
        swept=swept,
        failed=report.failed,
        expected=expected,
    )
    if any(policy.notifications is not None for policy in policies):
        # Sent after the messages that passes wait for. The code is loaded where a
        # policy has notifications.
        with _contained("", "notifications", set()):
            from chalicelib.notify.delivery import channels_of
            from chalicelib.notify.run import notify

            channels = channels_of(runtime.read_secret, runtime.deployment, runtime.topics)
            applied_at = {stored.name: stored.stored_at for stored in documents}
            notify(policies, runtime.store, channels, runtime.clock, applied_at)
    return report


def _take_back_after_schedule(stored: StoredPolicy, runtime: Runtime) -> None:
    """Request the pass that takes back what passes have written on nodes, if a
    schedule has just ended them."""
    now = runtime.clock()
    policy = in_force(stored, now, runtime.deployment)
    permission = permitted(policy)
    if permission.plan or not permission.take_back or not policy.schedules:
        return
    if permitted(in_force(stored, now - MINUTE - MARGIN, runtime.deployment)).act:
        message = ReconcileMessage(policy.name, Cause.OPERATION.value, now)
        runtime.sender.send(RECONCILE, encode(message), 0)


def _notice_old_place(known: Sequence[StoredPolicy], runtime: Runtime) -> None:
    """Log policies that an unfinished upgrade has left behind, once per tick. They are never used,
    and the tick does not fail."""
    try:
        policies = runtime.store.moving.not_moved(known)
    except StoreError as error:
        logger.warning("the previous location of policies cannot be read", detail=str(error))
        return
    if policies:
        logger.error(
            "policies are not used",
            detail=not_used(policies),
            clusters=len(policies),
            remedy="run outscaler migrate",
        )


def _scan_states(policies: Sequence[Policy], runtime: Runtime) -> dict[str, ScanState | StoreError]:
    """Return the scan state of every cluster, or why it cannot be read; {} if they cannot be read
    together. A state may be as old as the tick: a message too many is superseded when it arrives,
    and the marker prevents a second one."""
    try:
        return runtime.store.scan_states.due_by([policy.name for policy in policies])
    except StoreError as error:
        logger.warning("scan states cannot be read together", **failure(error))
        return {}


def queue_scans(policy: Policy, state: ScanState | StoreError | None, runtime: Runtime) -> bool:
    """Send the messages of this cluster's slots until the next tick; False if none is due or
    some are under way. state: None where it is still to be read, or the error that is raised
    because it cannot be read."""
    if isinstance(state, StoreError):
        raise state
    now = runtime.clock()
    pace = state or runtime.store.scan_states.due(policy.name)
    due = scan_slots(pace.last_pass, policy.scan_interval, now)
    if not due:
        return False
    marker = due[-1] + LOST_AFTER
    late = is_late(pace.last_pass, policy.scan_interval, now)
    if not (
        runtime.store.scan_states.mark_queued(policy.name, marker)
        if late
        else pace.queued_until < now
    ):
        logger.info("already queued", cluster=policy.name, queued_until=pace.queued_until)
        return False
    try:
        for at in due:
            message = ReconcileMessage(cluster=policy.name, reason=Cause.SCHEDULE.value, at=at)
            runtime.sender.send(RECONCILE, encode(message), whole_delay(at - now))
    except NotSent:
        if late and at == due[0]:  # no message is under way: the next tick must not wait for one
            runtime.store.scan_states.clear_queued(policy.name, marker)
        raise
    return True


@contextmanager
def _contained(cluster: str, what: str, failed: set[str]) -> Iterator[None]:
    """Log and record one cluster's failure, so that it does not affect the others."""
    try:
        yield
    except OutscalerError as error:
        failed.add(cluster)
        logger.error("tick failed for a cluster", cluster=cluster, at=what, **failure(error))
    except Exception:
        failed.add(cluster)
        logger.exception("tick failed unexpectedly for a cluster", cluster=cluster, at=what)


def scan_slots(last_pass: float, interval: float, now: float) -> tuple[float, ...]:
    """Return the instants at which passes are due from now until shortly before the next tick, none
    in the past. A scanInterval of 20 s is three messages a minute, two of them delayed:

        tick                          tick                          tick
        ├─────────┬─────────┬─────────┼─────────┬─────────┬─────────┼──
        0         20        40        60        80        100       120

    A slot is the last pass + interval, so that ticks that come a little early or late do not shift
    it. last_pass: 0.0 for a cluster without a pass. A cluster that fell behind is due at once, and
    only once: missed passes are not made up for.
    """
    first = max(now, last_pass + interval)
    if first < now + MARGIN:
        first = now
    end = now + MINUTE - MARGIN
    count = max(0, math.ceil((end - first) / interval))
    return tuple(first + index * interval for index in range(count))


def is_late(last_pass: float, interval: float, now: float) -> bool:
    """Return whether an earlier tick may have sent a message for the slot after the last pass."""
    return last_pass + interval < now - MARGIN


def meant_after(last_pass: float, interval: float) -> float:
    """Return the instant that a scheduled message must be meant for, so that a pass which began
    after `last_pass` supersedes it, and that pass itself does not."""
    return last_pass + min(interval / 2, MARGIN) + _ROUNDING


def is_superseded(at: float, last_pass: float, interval: float) -> bool:
    """Return whether a scheduled message meant for `at` requests nothing new: a pass began then
    or later, or just before.

    This makes repeated, late and accumulated messages cheap: the first one is a pass, each
    other one is a single read. For scheduled messages only; a wake-up reports a change that an
    earlier pass may not have seen.
    """
    return last_pass > at - min(interval / 2, MARGIN)
