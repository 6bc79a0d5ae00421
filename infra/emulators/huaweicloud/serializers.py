"""Serializes the project's objects with the documented fields."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from infra.emulators.huaweicloud import simulation
from infra.emulators.huaweicloud.account import CceCloud
from infra.emulators.huaweicloud.models import (
    ACTIVE,
    BUILD,
    COMING,
    DEFAULT_POOL,
    DELETING,
    Addon,
    CceCluster,
    CceCondition,
    CceJob,
    CcePool,
    Flavor,
    Node,
    ScaleGroup,
)

Json = dict[str, Any]


def stamp(at: float) -> str:
    """Format a time as `2020-02-01 08:20:49.944664515 +0000 UTC`, Go's format that CCE uses."""
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f000 +0000 UTC")


def listed(items: Sequence[Json], **more: Any) -> Json:
    """A list of objects."""
    return {"kind": "List", "apiVersion": "v3", "items": list(items), **more}


def _object(kind: str, **parts: Any) -> Json:
    return {"kind": kind, "apiVersion": "v3", **parts}


def pool(held: CcePool, cloud: CceCloud, *, whole: bool) -> Json:
    """A node pool. whole: its conditions cover all of its scale groups,
    otherwise only the default one."""
    return _object(
        "NodePool",
        metadata={
            "name": held.name,
            "uid": held.uid,
            "creationTimestamp": stamp(held.created),
            "updateTimestamp": stamp(held.created),
        },
        spec=_spec(held),
        status=_status(held, cloud, whole=whole),
    )


def _spec(held: CcePool) -> Json:
    own, *others = held.groups.values()
    scaling: Json = {
        "enable": held.enabled,
        "minNodeCount": held.least,
        "maxNodeCount": held.most,
        "scaleDownCooldownTime": held.cooldown,
        "priority": held.priority,
    }
    if held.unneeded >= 0:
        scaling["scaleDownUnneededTime"] = held.unneeded
    if held.utilization >= 0:
        scaling["scaleDownUtilizationThreshold"] = held.utilization
    template = {
        "flavor": own.flavor,
        "az": own.az,
        "os": held.os,
        "billingMode": held.billing,
        "rootVolume": {"size": 50, "volumetype": "SSD"},
        "dataVolumes": [{"size": 100, "volumetype": "SSD"}],
        "k8sTags": {"cce.cloud.com/cce-nodepool": held.name, **held.labels},
        "taints": list(held.taints),
        "runtime": {"name": held.runtime},
        "extendParam": dict(held.extend),
    }
    return {
        "type": "vm",
        "initialNodeCount": held.desired,
        "autoscaling": scaling,
        "nodeTemplate": template,
        "extensionScaleGroups": [_extension(each) for each in others],
    }


def _extension(group: ScaleGroup) -> Json:
    scaling: Json = {"enable": group.enabled, "extensionPriority": group.priority}
    bounds = {"minNodeCount": group.least, "maxNodeCount": group.most}
    scaling.update({name: bound for name, bound in bounds.items() if bound is not None})
    return {
        "metadata": {"uid": group.uid, "name": group.name},
        "spec": {"flavor": group.flavor, "az": group.az, "autoscaling": scaling},
    }


def _status(held: CcePool, cloud: CceCloud, *, whole: bool) -> Json:
    groups = list(held.groups.values())
    spoken = groups if whole else groups[:1]
    counts = [_existing(group, cloud) for group in groups]
    found: Json = {
        "currentNode": sum(counts),
        "creatingNode": sum(group.count(*COMING) for group in groups),
        "deletingNode": sum(group.count(DELETING) for group in groups),
        "activeNode": sum(group.count(ACTIVE) for group in groups),
        "phase": _phase(held, cloud),
        "jobId": "",
        "conditions": [
            _condition(each)
            for each in _merged([simulation.shown(cloud, group) for group in spoken])
        ],
    }
    if cloud.tells_groups or len(groups) > 1:
        found["scaleGroupStatuses"] = [_group_status(group, cloud) for group in groups]
    return found


def _existing(group: ScaleGroup, cloud: CceCloud) -> int:
    return len(group.staying) - (0 if cloud.counts_coming else group.count(*COMING))


def _merged(told: Sequence[Sequence[CceCondition]]) -> list[CceCondition]:
    """Merge the conditions of several groups: scalable if one is, and all problems."""
    found = {
        each.type: each for conditions in told for each in conditions if each.type != "Scalable"
    }
    able = [each for conditions in told for each in conditions if each.type == "Scalable"]
    return [next((each for each in able if each.status == "True"), able[0]), *found.values()]


def _phase(held: CcePool, cloud: CceCloud) -> str:
    if held.phase:
        return held.phase
    groups = held.groups.values()
    if all(not simulation.scalable(cloud, group) for group in groups):
        return "SoldOut"
    moves = any(group.count(*COMING, DELETING) or group.trying for group in groups)
    return "Synchronizing" if moves else ""


def _group_status(group: ScaleGroup, cloud: CceCloud) -> Json:
    existing, coming = _existing(group, cloud), max(0, group.shown - _existing(group, cloud))
    return {
        "name": group.name,
        "uid": group.uid,
        "phase": "",
        "desiredNodeCount": group.shown,
        "activeNodeCount": group.count(ACTIVE),
        "existingNodeCount": {"total": existing, "postPaid": existing, "prePaid": 0},
        "upcomingNodeCount": {"total": coming, "postPaid": coming, "prePaid": 0},
        "scaleDownDisabledNodeCount": sum(node.protected for node in group.staying),
        "unpaidScaleNodeCount": 0,
        "conditions": [_condition(each) for each in simulation.shown(cloud, group)],
    }


