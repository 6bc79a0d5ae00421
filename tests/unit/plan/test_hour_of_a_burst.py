"""An hour after the burst of a real cluster: its nodes join after two minutes, and a scheduler that
shares no code with the planner places the pods as it likes, not as they were planned."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import msgspec

from chalicelib.model.node import HOSTNAME_LABEL
from tests.reference_data import SHARED, needs_shared
from tests.unit.plan.hour_of_joins import START, HourOfJoins, Json, Machine, Shape, instant

BURST = SHARED / "data" / "cases" / "burst"
JOINS_AFTER = 120.0  # seconds
LARGEST_GROUP = 40
NO_SUCH_TYPE = "x.16"  # the machine type that ten pods ask for and no group has
REFUSED = "0/60 nodes are available: 60 Insufficient cpu."
SHARED_OBJECTS = (
    ("replicasets", "ReplicaSet", "apps/v1"),
    ("daemonsets", "DaemonSet", "apps/v1"),
    ("poddisruptionbudgets", "PodDisruptionBudget", "policy/v1"),
    ("namespaces", "Namespace", "v1"),
)


def _captured(name: str, kind: str, version: str = "v1") -> list[Json]:
    content: dict[str, Any] = msgspec.json.decode(
        gzip.decompress((BURST / f"{name}.json.gz").read_bytes())
    )
    return [{"kind": kind, "apiVersion": version, **item} for item in content["items"]]


class HourOfBurst(HourOfJoins):
    """The captured cluster. Its scheduler refuses the waiting pods one after the other in so many
    seconds; when the first bought nodes have joined, it places them."""

    def __init__(self, lasts: float) -> None:
        objects = [
            item
            for name, kind, version in SHARED_OBJECTS
            for item in _captured(name, kind, version)
        ]
        super().__init__(*objects, expander=("least-waste",))
        self._lasts = lasts
        self._old = {node["metadata"]["name"]: node for node in _captured("nodes", "Node")}
        self._add_groups()
        self._burst = self._add_pods()

    def schedule(self) -> None:
        if len(self.nodes()) > len(self._old):
            super().schedule()
            return
        # All nodes are full: the captured pods have waited for a node.
        looked_at = int(len(self._burst) * min(1.0, (self.now - START) / self._lasts)) + 1
        for name in self._burst[:looked_at]:
            if not self.pods[name]["status"].get("conditions"):
                self._refuse(self.pods[name], REFUSED)

    def play_burst(self) -> None:
        """Run passes as soon as the one before has ended, until the burst is over."""
        while self.now < START + self._lasts + 5.0:
            plan = self.run_pass()
            self.now += plan.waits_for_pods or 1.5

    def unused(self) -> list[str]:
        """Return the bought nodes that no pod of the burst has."""
        used = {
            self.pods[name]["spec"].get("nodeName") for name in self._burst if name in self.pods
        }
        names = [node["metadata"]["name"] for node in self.nodes()]
        return [name for name in names if name not in self._old and name not in used]

    def without_place(self) -> list[Json]:
        """Return the pods without a node that a machine type of the cluster would take."""
        pods = [self.pods[name]["spec"] for name in self.pending()]
        return [pod for pod in pods if NO_SUCH_TYPE not in (pod.get("nodeSelector") or {}).values()]

    def _add_groups(self) -> None:
        manifest = msgspec.json.decode((BURST / "manifest.json").read_bytes())
        for described in manifest["nodeGroups"]:
            name = described["id"].rpartition("/")[2]
            prefix = "-".join(name.split("-")[:2]) + "-"
            nodes = [node for node in self._old if node.startswith(prefix)]
            group = self.group(
                described["id"], self._shape(nodes), joins_after=JOINS_AFTER, max=LARGEST_GROUP
            )
            group.machines += [Machine(node, START - 3600.0, START - 3600.0) for node in nodes]

    def _shape(self, nodes: Sequence[str]) -> Shape:
        def shape(name: str, age: float) -> Json:
            node = deepcopy(self._old.get(name, self._old[nodes[0]]))
            if name not in self._old:
                node["metadata"]["name"] = node["metadata"]["labels"][HOSTNAME_LABEL] = name
                del node["status"]["conditions"]
            return node

        return shape

    def _add_pods(self) -> list[str]:
        """Add the captured pods; returns those that wait, as they are
        created now, in their order."""
        waiting: list[tuple[str, str]] = []
        for pod in _captured("pods", "Pod"):
            name = pod["metadata"]["name"]
            self.pods[name] = pod
            if not pod["spec"].get("nodeName"):
                waiting.append((pod["metadata"]["creationTimestamp"], name))
                pod["metadata"]["creationTimestamp"] = instant(START)
                pod["status"] = {"phase": "Pending"}
        return [name for _, name in sorted(waiting)]


@needs_shared
def test_hour_after_a_burst_no_bought_node_is_unused() -> None:
    hour = HourOfBurst(lasts=13.0)
    hour.play_burst()
    hour.play(2 * JOINS_AFTER, every=30.0)
    hour.play(3300.0, every=300.0)
    # Two plans for the burst. The third one is for pods that find no place when all nodes have
    # joined, because the scheduler places the others otherwise than they were planned.
    assert len({at for at, _, _ in hour.bought}) <= 3
    assert 0 < hour.bought_nodes() <= 52
    assert hour.removed == []
    assert len(hour.unused()) <= 1
    assert hour.without_place() == []
