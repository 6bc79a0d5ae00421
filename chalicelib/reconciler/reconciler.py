"""Runs one pass over one cluster: lease, memory, snapshot, plan, save, dispatch, record. Follows docs/architecture.md.

It tolerates these events. A duplicate message: the lease admits one, and a scheduled message requests nothing once a
newer pass has run. A kill before the save: nothing happened. A kill after it: the operations are in the table, and the
sweeper in tick sends them. A newer pass that took over the lease: the save is fenced. An executor that wrote in the
meantime: the save is stale, and the pass decides again with the executor's writes. If executors write during every
attempt, the pass is postponed by a few seconds, which is not a failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import msgspec

from chalicelib.dispatch.errors import NotSent
from chalicelib.dispatch.messages import (
    RECONCILE,
    ActMessage,
    Cause,
    ReconcileMessage,
    act_queue,
    decode_reconcile,
    encode,
)
from chalicelib.dispatch.mode_guard import permitted
from chalicelib.dispatch.sqs import whole_delay
from chalicelib.model.errors import MemoryExceeded, OutscalerError
from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import Memory
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation
from chalicelib.model.pass_footprint import after as memory_after
from chalicelib.model.plan import Plan, TaintUpdate
from chalicelib.model.pod import SETTLED_AFTER
from chalicelib.model.policy import Policy
from chalicelib.model.read_scope import ReadScope
from chalicelib.model.snapshot import MissingData, Snapshot
from chalicelib.net.time_limit import time_limit
from chalicelib.operations.recording import PassRecorder
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.read_credentials import observing
from chalicelib.reconciler import ownership_keys, taint_writer
from chalicelib.reconciler.cluster_reading import connected, make_room, observe, share_lists
from chalicelib.reconciler.function_size import handed_over, wanted_before, wanted_with
from chalicelib.reconciler.pass_retry import ask_again_soon
from chalicelib.reconciler.scan_slots import is_superseded
from chalicelib.runtime.active_policy import current
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.runtime import Runtime
from chalicelib.snapshot.node_groups import read_node_groups
from chalicelib.store.errors import LeaseHeld, StaleWrite, StoreError
from chalicelib.store.leases import Lease

if TYPE_CHECKING:
    from chalicelib.kube.client import KubeClient
    from chalicelib.replay.recorded_decision import RecordedDecision

LEASE_FOR = 150.0
"""Seconds until another invocation may take over from a pass that died: longer than the function's timeout
(120, .chalice/config)."""

DECIDED_WITHIN = 80.0
"""Seconds after its beginning by which a pass stops looking for more: the rest of the function's life is for saving,
sending and publishing, and for deciding again after a stale save."""

RECORDED_WITHIN = 20.0
"""Seconds after the end of the decision's time within which it is still recorded."""

PUBLISHED_WITHIN = 25.0
"""Seconds after the end of the decision's time within which requests mark nodes and publish the plan, whatever answers
how slowly: the pass must still release its lease."""

BUSY_FOR = 5.0
"""Maximum seconds until a pass that could not start is retried."""

BUSY_AT_FIRST = 1.0
"""The same while the other pass is younger than BUSY_FOR: most passes end within a second or two."""

_LEAST = 5.0  # minimum seconds for a decision; with none, no pass would ever find anything

_TRIES = 3

_MOST_WAITS = 3  # waits for further pods in a pass; together they end SETTLED_AFTER seconds after the first pod


class Look(Protocol):
    """Reads the cluster."""

    def __call__(self, old_memory: Memory, *, pods_only: bool = False) -> Snapshot:
        """Return the cluster now. old_memory: the memory that was read before. pods_only: use the groups of the last
        call."""


def handle(body: str, runtime: Runtime) -> None:
    """Process a message. Raises BadInput for a malformed message. Raises ClusterError where the cluster cannot be read
    at all, and StoreError, for a scheduled pass and for a wake-up that was retried several times. Raises NewerSchema
    for every message where a newer release has written the table."""
    message = decode_reconcile(body)
    runtime.store.schema.raise_to_own()
    try:
        _pass(message, runtime)
    except OutscalerError as error:
        if not ask_again_soon(message, error, runtime):
            raise


def handle_large(body: str, runtime: Runtime) -> None:
    """Process a message in the large function, which never hands it over."""
    handle(body, replace(runtime, hand_over=None))


