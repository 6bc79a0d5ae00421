"""Simulates CCE: nodes with start-up times, machines that are unavailable, retries.

CCE works towards the desired number: it requests missing nodes of a scale group and removes surplus
ones of its own choice. The rules follow the vendor's documentation. Due events are on the cloud's
agenda and happen at their own time and in order, however late they are processed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.emulators.huaweicloud.models import (
    ACTIVE,
    BUILD,
    DELETING,
    ERROR,
    INSTALLING,
    NO_QUOTA,
    REPAIRING,
    SOLD_OUT,
    CceCondition,
    CcePool,
    CceProvisioningFate,
    Node,
    ScaleGroup,
)

if TYPE_CHECKING:
    from infra.emulators.huaweicloud.account import CceCloud


def scalable(cloud: CceCloud, group: ScaleGroup) -> bool:
    """Return whether CCE considers a group scalable."""
    known = (group.flavor, group.az) in cloud.known_sold
    return not known and not (group.conditions.keys() & {SOLD_OUT.condition, NO_QUOTA.condition})


def shown(cloud: CceCloud, group: ScaleGroup) -> list[CceCondition]:
    """Return the conditions of a group as the API shows them."""
    found = dict(group.conditions)
    if (group.flavor, group.az) in cloud.known_sold:
        found.setdefault(SOLD_OUT.condition, _condition(SOLD_OUT, cloud.clock()))
    told = "True" if scalable(cloud, group) else "False"
    return [CceCondition("Scalable", told, "", "", cloud.clock()), *found.values()]


def settle(cloud: CceCloud, pool: CcePool, group: ScaleGroup, at: float) -> None:
    """Request missing nodes, and remove surplus ones, chosen randomly among
    those that are not protected."""
    for _ in range(group.desired - len(group.staying) - group.trying):
        fate = _fate(cloud, group)
        if fate is not None and not fate.made:
            group.trying += 1
            cloud.agenda.plan(
                at + cloud.times.order, _not_had, f"{pool.uid}/{group.name}/{fate.condition}"
            )
            continue
        node = cloud.make(pool, group, BUILD, at, fate)
        node.job = cloud.job("CreateNode", pool.cluster, node.uid, node.name).uid
        cloud.agenda.plan(at + cloud.times.build, _built, node.uid)
    surplus = len(group.staying) - group.desired
    if surplus > 0:
        loose = [node for node in group.staying if not node.protected]
        for node in cloud.random.sample(loose, min(surplus, len(loose))):
            leave(cloud, node, at)


def tell_later(cloud: CceCloud, pool: CcePool) -> None:
    """Freeze the statuses of a pool's groups for a while, before a request changes the pool."""
    if cloud.lag:
        for group in pool.groups.values():
            group.told = group.shown
        cloud.agenda.plan(cloud.clock() + cloud.lag, _told, pool.uid)


def _told(cloud: CceCloud, uid: str, _: float) -> None:
    pool = {each.uid: each for each in cloud.pools()}.get(uid)
    for group in pool.groups.values() if pool is not None else ():
        group.told = None


def leave(cloud: CceCloud, node: Node, at: float) -> None:
    """Start to delete a node."""
    node.phase = DELETING
    node.job = cloud.job("DeleteNode", node.cluster, node.uid, node.name).uid
    cloud.agenda.plan(at + cloud.times.delete, _gone, node.uid)


def _fate(cloud: CceCloud, group: ScaleGroup) -> CceProvisioningFate | None:
    if group.fates:
        return group.fates.pop(0)
    if (group.flavor, group.az) in cloud.sold:
        return SOLD_OUT
    return NO_QUOTA if cloud.free() == 0 else None


def _condition(fate: CceProvisioningFate, at: float) -> CceCondition:
    return CceCondition(fate.condition, "True", fate.reason, fate.message, at)


def _place(cloud: CceCloud, subject: str) -> tuple[CcePool, ScaleGroup] | None:
    """Return pool and group of a subject `<pool>/<group>[/…]`, if they still exist."""
    uid, name, *_ = subject.split("/")
    pool = {each.uid: each for each in cloud.pools()}.get(uid)
    group = pool.groups.get(name) if pool is not None else None
    return (pool, group) if pool is not None and group is not None else None


def _not_had(cloud: CceCloud, subject: str, at: float) -> None:
    place = _place(cloud, subject)
    if place is None:
        return
    pool, group = place
    group.trying -= 1
    fate = {each.condition: each for each in (SOLD_OUT, NO_QUOTA)}.get(
        subject.rpartition("/")[2], SOLD_OUT
    )
    group.conditions[fate.condition] = _condition(fate, at)
    _again(cloud, pool, group, at)


