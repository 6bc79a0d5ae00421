"""The tick: finds the clusters that are due and the operations that are stuck, and sends their messages.

Messages must not accumulate. A message per slot is sent ahead, so a stalled queue could fill with messages for the same
cluster. One marker per cluster prevents this (store/scan_state.py): it is set before the messages of one tick are sent,
removed when the first of them acquires the cluster's lease, and while it is set, ticks send nothing.

- Why not a marker per slot: slots are new each minute, so markers per slot never show that the *cluster* is already
  queued; only one marker for all slots does. It also costs one write a minute instead of three.
- Why it expires: a message may be lost (or be in the dead-letter queue). The marker expires LOST_AFTER seconds after
  its last slot, and the cluster is queued again. Lost messages cost minutes, never the cluster.
- Why this is enough: at most one tick's messages wait per cluster and LOST_AFTER. Messages that arrive late or twice
  find a newer pass and stop after one read (scan_slots.is_superseded); those that arrive during a pass find the lease
  taken.

Clusters are independent of each other: a failure for one is logged, and the next one is processed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from chalicelib.dispatch.errors import NotSent
from chalicelib.dispatch.messages import RECONCILE, Cause, ReconcileMessage, encode
from chalicelib.dispatch.mode_guard import permitted
from chalicelib.dispatch.sqs import whole_delay
from chalicelib.model.errors import OutscalerError
from chalicelib.model.policy import Policy
from chalicelib.reconciler.operation_resend import resend_operations
from chalicelib.reconciler.scan_slots import scan_slots
from chalicelib.runtime.active_policy import in_force
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.errors import StoreError
from chalicelib.store.policy_migration import not_used
from chalicelib.store.scan_state import ScanState

if TYPE_CHECKING:
    from chalicelib.store import StoredPolicy

#: Seconds after which an undelivered message counts as lost. Longer than a pass, shorter than a redelivery.
LOST_AFTER = 180.0
#: Seconds in which an alarm expects a pass (infra/aws/alarms.py), if the scan interval of a cluster is not longer.
EXPECTED_WITHIN = 240.0


class Report(msgspec.Struct, frozen=True):
    """Results of one tick. failed: clusters that could not be processed; the reason is in the log."""

    clusters: int
    queued: tuple[str, ...] = ()
    swept: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    def facts(self) -> dict[str, object]:
        """Return the report as JSON values."""
        facts: dict[str, object] = msgspec.json.decode(msgspec.json.encode(self))
        return facts


def run(runtime: Runtime) -> Report:
    """Run one tick over all clusters. Raises NewerSchema where a newer release has written the table, StoreError where
    neither the schema nor the list of clusters can be read; then nothing was sent."""
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
    # In every mode, and where the policy cannot be read: the executor cancels and rolls back operations that were
    # already started, under the last readable policy.
    opened = runtime.store.operations.look_at_each([stored.name for stored in documents])
    for stored in documents:
        with _contained(stored.name, "sweep", failed):
            swept.extend(resend_operations(stored.name, opened[stored.name], runtime))
    report = Report(len(documents), tuple(queued), tuple(swept), tuple(sorted(failed)))
    expected = sum(permitted(policy).plan and policy.scan_interval <= EXPECTED_WITHIN for policy in policies)
    logger.info(
        "tick", clusters=report.clusters, queued=len(queued), swept=swept, failed=report.failed, expected=expected
    )
    with _contained("", "notifications", set()):
        _notify(policies, runtime)
    return report


def _notify(policies: Sequence[Policy], runtime: Runtime) -> None:
    """Send notifications, after the messages that passes wait for. The code is loaded where a policy has some."""
    if any(policy.notifications is not None for policy in policies):
        from chalicelib.notify.delivery import channels_of
        from chalicelib.notify.run import notify

        channels = channels_of(runtime.read_secret, runtime.deployment, runtime.topics)
        notify(policies, runtime.store, channels, runtime.clock)


def _notice_old_place(known: Sequence[StoredPolicy], runtime: Runtime) -> None:
    """Log policies that an unfinished upgrade has left behind, once per tick. They are never used, and the tick does
    not fail."""
    try:
        left = runtime.store.moving.not_moved(known)
    except StoreError as error:
        logger.warning("the previous location of policies cannot be read", detail=str(error))
        return
    if left:
        logger.error("policies are not used", detail=not_used(left), clusters=len(left), remedy="run outscaler migrate")


def _scan_states(policies: Sequence[Policy], runtime: Runtime) -> dict[str, ScanState | StoreError]:
    """Return the scan state of every cluster, or why it cannot be read; {} if they cannot be read together. A state may
    be as old as the tick: a message too many is superseded when it arrives, and the marker prevents a second one."""
    try:
        return runtime.store.scan_states.due_by([policy.name for policy in policies])
    except StoreError as error:
        logger.warning("scan states cannot be read together", **failure(error))
        return {}


def queue_scans(policy: Policy, state: ScanState | StoreError | None, runtime: Runtime) -> bool:
    """Send the messages of this cluster's slots until the next tick; False if none is due or some are under way. state:
    None where it is still to be read, or the error that is raised because it cannot be read."""
    if isinstance(state, StoreError):
        raise state
    now = runtime.clock()
    pace = state or runtime.store.scan_states.due(policy.name)
    due = scan_slots(pace.last_pass, policy.scan_interval, now)
    if not due:
        return False
    marker = due[-1] + LOST_AFTER
    if not runtime.store.scan_states.mark_queued(policy.name, marker):
        logger.info("already queued", cluster=policy.name, queued_until=pace.queued_until)
        return False
    sent = 0
    try:
        for at in due:
            message = ReconcileMessage(cluster=policy.name, reason=Cause.SCHEDULE.value, at=at)
            runtime.sender.send(RECONCILE, encode(message), whole_delay(at - now))
            sent += 1
    except NotSent:
        if not sent:  # no message is under way: the next tick must not wait for one
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
