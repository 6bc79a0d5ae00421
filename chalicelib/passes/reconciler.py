"""One pass over one cluster, from its message to the end of its lease; it reads from top to bottom.

    message ─► policy, mode ─► lease ─► memory ─► cluster ─► plan ─► saved ─► sent ─► published
                                 │        ▲ executors have written: again        └─► lease released
                                 └ renewed by a thread until it is released

What comes in between is no error, or becomes one here:

| What happens | What follows |
|---|---|
| a scheduled message is late or repeated | it requests nothing if a newer pass has run |
| another pass has the lease (LeaseHeld) | the message again, soon (pass_messages.py) |
| the cluster needs more memory (MemoryExceeded) | the large function makes the pass |
| a newer pass has taken over the lease (LeaseLost) | nothing is saved; the pass has failed |
| an executor has written meanwhile (StaleWrite) | the pass decides again, at last it is postponed |
| killed before the save | nothing has happened |
| killed after the save | the operations are in the table, and the sweeper in tick sends them |
| reporting fails | a line in the log |
| anything else fails | the pass counts as made; a wake-up is tried again |
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from chalicelib.cluster.live_cluster import Observe
from chalicelib.cluster.node_groups import read_node_groups
from chalicelib.model.errors import MemoryExceeded, OutscalerError
from chalicelib.model.memory import Memory
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation
from chalicelib.model.plan import Plan, TaintUpdate
from chalicelib.model.pod import REFUSAL_WAIT, SETTLED_AFTER
from chalicelib.model.read_scope import ReadScope
from chalicelib.model.reason import ReasonCode
from chalicelib.model.snapshot import ObservedGroups, Snapshot
from chalicelib.net.time_limit import time_limit
from chalicelib.operations.executor import send_first
from chalicelib.passes import soft_taints
from chalicelib.passes.cluster_reading import (
    connected,
    observe,
    refresh_catalogues,
    share_lists,
)
from chalicelib.passes.foreign_groups import claimed_elsewhere, without_groups
from chalicelib.passes.lease_renewal import LEASE_FOR, HeldLease, in_thread, renewed
from chalicelib.passes.leaving import is_left, leave, take_back
from chalicelib.passes.pass_messages import (
    BUSY_FOR,
    acquire,
    hand_over,
    look_again,
    retry_soon,
    send_again,
    watch,
    why_large_before,
    why_large_with,
)
from chalicelib.passes.pass_report import PassReport
from chalicelib.passes.scan_scheduler import is_superseded
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.state.foreign_growths import after_pass, with_others
from chalicelib.policy.secret_names import observing
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.messages import Cause, ReconcileMessage, decode_reconcile
from chalicelib.runtime.mode_guard import Permission, permitted
from chalicelib.runtime.runtime import Runtime
from chalicelib.runtime.senders import NotSent
from chalicelib.store.errors import StaleWrite, StoreError
from chalicelib.store.leases import Lease
from chalicelib.store.memory_rows import confirm
from chalicelib.store.pass_footprint import after as memory_after

if TYPE_CHECKING:
    from chalicelib.cluster.client import KubeClient
    from chalicelib.passes.shadow_pass import ObservedAutoscaler
    from chalicelib.providers.kit.base import Provider
    from chalicelib.replay.recorded_decision import RecordedDecision

DECIDED_WITHIN = 80.0
"""Seconds after its beginning by which a pass stops looking for more: the rest of the function's
life is for saving, sending and publishing, and for deciding again after a stale save."""

RECORDED_WITHIN = 20.0
"""Seconds after the end of the decision's time within which it is still recorded."""

PUBLISHED_WITHIN = 25.0
"""Seconds after the end of the decision's time within which requests mark nodes and publish the
plan, whatever answers how slowly: the pass must still release its lease."""

CATALOGUES_WITHIN = 15.0
"""Seconds that all vendors' catalogues may take together, after the lease is released."""

WATCHED_AFTER = 2.0
"""Seconds after its beginning from which another pass follows a scheduled one that is killed."""

_LEAST = 5.0  # minimum seconds for a decision; with none, no pass would ever find anything

_TRIES = 3

_LONGEST_WAIT = REFUSAL_WAIT + SETTLED_AFTER
"""Seconds that a pass waits for further pods, by this process's clock. Then it decides without
them, whatever the cluster's clock says."""