def _pass(message: ReconcileMessage, runtime: Runtime) -> None:
    policy = current(message.cluster, runtime)
    if policy is None or not permitted(policy).plan:
        logger.info("nothing to do", cluster=message.cluster, known=policy is not None)
        return
    if message.reason == Cause.SCHEDULE.value:
        pace = runtime.store.scan_states.due(policy.name)
        if is_superseded(message.at, pace.last_pass, policy.scan_interval):
            return
        why = wanted_before(pace, runtime)
        if why:
            if handed_over(message, why, runtime):
                return
            runtime = replace(runtime, hand_over=None)
    lease = _lease(message, policy, runtime)
    if lease is not None:
        _under_lease(message, policy, lease, runtime)


def _lease(message: ReconcileMessage, policy: Policy, runtime: Runtime) -> Lease | None:
    """Return the lease for a pass of this function; None where another pass has it, or the large function is to make
    the pass."""
    lease = _taken(message, policy, runtime)
    why = wanted_with(lease, runtime) if lease is not None else ""
    if lease is None or not why:
        return lease
    # Released first, so that the large function finds it free. After a crash the count stays, for the large function
    # to see.
    runtime.store.leases.release(lease, ended=lease.memory.unended <= 1)
    return None if handed_over(message, why, runtime) else _taken(message, policy, runtime)


def _taken(message: ReconcileMessage, policy: Policy, runtime: Runtime) -> Lease | None:
    try:
        return runtime.store.leases.acquire(policy.name, runtime.owner(), LEASE_FOR)
    except LeaseHeld as held:
        if message.reason == Cause.SCHEDULE.value:
            # The message has arrived; leaving the marker would make the next ticks skip the cluster.
            runtime.store.scan_states.clear_queued(policy.name)
        else:
            _come_back(message, held, runtime)
        return None


def _under_lease(message: ReconcileMessage, policy: Policy, lease: Lease, runtime: Runtime) -> None:
    began, tale = runtime.clock(), PassRecorder(policy, lease, runtime)
    runtime.memory_usage.begin()
    decision: RecordedDecision | None = None
    exceeded: MemoryExceeded | None = None
    try:
        decision = run(policy, lease, tale, runtime)
    except MemoryExceeded as error:
        if runtime.hand_over is None:
            tale.pass_failed(error)
            raise
        exceeded = error
    except StaleWrite as stale:
        tale.plan_overtaken(stale)
        logger.warning(
            "memory changed during every attempt; reconcile requeued", cluster=policy.name, detail=str(stale)
        )
        _ask_again(msgspec.structs.replace(message, reason=Cause.OPERATION.value), BUSY_FOR, runtime)
    except Exception as error:
        tale.pass_failed(error)
        raise
    finally:
        # A failed pass counts as made, so the next one follows after a scan interval and not in a storm of
        # redeliveries.
        taken = memory_after(
            lease.memory,
            runtime.memory_usage.end(),
            runtime.memory_size,
            runtime.clock(),
            partial=tale.read_scope is ReadScope.CHANGES,
        )
        runtime.store.leases.release(
            lease,
            passed_at=began if exceeded is None else None,
            decision=tale.decision,
            left=tale.left,
            succeeded=tale.succeeded,
            failure=tale.failure,
            memory=taken,
        )
    if exceeded is not None:
        _hand_over_late(message, policy, exceeded, runtime)
        return
    # The lease is free already: S3 may need seconds.
    share_lists(policy, runtime)
    if decision is not None:
        # Imported here, because it is off by default.
        from chalicelib.replay.decision_place import record

        record(decision, runtime.decisions)


def _hand_over_late(message: ReconcileMessage, policy: Policy, exceeded: MemoryExceeded, runtime: Runtime) -> None:
    """Hand over a pass for which this function has too little memory. Nothing was decided, and the lease is free.
    Raises MemoryExceeded, as the failure of the pass, where the large function is not invoked."""
    if handed_over(message, str(exceeded), runtime):
        return
    if (lease := _taken(message, policy, runtime)) is not None:
        tale = PassRecorder(policy, lease, runtime)
        tale.pass_failed(exceeded)
        runtime.store.leases.release(lease, passed_at=runtime.clock(), failure=tale.failure)
    raise exceeded


def _come_back(message: ReconcileMessage, held: LeaseHeld, runtime: Runtime) -> None:
    """Queue a wake-up again, once, if it arrives during a pass: it may report a change that the pass has not seen."""
    left = held.until - runtime.clock()
    _ask_again(message, BUSY_AT_FIRST if left > LEASE_FOR - BUSY_FOR else min(max(left, 1.0), BUSY_FOR), runtime)


def _ask_again(message: ReconcileMessage, after: float, runtime: Runtime) -> None:
    """Send the message once more, unless an equivalent one is under way. Raises StoreError, NotSent: then the queue
    redelivers the first one."""
    if runtime.store.debounce.first_use(message.cluster, "again", after, kind="again"):
        runtime.sender.send(RECONCILE, encode(msgspec.structs.replace(message, at=runtime.clock())), whole_delay(after))


