"""Runs one pass over one cluster: lease, memory, snapshot, plan, save, dispatch, record.
Follows docs/architecture.md.

It tolerates these events. A duplicate message: the lease admits one, and a scheduled message
requests nothing once a newer pass has run. A kill before the save: nothing happened. A kill
after it: the operations are in the table, and the sweeper in tick sends them. A newer pass that
took over the lease: the save is fenced. An executor that wrote in the meantime: the save is stale,
and the pass decides again with the executor's writes. If executors write during every attempt, the
pass is postponed by a few seconds, which is not a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from chalicelib.cluster.node_groups import read_node_groups
from chalicelib.model.errors import MemoryExceeded, OutscalerError
from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import Memory
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation
from chalicelib.model.plan import Plan, TaintUpdate
from chalicelib.model.pod import REFUSAL_WAIT, SETTLED_AFTER
from chalicelib.model.read_scope import ReadScope
from chalicelib.model.reason import ReasonCode
from chalicelib.model.snapshot import MissingData, Snapshot
from chalicelib.net.time_limit import time_limit
from chalicelib.operations.claims import watch_first
from chalicelib.operations.recording import PassRecorder
from chalicelib.passes import taint_writer
from chalicelib.passes.cluster_reading import connected, make_room, observe, share_lists
from chalicelib.passes.foreign_groups import claimed_elsewhere, without_groups
from chalicelib.passes.lease_renewal import LEASE_FOR, RENEW_EVERY, HeldLease, in_thread
from chalicelib.passes.pass_messages import (
    hand_over,
    look_again,
    retry_soon,
    send_again,
    send_unless_passed,
    watch,
    why_large_before,
    why_large_with,
)
from chalicelib.passes.scan_scheduler import is_superseded
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.state.foreign_growths import after_pass, left, with_others
from chalicelib.policy.secret_names import observing
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.messages import (
    ActMessage,
    Cause,
    ReconcileMessage,
    act_queue,
    decode_reconcile,
    encode,
)
from chalicelib.runtime.mode_guard import permitted
from chalicelib.runtime.runtime import Runtime
from chalicelib.runtime.senders import NotSent
from chalicelib.store.errors import LeaseHeld, StaleWrite, StoreError
from chalicelib.store.leases import Lease
from chalicelib.store.memory_rows import confirm
from chalicelib.store.pass_footprint import after as memory_after

if TYPE_CHECKING:
    from chalicelib.cluster.client import KubeClient
    from chalicelib.passes.shadow_pass import ObservedAutoscaler
    from chalicelib.replay.recorded_decision import RecordedDecision

DECIDED_WITHIN = 80.0
"""Seconds after its beginning by which a pass stops looking for more: the rest of the function's
life is for saving, sending and publishing, and for deciding again after a stale save."""

RECORDED_WITHIN = 20.0
"""Seconds after the end of the decision's time within which it is still recorded."""

PUBLISHED_WITHIN = 25.0
"""Seconds after the end of the decision's time within which requests mark nodes and publish the
plan, whatever answers how slowly: the pass must still release its lease."""

BUSY_FOR = 5.0
"""Maximum seconds until a pass that could not start is retried."""

BUSY_AT_FIRST = 1.0
"""The same while the other pass is younger than BUSY_FOR: most passes end within a second or
two."""

SOON = 10.0
"""Seconds between scheduled passes up to which a pass that finds a lease of a dead
one is not repeated for it."""

WATCHED_AFTER = 2.0
"""Seconds after its beginning from which another pass follows a scheduled one that is killed."""

_LEAST = 5.0  # minimum seconds for a decision; with none, no pass would ever find anything

_TRIES = 3

_LONGEST_WAIT = REFUSAL_WAIT + SETTLED_AFTER
"""Seconds that a pass waits for further pods, by this process's clock. Then it decides without
them, whatever the cluster's clock says."""

_LEAST_WAIT = 1.0  # seconds until the next pass, where this one did not wait to the end


Read = Callable[[Memory, int], Snapshot]
"""Reads the cluster now. Takes the memory that was read before, and the number of the attempt: the
vendors are read once in each."""


def handle(body: str, runtime: Runtime) -> None:
    """Process a message. Raises BadInput for a malformed message. Raises ClusterError where the
    cluster cannot be read at all, and StoreError, for a scheduled pass and for a wake-up that was
    retried several times. Raises NewerSchema for every message where a newer release has written
    the table."""
    message = decode_reconcile(body)
    runtime.store.schema.raise_to_own()
    try:
        _pass(message, runtime)
    except OutscalerError as error:
        if not retry_soon(message, error, runtime):
            raise


