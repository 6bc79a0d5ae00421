"""A cluster in which plans of consolidation are carried out at once, one after the other."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from chalicelib.model.group import Instance, NodeGroup, Pool
from chalicelib.model.memory import Memory
from chalicelib.model.node import HOSTNAME_LABEL, Condition, Node
from chalicelib.model.plan import Move, Plan
from chalicelib.model.pod import Pod, PodAffinityTerm
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.prices import node_price
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.node_limit import NodeLimit
from chalicelib.policy.settings.node_prices import NodePrices
from tests.builders import NOW, cluster, having, near, node
from tests.property.consolidation_clusters import TYPE
from tests.property.consolidation_referee import DRAINED, RefereeCluster, emptiest

DAY = 86_400.0


class Rounds:
    """The cluster between its plans."""

    def __init__(self, snapshot: Snapshot, policy: Policy, later: Sequence[NodeGroup] = ()) -> None:
        """later: groups that exist from the moment on at which nothing more is worth it
        without them, one by one."""
        self.snapshot, self.policy, self.later = snapshot, policy, list(later)
        self.now, self.number = NOW, 0
        self.chains: dict[str, int] = {}  # node -> how many replacements led to it

    def price(self) -> float:
        """The price of all nodes."""
        return round(
            sum(node_price(node, self.policy.prices) or 0.0 for node in self.snapshot.nodes), 6
        )

    def longest_chain(self) -> int:
        """The most replacements of one node after the other."""
        return max(self.chains.values(), default=0)

    def advance(self) -> bool:
        """Plan once and carry out all of it; returns whether there was anything."""
        while True:
            self.now += DAY
            plan, _ = plan_cluster(self.snapshot, self.policy, Memory(), self.now, 0)
            assert plan.consolidation is not None
            if plan.consolidation.moves:
                self._carry_out(plan)
                return True
            if not self.later:
                return False
            groups = (*self.snapshot.groups, self.later.pop(0))
            self.snapshot = msgspec.structs.replace(self.snapshot, groups=groups)

    def _carry_out(self, plan: Plan) -> None:
        assert plan.consolidation is not None
        moves = plan.consolidation.moves
        gone = {name for move in moves for name in move.nodes}
        bought = [node for move in moves for node in self._bought(move)]
        pods = [pod for pod in self.snapshot.pods if pod.node not in gone]
        new = msgspec.structs.replace(self.snapshot, nodes=(*self.snapshot.nodes, *bought))
        pods += [
            self._daemon(cls.cls, node.name) for cls in self.snapshot.daemonsets for node in bought
        ]
        referee = RefereeCluster(msgspec.structs.replace(new, pods=tuple(pods)))
        for name in sorted(gone):
            referee.nodes[name].taints.append(DRAINED)
        classes = self.snapshot.classes
        waiting = [
            pod
            for pod in self.snapshot.pods
            if pod.node in gone and not classes[pod.cls].is_daemonset
        ]
        for pod in sorted(
            waiting, key=lambda pod: (-classes[pod.cls].requests.get("cpu", 0), pod.key)
        ):
            place = referee.bind(pod, classes[pod.cls], emptiest)
            assert place is not None, pod.key
            pods.append(msgspec.structs.replace(pod, node=place))
        self._store([node for node in new.nodes if node.name not in gone], pods)

    def _bought(self, move: Move) -> list[Node]:
        """The new nodes of a move; each is one replacement further than the nodes that go."""
        templates = {group.id: group.template for group in self.snapshot.groups}
        chain = 1 + max(self.chains.get(name, 0) for name in move.nodes)
        nodes = []
        for purchase in move.purchases:
            template = templates[purchase.group]
            assert template is not None
            for _ in range(purchase.nodes):
                self.number += 1
                name = f"new-{self.number:04d}"
                self.chains[name] = chain
                labels = {**template.labels, HOSTNAME_LABEL: name}
                made = {
                    "labels": labels,
                    "created": self.now,
                    "uid": name,
                    "conditions": self._ready(),
                }
                nodes.append(
                    msgspec.structs.replace(
                        template, name=name, provider_id=f"test://{purchase.group}/{name}", **made
                    )
                )
        return nodes

    def _ready(self) -> tuple[Condition, ...]:
        return (Condition("Ready", "True", "", self.now),)

    def _daemon(self, cls: int, node: str) -> Pod:
        name = f"agent-{node}"
        return Pod(
            "kube-system",
            name,
            name,
            cls,
            node=node,
            created=NOW,
            phase="Running",
            scheduled="True",
        )

    def _store(self, nodes: list[Node], pods: list[Pod]) -> None:
        """Make this the cluster, with the groups as the vendor would list them."""
        groups = []
        for group in self.snapshot.groups:
            own = [node for node in nodes if node.provider_id.startswith(f"test://{group.id}/")]
            instances = tuple(
                Instance(node.provider_id, handle=node.provider_id, node=node.name) for node in own
            )
            groups.append(msgspec.structs.replace(group, instances=instances, target=len(own)))
        changed = {"nodes": tuple(nodes), "pods": tuple(pods), "groups": tuple(groups)}
        self.snapshot = msgspec.structs.replace(self.snapshot, **changed)


def uniform(seed: int, k: float) -> Rounds:
    """Equal nodes with equal pods, and ever cheaper types that come one by one, down to
    a sixteenth of the price."""
    chance, build = random.Random(seed), cluster()
    price, prices = 1.0, {"t00": 1.0}
    while price > 1 / 16:
        price = max(1 / 16, price * chance.uniform(0.6, 0.95))
        prices[f"t{len(prices):02d}"] = round(price, 6)
    count, pods = chance.randint(2, 4), chance.randint(1, 4)
    for number in range(count):
        build.node(f"n{number}", "8", "32Gi", group="t00", labels={TYPE: "t00"})
        build.running(f"n{number}", pods, "100m", "128Mi", owner="web")
        # These pods stay apart, so that nodes are replaced and not merged.
        build.running(
            f"n{number}",
            1,
            "100m",
            "128Mi",
            owner="web",
            labels={"only": "1"},
            pod_anti_affinity=(only(),),
        )
    for kind in prices:
        build.group(
            kind,
            max=20,
            pool=Pool("pool"),
            template=node(f"new-{kind}", "8", "32Gi", labels={TYPE: kind}),
        )
    first, *later = build.groups
    build.groups = [first]
    return Rounds(build.snapshot(), open_policy(prices, k), later)


def only() -> PodAffinityTerm:
    """Keeps the pods with the label `only` on different nodes."""
    return near(HOSTNAME_LABEL, having(only="1"))


def open_policy(prices: dict[str, float], k: float) -> Policy:
    """Everything may go at once, and nothing but the score decides."""
    settings = Consolidation(
        mode=ConsolidationMode.FULL,
        aggressiveness=k,
        min_savings=0.0,
        confirm_after=0.0,
        replace_timeout=0.0,
        max_surge=NodeLimit(nodes=100),
        max_replacements=100,
        moves_per_pod_per_day=0,
    )
    return Policy(
        "test",
        mode=Mode.ACTIVE,
        consolidation=settings,
        prices=NodePrices(instance_types=prices),
        disruption_budgets=(DisruptionBudget("all", NodeLimit(share=1.0)),),
        options=Options(
            max_drain_parallelism=100, max_scale_down_parallelism=100, scale_down_unneeded_time=1e9
        ),
    )
