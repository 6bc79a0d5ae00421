"""An emulated Cluster Autoscaler beside Outscaler, on virtual time: for
comparisons and for hand-overs.

It decides as simply as possible and shows everything that the real one shows: its Lease, its status
ConfigMap (YAML, or the text of releases before 1.30), events, soft and hard taints. Decisions count
requests of CPU and memory only. It ends as the real one does: a process that is asked to end
deletes its status, one that is killed leaves it to age.

Like the real one it draws among equal groups, backs off from a group whose growth the vendor
refuses, evicts pods and gives a removal up if it may not, and buys again while new nodes have a
taint that no `--startup-taint` names.

    OtherAutoscaler(kube, clock, MachineDeploymentGroups(kube)).step()   # at most one loop every
                                                                         ten seconds
"""

from __future__ import annotations

import ipaddress
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from chalicelib.journal.status_configmap import ANNOTATION, long_time
from chalicelib.model.node import DELETION_CANDIDATE, TO_BE_DELETED
from chalicelib.model.quantity import parse_amount
from chalicelib.model.timestamps import format_time
from infra.emulators.controllers.capi import fields
from infra.emulators.kube.disruption import evict
from infra.emulators.kube.objects import KubeObject, clone
from infra.emulators.kube.status import ApiError
from infra.emulators.kube.store import ObjectStore
from infra.emulators.other_autoscaler_status import (
    GroupView,
    Room,
    Transitions,
    as_text,
    as_yaml,
    before_the_first_loop,
    group_words,
)

EVERY = 10.0
"""Seconds between two loops."""
LEASE_SECONDS = 15
STATUS, NAMESPACE, LEASE = "cluster-autoscaler-status", "kube-system", "cluster-autoscaler"
_LEASES = "coordination.k8s.io"
_MOST_SOFT_TAINTS = 10  # new ones per loop
_BACKOFF, _LONGEST_BACKOFF, _BACKOFF_FORGOTTEN = 300.0, 1800.0, 10800.0
"""Seconds for which a group whose growth failed is not grown: at first, at most, and until
the next one is a first."""
_EVICTED_WITHIN = 120.0
"""Seconds after which a removal is given up if an eviction is still refused."""
_UNREMOVABLE = 300.0
"""Seconds for which a node whose pods had no other place is not looked at again."""
_NOT_READY = frozenset(
    {"node.kubernetes.io/not-ready", "node.cloudprovider.kubernetes.io/uninitialized"}
)
_ABSENT = 404