def handle_large(body: str, runtime: Runtime) -> None:
    """Process a message in the large function, which never hands it over."""
    handle(body, replace(runtime, hand_over=None))


def _pass(message: ReconcileMessage, runtime: Runtime) -> None:
    policy = runtime.policy(message.cluster)
    if policy is not None and not permitted(policy).plan and _to_leave(policy, runtime):
        _leave(message, policy, runtime)
        return
    if policy is None or not permitted(policy).plan:
        logger.info("nothing to do", cluster=message.cluster, known=policy is not None)
        return
    last_pass = 0.0
    if message.reason == Cause.SCHEDULE.value:
        scan = runtime.store.scan_states.due(policy.name)
        last_pass = scan.last_pass
        if is_superseded(message.at, scan.last_pass, policy.scan_interval):
            return
        why = why_large_before(scan, runtime)
        if why:
            if hand_over(message, why, runtime):
                return
            runtime = replace(runtime, hand_over=None)
    lease = _acquire(message, policy, runtime, last_pass)
    if lease is not None and (why := why_large_with(lease, runtime)):
        # Released first, so that the large function finds it free. After a crash the count stays,
        # for the large function to see.
        runtime.store.leases.release(lease, ended=lease.memory.unended <= 1)
        lease = (
            None
            if hand_over(message, why, runtime)
            else _acquire(message, policy, runtime, last_pass)
        )
    if lease is not None:
        _pass_with_lease(message, policy, lease, runtime)


def _watched(
    message: ReconcileMessage, policy: Policy, began: float, runtime: Runtime
) -> AbstractContextManager[None]:
    """Return the context in which another pass follows this one if it is killed. The watch of a
    scheduled pass is sent after WATCHED_AFTER seconds: a quiet pass ends before, and its watch
    would cost as much as its own message. Where the next scheduled pass begins within a lease's
    time, none is needed."""

    def send_watch() -> bool:
        watch(policy, began, LEASE_FOR, runtime)
        return False

    if message.reason != Cause.SCHEDULE.value:
        send_watch()
        return nullcontext()
    if policy.scan_interval <= LEASE_FOR:
        return nullcontext()
    return (runtime.repeat or in_thread)(WATCHED_AFTER, send_watch)


def _acquire(
    message: ReconcileMessage, policy: Policy, runtime: Runtime, last_pass: float = 0.0
) -> Lease | None:
    """Return the lease; None where another pass has it. A wake-up is then queued again, once: it
    may report a change that the other pass has not seen. A scheduled message is queued again for
    the case that the other pass has died. last_pass: when the last pass that ended has begun, for a
    scheduled message."""
    try:
        return runtime.store.leases.acquire(policy.name, runtime.owner(), LEASE_FOR)
    except LeaseHeld as error:
        if message.reason == Cause.SCHEDULE.value:
            # The message has arrived; leaving the marker would make the
            # next ticks skip the cluster.
            runtime.store.scan_states.clear_queued(policy.name)
            if policy.scan_interval > SOON:
                send_unless_passed(policy, last_pass, error.until - runtime.clock(), runtime)
            return None
        remaining = error.until - runtime.clock()
        young = remaining > LEASE_FOR - BUSY_FOR
        send_again(message, BUSY_AT_FIRST if young else min(max(remaining, 1.0), BUSY_FOR), runtime)
        return None