def _condition(held: CceCondition) -> Json:
    return {
        "type": held.type,
        "status": held.status,
        "reason": held.reason,
        "message": held.message,
        "lastProbeTime": stamp(held.since),
        "lastTransitTime": stamp(held.since),
    }


def default_pool() -> Json:
    """The pool that contains nodes without a pool."""
    return _object(
        "NodePool",
        metadata={"name": DEFAULT_POOL, "uid": DEFAULT_POOL},
        spec={
            "initialNodeCount": 0,
            "autoscaling": {"enable": False},
            "nodeTemplate": {"flavor": "", "az": "", "billingMode": 0},
        },
        status={"currentNode": 0, "phase": "", "conditions": []},
    )


def node(held: Node, cloud: CceCloud) -> Json:
    """A node. A node being built has no server yet; a node without a pool
    shows its flavour and zone."""
    pools = {each.uid: each for each in cloud.pools()}
    meta: Json = {"name": held.name, "uid": held.uid, "creationTimestamp": stamp(held.created)}
    if held.pool in pools:
        meta["annotations"] = {"kubernetes.io/node-pool.id": held.pool}
        meta["ownerReferences"] = {"nodepoolName": pools[held.pool].name, "nodepoolID": held.pool}
    else:
        meta["annotations"] = {"kubernetes.io/node-pool.id": f"{held.az}#{held.flavor}#EulerOS"}
    status: Json = {"phase": held.phase, "jobID": held.job, "lastProbeTime": stamp(cloud.clock())}
    if held.phase != BUILD:
        status.update(serverId=held.server, privateIP=held.ip)
    return _object(
        "Node",
        metadata=meta,
        spec={
            "flavor": held.flavor,
            "az": held.az,
            "billingMode": held.billing,
            "os": held.os,
            "runtime": {"name": held.runtime},
            "extendParam": {"marketType": "spot"} if held.spot else {},
        },
        status=status,
    )


def job(held: CceJob) -> Json:
    """A job."""
    return _object(
        "Job",
        metadata={"uid": held.uid, "creationTimestamp": stamp(held.started)},
        spec={
            "type": held.type,
            "clusterUID": held.cluster,
            "resourceID": held.resource,
            "resourceName": held.name,
            "subJobs": [],
        },
        status={"phase": held.phase, "reason": held.reason},
    )


_SERVER_JOBS = {"Running": "RUNNING", "Success": "SUCCESS", "Failed": "FAIL"}


def server_job(held: CceJob) -> Json:
    """A job of the compute service."""
    code, _, reason = held.reason.partition(": ")
    return {
        "job_id": held.uid.replace("-", ""),
        "job_type": held.type,
        "status": _SERVER_JOBS[held.phase],
        "begin_time": stamp(held.started),
        "error_code": code or None,
        "fail_reason": reason or None,
        "entities": {"sub_jobs_total": 1},
    }


def cluster(held: CceCluster) -> Json:
    """A cluster."""
    return _object(
        "Cluster",
        metadata={"name": held.name, "uid": held.uid, "creationTimestamp": stamp(held.created)},
        spec={"type": "VirtualMachine", "flavor": "cce.s2.small", "version": "v1.31"},
        status={"phase": held.phase},
    )


def addon(held: Addon) -> Json:
    """An add-on of a cluster."""
    return _object(
        "Addon",
        metadata={"uid": held.uid, "name": held.template},
        spec={
            "clusterID": held.cluster,
            "version": "1.31.10",
            "addonTemplateName": held.template,
            "addonTemplateType": "helm",
            "values": {"basic": {}, "custom": dict(held.custom)},
        },
        status={"status": held.status, "reason": "", "message": ""},
    )


def flavor(held: Flavor, cloud: CceCloud) -> Json:
    """A flavour of the compute service."""
    zones = ", ".join(f"{zone}({state})" for zone, state in cloud.flavor_zones(held.name).items())
    return {
        "id": held.name,
        "name": held.name,
        "vcpus": str(held.cpus),
        "ram": held.memory,
        "disk": "0",
        "os_extra_specs": {
            **held.specs,
            "cond:operation:status": "normal",
            "cond:operation:az": zones,
        },
    }


def ratings(prices: Sequence[tuple[str, float]], cloud: CceCloud, *, discounted: bool) -> Json:
    """The answer of BSS: (id, list price) of products. discounted: the key may see
    the account's discounts."""

    def amounts(price: float) -> Json:
        off = round(price * cloud.discount, 6)
        seen = {"amount": round(price - off, 6), "discount_amount": off} if discounted else {}
        return {**seen, "official_website_amount": price, "measure_id": 1}

    rows = [
        {
            "id": id_,
            "product_id": f"OFFI-{number:012d}",
            **amounts(price),
            "discount_rating_results": [],
        }
        for number, (id_, price) in enumerate(prices, 1)
    ]
    return {
        **amounts(sum(price for _, price in prices)),
        "currency": cloud.currency,
        "product_rating_results": rows,
    }