def _again(cloud: CceCloud, pool: CcePool, group: ScaleGroup, at: float) -> None:
    if not group.retries:
        group.retries = True
        cloud.agenda.plan(at + cloud.times.retry, _retry, f"{pool.uid}/{group.name}")


def _retry(cloud: CceCloud, subject: str, at: float) -> None:
    """Let CCE retry missing nodes and drop conditions that no longer apply."""
    place = _place(cloud, subject)
    if place is None:
        return
    pool, group = place
    group.retries = False
    missing = group.desired > len(group.staying) + group.trying
    if missing and not cloud.retries:
        _again(cloud, pool, group, at)
        return
    group.conditions.clear()
    settle(cloud, pool, group, at)


def _built(cloud: CceCloud, uid: str, at: float) -> None:
    node = cloud.node(uid)
    if node is not None and node.phase == BUILD:
        node.phase = INSTALLING
        cloud.agenda.plan(at + cloud.times.install, _installed, uid)


def _installed(cloud: CceCloud, uid: str, at: float) -> None:
    node = cloud.node(uid)
    if node is None or node.phase != INSTALLING:
        return
    if node.fate is None:
        node.phase, node.since = ACTIVE, at
        _end(cloud, node.job, "Success", "", at)
        return
    node.phase = ERROR
    _end(cloud, node.job, "Failed", node.fate.message, at)
    place = _place(cloud, f"{node.pool}/{node.group}")
    if place is not None:
        pool, group = place
        group.conditions[node.fate.condition] = _condition(node.fate, at)
        _again(cloud, pool, group, at)


def _gone(cloud: CceCloud, uid: str, at: float) -> None:
    node = cloud.node(uid)
    if node is None:
        return
    cloud.forget(uid)
    _end(cloud, node.job, "Success", "", at)
    place = _place(cloud, f"{node.pool}/{node.group}")
    if place is not None:
        settle(cloud, *place, at)


def give_notice(cloud: CceCloud, node: str) -> None:
    """Let the vendor take back a spot instance: it is gone after `times.reclaim`. Only the
    cluster's Node shows the notice (node_registration.py); until then CCE refuses to delete it."""
    with cloud.lock:
        held = cloud.node(node)
        assert held is not None, "a node that exists"
        held.noticed = cloud.clock()
        cloud.agenda.plan(held.noticed + cloud.times.reclaim, _reclaimed, node)


def repair(cloud: CceCloud, node: str, seconds: float) -> None:
    """Let CCE repair a node for that long."""
    with cloud.lock:
        held = cloud.node(node)
        assert held is not None, "a node that exists"
        held.phase = REPAIRING
        cloud.agenda.plan(cloud.clock() + seconds, _repaired, node)


def _reclaimed(cloud: CceCloud, uid: str, at: float) -> None:
    """Take a spot instance away, unless the notice was withdrawn meanwhile."""
    node = cloud.node(uid)
    if node is None or not node.reclaimed or at < node.noticed + cloud.times.reclaim:
        return
    cloud.forget(uid)
    place = _place(cloud, f"{node.pool}/{node.group}")
    if place is not None:
        pool, group = place
        group.desired -= 0 if cloud.refills else min(1, group.desired)
        settle(cloud, pool, group, at)


def _repaired(cloud: CceCloud, uid: str, _: float) -> None:
    """End the repair of a node."""
    node = cloud.node(uid)
    if node is not None and node.phase == REPAIRING:
        node.phase = ACTIVE


def reboot(cloud: CceCloud, node: Node) -> str:
    """Start to restart a node's server. Returns the job's id in the compute service's form."""
    node.reboots += 1
    job = cloud.job("rebootServer", node.cluster, node.uid, node.name)
    cloud.agenda.plan(cloud.clock() + cloud.times.reboot, _rebooted, job.uid)
    return job.uid.replace("-", "")


def _rebooted(cloud: CceCloud, uid: str, at: float) -> None:
    job = cloud.jobs[uid]
    if job.resource in cloud.unbootable:
        _end(cloud, uid, "Failed", "Ecs.0219: the server does not start", at)
    else:
        _end(cloud, uid, "Success", "", at)


def _end(cloud: CceCloud, uid: str, phase: str, reason: str, at: float) -> None:
    job = cloud.jobs.get(uid)
    if job is not None:
        job.phase, job.reason, job.ended = phase, reason, at
        cloud.agenda.plan(at + cloud.times.job, _forget_job, uid)


def _forget_job(cloud: CceCloud, uid: str, _: float) -> None:
    cloud.jobs.pop(uid, None)
