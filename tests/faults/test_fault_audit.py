"""The audit of the fault test detects each invariant when it is broken deliberately."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from chalicelib.passes import scan_scheduler
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.objects import pdb
from infra.emulators.kube.objects import KubeObject, clone
from tests.faults.final_checks import finish, restless
from tests.faults.io_interceptor import Process
from tests.faults.node_events import sicken
from tests.faults.objects import SAFE_TO_EVICT
from tests.faults.run import play
from tests.faults.run_state import HARD, Broken, FaultRun

SCALE = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machinedeployments/{}/scale"
MERGE = {"Content-Type": "application/merge-patch+json"}


class Culprit:
    """A function of ours that makes forbidden requests."""

    def __init__(self, machine: FaultRun) -> None:
        self.machine, self.audit = machine, machine.world.audit
        self.kube = machine.world.kube
        machine.world.process = Process("act_clusterapi", "op", machine.world.clock())

    def planned(self, kind: str, before: int = 0, after: int = 0, *handles: str) -> None:
        """The operation it works on."""
        known = {"kind": kind, "from": before, "to": after, "handles": list(handles)}
        self.audit.planned = lambda _: known

    def request(self, method: str, path: str, body: Any = None) -> None:
        """Sends one request through the interceptor."""
        api = self.machine.world.server.api
        kind = MERGE if method == "PATCH" else {"Content-Type": "application/json"}
        headers = {**kind, "Authorization": f"Bearer {api.authority.user('admin').token}"}
        answer = api.handle(method, path, headers, json.dumps(body).encode() if body else b"")
        assert answer.status < 300, answer.body

    def scale(self, group: str, size: int) -> None:
        self.request("PATCH", SCALE.format(group), {"spec": {"replicas": size}})

    def mark(self, machine: str, mark: str) -> None:
        found = self.kube.get("machines", machine, "default", fields.GROUP)
        assert found is not None
        found["metadata"].setdefault("annotations", {})[fields.DELETE_MACHINE] = mark
        self.kube.update("machines", found, fields.GROUP)

    def machines(self, group: str) -> list[str]:
        return [
            each["metadata"]["name"]
            for each in self.kube.list("machines", "default", fields.GROUP)
            if each["metadata"]["labels"][fields.DEPLOYMENT_NAME] == group
        ]

    def faults(self, words: str) -> list[str]:
        return [fault for fault in self.audit.faults if words in fault]


@pytest.fixture
def culprit() -> Iterator[Culprit]:
    with FaultRun() as machine:
        yield Culprit(machine)


def test_audit_detects_scale_up_above_the_maximum(culprit: Culprit) -> None:
    culprit.planned("grow", 2, 5)
    culprit.scale("small", 5)
    assert culprit.faults("above its maximum of 4")


def test_audit_detects_an_unplanned_scale_up(culprit: Culprit) -> None:
    culprit.audit.planned = lambda _: None
    culprit.scale("small", 3)
    assert culprit.faults("without an operation")


def test_audit_detects_a_scale_up_by_more_than_planned(culprit: Culprit) -> None:
    culprit.planned("grow", 2, 3)
    culprit.scale("small", 4)
    assert culprit.faults("small grew from 2 to 4, but op is")


def test_audit_detects_a_second_purchase(culprit: Culprit) -> None:
    culprit.planned("grow", 2, 3)
    culprit.scale("small", 3)
    found = culprit.kube.get("machinedeployments", "small", "default", fields.GROUP)
    assert found is not None
    found["spec"]["replicas"] = 2
    culprit.kube.update("machinedeployments", found, fields.GROUP)
    assert not culprit.faults("bought twice")
    culprit.scale("small", 3)
    assert culprit.faults("op bought twice")


def test_audit_detects_a_size_below_the_minimum(culprit: Culprit) -> None:
    culprit.planned("remove", 2, 0)
    culprit.scale("large", 0)
    assert culprit.faults("below its minimum of 1")


def test_audit_detects_removal_of_an_instance_without_a_delete_annotation(culprit: Culprit) -> None:
    culprit.planned("remove", 2, 1)
    culprit.scale("large", 1)
    assert culprit.faults("although nobody marked it")


def test_audit_detects_a_delete_annotation_of_another_operation(culprit: Culprit) -> None:
    victim = culprit.machines("large")[0]
    culprit.mark(victim, "outscaler/op/1")
    culprit.planned("remove", 2, 1, "another")
    culprit.scale("large", 1)
    assert culprit.faults(f"machine {victim} goes by the mark")


def test_audit_detects_recently_seen_pods_on_a_removed_node(culprit: Culprit) -> None:
    pod = next(
        each for each in culprit.kube.list("pods", "default") if each["spec"].get("nodeName")
    )
    node = pod["spec"]["nodeName"]
    group = node.split("-")[0]
    culprit.request("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")
    culprit.mark(node, "outscaler/op/1")
    culprit.planned("remove", 2, 1, node)
    culprit.scale(group, 1)
    assert culprit.faults(f"node {node} goes with pods")


def test_audit_detects_removal_of_an_untainted_node(culprit: Culprit) -> None:
    node = culprit.machine.world.nodes()[0]
    culprit.audit.tainted.clear()
    culprit.mark(node, "outscaler/op/1")
    culprit.planned("remove", 2, 1, node)
    culprit.scale(node.split("-")[0], 1)
    assert culprit.faults(f"node {node} goes and was never tainted")


def test_audit_detects_an_instance_without_a_pending_pod(culprit: Culprit) -> None:
    culprit.audit.waiting.clear()
    culprit.planned("grow", 2, 3)
    culprit.scale("small", 3)
    assert culprit.faults("1 machines are to come, and 0 pods wait")


def test_audit_accepts_user_requested_instances_without_a_pending_pod(culprit: Culprit) -> None:
    culprit.audit.waiting.clear()
    culprit.audit.forgive("small", 3)
    culprit.planned("grow", 3, 4)
    culprit.scale("small", 4)
    assert culprit.faults("1 machines are to come, and 0 pods wait")
    assert not culprit.faults("2 machines are to come")


def test_audit_accepts_the_machine_in_place_of_one_deleted_by_a_user(culprit: Culprit) -> None:
    culprit.audit.waiting.clear()
    culprit.audit.note_machine_deleted("small")
    culprit.kube.delete("machines", culprit.machines("small")[0], "default", fields.GROUP)
    culprit.machine.world.step(6.0)  # it is gone, and the other one has no node yet
    culprit.planned("grow", 2, 3)
    culprit.machine.world.process = Process("act_clusterapi", "op", culprit.machine.world.clock())
    culprit.scale("small", 3)
    assert culprit.faults("1 machines are to come, and 0 pods wait")
    assert not culprit.faults("2 machines are to come")


def test_audit_detects_a_pod_deleted_without_eviction(culprit: Culprit) -> None:
    pod = culprit.kube.list("pods", "default")[0]["metadata"]["name"]
    culprit.request("DELETE", f"/api/v1/namespaces/default/pods/{pod}")
    assert culprit.faults("deleted and not evicted")


def test_audit_detects_a_node_deleted_by_us(culprit: Culprit) -> None:
    culprit.request("DELETE", f"/api/v1/nodes/{culprit.machine.world.nodes()[0]}")
    assert culprit.faults("a Node was deleted")


def test_audit_detects_removal_of_a_users_cordon(culprit: Culprit) -> None:
    name = culprit.machine.world.nodes()[0]
    culprit.audit.cordoned_by_users.add(name)
    node = culprit.kube.get("nodes", name)
    assert node is not None
    node["spec"]["unschedulable"] = True
    culprit.kube.update("nodes", node)
    culprit.request("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None}})
    assert culprit.faults("cordoned by a person")


@pytest.mark.parametrize(
    ("reason", "left", "ready", "is_fault"),
    [
        ("interrupted", 60.0, True, False),
        ("interrupted", -60.0, True, False),
        ("interrupted", -60.0, False, True),
        ("interrupted", -400.0, True, True),
        ("drifted", 60.0, True, True),
    ],
)
def test_protected_pod_may_only_be_evicted_until_its_machine_is_taken(
    culprit: Culprit, reason: str, left: float, *, ready: bool, is_fault: bool
) -> None:
    pod = clone(
        next(each for each in culprit.kube.list("pods", "default") if each["spec"].get("nodeName"))
    )
    pod["metadata"].setdefault("annotations", {})[SAFE_TO_EVICT] = "false"
    culprit.kube.update("pods", pod)
    leaves_at = culprit.machine.world.clock() + left
    culprit.audit.planned = lambda _: {"kind": "remove", "reason": reason, "leaves_at": leaves_at}
    taint = {"key": HARD, "value": "1", "effect": "NoSchedule"}
    node_name = pod["spec"]["nodeName"]
    culprit.request("PATCH", f"/api/v1/nodes/{node_name}", {"spec": {"taints": [taint]}})
    if not ready:
        stored = culprit.kube.get("nodes", node_name)
        assert stored is not None
        node = clone(stored)
        node["status"]["conditions"] = []
        culprit.kube.update("nodes", node)
    name = pod["metadata"]["name"]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": "default"},
    }
    culprit.request("POST", f"/api/v1/namespaces/default/pods/{name}/eviction", body)
    assert bool(culprit.faults(f"pod {name} was protected")) is is_fault


def test_audit_detects_a_second_repair_of_a_full_group(culprit: Culprit) -> None:
    culprit.audit.planned = lambda _: {"kind": "remove", "reason": "repair"}
    culprit.audit.repaired_beside = lambda _: "another"
    taint = {"key": HARD, "value": "1", "effect": "NoSchedule"}
    culprit.request(
        "PATCH", f"/api/v1/nodes/{culprit.machine.world.nodes()[0]}", {"spec": {"taints": [taint]}}
    )
    assert culprit.faults("is repaired before its successor comes, and another was not gone yet")


def test_audit_knows_which_machines_a_group_of_two_templates_gives_up() -> None:
    with FaultRun(1, consolidates=True, age=0.0) as machine:
        culprit = Culprit(machine)
        machine.world.cluster.capi.change_template("default/large", "v1.37.0")
        machine.world.settle()
        old = culprit.machines("large")
        culprit.planned("remove", 2, 3)
        culprit.scale("large", 3)
        machine.world.settle()
        (new,) = set(culprit.machines("large")) - set(old)
        culprit.mark(new, "outscaler/op/1")
        culprit.planned("remove", 3, 2, new)
        culprit.scale("large", 2)
        assert culprit.faults(f"machine {min(old)} goes although nobody marked it")


def test_final_checks_detect_a_sick_node_that_nobody_repairs() -> None:
    with FaultRun(1, consolidates=True, age=0.0) as machine:
        machine.mode = "shadow"
        machine.apply_policy()
        said = sicken(machine, Random(1))
        node = said.partition(" ")[0]
        machine.world.step(50.0)
        machine.check()
        assert list(restless(machine)) == []
        machine.world.step(30.0)
        assert list(restless(machine)) == [f"node {node} should have been repaired 20 s ago"]


@pytest.mark.parametrize(("allowed", "is_complaint"), [(1, False), (2, True)])
def test_final_checks_let_a_sick_node_of_a_full_group_wait_for_a_budget(
    allowed: int, *, is_complaint: bool
) -> None:
    with FaultRun(1, consolidates=True, age=0.0) as machine:
        node = _sick_node(machine)
        machine.bounds[node.partition("-")[0]] = (0, 2)
        for pod in machine.world.kube.pods_on(node):
            machine.world.kube.delete("pods", pod["metadata"]["name"], "default")
        for number in range(2):
            machine.world.kube.create("pods", _bound_pod(f"one-{number}", node, "100m"))
        budget = pdb("one", max_unavailable=1) | {"status": {"disruptionsAllowed": allowed}}
        machine.world.kube.create("poddisruptionbudgets", budget, group="policy")
        assert bool(list(_complaints(machine))) is is_complaint


@pytest.mark.parametrize(("cpu", "is_complaint"), [("100m", True), ("8", False)])
def test_final_checks_let_a_sick_node_wait_whose_pods_fit_no_new_one(
    cpu: str, *, is_complaint: bool
) -> None:
    with FaultRun(1, consolidates=True, age=0.0) as machine:
        node = _sick_node(machine)
        machine.world.kube.create("pods", _bound_pod("one-1", node, cpu))
        assert bool(list(_complaints(machine))) is is_complaint


def _sick_node(machine: FaultRun) -> str:
    """A node that nobody repairs, although it is sick for long enough."""
    machine.mode = "shadow"
    machine.apply_policy()
    node = sicken(machine, Random(1)).partition(" ")[0]
    machine.world.step(80.0)
    machine.check()
    return node


def _bound_pod(name: str, node: str, cpu: str) -> KubeObject:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "one",
        "uid": "uid-one",
        "controller": True,
    }
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"app": "one"},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}],
        },
    }


def _complaints(machine: FaultRun) -> Iterator[str]:
    return (
        complaint for complaint in restless(machine) if "should have been repaired" in complaint
    )


def test_final_checks_detect_leftovers(culprit: Culprit) -> None:
    node = clone(culprit.kube.list("nodes")[0])
    node["spec"]["taints"] = [{"key": HARD, "value": "1", "effect": "NoSchedule"}]
    node["spec"]["unschedulable"] = True
    culprit.kube.update("nodes", node)
    machine = next(name for name in culprit.machines("small"))
    culprit.mark(machine, "outscaler/over/1")
    name = node["metadata"]["name"]
    assert {
        f"node {name} still carries our taint",
        f"node {name} is cordoned, and no person did it",
        f"machine {machine} still carries our mark",
    } <= set(restless(culprit.machine))


def test_final_checks_detect_a_pod_pending_without_a_reason(culprit: Culprit) -> None:
    culprit.kube.create(
        "pods",
        {
            "metadata": {"name": "alone", "namespace": "default"},
            "spec": {
                "containers": [
                    {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1500m"}}}
                ]
            },
        },
    )
    waiting = [each for each in restless(culprit.machine) if "alone" in each]
    assert (
        waiting
        == [
            "pod alone waits although group small (2 of 4) could take it",
            "pod alone waits although group large (2 of 3) could take it",
        ]
        or len(waiting) == 2
    )


def test_final_checks_detect_an_operation_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """All messages to operations are lost and never sent again."""
    monkeypatch.setattr(scan_scheduler, "resend_operations", lambda *_: ())
    with FaultRun() as machine:
        machine.world.queues.tamper = lambda message: (
            () if message.queue.startswith("act") else (message,)
        )
        machine.world.step(180.0)
        machine.world.queues.tamper = machine.world.weather.tamper
        with pytest.raises(Broken, match=r"operation \S+ is (planned|waiting|running)"):
            finish(machine)


def test_fault_test_seed_is_deterministic() -> None:
    """Repeating a seed gives the same steps, requests and instants."""
    assert play(7, 60) == play(7, 60)
