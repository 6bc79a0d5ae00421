"""Checks the effects of our requests on the cluster from outside, request by request
(the invariants of a run).

    size        our requests move no group above its maximum or below its minimum; nothing is bought
                without a planned operation, and no operation's instances are bought twice; after an
                executor died, nothing is bought for pods none of which waits any more
    victims     a lowered size removes only instances that an operation named; their nodes have no
                pod that the last read saw and that should have been moved
    evictions   only through the eviction API, only within the pod's budget, and no protected pod,
                unless its machine is taken back
    cordons     a user's cordon stays
    nodes       no Node object is deleted: that is its cloud's work, once the machine is gone
    replacements  see replacement_audit.py, and for nodes that are sick, old, outdated or
                  taken back due_nodes_audit.py
    marks       see steering_audit.py

The state is read before and after each changing request, in the same thread, so each difference is
the effect of that request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import parse_qs

import msgspec

from chalicelib.policy.timeouts import RETURN_TIME
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.capi.machine_deployments import first_to_go, on_delete
from infra.emulators.controllers.workloads import SetSize
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.request import Response
from infra.emulators.kube.store import ObjectStore
from tests.faults.due_nodes_audit import DueNodesAudit
from tests.faults.io_interceptor import Process
from tests.faults.objects import is_protected, is_ready, marks_of, must_move, taint_of
from tests.faults.replacement_audit import SKEW, ReplacementAudit
from tests.faults.steering_audit import SteeringAudit

Json = dict[str, Any]
OURS = "outscaler/"
_PODS = "/api/v1/pods"
TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"


class AuditLimit(msgspec.Struct, frozen=True):
    """A group's bounds from a given instant on."""

    since: float
    least: int
    most: int


class AuditWatch(msgspec.Struct, frozen=True):
    """A request and the sizes before it. query: for a list of all pods, the
    only part that is examined."""

    method: str
    path: str
    query: dict[str, list[str]]
    body: bytes
    sizes: dict[str, int]
    node: KubeObject | None = None
    pod: KubeObject | None = None


