"""Builders of model objects with sensible defaults: a test names only the fields it is about, and
later values override earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from chalicelib.model.group import Instance, NodeGroup
from chalicelib.model.memory import GroupMemory, Memory, ScaleUpRequest
from chalicelib.model.node import HOSTNAME_LABEL, Condition, Node, Taint
from chalicelib.model.plan import Plan, UnschedulablePods
from chalicelib.model.pod import Owner, Pod, PodAffinityTerm, PodClass, SpreadConstraint, Toleration
from chalicelib.model.quantity import parse_amount
from chalicelib.model.selector import Requirement, Selector
from chalicelib.model.snapshot import Controller, DaemonSet, PodDisruptionBudget, Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from chalicelib.reasons.text import text

NOW = 1_800_000_000.0
OLD = NOW - 7200.0
ZONE = "topology.kubernetes.io/zone"


def amounts(**named: str | int) -> dict[str, int]:
    """amounts(cpu="500m", memory="1Gi", gpu=1): `gpu` stands for
    nvidia.com/gpu, `_` in names for `-`."""
    names = {"gpu": "nvidia.com/gpu", "ephemeral_storage": "ephemeral-storage"}
    return {names.get(key, key): parse_amount(key, str(value)) for key, value in named.items()}


def node(
    name: str,
    cpu: str = "1",
    memory: str = "4Gi",
    pods: int = 110,
    *,
    group: str = "",
    zone: str = "",
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Taint] = (),
    ready: bool = True,
    ready_since: float = OLD,
    created: float = OLD,
    **more: Any,
) -> Node:
    """A ready node. group: its group, for `snapshot`; more: any other field of
    Node, or extra=amounts(...)."""
    offers = {**amounts(cpu=cpu, memory=memory, pods=pods), **more.pop("extra", {})}
    named = {HOSTNAME_LABEL: name, **({ZONE: zone} if zone else {}), **(labels or {})}
    fields: dict[str, Any] = {
        "labels": named,
        "allocatable": offers,
        "capacity": offers,
        "uid": f"uid-{name}",
        "taints": tuple(taints),
        "provider_id": f"test://{group or 'none'}/{name}",
        "created": created,
        "conditions": (Condition("Ready", "True" if ready else "False", "", ready_since),),
    }
    return Node(name=name, **{**fields, **more})


def having(**labels: str) -> Selector:
    """A selector that matches objects with all these labels; `_` in names for `-`."""
    return Selector(
        tuple(
            Requirement(key.replace("_", "-"), "In", (value,))
            for key, value in sorted(labels.items())
        )
    )


def near(key: str, selector: Selector | None, **more: Any) -> PodAffinityTerm:
    """A required affinity or anti-affinity term over the domains of a label."""
    return PodAffinityTerm(key, selector, **more)


def even(key: str, selector: Selector | None, skew: int = 1, **more: Any) -> SpreadConstraint:
    """A spread constraint over the domains of a label."""
    return SpreadConstraint(key, skew, selector, **more)


class ClusterBuilder:
    """Collects objects and makes a Snapshot; each pod gets the class that its arguments
    describe."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.pods: list[Pod] = []
        self.classes: list[PodClass] = []
        self.groups: list[NodeGroup] = []
        self.budgets: list[PodDisruptionBudget] = []
        self.controllers: list[Controller] = []
        self.daemonsets: list[DaemonSet] = []
        self.more: dict[str, Any] = {}

    def cls(
        self,
        cpu: str | int = 0,
        memory: str | int = 0,
        *,
        owner: str | Owner | None = "rs",
        namespace: str = "default",
        kind: str = "ReplicaSet",
        **more: Any,
    ) -> int:
        """The index of a class. owner: the name of one of that kind, or any
        owner; None means a bare pod."""
        if isinstance(owner, str):
            owner = Owner(kind, owner, f"uid-{owner}")
        requests = {
            k: v
            for k, v in {**amounts(cpu=cpu, memory=memory), **more.pop("extra", {})}.items()
            if v
        }
        made = PodClass(
            namespace=namespace,
            requests=requests,
            labels=more.pop("labels", {"app": owner.name if owner else "bare"}),
            owner=owner,
            **more,
        )
        if made not in self.classes:
            self.classes.append(made)
        return self.classes.index(made)

    def pending(
        self,
        count: int,
        cpu: str | int = 0,
        memory: str | int = 0,
        *,
        name: str = "p",
        created: float = OLD,
        **more: Any,
    ) -> ClusterBuilder:
        """Adds pods that the scheduler rejected."""
        cls = self.cls(cpu, memory, **more)
        namespace = self.classes[cls].namespace
        self.pods += [
            Pod(
                namespace,
                f"{name}-{len(self.pods) + at:05d}",
                f"uid-{name}-{at}",
                cls,
                created=created,
                phase="Pending",
                scheduled="False",
                scheduled_reason="Unschedulable",
            )
            for at in range(count)
        ]
        return self

    def running(
        self,
        on: str,
        count: int = 1,
        cpu: str | int = 0,
        memory: str | int = 0,
        *,
        name: str = "r",
        created: float = OLD,
        pod: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> ClusterBuilder:
        """Adds pods bound to a node. pod: further fields of Pod."""
        cls = self.cls(cpu, memory, **more)
        namespace = self.classes[cls].namespace
        for _ in range(count):
            fields: dict[str, Any] = {
                "node": on,
                "created": created,
                "phase": "Running",
                "scheduled": "True",
            }
            self.pods.append(
                Pod(
                    namespace,
                    f"{name}-{len(self.pods):05d}",
                    f"uid-{len(self.pods)}",
                    cls,
                    **{**fields, **(pod or {})},
                )
            )
        return self

    def node(self, name: str, cpu: str = "1", memory: str = "4Gi", **more: Any) -> ClusterBuilder:
        """Adds a node; see `node`."""
        self.nodes.append(node(name, cpu, memory, **more))
        return self

    def group(
        self,
        name: str,
        *,
        min: int = 0,  # noqa: A002 - the name of the field
        max: int = 100,  # noqa: A002 - the name of the field
        target: int | None = None,
        template: Node | None = None,
        **more: Any,
    ) -> ClusterBuilder:
        """Adds a node group whose members are the nodes built with
        group=name; call it after them."""
        mine = [n for n in self.nodes if n.provider_id.startswith(f"test://{name}/")]
        self.groups.append(
            NodeGroup(
                id=name,
                provider="test",
                min=min,
                max=max,
                target=len(mine) if target is None else target,
                instances=tuple(
                    Instance(id=n.provider_id, handle=n.provider_id, node=n.name) for n in mine
                ),
                template=template,
                **more,
            )
        )
        return self

    def budget(
        self, name: str, allowed: int, selector: Any, namespace: str = "default"
    ) -> ClusterBuilder:
        """Adds a PodDisruptionBudget."""
        self.budgets.append(PodDisruptionBudget(namespace, name, selector, allowed))
        return self

    def daemonset(
        self, name: str, cpu: str | int = 0, memory: str | int = 0, **more: Any
    ) -> ClusterBuilder:
        """Adds a DaemonSet in kube-system; its pods tolerate every taint by default."""
        more.setdefault("tolerations", (Toleration(operator="Exists"),))
        cls = self.cls(cpu, memory, owner=name, kind="DaemonSet", namespace="kube-system", **more)
        self.daemonsets.append(DaemonSet("kube-system", name, f"uid-{name}", cls))
        return self

    def snapshot(self) -> Snapshot:
        """The cluster as built."""
        kinds = tuple(sorted({c.kind for c in self.controllers}))
        return Snapshot(
            cluster="test",
            taken_at=NOW,
            nodes=tuple(self.nodes),
            pods=tuple(self.pods),
            classes=tuple(self.classes),
            groups=tuple(self.groups),
            budgets=tuple(self.budgets),
            controllers=tuple(self.controllers),
            controller_kinds=kinds,
            daemonsets=tuple(self.daemonsets),
            **self.more,
        )

    def plan(
        self,
        memory: Memory | None = None,
        *,
        now: float = NOW,
        unneeded: float | None = None,
        seed: int = 0,
        clock: Callable[[], float] | None = None,
        **options: Any,
    ) -> Plan:
        """The plan for the cluster."""
        return self.decide(memory, now=now, unneeded=unneeded, seed=seed, clock=clock, **options)[0]

    def decide(
        self,
        memory: Memory | None = None,
        *,
        now: float = NOW,
        unneeded: float | None = None,
        seed: int = 0,
        clock: Callable[[], float] | None = None,
        **options: Any,
    ) -> tuple[Plan, Memory]:
        """The plan and the next memory."""
        policy = Policy(
            name="test", mode=Mode.ACTIVE, options=msgspec.structs.replace(Options(), **options)
        )
        return plan_cluster(
            self.snapshot(),
            policy,
            memory or Memory(),
            now,
            seed,
            assume_unneeded_for=unneeded,
            clock=clock,
        )


def cluster() -> ClusterBuilder:
    """An empty cluster."""
    return ClusterBuilder()


def growth(plan: Plan) -> dict[str, tuple[int, int]]:
    """Scale-ups by group: group -> (new nodes, pods)."""
    return {up.group: (up.to_size - up.from_size, len(up.pods)) for up in plan.scale_ups}


def stays(plan: Plan) -> dict[str, str]:
    """node -> the reason code why it stays."""
    return {verdict.node: verdict.reason.code.value for verdict in plan.unremovable}


def expected(plan: Plan) -> dict[str, str]:
    """pod -> the node of its placement; `group/3` is the third new node of a group."""
    return {
        pod: promise.node or f"{promise.group}/{promise.number}"
        for promise in plan.promises
        for pod in promise.pods
    }


def verdict(plan: Plan, pod: str = "") -> UnschedulablePods:
    """The verdict on a pod without a placement (the first one, if none is named)."""
    return next(each for each in plan.unschedulable if not pod or pod in each.pods)


def words(plan: Plan, pod: str = "") -> dict[str, list[str]]:
    """group -> the reason texts why a pod gets no node there."""
    return {
        group: [text(reason) for reason in reasons]
        for group, reasons in verdict(plan, pod).reasons.items()
    }


def tally(plan: Plan, pod: str = "") -> dict[str, int]:
    """The reasons of existing nodes, counted as the scheduler does."""
    return {text(reason): count for reason, count in verdict(plan, pod).against}


def coming(groups: Mapping[str, int]) -> Memory:
    """Adds a scale-up request of one minute ago for that many nodes of each group."""
    return Memory(
        groups={
            name: GroupMemory(target=count, request=ScaleUpRequest(count, NOW - 60, NOW + 840))
            for name, count in groups.items()
        }
    )