def _pass_with_lease(
    message: ReconcileMessage, policy: Policy, lease: Lease, runtime: Runtime
) -> None:
    """Run the pass, release the lease, and then do what may take longer than
    the lease should be held."""
    began, recorder = runtime.clock(), PassRecorder(policy, lease, runtime)
    watched = _watched(message, policy, began, runtime)
    runtime.memory_usage.begin()
    decision: RecordedDecision | None = None
    exceeded: MemoryExceeded | None = None
    try:
        held = HeldLease(lease, runtime.store.leases, runtime.clock)
        with watched, (runtime.repeat or in_thread)(RENEW_EVERY, held.renew):
            decision = run(policy, held, recorder, runtime)
    except MemoryExceeded as error:
        if runtime.hand_over is None:
            recorder.pass_failed(error)
            raise
        exceeded = error
    except StaleWrite as stale:
        recorder.plan_overtaken(stale)
        what = "memory changed during every attempt; reconcile requeued"
        logger.warning(what, cluster=policy.name, detail=str(stale))
        send_again(
            msgspec.structs.replace(message, reason=Cause.OPERATION.value), BUSY_FOR, runtime
        )
    except Exception as error:
        recorder.pass_failed(error)
        raise
    finally:
        partial = recorder.read_scope is ReadScope.CHANGES
        usage = runtime.memory_usage.end()
        # A failed pass counts as made, so the next one follows after a scan interval and not in
        # a storm of redeliveries.
        runtime.store.leases.release(
            lease,
            passed_at=began if exceeded is None else None,
            decision=recorder.decision,
            carry_over=recorder.left,
            succeeded=recorder.succeeded,
            failure=recorder.failure,
            memory=memory_after(
                lease.memory, usage, runtime.memory_size, runtime.clock(), partial=partial
            ),
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


def _hand_over_late(
    message: ReconcileMessage, policy: Policy, exceeded: MemoryExceeded, runtime: Runtime
) -> None:
    """Hand over a pass for which this function has too little memory. Nothing was decided, and
    the lease is free. Raises MemoryExceeded, as the failure of the pass, where the large
    function is not invoked."""
    if hand_over(message, str(exceeded), runtime):
        return
    if (lease := _acquire(message, policy, runtime)) is not None:
        recorder = PassRecorder(policy, lease, runtime)
        recorder.pass_failed(exceeded)
        runtime.store.leases.release(lease, passed_at=runtime.clock(), failure=recorder.failure)
    raise exceeded


def run(
    policy: Policy, held: HeldLease, recorder: PassRecorder, runtime: Runtime
) -> RecordedDecision | None:
    """Run one pass under a lease and return the decision if it is to be recorded. Raises
    ClusterError, StoreError (LeaseLost: nothing was done)."""
    until, lease = runtime.clock() + DECIDED_WITHIN, held.check()
    make_room(policy.name, lease.memory.peak, runtime)
    kube = connected(policy, runtime)
    providers = runtime.providers(observing(policy), kube, runtime.read_secret)

    observed: dict[int, tuple[tuple[NodeGroup, ...], tuple[MissingData, ...]]] = {}

    def read(old_memory: Memory, attempt: int) -> Snapshot:
        def groups(nodes: Sequence[Node]) -> tuple[tuple[NodeGroup, ...], tuple[MissingData, ...]]:
            if attempt not in observed:
                observed[attempt] = read_node_groups(providers, nodes)
            return observed[attempt]

        reading, remaining = (
            runtime.tracing.part("read", cluster=policy.name),
            max(until - runtime.clock(), _LEAST),
        )
        with recorder.timed("updateClusterState"), reading, time_limit(remaining, runtime.clock):
            snapshot, recorder.read_scope = observe(policy, kube, groups, runtime, old_memory)
        runtime.checkpoint("reconcile:observed")
        return snapshot

    permission = permitted(policy)
    act, other = permission.act, _other_autoscaler(policy, kube, runtime)
    plan, snapshot, before = _decide_and_save(policy, read, held, recorder, runtime, until, other)
    runtime.checkpoint("reconcile:saved")
    taints: tuple[TaintUpdate, ...] = ()
    last = recorder.decision
    with time_limit(until + PUBLISHED_WITHIN - runtime.clock(), runtime.clock):
        if act:
            send(plan.operations, runtime)
            try:
                taints = taint_writer.apply(
                    plan.marks, kube, policy.options, runtime.clock, policy.name
                )
            except OutscalerError as error:
                # planned again; the pass is saved and not repeated for them
                logger.error("nodes not marked", cluster=policy.name, **failure(error))
        with runtime.tracing.part("publish", cluster=policy.name, plan=plan.id):
            recorder.plan_saved(plan, snapshot, taints, kube if act else None)
    if plan.waits_for_pods > 0:
        look_again(policy.name, max(plan.waits_for_pods, _LEAST_WAIT), runtime)
    if permission.take_back and taint_writer.noted_nodes(before):
        try:
            _take_back(policy, kube, held, runtime)
        except OutscalerError as error:  # the next pass tries again
            logger.error("soft taints not taken back", cluster=policy.name, **failure(error))
    if other is not None:
        other.compare(plan, snapshot, before, lease, until)
    if (
        not (policy.record_decisions and runtime.decisions)
        or runtime.clock() > until + RECORDED_WITHIN
    ):
        return None
    from chalicelib.replay.decision_place import has_changes
    from chalicelib.replay.recorded_decision import RecordedDecision

    if not has_changes(plan) or (recorder.decision == last and not plan.operations):
        return None
    return RecordedDecision(
        snapshot, policy, before, snapshot.taken_at, lease.token, plan, acted=act
    )


def _other_autoscaler(
    policy: Policy, kube: KubeClient, runtime: Runtime
) -> ObservedAutoscaler | None:
    """Return the autoscaler that acts while this cluster's mode is shadow;
    None in a pass that acts."""
    permission = permitted(policy)
    if permission.act or permission.paused:
        return None
    # Imported here, because a pass that acts needs none of it.
    from chalicelib.passes.shadow_pass import ObservedAutoscaler

    return ObservedAutoscaler(policy, kube, runtime)


def _decide_and_save(
    policy: Policy,
    read: Read,
    held: HeldLease,
    recorder: PassRecorder,
    runtime: Runtime,
    until: float,
    autoscaler: ObservedAutoscaler | None = None,
) -> tuple[Plan, Snapshot, Memory]:
    """Decide, and save memory and operations in one transaction. Return the plan and what it was
    made with. until: the instant after which the best plan found so far is used. autoscaler: the
    one that acts in mode shadow; what it did belongs to the memory with which the pass decides.

    Memory is read before the cluster, never after: an operation that an executor finishes in
    between is then still under way for this pass, and its nodes count as coming. In the reverse
    order it would be finished in memory and not started in the snapshot, and its nodes would be
    requested again. For the same reason a stale save also reads the cluster again.

    While pending pods still arrive, or a scheduler still refuses others, the pass waits for them
    (docs/reference/scale-up.md "Waiting for more pods") and reads the cluster again, but not the
    vendors. Memory stays as it was read before both."""

    def decide(snapshot: Snapshot, old_memory: Memory) -> tuple[Plan, Memory]:
        with recorder.timed("autoscaling"), runtime.tracing.part("plan", cluster=policy.name):
            remaining = until - runtime.clock()
            return plan_cluster(
                snapshot,
                _in_time(policy, remaining),
                old_memory,
                snapshot.taken_at,
                lease.token,
                clock=runtime.clock,
                within=max(remaining, _LEAST),
                wait=runtime.clock() < waits_until,
                on_state=recorder.planned_with,
            )

    def remember(snapshot: Snapshot, old_memory: Memory) -> Memory:
        return old_memory if autoscaler is None else autoscaler.remembered(snapshot, old_memory)

    waits_until = runtime.clock() + _LONGEST_WAIT
    act, lease = permitted(policy).act, held.check()
    for attempt in range(_TRIES):
        stored = runtime.store.memory.load(policy.name)
        loaded = confirm(stored, lease.last_success)
        loaded = with_others(
            loaded, lease.last_success, policy.scan_interval, runtime.clock(), act=act
        )
        snapshot = read(loaded, attempt)
        before = remember(snapshot, loaded)
        plan, after = decide(snapshot, before)
        while runtime.clock() < waits_until and _is_to_wait(plan):
            runtime.sleep(max(0.0, snapshot.taken_at + plan.waits_for_pods - runtime.clock()))
            snapshot = read(loaded, attempt)
            before = remember(snapshot, loaded)
            plan, after = decide(snapshot, before)
        if act and plan.operations:
            owners = claimed_elsewhere(policy, snapshot, plan.operations, runtime)
            if owners:
                snapshot = without_groups(snapshot, owners)
                plan, after = decide(snapshot, before)
        operations = (
            tuple(operation.with_spec(token=lease.token) for operation in plan.operations)
            if act
            else ()
        )
        try:
            with runtime.tracing.part("save", cluster=policy.name):
                to_save = after_pass(_to_save(after, before, act=act), snapshot.groups, act=act)
                if act:
                    to_save = taint_writer.noted(
                        to_save, before, plan.marks, snapshot.nodes, policy.options
                    )
                else:
                    to_save = taint_writer.still_noted(to_save, before)
                runtime.store.memory.save(policy.name, stored, to_save, operations, held.check())
        except StaleWrite:
            if attempt + 1 == _TRIES:
                raise
            continue
        ended = plan.ended_replacements if act else ()
        return (
            msgspec.structs.replace(plan, operations=operations, ended_replacements=ended),
            snapshot,
            before,
        )
    raise StoreError(f"{policy.name}: memory changed {_TRIES} times while it was being decided")


def _to_leave(policy: Policy, runtime: Runtime) -> bool:
    """Return whether the memory of a cluster that is not planned any more does not say so yet, or
    its passes have written soft taints."""
    memory = runtime.store.memory.look(policy.name)
    return memory != left(memory) or (
        permitted(policy).take_back and bool(taint_writer.noted_nodes(memory))
    )


def _leave(message: ReconcileMessage, policy: Policy, runtime: Runtime) -> None:
    """Note that no pass looks at the groups from now on, and take back soft taints, in a pass that
    does nothing else. Raises ClusterError, StoreError."""
    lease = _acquire(message, policy, runtime)
    if lease is None:
        return
    held = HeldLease(lease, runtime.store.leases, runtime.clock)
    try:
        with (runtime.repeat or in_thread)(RENEW_EVERY, held.renew):
            memory = runtime.store.memory.load(policy.name)
            runtime.store.memory.save(policy.name, memory, left(memory), (), held.check())
            if permitted(policy).take_back and taint_writer.noted_nodes(memory):
                _take_back(policy, connected(policy, runtime), held, runtime)
    finally:
        runtime.store.leases.release(lease)


def _take_back(policy: Policy, kube: KubeClient, held: HeldLease, runtime: Runtime) -> None:
    """Remove the soft taints that memory has noted as ours, and the notes of those that are gone.
    Raises ClusterError, StoreError; what is left is taken back by the next attempt."""
    memory, done = runtime.store.memory.load(policy.name), list[str]()
    try:
        for node in taint_writer.take_back(
            taint_writer.noted_nodes(memory), kube, runtime.clock, policy.name
        ):
            done.append(node)
    finally:
        if done:
            rest = taint_writer.without_notes(memory, done)
            runtime.store.memory.save(policy.name, memory, rest, (), held.check())


def _is_to_wait(plan: Plan) -> bool:
    """Return whether the pass looks again before it saves. A long wait delays no operation, such as
    the evacuation of a node that its vendor takes back."""
    if not 0 < plan.waits_for_pods <= SETTLED_AFTER:
        return False
    is_long = any(pods.reason.code is ReasonCode.WAITING_FOR_SCHEDULER for pods in plan.ignored)
    return not (is_long and plan.operations)


def _in_time(policy: Policy, seconds: float) -> Policy:
    """Return the policy with a time limit of at most that many seconds; whole ones, because the
    limit is shown to people."""
    options, most = policy.options, float(max(0, int(seconds)))
    return msgspec.structs.replace(
        policy,
        options=msgspec.structs.replace(
            options, max_binpacking_time=min(options.max_binpacking_time, most)
        ),
    )


def _to_save(new_memory: Memory, old_memory: Memory, *, act: bool) -> Memory:
    """Return the memory to save. Cluster-wide instants are written by executors and never
    overwritten from here. The circuit breaker, replacements and the moves of pods follow what was
    done, so a pass that does nothing leaves them unchanged."""
    consolidation = new_memory.consolidation
    if not act and consolidation.moves != old_memory.consolidation.moves:
        consolidation = msgspec.structs.replace(consolidation, moves=old_memory.consolidation.moves)
    return msgspec.structs.replace(
        new_memory,
        last_scale_up=old_memory.last_scale_up,
        last_scale_down=old_memory.last_scale_down,
        last_scale_down_failure=old_memory.last_scale_down_failure,
        breaker=new_memory.breaker if act else old_memory.breaker,
        replacements=new_memory.replacements if act else old_memory.replacements,
        consolidation=consolidation,
    )


def send(operations: Sequence[Operation], runtime: Runtime) -> None:
    """Send a message per operation. An operation whose message cannot be sent, or recorded as sent,
    is saved and sent by the sweeper."""
    for operation in operations:
        cluster = operation.spec.cluster
        try:
            runtime.sender.send(
                act_queue(operation.spec.provider),
                encode(ActMessage(cluster, operation.spec.id)),
                0,
            )
            runtime.checkpoint("reconcile:sent")
            watch_first(operation, runtime)
            runtime.store.operations.mark_sent(cluster, operation.spec.id, runtime.clock())
        except (NotSent, StoreError) as error:
            what = "operation not sent; the sweeper re-sends it"
            logger.error(what, cluster=cluster, operation=operation.spec.id, **failure(error))
