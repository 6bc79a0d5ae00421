"""Simulates the kubelets of all nodes and the related parts of the node controllers.

Nodes become ready, pods on ready nodes start and stop after some time, and what a removed node
leaves behind is deleted. There are no containers; only time causes transitions. All state is read
from the objects' own timestamps, so a restarted simulation continues where it was.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import msgspec

from chalicelib.model.timestamps import format_time, parse_time
from infra.emulators.controllers.object_writes import (
    changed,
    condition,
    erase,
    is_true,
    with_conditions,
    write,
)
from infra.emulators.kube.objects import KubeObject, dig
from infra.emulators.kube.objects import condition as held_condition
from infra.emulators.kube.store import ObjectStore

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
# annotation: a pod with it terminates by itself, like that of a job
RUN_SECONDS = "local.outscaler/run-seconds"
_PRESSURE = (
    ("MemoryPressure", "KubeletHasSufficientMemory"),
    ("DiskPressure", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "KubeletHasSufficientPID"),
)


class KubeletTimes(msgspec.Struct, frozen=True):
    """Durations in seconds.

    boot: from a node's creation until it is ready; start: from a pod's binding until it is ready;
    stop: the longest time a pod takes to terminate, whatever its grace period; heartbeat: between
    status reports of an idle node
    """

    boot: float = 20.0
    start: float = 3.0
    stop: float = 2.0
    heartbeat: float = 300.0


def with_taint(taints: list[KubeObject], taint: KubeObject, *, present: bool) -> list[KubeObject]:
    """Return a node's taints with this one (by key and effect) added or removed."""
    others = [t for t in taints if (t["key"], t.get("effect")) != (taint["key"], taint["effect"])]
    if not present:
        return others
    return taints if len(others) < len(taints) else [*taints, dict(taint)]


def _address(uid: str) -> str:
    """Return an address that is practically unique to the pod and the same in every run."""
    number = zlib.crc32(uid.encode())
    return f"10.{64 + (number >> 16) % 64}.{(number >> 8) % 256}.{number % 254 + 1}"