_LEAST_WAIT = 1.0  # seconds until the next pass, where this one did not wait to the end


def handle(body: str, runtime: Runtime) -> None:
    """Process a message. Raises BadInput for a malformed message. Raises ClusterError where the
    cluster cannot be read at all, and StoreError, for a scheduled pass and for a wake-up that was
    retried several times. Raises NewerSchema for every message where a newer release has written
    the table."""
    message = decode_reconcile(body)
    runtime.store.schema.raise_to_own()
    try:
        policy = runtime.policy(message.cluster)
        if policy is None:
            logger.info("nothing to do", cluster=message.cluster, known=False)
        else:
            _reconcile(message, policy, permitted(policy), runtime)
    except OutscalerError as error:
        if not retry_soon(message, error, runtime):
            raise


def handle_large(body: str, runtime: Runtime) -> None:
    """Process a message in the large function, which never hands it over."""
    handle(body, replace(runtime, hand_over=None))


def _reconcile(
    message: ReconcileMessage, policy: Policy, permission: Permission, runtime: Runtime
) -> None:
    """Make the pass that the message requests, if it is to be made, and here, and now."""
    if not permission.plan and is_left(policy.name, permission, runtime):
        logger.info("nothing to do", cluster=message.cluster, known=True)
        return
    if not permission.plan:
        lease = acquire(message, policy, runtime)
        if lease is not None and leave(policy, permission, lease, runtime):
            look_again(message, _LEAST_WAIT, runtime)
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
    lease = acquire(message, policy, runtime, last_pass)
    if lease is not None and (why := why_large_with(lease, runtime)):
        # Released first, so that the large function finds it free. After a crash the count stays,
        # for the large function to see.
        runtime.store.leases.release(lease, ended=lease.memory.unended <= 1)
        if hand_over(message, why, runtime):
            return
        lease = acquire(message, policy, runtime, last_pass)
    if lease is not None:
        _with_lease(message, policy, permission, lease, runtime)


def _with_lease(
    message: ReconcileMessage,
    policy: Policy,
    permission: Permission,
    lease: Lease,
    runtime: Runtime,
) -> None:
    """Run the pass, release the lease, and then do what may take longer than
    the lease should be held."""
    began, report = runtime.clock(), PassReport(policy, lease, runtime)
    watched = _watched(message, policy, began, runtime)
    runtime.memory_usage.begin()
    decision: RecordedDecision | None = None
    exceeded: MemoryExceeded | None = None
    try:
        held = HeldLease(lease, runtime.store.leases, runtime.clock)
        with watched, renewed(held, runtime):
            decision = run(message, policy, permission, held, report, runtime)
    except MemoryExceeded as error:
        if runtime.hand_over is None:
            report.failed(error)
            raise
        exceeded = error
    except StaleWrite as stale:
        report.overtaken(stale)
        what = "memory changed during every attempt; reconcile requeued"
        logger.warning(what, cluster=lease.cluster, detail=str(stale))
        wake_up = msgspec.structs.replace(message, reason=Cause.OPERATION.value)
        send_again(wake_up, BUSY_FOR, runtime)
    except Exception as error:
        report.failed(error)
        raise
    finally:
        partial = report.read_scope is ReadScope.CHANGES
        usage = runtime.memory_usage.end()
        # A failed pass counts as made, so the next one follows after a scan interval and not in
        # a storm of redeliveries.
        runtime.store.leases.release(
            lease,
            passed_at=began if exceeded is None else None,
            decision=report.decision,
            carry_over=report.left,
            succeeded=report.succeeded,
            failure=report.failure,
            memory=memory_after(
                lease.memory, usage, runtime.memory_size, runtime.clock(), partial=partial
            ),
        )
    if exceeded is not None:
        _hand_over_late(message, policy, exceeded, runtime)
        return
    # The lease is free already: S3 and vendors may need seconds.
    share_lists(policy, runtime)
    if report.read_catalogues is not None:
        with time_limit(CATALOGUES_WITHIN, runtime.clock):
            if report.read_catalogues():
                look_again(message, _LEAST_WAIT, runtime)
    if decision is not None:
        # Imported here, because it is off by default.
        from chalicelib.replay.decision_place import record

        record(decision, runtime.decisions)


