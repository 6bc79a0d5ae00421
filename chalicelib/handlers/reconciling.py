"""One pass over one cluster: lease, memory, snapshot, plan, save, dispatch, record. Reads like docs/architecture.md.

What it survives. Twice the same message: the lease lets one in, and a scheduled message that a newer pass has served
asks for nothing. Killed anywhere before the save: nothing happened. Killed after it: the operations are in the table,
and the sweeper in tick sends them. Overtaken: the save is fenced. An executor wrote meanwhile: the save is stale, and
the pass decides again with what the executor wrote.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from chalicelib.dispatch.errors import NotSent
from chalicelib.dispatch.guard import permitted
from chalicelib.dispatch.messages import (
    RECONCILE,
    ActMessage,
    Cause,
    ReconcileMessage,
    act_queue,
    decode_reconcile,
    encode,
)
from chalicelib.dispatch.send import whole_delay
from chalicelib.handlers import marking
from chalicelib.handlers.log import logger
from chalicelib.handlers.pacing import superseded
from chalicelib.handlers.policies import current
from chalicelib.handlers.runtime import Runtime
from chalicelib.model.memory import Memory
from chalicelib.model.operation import Operation
from chalicelib.model.plan import Plan
from chalicelib.model.policy import Policy
from chalicelib.model.snapshot import Gap, Snapshot
from chalicelib.plan.decide import decide
from chalicelib.record.board import Board
from chalicelib.record.record import Recorder, record_plan
from chalicelib.snapshot import live
from chalicelib.snapshot.observe import observe
from chalicelib.store.errors import LeaseHeld, Stale, StoreError
from chalicelib.store.leases import Lease

LEASE_FOR = 150.0
"""Seconds until another may take over from a pass that died: longer than the function lives (120, .chalice/config)."""

DECIDED_WITHIN = 80.0
"""Seconds after its beginning by which a pass stops looking for more: the rest of the function's life is for saving,
sending and telling, and for deciding again after a stale save."""

_TRIES = 3


def handle(body: str, rt: Runtime) -> None:
    """Do what a message asks for. Raises BadInput for rubbish, ClusterError where the cluster cannot be read at all."""
    message = decode_reconcile(body)
    policy = current(message.cluster, rt)
    if policy is None or not permitted(policy).plan:
        logger.info("nothing to do", cluster=message.cluster, known=policy is not None)
        return
    scheduled = message.reason == Cause.SCHEDULE.value
    if scheduled and superseded(message.at, rt.store.schedule.due(policy.name).last_pass, policy.scan_interval):
        return
    try:
        lease = rt.store.leases.acquire(policy.name, rt.owner(), LEASE_FOR)
    except LeaseHeld as held:
        if scheduled:   # it has arrived; announced for longer, it would keep the next ticks silent
            rt.store.schedule.clear_queued(policy.name)
        else:
            _come_back(message, held, rt)
        return
    began = rt.clock()
    try:
        run(policy, lease, rt)
    finally:
        # A pass that failed counts as made: the next one is a scan interval away, not a redelivery storm.
        rt.store.leases.release(lease, passed_at=began)


def _come_back(message: ReconcileMessage, held: LeaseHeld, rt: Runtime) -> None:
    """A wake-up during a pass may know of something that the pass has not seen: it is queued again, once."""
    now = rt.clock()
    after = min(max(held.until - now, 1.0), 5.0)
    if rt.store.debounce.first_use(message.cluster, "again", after, kind="again"):
        rt.sender.send(RECONCILE, encode(msgspec.structs.replace(message, at=now)), whole_delay(after))


def run(policy: Policy, lease: Lease, rt: Runtime) -> Plan:
    """One pass under a lease; returns what was decided. Raises ClusterError, StoreError (Fenced: nothing was done)."""
    started, until = time.perf_counter(), rt.clock() + DECIDED_WITHIN
    kube = rt.connect(policy)
    providers = rt.providers(policy, kube, rt.read_secret)

    def look() -> Snapshot:
        seen = live.take(policy.name, kube, lambda nodes: observe(providers, nodes), rt.clock(),
                         namespace=policy.options.namespace)
        rt.checkpoint("reconcile:observed")
        return seen

    plan, snapshot = _decide_and_save(policy, look, lease, rt, until)
    rt.checkpoint("reconcile:saved")
    act = permitted(policy).act
    if act:
        send(plan.operations, rt)
        marking.apply(plan.marks, kube, policy.options, rt.clock)
    recorder = Recorder(
        journal=rt.store.journal, events=Board(lambda: kube) if act else None,
        first_use=lambda key, ttl: rt.store.debounce.first_use(policy.name, key, ttl),
        emit=rt.emit, repeat_events=policy.options.record_duplicated_events,
    )
    unsaid = _tell(plan, snapshot, recorder, time.perf_counter() - started)
    logger.info("pass", cluster=policy.name, plan=plan.id, token=lease.token, grow=len(plan.scale_ups),
                remove=len(plan.removals), unneeded=len(plan.unneeded), gaps=len(plan.gaps), events_failed=unsaid)
    return plan


def _tell(plan: Plan, snapshot: Snapshot, recorder: Recorder, seconds: float) -> str:
    """What could not be told to the cluster. A journal that fails does not fail the pass: it is made and saved, and a
    second one for the same message would do nothing better. The next pass writes what still holds into the journal."""
    uids = {pod.key: pod.uid for pod in snapshot.pods if not pod.node}
    try:
        return record_plan(plan, recorder, seconds=seconds, uids=uids)
    except StoreError as error:
        logger.error("pass not recorded", cluster=plan.cluster, plan=plan.id, error=type(error).__name__,
                     detail=str(error))
        return ""


def _decide_and_save(policy: Policy, look: Callable[[], Snapshot], lease: Lease, rt: Runtime,
                     until: float) -> tuple[Plan, Snapshot]:
    """Decide, and save memory and operations in one transaction. until: when to be content with what was found.

    Memory is read before the cluster, never after: what an executor finishes in between is then still under way for
    this pass, and counts as coming. The other way round it would be over in memory and not begun in the snapshot, and
    its machines would be bought again. For the same reason a stale save looks again, too.
    """
    def now_decide(snapshot: Snapshot, before: Memory) -> tuple[Plan, Memory]:
        return decide(snapshot, _in_time(policy, until - rt.clock()), before, snapshot.taken_at, lease.token,
                      clock=rt.clock)

    act = permitted(policy).act
    for attempt in range(_TRIES):
        before = rt.store.memory.load(policy.name)
        snapshot = look()
        plan, after = now_decide(snapshot, before)
        if act and plan.operations:
            foreign = _claimed_elsewhere(policy, plan.operations, rt)
            if foreign:
                snapshot = _without(snapshot, foreign)
                plan, after = now_decide(snapshot, before)
        operations = _signed(plan.operations, lease) if act else ()
        try:
            rt.store.memory.save(policy.name, before, _kept(after, before), operations, lease)
        except Stale:
            if attempt + 1 == _TRIES:
                raise
            continue
        return msgspec.structs.replace(plan, operations=operations), snapshot
    raise StoreError(f"{policy.name}: memory changed {_TRIES} times while it was being decided")


def _in_time(policy: Policy, left: float) -> Policy:
    """The policy with a time limit of `left` seconds at most; whole seconds, for people read them."""
    options, most = policy.options, float(max(0, int(left)))
    return msgspec.structs.replace(policy, options=msgspec.structs.replace(
        options, max_binpacking_time=min(options.max_binpacking_time, most)))


def _kept(after: Memory, before: Memory) -> Memory:
    """Cluster-wide instants belong to the executors; what they wrote is never overwritten from here."""
    return msgspec.structs.replace(after, last_scale_up=before.last_scale_up, last_scale_down=before.last_scale_down,
                                   last_scale_down_failure=before.last_scale_down_failure)


def _signed(operations: Sequence[Operation], lease: Lease) -> tuple[Operation, ...]:
    return tuple(msgspec.structs.replace(operation, token=lease.token) for operation in operations)


def _claimed_elsewhere(policy: Policy, operations: Sequence[Operation], rt: Runtime) -> dict[str, str]:
    """Groups that operations are planned for and that another cluster of this deployment owns (architecture §5)."""
    wanted = {(operation.provider, _world_key(policy, operation)): operation.group for operation in operations}
    others = rt.store.claims.claim_groups(policy.name, wanted)
    return {wanted[key]: owner for key, owner in others.items()}


def _world_key(policy: Policy, operation: Operation) -> str:
    """A group's name in the world: within the place that the provider's settings point at."""
    settings = policy.providers.get(operation.provider, {})
    access = policy.kubernetes
    place = settings.get("kubeconfigSecret") or settings.get("zone") or settings.get("region") or (
        access.kubeconfig_secret or access.kubeconfig_file or access.eks_cluster)
    return f"{place}#{operation.group}"


def _without(snapshot: Snapshot, foreign: dict[str, str]) -> Snapshot:
    """The snapshot with those groups marked as another cluster's, so that the plan goes on without them."""
    groups = tuple(
        msgspec.structs.replace(group, error=f"it belongs to cluster {foreign[group.id]}")
        if group.id in foreign else group for group in snapshot.groups)
    gaps = tuple(Gap(kind="NodeGroup", name=name, detail=f"belongs to cluster {owner}",
                     weakens=("the plan for this group",)) for name, owner in sorted(foreign.items()))
    return msgspec.structs.replace(snapshot, groups=groups, gaps=(*snapshot.gaps, *gaps))


def send(operations: Sequence[Operation], rt: Runtime) -> None:
    """A message per operation. One that cannot be sent, or not noted as sent, is sent by the sweeper; it is saved."""
    for operation in operations:
        try:
            rt.sender.send(act_queue(operation.provider), encode(ActMessage(operation.cluster, operation.id)), 0)
            rt.checkpoint("reconcile:sent")
            rt.store.operations.mark_sent(operation.cluster, operation.id, rt.clock())
        except (NotSent, StoreError) as error:
            logger.error("operation not sent, the sweeper will", cluster=operation.cluster, operation=operation.id,
                         error=str(error))