class Kubelets:
    """All kubelets of one store; step() does what is due now."""

    def __init__(
        self, store: ObjectStore, clock: Callable[[], float], times: KubeletTimes | None = None
    ) -> None:
        self._store, self._clock, self._times = store, clock, times or KubeletTimes()
        self._silent: set[str] = set()
        # Objects that need no action until they are replaced; for a Node, with its last heartbeat.
        self._up: dict[str, tuple[KubeObject, float]] = {}
        self._calm: dict[int, KubeObject] = {}

    def silence(self, node: str) -> None:
        """Stop a node's kubelet: the node becomes unreachable and its pods
        no longer start or stop."""
        self._silent.add(node)

    def revive(self, node: str) -> None:
        self._silent.discard(node)

    def step(self) -> None:
        now = self._clock()
        ready: set[str] = set()
        known: set[str] = set()
        before, self._up = self._up, {}
        for node in self._store.list("nodes"):
            name = node["metadata"]["name"]
            known.add(name)
            if name not in self._silent and self._is_up(node, before.get(name), now):
                ready.add(name)
                continue
            self._tend_node(node, now)
            if name not in self._silent and is_true(
                self._store.peek("nodes", name) or node, "Ready"
            ):
                ready.add(name)
        calm, self._calm = self._calm, {}
        for pod in self._store.list("pods"):
            where = pod["spec"].get("nodeName")
            if where and where not in known:
                erase(self._store, "pods", pod, grace=0)
            # the cache holds references to its pods, so their ids are not reused
            elif id(pod) in calm or _is_calm(pod):
                self._calm[id(pod)] = pod
            elif where and where not in self._silent:
                self._tend_pod(pod, now, ready=where in ready)

    # -- nodes

    def _is_up(self, node: KubeObject, before: tuple[KubeObject, float] | None, now: float) -> bool:
        """Return whether the node is ready and no report is due, so that there is nothing to do."""
        if before is None or before[0] is not node:
            held = held_condition(node, "Ready")
            last = held.get("lastHeartbeatTime") if held and held.get("status") == "True" else None
            if not last:
                return False
            before = node, parse_time(last)
        if now - before[1] >= self._times.heartbeat:
            return False
        self._up[node["metadata"]["name"]] = before
        return True

    def _tend_node(self, node: KubeObject, now: float) -> None:
        name = node["metadata"]["name"]
        held = held_condition(node, "Ready")
        if name in self._silent:
            if held is None or held.get("status") != "Unknown":
                self._lose(node, now)
            return
        booting = held is None or held.get("reason") in {"KubeletNotReady", "NodeStatusUnknown"}
        if held is not None and held.get("status") == "True":
            last = held.get("lastHeartbeatTime")
            if not last or now - parse_time(last) >= self._times.heartbeat:
                self._report(node, now, up=True)
        elif booting:
            up = now - parse_time(node["metadata"]["creationTimestamp"]) >= self._times.boot
            if up or held is None:
                self._report(node, now, up=up)

    def _report(self, node: KubeObject, now: float, *, up: bool) -> None:
        ready = (
            condition(
                "Ready",
                value=True,
                reason="KubeletReady",
                message="kubelet is posting ready status",
            )
            if up
            else condition(
                "Ready",
                value=False,
                reason="KubeletNotReady",
                message="container runtime network not ready: cni plugin not initialized",
            )
        )
        calm = [condition(type_, value=False, reason=reason) for type_, reason in _PRESSURE]
        wanted = [{**each, "lastHeartbeatTime": format_time(now)} for each in (*calm, ready)]
        reachable = with_taint(node["spec"].get("taints") or [], UNREACHABLE, present=False)
        taints = with_taint(reachable, NOT_READY, present=not up)
        self._write_node(node, taints, with_conditions(node, now, *wanted))

    def _lose(self, node: KubeObject, now: float) -> None:
        lost = condition(
            "Ready",
            value="Unknown",
            reason="NodeStatusUnknown",
            message="Kubelet stopped posting node status.",
        )
        taints = with_taint(node["spec"].get("taints") or [], UNREACHABLE, present=True)
        self._write_node(node, taints, with_conditions(node, now, lost))

    def _write_node(
        self, node: KubeObject, taints: list[KubeObject], conditions: list[KubeObject]
    ) -> None:
        spec = {key: value for key, value in node["spec"].items() if key != "taints"}
        if taints:
            spec["taints"] = taints
        write(
            self._store, "nodes", changed({**node, "spec": spec}, "status", conditions=conditions)
        )

    # -- pods

    def _tend_pod(self, pod: KubeObject, now: float, *, ready: bool) -> None:
        phase = dig(pod, "status", "phase")
        if "deletionTimestamp" in pod["metadata"]:
            self._stop(pod, now)
        elif phase in {None, "Pending"}:
            bound = (held_condition(pod, "PodScheduled") or {}).get("lastTransitionTime")
            since = parse_time(bound or pod["metadata"]["creationTimestamp"])
            if ready and now - since >= self._times.start:
                self._write_pod(pod, _running(pod, now))
        elif phase == "Running":
            ends = (pod["metadata"].get("annotations") or {}).get(RUN_SECONDS)
            started = dig(pod, "status", "startTime")
            if ends and started and now - parse_time(started) >= float(ends):
                self._write_pod(pod, _succeeded(pod, now))

    def _stop(self, pod: KubeObject, now: float) -> None:
        """Stop a pod. deletionTimestamp is the end of the grace period, so termination
        began that much earlier."""
        meta = pod["metadata"]
        grace = float(meta.get("deletionGracePeriodSeconds", 0))
        told = parse_time(meta["deletionTimestamp"]) - grace
        if now - told >= min(grace, self._times.stop):
            erase(self._store, "pods", pod, grace=0)

    def _write_pod(self, pod: KubeObject, status: KubeObject) -> None:
        write(self._store, "pods", changed(pod, "status", **status))


def _is_calm(pod: KubeObject) -> bool:
    """Return whether the pod needs no action over time while its node exists."""
    meta, phase = pod["metadata"], dig(pod, "status", "phase")
    if "deletionTimestamp" in meta or phase in {None, "Pending"}:
        return False
    return phase != "Running" or RUN_SECONDS not in (meta.get("annotations") or {})


def _container(container: KubeObject, now: float, uid: str, *, running: bool) -> KubeObject:
    at = format_time(now)
    ended: dict[str, Any] = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": at}}
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": running,
        "started": running,
        "restartCount": 0,
        "lastState": {},
        "containerID": f"local://{uid}",
        "state": {"running": {"startedAt": at}} if running else ended,
    }


def _running(pod: KubeObject, now: float) -> KubeObject:
    uid = pod["metadata"]["uid"]
    address = _address(uid)
    done = [
        condition(type_, value=True)
        for type_ in (
            "PodReadyToStartContainers",
            "Initialized",
            "Ready",
            "ContainersReady",
            "PodScheduled",
        )
    ]
    return {
        "phase": "Running",
        "startTime": format_time(now),
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": with_conditions(pod, now, *done),
        "containerStatuses": [
            _container(c, now, uid, running=True) for c in pod["spec"].get("containers") or ()
        ],
    }


def _succeeded(pod: KubeObject, now: float) -> KubeObject:
    uid = pod["metadata"]["uid"]
    over = [
        condition(type_, value=False, reason="PodCompleted")
        for type_ in ("Ready", "ContainersReady")
    ]
    return {
        "phase": "Succeeded",
        "conditions": with_conditions(pod, now, *over),
        "containerStatuses": [
            _container(c, now, uid, running=False) for c in pod["spec"].get("containers") or ()
        ],
    }