def _watched(
    message: ReconcileMessage, policy: Policy, began: float, runtime: Runtime
) -> AbstractContextManager[None]:
    """Return the context in which another pass follows this one if it is killed. The watch of a
    scheduled pass is sent after WATCHED_AFTER seconds: a quiet pass ends before, and its watch
    would cost as much as its own message. Where the next scheduled pass begins within a lease's
    time, none is needed."""

    def send_watch() -> bool:
        watch(message, policy, began, runtime)
        return False

    if message.reason != Cause.SCHEDULE.value:
        send_watch()
        return nullcontext()
    if policy.scan_interval <= LEASE_FOR:
        return nullcontext()
    return (runtime.repeat or in_thread)(WATCHED_AFTER, send_watch)


def _hand_over_late(
    message: ReconcileMessage, policy: Policy, exceeded: MemoryExceeded, runtime: Runtime
) -> None:
    """Hand over a pass for which this function has too little memory. Nothing was decided, and
    the lease is free. Raises MemoryExceeded, as the failure of the pass, where the large
    function is not invoked."""
    if hand_over(message, str(exceeded), runtime):
        return
    if (lease := acquire(message, policy, runtime)) is not None:
        report = PassReport(policy, lease, runtime)
        report.failed(exceeded)
        runtime.store.leases.release(lease, passed_at=runtime.clock(), failure=report.failure)
    raise exceeded


# -- under the lease


@dataclass(frozen=True, slots=True)
class _ClusterPass:
    """What all stages of a pass share. lease: as it was at the beginning. until: the instant after
    which the best plan found so far is used. waits_until: the instant after which it waits for no
    further pods. other: the autoscaler that acts in mode shadow; None in a pass that acts."""

    policy: Policy
    permission: Permission
    kube: KubeClient
    providers: Sequence[Provider]
    held: HeldLease
    lease: Lease
    report: PassReport
    until: float
    waits_until: float
    other: ObservedAutoscaler | None


@dataclass(frozen=True, slots=True)
class _Saved:
    """A plan that is saved, and what it was made with. memory: as it was before."""

    plan: Plan
    snapshot: Snapshot
    memory: Memory


def run(
    message: ReconcileMessage,
    policy: Policy,
    permission: Permission,
    held: HeldLease,
    report: PassReport,
    runtime: Runtime,
) -> RecordedDecision | None:
    """Run one pass under a lease, a stage a line, and return the decision if it is to be recorded.
    Raises ClusterError, StoreError (LeaseLost: nothing was done)."""
    last_decision = report.decision
    until, lease = runtime.clock() + DECIDED_WITHIN, held.check()
    kube = connected(policy, lease.memory.peak, runtime)
    providers = runtime.providers(observing(policy), kube, runtime.read_secret)
    other = _other_autoscaler(policy, permission, kube, runtime)
    waits_until = runtime.clock() + _LONGEST_WAIT
    this_pass = _ClusterPass(
        policy, permission, kube, providers, held, held.check(), report, until, waits_until, other
    )
    saved = _decide_and_save(this_pass, runtime)
    runtime.checkpoint("reconcile:saved")
    with time_limit(until + PUBLISHED_WITHIN - runtime.clock(), runtime.clock):
        _send(saved.plan.operations, runtime)
        taints = _mark_nodes(this_pass, saved.plan, runtime)
        with report.stage("publish", plan=saved.plan.id):
            report.plan_saved(saved.plan, saved.snapshot, taints, kube if permission.act else None)
    if saved.snapshot.selections:
        report.read_catalogues = partial(
            refresh_catalogues, policy.name, this_pass.providers, saved.snapshot, saved.plan
        )
    if saved.plan.waits_for_pods > 0:
        look_again(message, max(saved.plan.waits_for_pods, _LEAST_WAIT), runtime)
    if permission.take_back:
        take_back(saved.memory, kube, held, runtime)
    if other is not None:
        other.compare(saved.plan, saved.snapshot, saved.memory, lease, until)
    is_in_time = runtime.clock() <= until + RECORDED_WITHIN
    if not (policy.record_decisions and runtime.decisions and is_in_time):
        return None
    return _recorded(this_pass, saved, is_new=report.decision != last_decision)


