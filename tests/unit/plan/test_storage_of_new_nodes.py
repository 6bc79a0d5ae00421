"""Storage that a driver publishes per node, pass by pass: what new nodes are bought for it."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.plan import Plan
from chalicelib.model.reason import ReasonCode
from chalicelib.reasons.text import text
from tests.unit.plan.hour_of_joins import HOUR, MINUTE, HourOfJoins, Json, Shape, node_object

DRIVER, KEY = "topolvm.io", "topology.topolvm.io/node"
GIB = 2**30
TYPE = "node.kubernetes.io/instance-type"


class StorageStory:
    """A driver with a capacity of its own on each node. amounts: node -> GiB; others:
    of nodes that are not named, None: they never publish. late: seconds after its
    creation until a node publishes."""

    def __init__(
        self,
        story: HourOfJoins,
        others: int | None = 100,
        *,
        late: float = 0.0,
        mode: str = "WaitForFirstConsumer",
    ) -> None:
        self.story, self.others, self.late = story, others, late
        self.amounts: dict[str, int | None] = {}
        story.around = self.objects
        story.objects += [
            {
                "kind": "StorageClass",
                "apiVersion": "storage.k8s.io/v1",
                "metadata": {"name": "local"},
                "provisioner": DRIVER,
                "volumeBindingMode": mode,
            },
            {
                "kind": "CSIDriver",
                "apiVersion": "storage.k8s.io/v1",
                "metadata": {"name": DRIVER},
                "spec": {"storageCapacity": True},
            },
        ]

    def objects(self, nodes: list[Json]) -> list[Json]:
        """The capacities and CSINodes of nodes that have published."""
        made: list[Json] = []
        for node in nodes:
            name = node["metadata"]["name"]
            amount = self.amounts.get(name, self.others)
            if amount is None or self.age(node) < self.late:
                continue
            made.append(
                {
                    "kind": "CSIStorageCapacity",
                    "apiVersion": "storage.k8s.io/v1",
                    "metadata": {"name": f"c-{name}", "namespace": "default"},
                    "storageClassName": "local",
                    "nodeTopology": {"matchLabels": {KEY: name}},
                    "capacity": f"{amount}Gi",
                }
            )
            made.append(
                {
                    "kind": "CSINode",
                    "apiVersion": "storage.k8s.io/v1",
                    "metadata": {"name": name},
                    "spec": {"drivers": [{"name": DRIVER, "nodeID": name, "topologyKeys": [KEY]}]},
                }
            )
        return made

    def age(self, node: Json) -> float:
        """The seconds since a node joined."""
        machines = [machine for group in self.story.groups.values() for machine in group.machines]
        joined = next(
            machine.joins_at for machine in machines if machine.name == node["metadata"]["name"]
        )
        return self.story.now - joined

    def deploy(self, name: str, gib: int, cpu: str = "3") -> None:
        """A pod with a claim of this size."""
        self.story.objects.append(
            {
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "local",
                    "resources": {"requests": {"storage": f"{gib}Gi"}},
                },
                "status": {"phase": "Pending"},
            }
        )
        self.story.deploy(
            name, 1, cpu, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        )


def labelled(kind: str = "m5") -> Shape:
    def shape(name: str, age: float) -> Json:
        return node_object(name, labels={KEY: name, TYPE: kind})

    return shape


def full(size: int = 2, **more: Any) -> HourOfJoins:
    """A cluster with one group whose nodes are full."""
    story = HourOfJoins()
    story.group("g", labelled(), size=size, **more)
    for number in range(size):
        story.deploy("old", 1, "4", "1Gi", on=f"g-{number + 1}")
    return story


def first_purchase(story: HourOfJoins) -> Plan:
    for _ in range(10):
        plan = story.run_pass()
        story.now += 20.0
        if plan.scale_ups:
            return plan
    raise AssertionError("nothing is bought")


def promised(plan: Plan) -> set[bool]:
    return {placement.promised for placement in plan.promises}


def reasons(story: HourOfJoins) -> list[str]:
    (verdict,) = story.plans[-1].unschedulable
    return [text(reason) for reason in verdict.reasons["g"]]


@pytest.mark.parametrize("late", [0.0, 60.0, 300.0], ids=str)
def test_new_node_has_the_capacity_that_others_of_its_group_publish(late: float) -> None:
    story = full()
    storage = StorageStory(story, late=late)
    for name in ("db-a", "db-b"):
        storage.deploy(name, 80)

    assert promised(first_purchase(story)) == {True}
    story.play(HOUR)

    assert not story.pending()
    assert story.bought_nodes() == 2
    assert story.size("g") == 4


def test_pod_that_no_node_of_the_group_could_hold_buys_nothing() -> None:
    story = full()
    StorageStory(story).deploy("db", 101)

    story.play(HOUR)

    assert story.bought_nodes() == 0
    assert "node(s) did not have enough free storage" in reasons(story)


def test_capacity_in_use_now_does_not_count_where_more_was_published() -> None:
    story = full()
    storage = StorageStory(story)
    story.play(5 * MINUTE)
    storage.amounts = {"g-1": 10, "g-2": 20}
    for number in (1, 2):
        name = f"used-{number}"
        storage.deploy(name, 1, "0")
        story.pods[sorted(story.pods)[-1]]["spec"]["nodeName"] = f"g-{number}"
    storage.deploy("db", 90)

    story.play(HOUR)

    assert story.bought_nodes() == 1
    assert not story.pending()


def test_learnt_capacity_survives_the_last_node() -> None:
    story = full()
    storage = StorageStory(story)
    story.play(5 * MINUTE)
    story.delete_pods(*list(story.pods))
    story.play(40 * MINUTE)
    assert story.size("g") == 0
    storage.deploy("db", 90)

    assert promised(first_purchase(story)) == {True}
    story.play(HOUR)

    assert not story.pending()
    assert story.bought_nodes() == 1


def test_learnt_capacity_is_forgotten_with_the_machine_type() -> None:
    story = full()
    storage = StorageStory(story)
    story.play(5 * MINUTE)
    assert story.memory.templates["g"].capacities == {"local": 100 * GIB}

    story.groups["g"].shape = labelled("m6")
    storage.others = 30
    story.play(5 * MINUTE)

    assert story.memory.templates["g"].capacities == {"local": 30 * GIB}


def test_unknown_capacity_gets_one_attempt_that_is_not_promised() -> None:
    story = HourOfJoins()
    story.group("other", labelled(), size=2, max=2)
    story.group("g", labelled(), template=node_object("template"))
    storage = StorageStory(story)
    storage.amounts = {"other-1": 1, "other-2": 1}
    for name in ("db-a", "db-b", "db-c"):
        storage.deploy(name, 80)

    plan = first_purchase(story)
    assert story.bought_nodes() == 1
    assert promised(plan) == {False}
    story.play(HOUR)

    assert not story.pending()
    assert story.bought_nodes() == 3


def test_attempt_whose_node_publishes_less_is_not_repeated() -> None:
    story = HourOfJoins()
    story.group("other", labelled(), size=2, max=2)
    story.group("g", labelled(), template=node_object("template"))
    storage = StorageStory(story, others=50)
    storage.amounts = {"other-1": 1, "other-2": 1}
    storage.deploy("db", 80)

    story.play(3 * HOUR, every=30.0)

    assert story.bought_nodes() == 1
    assert story.size("g") == 0
    assert "node(s) did not have enough free storage" in reasons(story)


@pytest.mark.parametrize("known", [True, False])
def test_driver_that_never_publishes_does_not_buy_without_end(known: bool) -> None:
    story = HourOfJoins()
    story.group("other", labelled(), size=2, max=2)
    story.group("g", labelled(), template=node_object("template"), size=2 if known else 0)
    for number in (1, 2) if known else ():
        story.deploy("old", 1, "4", "1Gi", on=f"g-{number}")
    storage = StorageStory(story, others=None)
    storage.amounts = {"other-1": 1, "other-2": 1, **({"g-1": 100, "g-2": 100} if known else {})}
    storage.deploy("db", 80)

    story.play(HOUR)
    assert 1 <= story.bought_nodes() <= 3
    story.play(5 * HOUR, every=60.0)

    assert story.bought_nodes() <= 9
    assert story.size("g") <= 3 + 2 * known


def test_group_whose_nodes_have_no_driver_is_not_tried() -> None:
    story = HourOfJoins()
    story.group("other", labelled(), size=2, max=2)
    story.group("g", lambda name, age: node_object(name), size=1)
    story.deploy("old", 1, "4", "1Gi", on="g-1")
    storage = StorageStory(story, others=None)
    storage.amounts = {"other-1": 1, "other-2": 1}
    storage.deploy("db", 80)

    story.play(HOUR)

    assert story.bought_nodes() == 0


def test_claim_of_a_class_that_binds_at_once_buys_nothing() -> None:
    story = full()
    StorageStory(story, mode="Immediate").deploy("db", 10)

    story.play(10 * MINUTE)

    assert story.bought_nodes() == 0
    (verdict,) = story.plans[-1].unschedulable
    assert {reason.code for reason in verdict.reasons["g"]} == {ReasonCode.UNBOUND_IMMEDIATE}


def test_group_that_lacks_cpu_and_storage_for_a_pod_names_both() -> None:
    story = full()
    StorageStory(story).deploy("db", 101, cpu="12")

    story.play(10 * MINUTE)

    assert reasons(story) == ["Insufficient cpu", "node(s) did not have enough free storage"]