class OtherAutoscaler:
    """One replica. dead: no process runs, as after kill -9; its Lease ends by itself,
    and its status gets old.

    unneeded_for, delay_after_add: seconds. expander: `least-waste` or `random`. legacy: the status
    is the old text. per_loop: how many groups grow in one loop. soft_taints: whether unneeded nodes
    are tainted. counts_others: whether nodes that somebody else asked for are upcoming, which they
    are not for the real one. startup_taints: keys of taints that it knows as passing. refused:
    groups of which the vendor has no machine. grown, removed, given_up: what it did, in order.
    """

    def __init__(
        self,
        kube: ObjectStore,
        clock: Callable[[], float],
        control: GroupControl,
        *,
        unneeded_for: float = 600.0,
        delay_after_add: float = 600.0,
        delay_after_delete: float = EVERY,
        delay_after_failure: float = 180.0,
        startup_taints: frozenset[str] = frozenset(),
        expander: str = "least-waste",
        legacy: bool = False,
        per_loop: int = 1,
        soft_taints: bool = True,
        counts_others: bool = True,
        seed: int = 0,
    ) -> None:
        self._kube, self._clock, self._control = kube, clock, control
        self._unneeded_for, self._delay_after_add, self._expander = (
            unneeded_for,
            delay_after_add,
            expander,
        )
        self._legacy, self._per_loop, self._soft_taints = legacy, per_loop, soft_taints
        self._counts_others = counts_others
        self._delay_after_delete, self._delay_after_failure = (
            delay_after_delete,
            delay_after_failure,
        )
        self._startup_taints = startup_taints
        self._random = random.Random(seed)
        self.dead = False
        self.refused: set[str] = set()
        self.given_up: list[tuple[float, str]] = []
        self.grown: list[tuple[float, str, int]] = []
        self.removed: list[tuple[float, str]] = []
        self._next, self._last_add = 0.0, 0.0
        self._last_delete, self._last_failure = 0.0, 0.0
        self._unneeded: dict[str, float] = {}
        self._deleting: dict[str, str] = {}
        self._drained_since: dict[str, float] = {}
        self._looked_at_again: dict[str, float] = {}
        self._backoffs: dict[str, tuple[float, float]] = {}  # group -> its end, its length
        # group -> nodes that it has bought and that are not there yet
        self._requested: dict[str, int] = {}
        self._transitions = Transitions()
        self._new = False

    def stop(self) -> None:
        """End as after SIGTERM (scaled to 0, rolled out, evicted): the status
        is deleted, taints stay."""
        self.dead = True
        if self._kube.get("configmaps", STATUS, NAMESPACE) is not None:
            self._kube.delete("configmaps", STATUS, NAMESPACE)

    def start(self) -> None:
        """Begin a new process. It knows nothing of the one before: its timers and all
        parts of its status begin anew. Soft taints stay with their old values; its
        first loop removes hard ones."""
        now = self._clock()
        self.dead, self._new = False, True
        self._unneeded, self._deleting, self._requested, self._last_add = {}, {}, {}, 0.0
        self._last_delete, self._last_failure, self._drained_since, self._backoffs = (
            0.0,
            0.0,
            {},
            {},
        )
        self._looked_at_again = {}
        self._transitions = Transitions()
        self._next = now + EVERY
        self._put_status(before_the_first_loop(now, legacy=self._legacy), now)

    def restart(self) -> None:
        """End and begin again at once, as when its pod is rolled out."""
        self.stop()
        self.start()

    def step(self) -> None:
        now = self._clock()
        if self.dead or now < self._next:
            return
        self._next = now + EVERY
        self._renew_lease(now)
        if self._new:
            self._new = False
            for node in self._kube.list("nodes"):
                self._untaint(node["metadata"]["name"], TO_BE_DELETED)
        self._finish_removals(now)
        self._take_failed_growths_back(now)
        groups = list(self._control.groups())
        pending = self._pending()
        grew = self._scale_up(groups, pending, now)
        if not grew:
            self._scale_down(groups, pending, now)
        self._write_status(list(self._control.groups()), now)

    # -- what it sees

    def _pending(self) -> list[KubeObject]:
        return [
            pod
            for pod in self._kube.list("pods")
            if not pod["spec"].get("nodeName")
            and "deletionTimestamp" not in pod["metadata"]
            and not _has_ended(pod)
        ]

    def _pods_on(self, name: str) -> list[KubeObject]:
        """Return the pods that take room of a node."""
        return [pod for pod in self._kube.pods_on(name) if not _has_ended(pod)]

    def _free(self, but: frozenset[str] = frozenset()) -> dict[str, Room]:
        free = {}
        for node in self._kube.list("nodes"):
            name, taints = node["metadata"]["name"], node["spec"].get("taints") or ()
            blocked = any(taint["effect"] != "PreferNoSchedule" for taint in taints)
            if name not in but and not blocked and not node["spec"].get("unschedulable"):
                cpu, memory = _room(node["status"]["allocatable"])
                used = [_requests(pod) for pod in self._pods_on(name)]
                free[name] = (
                    cpu - sum(each[0] for each in used),
                    memory - sum(each[1] for each in used),
                )
        return free

    def _is_leaving(self, name: str) -> bool:
        node = self._kube.peek("nodes", name)
        taints = (node["spec"].get("taints") or ()) if node is not None else ()
        return any(taint["key"] == TO_BE_DELETED for taint in taints)

    def _has_arrived(self, name: str) -> bool:
        """Return whether a node counts as one that takes pods: it is Ready, and has no taint that
        is known to pass. A pod that does not tolerate another taint is then not helped by it."""
        node = self._kube.peek("nodes", name)
        if node is None:
            return False
        conditions = node.get("status", {}).get("conditions") or ()
        ready = any(part["type"] == "Ready" and part["status"] == "True" for part in conditions)
        keys = {taint["key"] for taint in node["spec"].get("taints") or ()}
        return ready and keys.isdisjoint(self._startup_taints | _NOT_READY)

    # -- growing

    def _take_failed_growths_back(self, now: float) -> None:
        """Take the size of a group back whose machines the vendor refuses, and back off from it."""
        for group in self._control.groups():
            missing = self._requested.get(group.id, 0)
            if group.id in self.refused and missing and group.target > len(group.nodes):
                self._control.grow(group.id, -min(missing, group.target - len(group.nodes)))
                self._requested.pop(group.id)
                end, length = self._backoffs.get(group.id, (0.0, 0.0))
                doubled = 2 * length if now < end + _BACKOFF_FORGOTTEN else 0.0
                length = min(max(_BACKOFF, doubled), _LONGEST_BACKOFF)
                self._backoffs[group.id] = (now + length, length)
                self._tell(
                    "FailedToScaleUpGroup",
                    f"Scale-up failed for group {group.id}: out of stock",
                    now,
                )

    def _is_backed_off(self, group: str, now: float) -> bool:
        return self._backoffs.get(group, (0.0, 0.0))[0] > now

    def _scale_up(
        self, groups: Sequence[GroupView], pending: Sequence[KubeObject], now: float
    ) -> bool:
        free = self._free()
        bins = list(free.values())
        # a node that is starting counts as upcoming, one being removed does not
        for group in groups:
            if not self._counts_others and not self._requested.get(group.id):
                continue
            arrived = sum(
                node in free or self._is_leaving(node) or self._has_arrived(node)
                for node in group.nodes
            )
            bins += [group.room] * (group.target - arrived)
        left = [pod for pod in pending if not _take(bins, _requests(pod))]
        groups = [group for group in groups if not self._is_backed_off(group.id, now)]
        for _ in range(self._per_loop):
            options = [option for group in groups if (option := _option(group, left)) is not None]
            if not options:
                break
            least = min(option[1] for option in options)
            equal = [
                option for option in options if option[1] == least or self._expander == "random"
            ]
            count, _, group, placed = self._random.choice(equal)
            self._control.grow(group.id, count)
            self.grown.append((now, group.id, count))
            self._last_add = now
            self._requested[group.id] = self._requested.get(group.id, 0) + count
            self._transitions.note(group.id, "scaleUp", "InProgress", now)
            self._tell("ScaledUpGroup",
                       f"Scale-up: setting group {group.id} size to {group.target + count} instead "
                       f"of {group.target} (max: {group.most})", now)  # fmt: skip
            left = [pod for pod in left if pod["metadata"]["uid"] not in placed]
            groups = [each for each in groups if each.id != group.id]
        return bool(self.grown) and self.grown[-1][0] == now

    # -- removing

    def _scale_down(
        self, groups: Sequence[GroupView], pending: Sequence[KubeObject], now: float
    ) -> None:
        found = self._find_unneeded(groups)
        self._unneeded = {node: self._unneeded.get(node, now) for node in found}
        new = 0
        for each in self._kube.list("nodes"):
            name = each["metadata"]["name"]
            has = any(
                taint["key"] == DELETION_CANDIDATE for taint in each["spec"].get("taints") or ()
            )
            if has and name not in found:
                self._untaint(name, DELETION_CANDIDATE)
            elif not has and name in found and self._soft_taints and new < _MOST_SOFT_TAINTS:
                new += 1
                self._taint(name, DELETION_CANDIDATE, "PreferNoSchedule", self._unneeded[name])
        if pending or self._deleting or self._is_in_cooldown(now):
            return
        due = [
            node
            for node, since in sorted(self._unneeded.items())
            if now - since >= self._unneeded_for
        ]
        for node in due[:1]:
            self._taint(node, TO_BE_DELETED, "NoSchedule", now)
            self._deleting[node], self._drained_since[node] = found[node].id, now
            self._unneeded.pop(node)
            self.removed.append((now, node))
            self._tell("ScaleDown", f"node removed by cluster autoscaler: {node}", now)

    def _is_in_cooldown(self, now: float) -> bool:
        rests = (
            (self._last_add, self._delay_after_add),
            (self._last_delete, self._delay_after_delete),
            (self._last_failure, self._delay_after_failure),
        )
        return any(at and now - at < delay for at, delay in rests)

    def _find_unneeded(self, groups: Sequence[GroupView]) -> dict[str, GroupView]:
        """Return the nodes that could all go together, with their groups: the pods of one take room
        that the next one then lacks. A node that was unneeded before comes first."""
        now = self._clock()
        free = self._free(frozenset(self._deleting))
        group_of = {
            node: group for group in groups if group.target > group.least for node in group.nodes
        }
        found: dict[str, GroupView] = {}
        for node in sorted(group_of, key=lambda name: (name not in self._unneeded, name)):
            group = group_of[node]
            is_at_least = (
                sum(other.id == group.id for other in found.values()) >= group.target - group.least
            )
            is_due = self._looked_at_again.get(node, 0.0) <= now
            if (
                node in self._deleting
                or is_at_least
                or not is_due
                or not self._is_little_used(node)
            ):
                continue
            left = {name: room for name, room in free.items() if name != node}
            if self._moves_pods(node, left):
                free = left
                found[node] = group
            else:
                self._looked_at_again[node] = now + _UNREMOVABLE
        return found

    def _is_little_used(self, name: str) -> bool:
        """Return whether less than half of the node is used."""
        node = self._kube.peek("nodes", name)
        if node is None:
            return False
        cpu, memory = _room(node["status"]["allocatable"])
        used = [_requests(pod) for pod in self._pods_on(name)]
        return (
            2 * sum(each[0] for each in used) < cpu and 2 * sum(each[1] for each in used) < memory
        )

    def _moves_pods(self, name: str, free: dict[str, Room]) -> bool:
        """Take room for the pods of a node, and return whether all have some."""
        bins = list(free.values())
        fit = all(_take(bins, _requests(pod)) for pod in self._pods_on(name) if not _stays(pod))
        free.update(zip(free, bins, strict=True))
        return fit

    def _finish_removals(self, now: float) -> None:
        for node, group in list(self._deleting.items()):
            pods = [pod for pod in self._pods_on(node) if not _stays(pod)]
            refused = [pod for pod in pods if not self._is_evicted(pod)]
            if not pods:
                self._control.remove(group, node)
                self._last_delete = now
            elif refused and now - self._drained_since[node] >= _EVICTED_WITHIN:
                self._untaint(node, TO_BE_DELETED)
                self._last_failure = now
                self.given_up.append((now, node))
                self._tell("ScaleDownFailed", f"failed to drain the node {node}", now)
            else:
                continue
            del self._deleting[node], self._drained_since[node]

    def _is_evicted(self, pod: KubeObject) -> bool:
        """Return whether the pod is leaving; a PodDisruptionBudget may refuse its eviction."""
        if "deletionTimestamp" in pod["metadata"]:
            return True
        try:
            evict(self._kube, pod["metadata"]["namespace"], pod["metadata"]["name"], {})
        except ApiError as error:
            return error.code == _ABSENT
        return True

    # -- what it writes

    def _taint(self, name: str, key: str, effect: str, at: float) -> None:
        found = self._kube.get("nodes", name)
        if found is not None:
            changed = clone(found)
            taints = [taint for taint in changed["spec"].get("taints") or () if taint["key"] != key]
            changed["spec"]["taints"] = [
                *taints,
                {"key": key, "value": str(int(at)), "effect": effect},
            ]
            self._kube.update("nodes", changed)

    def _untaint(self, name: str, key: str) -> None:
        found = self._kube.get("nodes", name)
        taints = (found["spec"].get("taints") or ()) if found is not None else ()
        if found is not None and any(taint["key"] == key for taint in taints):
            changed = clone(found)
            changed["spec"]["taints"] = [taint for taint in taints if taint["key"] != key]
            self._kube.update("nodes", changed)

    def _renew_lease(self, now: float) -> None:
        spec = {"holderIdentity": "cluster-autoscaler-0", "leaseDurationSeconds": LEASE_SECONDS}
        spec["renewTime"] = format_time(now).replace("Z", ".000000Z")
        self._put("leases", LEASE, {"spec": spec}, _LEASES)

    def _tell(self, reason: str, message: str, now: float) -> None:
        involved = {"kind": "ConfigMap", "namespace": NAMESPACE, "name": STATUS, "apiVersion": "v1"}
        self._kube.create(
            "events",
            {
                "metadata": {"generateName": f"{STATUS}.", "namespace": NAMESPACE},
                "involvedObject": involved,
                "reason": reason,
                "message": message,
                "type": "Normal",
                "source": {"component": "cluster-autoscaler"},
                "firstTimestamp": format_time(now),
                "lastTimestamp": format_time(now),
                "count": 1,
            },
        )

    def _write_status(self, groups: Sequence[GroupView], now: float) -> None:
        said = []
        for group in groups:
            if group.target <= len(group.nodes):
                self._requested.pop(group.id, None)
            candidates = sum(node in self._unneeded for node in group.nodes)
            words = group_words(group, self._requested.get(group.id, 0), candidates)
            held = self._is_backed_off(group.id, now)
            said.append(msgspec.structs.replace(words, scale_up="Backoff") if held else words)
        self._transitions.note_all(said, now)
        written = as_text if self._legacy else as_yaml
        self._put_status(written(said, self._transitions, now), now)

    def _put_status(self, text: str, now: float) -> None:
        body = {"data": {"status": text}, "metadata": {"annotations": {ANNOTATION: long_time(now)}}}
        self._put("configmaps", STATUS, body)

    def _put(self, plural: str, name: str, body: KubeObject, group: str = "") -> None:
        found = self._kube.get(plural, name, NAMESPACE, group)
        meta = {
            **(found or {}).get("metadata", {}),
            **body.get("metadata", {}),
            "name": name,
            "namespace": NAMESPACE,
        }
        write = self._kube.create if found is None else self._kube.update
        write(plural, {**(found or {}), **body, "metadata": meta}, group)