def _other_autoscaler(
    policy: Policy, permission: Permission, kube: KubeClient, runtime: Runtime
) -> ObservedAutoscaler | None:
    """Return the autoscaler that acts while this cluster's mode is shadow;
    None in a pass that acts."""
    if permission.act or permission.paused:
        return None
    # Imported here, because a pass that acts needs none of it.
    from chalicelib.passes.shadow_pass import ObservedAutoscaler

    return ObservedAutoscaler(policy, kube, runtime)


def _decide_and_save(this_pass: _ClusterPass, runtime: Runtime) -> _Saved:
    """Decide, and save memory and operations in one transaction.

    Memory is read before the cluster, never after: an operation that an executor finishes in
    between is then still under way for this pass, and its nodes count as coming. In the reverse
    order it would be finished in memory and not started in the snapshot, and its nodes would be
    requested again. For the same reason a stale save also reads the cluster again."""
    lease = this_pass.lease
    for attempt in range(_TRIES):
        stored = runtime.store.memory.load(lease.cluster)
        memory = _with_others(stored, this_pass, runtime)
        snapshot, memory, plan, next_memory = _read_and_plan(this_pass, memory, runtime)
        if this_pass.permission.act and plan.operations:
            owners = claimed_elsewhere(this_pass.policy, snapshot, plan.operations, runtime)
            if owners:
                snapshot = without_groups(snapshot, owners)
                plan, next_memory = _plan(this_pass, snapshot, memory, runtime)
        plan = _of_this_pass(plan, lease, act=this_pass.permission.act)
        to_save = _to_save(this_pass, snapshot, plan, next_memory, memory)
        try:
            with this_pass.report.stage("save"):
                runtime.store.memory.save(
                    lease.cluster, stored, to_save, plan.operations, this_pass.held.check()
                )
        except StaleWrite:
            if attempt + 1 == _TRIES:
                raise
            continue
        return _Saved(plan, snapshot, memory)
    raise StoreError(f"{lease.cluster}: memory changed {_TRIES} times while it was being decided")


def _with_others(stored_memory: Memory, this_pass: _ClusterPass, runtime: Runtime) -> Memory:
    """Return the memory with which this pass plans: with confirmations of timers, and with what
    others may have done since the last pass."""
    last_success = this_pass.lease.last_success
    return with_others(
        confirm(stored_memory, last_success),
        last_success,
        this_pass.policy.scan_interval,
        runtime.clock(),
        act=this_pass.permission.act,
    )


def _read_and_plan(
    this_pass: _ClusterPass, memory: Memory, runtime: Runtime
) -> tuple[Snapshot, Memory, Plan, Memory]:
    """Return the cluster, the memory with which it was planned, the plan, and the memory after it.

    While pending pods still arrive, or a scheduler still refuses others, the pass waits for them
    (docs/reference/scale-up.md "Waiting for more pods") and reads the cluster again, but not the
    vendors. Memory stays as it was read before both. What the other autoscaler did in mode shadow
    belongs to the memory with which the pass decides."""
    groups = _read_once(this_pass.providers)
    while True:
        snapshot = _read(this_pass, groups, memory, runtime)
        before = memory if this_pass.other is None else this_pass.other.remembered(snapshot, memory)
        plan, after = _plan(this_pass, snapshot, before, runtime)
        if runtime.clock() >= this_pass.waits_until or not _is_to_wait(plan):
            return snapshot, before, plan, after
        runtime.sleep(max(0.0, snapshot.taken_at + plan.waits_for_pods - runtime.clock()))


def _read_once(providers: Sequence[Provider]) -> Observe:
    """Return a function that reads the vendors' groups when it is first called, and returns the
    same afterwards."""
    results: list[ObservedGroups] = []

    def groups(nodes: Sequence[Node]) -> ObservedGroups:
        if not results:
            results.append(read_node_groups(providers, nodes))
        return results[0]

    return groups


def _read(this_pass: _ClusterPass, groups: Observe, memory: Memory, runtime: Runtime) -> Snapshot:
    """Return the cluster now."""
    policy, kube, report = this_pass.policy, this_pass.kube, this_pass.report
    remaining = max(this_pass.until - runtime.clock(), _LEAST)
    with report.stage("read"), time_limit(remaining, runtime.clock):
        snapshot, report.read_scope = observe(policy, kube, groups, runtime, memory)
    runtime.checkpoint("reconcile:observed")
    return snapshot