class Audit:
    """faults: broken invariants, as text. bounds: group -> its bounds over time, maintained by the
    caller that changes them.

    planned: id -> (kind, from, to, handles) of an operation, None where there is no such operation.
    """

    def __init__(
        self, kube: ObjectStore, clock: Callable[[], float], process: Callable[[], Process | None]
    ) -> None:
        self._kube, self._clock, self._process = kube, clock, process
        self.start = clock()
        self.faults: list[str] = []
        self.bounds: dict[str, list[AuditLimit]] = {}
        self.planned: Callable[[str], Json | None] = lambda _: None
        self.bought: dict[str, int] = {}
        self.by_hand: dict[str, int] = {}  # group -> size set by a user
        self.seen: dict[str, tuple[float, frozenset[str]]] = {}  # node -> its pods at our last read
        self.tainted: dict[str, bool] = {}  # node -> whether our last read of it saw our taint
        # node -> pods protected at the time of our taint
        self.protected: dict[str, frozenset[str]] = {}
        self.cordoned_by_users: set[str] = set()
        # nodes whose taint a user removed: the user has to undo the cordon
        self.taken_over: set[str] = set()
        self.counts: dict[str, int] = {}
        self.leaving: Callable[[], Collection[str]] = tuple  # nodes that open operations remove
        # another node that leaves the group of a repair
        self.repaired_beside: Callable[[Json], str] = lambda _: ""
        self.replacements: ReplacementAudit | None = None  # where nodes are replaced
        self.due_nodes: DueNodesAudit | None = None
        self.steering: SteeringAudit | None = None  # where the scheduler is steered
        # owner -> its evicted pods that waited and have no successor yet
        self._evicted_of: dict[str, list[str]] = {}
        # group -> nodes bought for replacements
        self._replaced: dict[str, list[tuple[float, int]]] = {}
        # uid of a pod -> when we last saw it without a node that will stay
        self.waiting: dict[str, float] = {}

    def fault(self, text: str) -> None:
        """Records a broken invariant."""
        self.faults.append(f"at {self._clock() - self.start:.1f}: {text}")

    def count(self, what: str) -> None:
        """Counts an event: a run without events proves nothing."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def note_bounds(self, group: str, least: int, most: int) -> None:
        """Records the bounds in force from now on."""
        self.bounds.setdefault(group, []).append(AuditLimit(self._clock(), least, most))

    def look(self) -> None:
        """Look at replacements and at nodes, between requests."""
        if self.replacements is not None:
            self.replacements.look()
        if self.due_nodes is not None:
            self.due_nodes.look()
        if self.steering is not None:
            self.steering.look()

    # -- around a request

    def watch(self, method: str, target: str, body: bytes) -> AuditWatch:
        """Records the state before a request is carried out."""
        path, _, asked = target.partition("?")
        parts = path.strip("/").split("/")
        node = pod = None
        if method == "PATCH" and parts[:3] == ["api", "v1", "nodes"]:
            node = self._kube.peek("nodes", parts[3])
        if parts[-1] == "eviction":
            pod = self._kube.peek("pods", parts[5], parts[3])
        if node is not None and self.steering is not None:
            self.steering.look()
        sizes = {} if method == "GET" else self._sizes()
        query = parse_qs(asked) if path == _PODS else {}
        return AuditWatch(method, path, query, body, sizes, node, pod)

    def saw(self, watch: AuditWatch, made: Response) -> None:
        """Checks the state after a request; the client may never receive the answer `made`."""
        if watch.method == "GET":
            self._looked(watch, made)
            return
        if self.steering is not None:
            self.steering.wrote(self._function(), watch.path)
        for group, size in self._sizes().items():
            if size != watch.sizes.get(group, size):
                self._resized(group, watch.sizes[group], size)
        if watch.pod is not None and made.status < 300:
            self._evicted(watch.pod)
        elif watch.method == "DELETE" and "/pods/" in watch.path:
            self.fault(f"a pod was deleted and not evicted: {watch.path}")
        elif watch.method == "DELETE" and "/nodes/" in watch.path:
            self.fault(f"a Node was deleted, which its cloud does: {watch.path}")
        if watch.node is not None and made.status < 300:
            self._patched(watch.node)

    def _sizes(self) -> dict[str, int]:
        return {
            each["metadata"]["name"]: each["spec"].get("replicas", 0)
            for each in self._kube.list("machinedeployments", group=fields.GROUP)
        }

    def _looked(self, watch: AuditWatch, made: Response) -> None:
        """Records a read of one node's pods or of the node."""
        if watch.path.startswith("/api/v1/nodes/") and made.status == 200:
            node = msgspec.json.decode(made.body)
            self._note_taint(node["metadata"]["name"], node)
        if watch.path == _PODS and made.status == 200:
            homeless = self._homeless()
            for pod in self._kube.list("pods"):
                if pod["spec"].get("nodeName", "") in homeless:
                    self._waits_now(pod)
        parts, process = watch.path.strip("/").split("/"), self._process()
        if (
            parts[2:3] == ["namespaces"]
            and parts[4:5] == ["pods"]
            and len(parts) == 6
            and process is not None
        ):
            key = f"{parts[3]}/{parts[5]}"
            if self._waits(key):
                process.waiting.add(key)
        for selector in watch.query.get("fieldSelector", ()):
            name = next(
                (part[14:] for part in selector.split(",") if part.startswith("spec.nodeName=")), ""
            )
            if name and watch.path == _PODS and made.status == 200:
                uids = frozenset(
                    each["metadata"]["uid"] for each in msgspec.json.decode(made.body)["items"]
                )
                self.seen[name] = (self._clock(), uids)
                if process is not None:
                    process.seen[name] = self.seen[name]

    def _waits_now(self, pod: KubeObject) -> None:
        """Note a pod without a node that will stay. One that comes in place of an
        evicted one waits in its stead."""
        uid, owner = pod["metadata"]["uid"], _owner(pod)
        before = self._evicted_of.get(owner)
        if uid not in self.waiting and before:
            self.waiting.pop(before.pop(), None)
        self.waiting[uid] = self._clock()

    def _waits(self, key: str) -> bool:
        namespace, _, name = key.partition("/")
        pod = self._kube.peek("pods", name, namespace)
        return (
            pod is not None
            and "deletionTimestamp" not in pod["metadata"]
            and pod["spec"].get("nodeName", "") in self._homeless()
        )

    def _homeless(self) -> set[str]:
        """The nodes whose pods need another one, and no node."""
        if self.due_nodes is not None:
            self.due_nodes.look()
        return {
            "",
            *self.leaving(),
            *(self.due_nodes.at_risk if self.due_nodes is not None else ()),
        }

    def _note_taint(self, name: str, node: KubeObject) -> None:
        self.tainted[name] = taint_of(node, TO_BE_DELETED) is not None

    # -- sizes

    def _resized(self, group: str, before: int, after: int) -> None:
        process = self._process()
        operation = process.operation if process else ""
        known = self.planned(operation) if operation else None
        if known is None:
            self.fault(f"{group} went from {before} to {after} without an operation")
            return
        self._within_bounds(group, before, after, process.began if process else 0.0, known["kind"])
        if after > before:
            self._grown(group, before, after, operation, known)
        else:
            self._size_lowered(group, before, after, known)

    def _within_bounds(self, group: str, before: int, after: int, began: float, kind: str) -> None:
        """Bounds in force at any time since the process began are accepted. The minimum does not
        protect instances that could not be created (docs/reference/node-groups.md "Repairs")."""
        history = self.bounds.get(group, [])
        current = [
            each
            for index, each in enumerate(history)
            if index + 1 == len(history) or history[index + 1].since >= began
        ]
        most, least = max(each.most for each in current), min(each.least for each in current)
        if after > before and after > most:
            self.fault(f"{group} grew from {before} to {after}, above its maximum of {most}")
        if after < before and after < least and kind != "discard":
            self.fault(f"{group} shrank from {before} to {after}, below its minimum of {least}")

    def _grown(self, group: str, before: int, after: int, operation: str, known: Json) -> None:
        self.count("grown")
        wanted = (known["kind"], known["from"], known["to"])
        if wanted != ("grow", before, after):
            self.fault(f"{group} grew from {before} to {after}, but {operation} is {wanted}")
        if operation in self.bought:
            self.fault(
                f"{operation} bought twice: {self.bought[operation]} machines, and "
                f"{after - before} again"
            )
        self.bought[operation] = after - before
        if known.get("replacement"):
            self._replaced.setdefault(group, []).append((self._clock(), after - before))
            if self.replacements is not None:
                self.replacements.bought(known["replacement"], group, after - before)
        process = self._process()
        seen = process.waiting if process else frozenset[str]()
        # its request may have begun before the other executor
        paused = process is not None and process.disturbed
        needs_pods = known.get("broken") and not known.get("replacement")
        if (
            needs_pods
            and not paused
            and not any(pod in seen or self._waits(pod) for pod in known["pods"])
        ):
            self.fault(
                f"{group} grew to {after} by {operation}, whose executor had died, and none of its "
                "pods waits"
            )
        self._needed(group, after)

    def _needed(self, group: str, after: int) -> None:
        """Each upcoming instance needs a pending pod or a replacement, summed over all plans.
        Failed instances no longer count, and those requested by a user are not expected: without a
        request of ours they are not upcoming nodes."""
        machines = [
            each
            for each in self._kube.list("machines", group=fields.GROUP)
            if (each["metadata"].get("labels") or {}).get(fields.DEPLOYMENT_NAME) == group
        ]
        settled = sum(
            1
            for each in machines
            # one that leaves takes no place of one that is to come
            if "deletionTimestamp" not in each["metadata"]
            if fields.node_name(each) or fields.FAULT in marks_of(each)
        )
        pods = sum(1 for at in self.waiting.values() if self._clock() - at < _WAITED)
        pods += sum(
            nodes for at, nodes in self._replaced.get(group, ()) if self._clock() - at < _WAITED
        )
        coming = after - max(settled, self.by_hand.get(group, 0))
        if coming > pods:
            self.fault(
                f"{group} grew to {after}: {coming} machines are to come, and {pods} pods wait"
            )

    def forgive(self, group: str, size: int) -> None:
        """Accepts a size changed by a user: an operation that sets its size again corrects it."""
        self.bought.clear()
        self.by_hand[group] = size

    def note_machine_deleted(self, group: str) -> None:
        """Accept the machine that the group makes in place of one that a user deletes: no
        request of ours expects it."""
        self.by_hand[group] = max(self.by_hand.get(group, 0), self._sizes()[group])

    # -- removed instances

    def _size_lowered(self, group: str, before: int, after: int, known: Json) -> None:
        self.count(f"lowered by {known['kind']}")
        self.by_hand.pop(group, None)
        mine = [
            each
            for each in self._kube.list("machines", group=fields.GROUP)
            if (each["metadata"].get("labels") or {}).get(fields.DEPLOYMENT_NAME) == group
        ]
        for machine in self._going(group, mine, after):
            if "deletionTimestamp" not in machine["metadata"]:
                self._victim(machine, known)
        if known["kind"] not in ("remove", "discard", "shrink"):
            self.fault(f"{group} shrank from {before} to {after} by a {known['kind']}")

    def _going(self, group: str, machines: list[KubeObject], size: int) -> list[KubeObject]:
        """The machines that a group of this size gives up. Outdated ones are of several sets, each
        of which chooses by itself."""
        mine: dict[str, list[KubeObject]] = {}
        for machine in machines:
            mine.setdefault(machine["metadata"]["ownerReferences"][0]["name"], []).append(machine)
        deployment = self._kube.peek("machinedeployments", group, "default", fields.GROUP)
        if len(mine) < 2 or deployment is None or not fields.on_delete(deployment):
            return first_to_go(machines, "Random")[: max(0, len(machines) - size)]
        sets = {
            each["metadata"]["name"]: each
            for each in self._kube.list("machinesets", group=fields.GROUP)
            if (each["metadata"].get("labels") or {}).get(fields.DEPLOYMENT_NAME) == group
        }
        newest = max(sets, key=lambda name: int(marks_of(sets[name])[fields.REVISION]))
        staying = {
            name: sum("deletionTimestamp" not in each["metadata"] for each in mine.get(name, ()))
            for name in sets
        }
        asked = {
            name: SetSize(name, each["spec"]["replicas"], 0) for name, each in sorted(sets.items())
        }
        old = [each for name, each in asked.items() if name != newest and each.asked]
        sizes = dict.fromkeys(sets, 0) | on_delete(size, asked[newest], old, staying)
        return [
            machine
            for name, own in sorted(mine.items())
            for machine in first_to_go(own, "Random")[: max(0, len(own) - sizes[name])]
        ]

    def _victim(self, machine: KubeObject, known: Json) -> None:
        name, mark = machine["metadata"]["name"], marks_of(machine).get(fields.DELETE_MACHINE)
        node = self._node_of(machine)
        if known["kind"] == "shrink":
            if node is not None:
                self.fault(f"machine {name} has joined and goes because a target was lowered")
            return
        if mark is None:
            self.fault(f"machine {name} goes although nobody marked it")
            return
        if not mark.startswith(OURS):
            return  # requested by a user
        planned = self.planned(mark.split("/")[1])
        if planned is None or name not in planned["handles"]:
            self.fault(
                f"machine {name} goes by the mark {mark}, of an operation that does not name it"
            )
        elif node is not None:
            self.node_goes(node, planned)

    def _node_of(self, machine: KubeObject) -> KubeObject | None:
        name = fields.node_name(machine)
        return self._kube.peek("nodes", name) if name else None

    def node_goes(self, node: KubeObject, planned: Json) -> None:
        """Checks the removal of a node's machine."""
        name, kind, reason = (
            node["metadata"]["name"],
            planned["kind"],
            planned.get("reason") or "unneeded",
        )
        self.count(f"node gone by {kind}")
        self.count(f"node gone as {reason}")
        if kind == "discard":
            self.fault(f"node {name} has joined and goes as a machine that never did")
            return
        if name not in self.tainted:
            self.fault(f"node {name} goes and was never tainted")
        elif not self.tainted[name]:
            self.count("nodes gone though somebody took their taint off")
        if self._may_leave_pods(planned):
            return  # with the pods that their budgets have held: nothing can be waited for any more
        # Its own look counts, where it had one: what another function saw while this one was
        # stopped in the middle of its request cannot reach it any more.
        process = self._process()
        at, uids = (process.seen if process is not None else {}).get(name) or self.seen.get(
            name, (0.0, frozenset())
        )
        if not at:
            self.fault(f"node {name} goes and nobody looked at its pods")
        left = [pod for pod in self._kube.pods_on(name) if must_move(pod)]
        known = [pod["metadata"]["name"] for pod in left if pod["metadata"]["uid"] in uids]
        if known:
            self.fault(f"node {name} goes with pods {known} that the last look has seen on it")
        age = self._clock() - at
        if left and not known:
            self.count("pods that came after the last look")
            if age > _STALE_AFTER:
                self.fault(
                    f"node {name} goes with {len(left)} pods; the last look at it was {age:.0f} s "
                    "ago"
                )

    # -- pods and nodes

    def _function(self) -> str:
        process = self._process()
        return process.function if process is not None else ""

    def _known(self) -> Json:
        """The operation of the running process, empty without one."""
        process = self._process()
        return (
            self.planned(process.operation) if process is not None and process.operation else None
        ) or {}

    def _may_evict_all(self, known: Json, node: KubeObject | None) -> bool:
        """Whether the operation evacuates a node that its vendor has not taken, or hardly."""
        if known.get("reason") != "interrupted":
            return False
        runs = node is not None and is_ready(node)
        latest = RETURN_TIME if runs else SKEW
        return self._clock() - float(known["leaves_at"]) <= latest

    def _may_leave_pods(self, known: Json) -> bool:
        """Whether the operation evacuates a node that its vendor has taken, or nearly."""
        is_evacuation = known.get("reason") == "interrupted"
        return is_evacuation and self._clock() - float(known["leaves_at"]) >= -SKEW

    def _evicted(self, pod: KubeObject) -> None:
        self.count("evicted")
        meta, node = pod["metadata"], pod["spec"].get("nodeName", "")
        holder = self._kube.peek("nodes", node)
        if holder is not None and taint_of(holder, TO_BE_DELETED) is None:
            self.count("evicted from a node without our taint")
        owner, known = _owner(pod), self._known()
        if owner and meta["uid"] in self.waiting:
            self._evicted_of.setdefault(owner, []).append(meta["uid"])
        if meta["uid"] in self.protected.get(node, frozenset()) and is_protected(pod):
            if self._may_evict_all(known, holder):
                self.count("protected pods evicted from a node that is taken back")
            else:
                self.fault(
                    f"pod {meta['name']} was protected when {node} was tainted, and was evicted"
                )
        if self.replacements is not None and known.get("reason") == "consolidation" and owner:
            pods = [
                each for each in self._kube.list("pods", meta["namespace"]) if _owner(each) == owner
            ]
            self.replacements.moved(owner, len(pods))

    def _patched(self, before: KubeObject) -> None:
        name = before["metadata"]["name"]
        after = self._kube.peek("nodes", name)
        if after is None:
            return
        self._note_taint(name, after)
        if self.steering is not None:
            self.steering.patched(before, after, self._function())
        if taint_of(before, TO_BE_DELETED) is None and taint_of(after, TO_BE_DELETED) is not None:
            self.count("tainted")
            pods = [pod for pod in self._kube.pods_on(name) if is_protected(pod) and must_move(pod)]
            self.protected[name] = frozenset(pod["metadata"]["uid"] for pod in pods)
            known = self._known()
            if self.due_nodes is not None and known.get("reason"):
                self.count(f"tainted as {known['reason']}")
                self.due_nodes.planned(known["reason"], name, known["planned_at"])
            if known.get("reason") == "repair" and (other := self.repaired_beside(known)):
                self.fault(
                    f"node {name} is repaired before its successor comes, and {other} was not gone "
                    "yet"
                )
            if self.replacements is not None and known.get("replacement"):
                self.replacements.tainted(known["replacement"], name, known["planned_at"])
        if taint_of(before, TO_BE_DELETED) is not None and taint_of(after, TO_BE_DELETED) is None:
            self.count("untainted")
        lost = before["spec"].get("unschedulable") and not after["spec"].get("unschedulable")
        if lost and name in self.cordoned_by_users:
            self.fault(f"node {name} was cordoned by a person, and we uncordoned it")


def _owner(pod: KubeObject) -> str:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((f"{each['kind']}/{each['name']}" for each in owners if each.get("controller")), "")


_WAITED = 600.0
"""Seconds: pods that waited so recently may be the reason for a growth."""
_STALE_AFTER = 90.0
"""Seconds: a look at a node's pods that is older says nothing about them."""