def run(policy: Policy, lease: Lease, recorder: PassRecorder, runtime: Runtime) -> RecordedDecision | None:
    """Run one pass under a lease and return the decision if it is to be recorded. Raises ClusterError, StoreError
    (LeaseLost: nothing was done)."""
    until = runtime.clock() + DECIDED_WITHIN
    make_room(policy.name, lease.memory.peak, runtime)
    kube = connected(policy, runtime)
    providers = runtime.providers(observing(policy), kube, runtime.read_secret)

    observed: list[tuple[tuple[NodeGroup, ...], tuple[MissingData, ...]]] = []

    def look(old_memory: Memory, *, pods_only: bool = False) -> Snapshot:
        def groups(nodes: Sequence[Node]) -> tuple[tuple[NodeGroup, ...], tuple[MissingData, ...]]:
            if not pods_only:
                observed[:] = [read_node_groups(providers, nodes)]
            return observed[0]

        reading, left = runtime.tracing.part("read", cluster=policy.name), max(until - runtime.clock(), _LEAST)
        with recorder.timed("updateClusterState"), reading, time_limit(left, runtime.clock):
            seen, recorder.read_scope = observe(policy, kube, groups, runtime, old_memory)
        runtime.checkpoint("reconcile:observed")
        return seen

    plan, snapshot, before = _decide_and_save(policy, look, lease, recorder, runtime, until)
    runtime.checkpoint("reconcile:saved")
    permission = permitted(policy)
    act = permission.act
    marks: tuple[TaintUpdate, ...] = ()
    last = recorder.decision
    with time_limit(until + PUBLISHED_WITHIN - runtime.clock(), runtime.clock):
        if act:
            send(plan.operations, runtime)
            marks = _mark(plan, kube, policy, runtime)
        with runtime.tracing.part("publish", cluster=policy.name, plan=plan.id):
            recorder.plan_saved(plan, snapshot, marks, kube if act else None)
    if not act and not permission.paused:
        # Imported here, because a pass that acts needs none of it.
        from chalicelib.reconciler.shadow_pass import compare

        compare(plan, snapshot, before, policy, kube, lease, runtime, until)
    if not (policy.record_decisions and runtime.decisions) or runtime.clock() > until + RECORDED_WITHIN:
        return None
    from chalicelib.replay.decision_place import has_changes
    from chalicelib.replay.recorded_decision import RecordedDecision

    if not has_changes(plan) or (recorder.decision == last and not plan.operations):
        return None
    return RecordedDecision(snapshot, policy, before, snapshot.taken_at, lease.token, plan, acted=act)


def _mark(plan: Plan, kube: KubeClient, policy: Policy, runtime: Runtime) -> tuple[TaintUpdate, ...]:
    """Write the taint updates and return those that were written. The others are planned again; the pass is saved and
    not repeated for them."""
    try:
        return taint_writer.apply(plan.marks, kube, policy.options, runtime.clock, policy.name)
    except OutscalerError as error:
        logger.error("nodes not marked", cluster=policy.name, **failure(error))
        return ()


def _decide_and_save(
    policy: Policy, look: Look, lease: Lease, recorder: PassRecorder, runtime: Runtime, until: float
) -> tuple[Plan, Snapshot, Memory]:
    """Decide, and save memory and operations in one transaction. Return the plan and what it was made with. until: the
    instant after which the best plan found so far is used.

    Memory is read before the cluster, never after: an operation that an executor finishes in between is then still
    under way for this pass, and its nodes count as coming. In the reverse order it would be finished in memory and not
    started in the snapshot, and its nodes would be requested again. For the same reason a stale save also reads the
    cluster again.

    While pending pods still arrive, the pass waits for the others (docs/decisions.md "Pending pods") and reads the
    cluster again, but not the vendors. Memory stays as it was read before both.
    """

    def now_decide(snapshot: Snapshot, old_memory: Memory) -> tuple[Plan, Memory]:
        with recorder.timed("autoscaling"), runtime.tracing.part("plan", cluster=policy.name):
            left = until - runtime.clock()
            return plan_cluster(
                snapshot,
                _in_time(policy, left),
                old_memory,
                snapshot.taken_at,
                lease.token,
                clock=runtime.clock,
                within=max(left, _LEAST),
            )

    act = permitted(policy).act
    for attempt in range(_TRIES):
        before = runtime.store.memory.load(policy.name)
        snapshot = look(before)
        plan, after = now_decide(snapshot, before)
        for _ in range(_MOST_WAITS):
            if not 0 < plan.waits_for_pods <= SETTLED_AFTER:
                break
            runtime.sleep(max(0.0, snapshot.taken_at + plan.waits_for_pods - runtime.clock()))
            snapshot = look(before, pods_only=True)
            plan, after = now_decide(snapshot, before)
        if act and plan.operations:
            foreign = _claimed_elsewhere(policy, snapshot, plan.operations, runtime)
            if foreign:
                snapshot = _without(snapshot, foreign)
                plan, after = now_decide(snapshot, before)
        operations = _signed(plan.operations, lease) if act else ()
        try:
            with runtime.tracing.part("save", cluster=policy.name):
                runtime.store.memory.save(policy.name, before, _kept(after, before, act=act), operations, lease)
        except StaleWrite:
            if attempt + 1 == _TRIES:
                raise
            continue
        return msgspec.structs.replace(plan, operations=operations), snapshot, before
    raise StoreError(f"{policy.name}: memory changed {_TRIES} times while it was being decided")