def _plan(
    this_pass: _ClusterPass, snapshot: Snapshot, memory: Memory, runtime: Runtime
) -> tuple[Plan, Memory]:
    """Return the plan, and the memory after it."""
    with this_pass.report.stage("plan"):
        remaining = this_pass.until - runtime.clock()
        return plan_cluster(
            snapshot,
            _in_time(this_pass.policy, remaining),
            memory,
            snapshot.taken_at,
            this_pass.lease.token,
            clock=runtime.clock,
            within=max(remaining, _LEAST),
            wait=runtime.clock() < this_pass.waits_until,
            on_state=this_pass.report.planned_with,
        )


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


def _of_this_pass(plan: Plan, lease: Lease, *, act: bool) -> Plan:
    """Return the plan with operations that name the lease; without any where the pass does not
    act."""
    if not act:
        return msgspec.structs.replace(plan, operations=(), ended_replacements=())
    operations = tuple(operation.with_spec(token=lease.token) for operation in plan.operations)
    return msgspec.structs.replace(plan, operations=operations)


def _to_save(
    this_pass: _ClusterPass, snapshot: Snapshot, plan: Plan, new_memory: Memory, old_memory: Memory
) -> Memory:
    """Return the memory to save. Cluster-wide instants are written by executors and never
    overwritten from here. The circuit breaker, replacements, the moves of pods and the notes on
    taints follow what was done, so a pass that does nothing leaves them unchanged."""
    act, consolidation = this_pass.permission.act, new_memory.consolidation
    if not act and consolidation.moves != old_memory.consolidation.moves:
        consolidation = msgspec.structs.replace(consolidation, moves=old_memory.consolidation.moves)
    memory = msgspec.structs.replace(
        new_memory,
        last_scale_up=old_memory.last_scale_up,
        last_scale_down=old_memory.last_scale_down,
        last_scale_down_failure=old_memory.last_scale_down_failure,
        breaker=new_memory.breaker if act else old_memory.breaker,
        replacements=new_memory.replacements if act else old_memory.replacements,
        consolidation=consolidation,
    )
    memory = after_pass(memory, snapshot.groups, act=act)
    if not act:
        return soft_taints.still_noted(memory, old_memory)
    return soft_taints.noted(
        memory, old_memory, plan.marks, snapshot.nodes, this_pass.policy.options
    )


def _send(operations: Sequence[Operation], runtime: Runtime) -> None:
    """Send a message per operation. An operation whose message cannot be sent, or recorded as sent,
    is saved and sent by the sweeper."""
    for operation in operations:
        try:
            send_first(operation, runtime)
        except (NotSent, StoreError) as error:
            what = "operation not sent; the sweeper re-sends it"
            spec = operation.spec
            logger.error(what, cluster=spec.cluster, operation=spec.id, **failure(error))


def _mark_nodes(this_pass: _ClusterPass, plan: Plan, runtime: Runtime) -> tuple[TaintUpdate, ...]:
    """Write soft and stale taints, and marks; return those that were written."""
    if not this_pass.permission.act:
        return ()
    cluster, options = this_pass.lease.cluster, this_pass.policy.options
    try:
        return soft_taints.apply(
            plan.marks, this_pass.kube, options, runtime.clock, runtime.sleep, cluster
        )
    except OutscalerError as error:
        # planned again; the pass is saved and not repeated for them
        logger.error("nodes not marked", cluster=cluster, **failure(error))
        return ()


def _recorded(this_pass: _ClusterPass, saved: _Saved, *, is_new: bool) -> RecordedDecision | None:
    """Return the decision if it changes something, or differs from the last pass's."""
    # Imported here, because it is off by default.
    from chalicelib.replay.decision_place import has_changes
    from chalicelib.replay.recorded_decision import RecordedDecision

    plan, snapshot = saved.plan, saved.snapshot
    if not has_changes(plan) or not (is_new or plan.operations):
        return None
    return RecordedDecision(
        snapshot,
        this_pass.policy,
        saved.memory,
        snapshot.taken_at,
        this_pass.lease.token,
        plan,
        acted=this_pass.permission.act,
    )