def _option(
    group: GroupView, pods: Sequence[KubeObject]
) -> tuple[int, float, GroupView, frozenset[str]] | None:
    """Return how many nodes of a group the pods need, their unused share, the group, and the
    uids of the pods that fit."""
    bins: list[Room] = []
    placed = []
    for pod in sorted(pods, key=lambda each: (-_requests(each)[0], each["metadata"]["name"])):
        need = _requests(pod)
        if not _take(bins, need):
            if (
                group.target + len(bins) >= group.most
                or need[0] > group.room[0]
                or need[1] > group.room[1]
            ):
                continue
            bins.append((group.room[0] - need[0], group.room[1] - need[1]))
        placed.append(str(pod["metadata"]["uid"]))
    if not bins:
        return None
    waste = sum(cpu / group.room[0] + memory / group.room[1] for cpu, memory in bins) / (
        2 * len(bins)
    )
    return len(bins), waste, group, frozenset(placed)


def _take(bins: list[Room], need: Room) -> bool:
    for at, (cpu, memory) in enumerate(bins):
        if cpu >= need[0] and memory >= need[1]:
            bins[at] = (cpu - need[0], memory - need[1])
            return True
    return False


def _requests(pod: KubeObject) -> Room:
    found = [
        _room(each.get("resources", {}).get("requests", {})) for each in pod["spec"]["containers"]
    ]
    return sum(cpu for cpu, _ in found), sum(memory for _, memory in found)