def _in_time(policy: Policy, left: float) -> Policy:
    """Return the policy with a time limit of `left` seconds at most; whole seconds, because the limit is shown to
    people."""
    options, most = policy.options, float(max(0, int(left)))
    return msgspec.structs.replace(
        policy, options=msgspec.structs.replace(options, max_binpacking_time=min(options.max_binpacking_time, most))
    )


def _kept(new_memory: Memory, old_memory: Memory, *, act: bool) -> Memory:
    """Return the memory to save. Cluster-wide instants are written by executors and never overwritten from here. The
    circuit breaker counts removals, so a pass that removes nothing leaves it unchanged."""
    return msgspec.structs.replace(
        new_memory,
        last_scale_up=old_memory.last_scale_up,
        last_scale_down=old_memory.last_scale_down,
        last_scale_down_failure=old_memory.last_scale_down_failure,
        breaker=new_memory.breaker if act else old_memory.breaker,
    )


def _signed(operations: Sequence[Operation], lease: Lease) -> tuple[Operation, ...]:
    return tuple(operation.with_spec(token=lease.token) for operation in operations)


def _claimed_elsewhere(
    policy: Policy, snapshot: Snapshot, operations: Sequence[Operation], runtime: Runtime
) -> dict[str, str]:
    """Return groups that operations are planned for and that another cluster of this deployment owns
    (docs/architecture.md).

    A group that another cluster claimed under its former key belongs to that cluster as long as the claim is valid.
    """
    former = ownership_keys.former(policy, snapshot, operations)
    claims = runtime.store.group_ownership.all() if former else ()
    owners = {(each.provider, each.key): each.owner for each in claims if not each.ended}
    foreign = {group: owners[key] for key, group in former.items() if owners.get(key, policy.name) != policy.name}
    wanted = {
        key: group for key, group in ownership_keys.keys(policy, snapshot, operations).items() if group not in foreign
    }
    weak = {group.id for group in snapshot.groups if group.discovered}
    others = runtime.store.group_ownership.claim_groups(
        policy.name,
        wanted,
        discovered={key for key, group in wanted.items() if group in weak},
        taken=lambda key, owner: logger.warning(
            "a node group was taken over from another cluster", cluster=policy.name, group=wanted[key], owner=owner
        ),
    )
    return foreign | {wanted[key]: owner for key, owner in others.items()}


def _without(snapshot: Snapshot, foreign: dict[str, str]) -> Snapshot:
    """Return the snapshot with those groups marked as owned by another cluster, so that the plan continues without
    them."""
    groups = tuple(
        msgspec.structs.replace(group, error=f"it belongs to cluster {foreign[group.id]}")
        if group.id in foreign
        else group
        for group in snapshot.groups
    )
    gaps = tuple(
        MissingData(
            kind="NodeGroup",
            name=name,
            detail=f"belongs to cluster {owner}",
            affected_decisions=("the plan for this group",),
        )
        for name, owner in sorted(foreign.items())
    )
    return msgspec.structs.replace(snapshot, groups=groups, gaps=(*snapshot.gaps, *gaps))


def send(operations: Sequence[Operation], runtime: Runtime) -> None:
    """Send a message per operation. An operation whose message cannot be sent, or recorded as sent, is saved and sent
    by the sweeper."""
    for operation in operations:
        try:
            runtime.sender.send(
                act_queue(operation.spec.provider), encode(ActMessage(operation.spec.cluster, operation.spec.id)), 0
            )
            runtime.checkpoint("reconcile:sent")
            runtime.store.operations.mark_sent(operation.spec.cluster, operation.spec.id, runtime.clock())
        except (NotSent, StoreError) as error:
            logger.error(
                "operation not sent; the sweeper re-sends it",
                cluster=operation.spec.cluster,
                operation=operation.spec.id,
                **failure(error),
            )