def _room(amounts: KubeObject) -> Room:
    return parse_amount("cpu", str(amounts.get("cpu", "0"))), parse_amount(
        "memory", str(amounts.get("memory", "0"))
    )


def _has_ended(pod: KubeObject) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _stays(pod: KubeObject) -> bool:
    return any(
        owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences") or ()
    )


class GroupControl(Protocol):
    """Reads and changes the node groups of one vendor."""

    def groups(self) -> Sequence[GroupView]:
        """Return all groups, sorted by id."""

    def grow(self, group: str, count: int) -> None:
        """Raise the target."""

    def remove(self, group: str, node: str) -> None:
        """Remove the instance of a Node and lower the target."""


class MachineDeploymentGroups:
    """The groups are MachineDeployments with size annotations. manager: the name by which sizes are
    written, as the API server notes it, "" for no note."""

    def __init__(self, kube: ObjectStore, manager: str = "") -> None:
        self._kube, self._manager = kube, manager

    def groups(self) -> Sequence[GroupView]:
        nodes: dict[str, list[str]] = {}
        for machine in self._kube.list("machines", group=fields.GROUP):
            meta = machine["metadata"]
            owner = f"{meta['namespace']}/{meta['labels'].get(fields.DEPLOYMENT_NAME, '')}"
            name = str(machine.get("status", {}).get("nodeRef", {}).get("name", ""))
            if name and self._kube.peek("nodes", name) is not None:
                nodes.setdefault(owner, []).append(name)
        found = []
        for each in self._kube.list("machinedeployments", group=fields.GROUP):
            meta, marks = each["metadata"], fields.marks(each)
            if fields.MAX_SIZE in marks:
                key = f"{meta['namespace']}/{meta['name']}"
                members = tuple(sorted(nodes.get(key, ())))
                found.append(
                    GroupView(
                        f"MachineDeployment/{key}",
                        int(marks[fields.MIN_SIZE]),
                        int(marks[fields.MAX_SIZE]),
                        each["spec"]["replicas"],
                        self._size(marks, members),
                        members,
                    )
                )
        return sorted(found, key=lambda group: group.id)

    def _size(self, marks: Mapping[str, str], nodes: Sequence[str]) -> Room:
        """Return what a new node offers: as much as one of the group, else
        what the annotations say."""
        for name in nodes:
            node = self._kube.peek("nodes", name)
            if node is not None and node.get("status", {}).get("allocatable"):
                return _room(node["status"]["allocatable"])
        return _room({name: marks[fields.CAPACITY + name] for name in ("cpu", "memory")})

    def grow(self, group: str, count: int) -> None:
        self._resize(group, count)

    def remove(self, group: str, node: str) -> None:
        for machine in self._kube.list("machines", group=fields.GROUP):
            if machine.get("status", {}).get("nodeRef", {}).get("name") == node:
                marked = clone(machine)
                marked["metadata"].setdefault("annotations", {})[fields.DELETE_MACHINE] = "yes"
                self._kube.update("machines", marked, fields.GROUP)
                self._resize(group, -1)
                return

    def _resize(self, group: str, by: int) -> None:
        _, namespace, name = group.split("/")
        found = self._kube.get("machinedeployments", name, namespace, fields.GROUP)
        assert found is not None, group
        changed = clone(found)
        changed["spec"]["replicas"] += by
        if self._manager:
            changed["metadata"]["managedFields"] = [_size_note(self._manager, self._kube.clock())]
        self._kube.update("machinedeployments", changed, fields.GROUP)


def _size_note(manager: str, now: float) -> KubeObject:
    """Return what the API server notes of a write through the subresource `scale`."""
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": f"{fields.GROUP}/v1beta1",
        "time": format_time(now),
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
        "subresource": "scale",
    }


_NOWHERE = "192.0.2.1"  # a documentation address: no packet is sent, only a route is looked up


def address() -> str:
    """Return that address, "" if the machine has none, e.g. without a network. Servers on it can be
    reached from outside, so they must serve nothing of value."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_NOWHERE, 9))
        except OSError:
            return ""
        found = str(probe.getsockname()[0])
    parsed = ipaddress.ip_address(found)
    return "" if parsed.is_loopback or parsed.is_link_local or parsed.is_unspecified else found
