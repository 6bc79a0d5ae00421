"""Drift, health checks and interruptions of Machines against the emulated Cluster API."""

from __future__ import annotations

import pytest

from chalicelib.model.group import Instance, InstanceState, NodeGroup
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.providers.kit.base import NodeRestarter
from infra.emulators.controllers import objects
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.kubelet import Kubelets
from infra.emulators.controllers.object_writes import changed, with_conditions
from infra.emulators.kube.objects import KubeObject
from tests.providers.clusterapi.management import Management, fill, management, operation
from tests.providers.clusterapi.objects import GROUP, health_check
from tests.providers.clusterapi.test_capi_permissions import ELSEWHERE, granted
from tests.providers.clusterapi.test_capi_strategies import finish, removal, start, versions

VERSIONS = pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
NEW = "v1.37.0"


def group(there: Management) -> NodeGroup:
    [found] = there.provider().observe(there.nodes()).groups
    return found


def by_machine(there: Management) -> dict[str, Instance]:
    return {instance.handle.rpartition("/")[2]: instance for instance in group(there).instances}


def node_taints(there: Management) -> dict[str, bool]:
    """Node -> whether Cluster API has tainted it as outdated."""
    return {
        node["metadata"]["name"]: fields.OUTDATED in (node["spec"].get("taints") or [])
        for node in there.store.list("nodes")
    }


def sicken(there: Management, node: str, condition: str) -> None:
    """Gives a Node a condition, as the node problem detector does."""
    held = there.store.peek("nodes", node)
    assert held is not None
    conditions = with_conditions(held, there.clock(), {"type": condition, "status": "True"})
    there.store.replace("nodes", changed(held, "status", conditions=conditions))


@VERSIONS
def test_LIFE_9_outdated_machine_is_replaced_by_one_of_the_current_template(version: str) -> None:
    with management() as there:
        start(there, 2, version=version, type="OnDelete")
        there.controllers.change_template("default/md-0", NEW)
        there.work(80)
        old = sorted(versions(there))
        assert {name for name, instance in by_machine(there).items() if instance.outdated} == set(
            old
        )
        assert (group(there).busy, group(there).scale_down_held) == ("", "")
        there.provider().scale_up(operation(OperationKind.SCALE_UP, 2, 3))
        there.work(80)
        [new] = set(versions(there)) - set(old)
        assert versions(there)[new] == NEW
        found = by_machine(there)
        assert [found[name].outdated != "" for name in (*old, new)] == [True, True, False]
        assert [found[name].held != "" for name in (*old, new)] == [False, False, True]
        assert isinstance(finish(there, removal(old[0])), Succeeded)
        there.work(30)
        assert (sorted(versions(there)), there.size()) == (sorted([old[1], new]), 2)


@VERSIONS
def test_LIFE_9_rolling_update_makes_the_group_busy_until_it_is_over(version: str) -> None:
    with management() as there:
        start(there, 2, version=version, type="RollingUpdate")
        assert group(there).busy == ""
        there.controllers.change_template("default/md-0", NEW)
        there.work(10)
        rolling = group(there)
        assert rolling.busy == "rollout of MachineDeployment default/md-0"
        assert {instance.outdated for instance in rolling.instances} == {""}
        kubelets = Kubelets(there.store, there.clock)
        for _ in range(40):
            kubelets.step()
            there.work(10)
        assert set(versions(there).values()) == {NEW}
        assert (group(there).busy, group(there).scale_down_held) == ("", "")


def test_capi_nodes_of_earlier_revisions_are_tainted_until_they_are_current() -> None:
    with management() as there:
        start(there, 1, type="OnDelete")
        assert list(node_taints(there).values()) == [False]
        there.controllers.change_template("default/md-0", NEW)
        there.work(10)
        assert list(node_taints(there).values()) == [True]
        there.controllers.change_template("default/md-0", "v1.36.3")
        there.work(10)
        assert list(node_taints(there).values()) == [False]
        assert [instance.outdated for instance in group(there).instances] == [""]


@VERSIONS
def test_LIFE_16_health_check_deletes_a_sick_machine_and_the_set_replaces_it(version: str) -> None:
    with management() as there:
        start(there, 2, version=version, type="RollingUpdate")
        check = objects.machine_health_check(
            "sick", "KernelDeadlock", 300, cluster="c1", version=version
        )
        objects.apply(there.store, check)
        assert {found.repaired_by for found in by_machine(there).values()} == {
            "MachineHealthCheck default/sick"
        }
        first, second = there.machines()
        sicken(there, first, "KernelDeadlock")
        sicken(there, second, "Bored")
        there.work(290)
        assert there.machines() == [first, second]
        there.work(60)
        assert first not in there.machines()
        assert second in there.machines()
        assert len(there.machines()) == 2


def test_capi_health_check_with_too_many_sick_machines_deletes_none() -> None:
    with management() as there:
        start(there, 2, type="RollingUpdate")
        check = objects.machine_health_check("sick", "KernelDeadlock", 60, cluster="c1")
        check["spec"]["remediation"] = {"triggerIf": {"unhealthyLessThanOrEqualTo": "50%"}}
        objects.apply(there.store, check)
        names = there.machines()
        for name in names:
            sicken(there, name, "KernelDeadlock")
        there.work(120)
        assert there.machines() == names


@VERSIONS
def test_capi_machine_that_its_infrastructure_takes_away_is_leaving_and_replaced(
    version: str,
) -> None:
    with management() as there:
        made = objects.machine_deployment(
            "md-0", 2, 0, 10, cluster="c1", version=version, interruptible=True
        )
        objects.apply(there.store, made)
        there.work(80)
        assert group(there).spot
        labels: list[KubeObject] = [
            node["metadata"]["labels"] for node in there.store.list("nodes")
        ]
        assert [fields.INTERRUPTIBLE in each for each in labels] == [True, True]
        first = there.machines()[0]
        there.controllers.take_away(f"default/{first}")
        assert by_machine(there)[first].state is InstanceState.DELETING
        there.work(90)
        assert (first in versions(there), len(there.machines()), there.size()) == (False, 2, 2)


def test_capi_role_without_health_checks_has_no_gap_and_leaves_repairs_alone() -> None:
    rules = [rule for rule in granted() if rule.resources[0] != "machinehealthchecks"]
    with management([*rules, *ELSEWHERE]) as there:
        nodes = fill(there, 2)
        there.add(health_check("all"))
        observation = there.provider().observe(nodes)
        assert observation.gaps == ()
        [found] = observation.groups
        assert ["could not be listed" in instance.repaired_by for instance in found.instances] == [
            True,
            True,
        ]


def test_capi_malformed_health_check_is_a_gap_and_hides_no_other() -> None:
    with management() as there:
        nodes = fill(there, 1)
        bad = health_check("bad", {"matchLabels": "all of them"})
        there.add(bad, health_check("good"))
        observation = there.provider().observe(nodes)
        assert [(gap.kind, gap.name) for gap in observation.gaps] == [
            ("MachineHealthCheck", "default/bad")
        ]
        assert observation.groups[0].instances[0].repaired_by == "MachineHealthCheck default/good"


def test_capi_cluster_without_the_kind_of_health_checks_is_not_asked_for_them() -> None:
    with management() as there:
        nodes = fill(there, 1)
        there.store.resources.drop("machinehealthchecks", GROUP)
        observation = there.provider().observe(nodes)
        assert (observation.gaps, observation.groups[0].instances[0].repaired_by) == ((), "")
        assert [request for request in there.requests() if "machinehealthchecks" in request] == []


def test_capi_health_check_with_an_enormous_selector_is_a_gap() -> None:
    with management() as there:
        nodes = fill(there, 1)
        many = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"] * 1001}]}
        there.add(health_check("many", many))
        observation = there.provider().observe(nodes)
        assert [(gap.kind, gap.name) for gap in observation.gaps] == [
            ("MachineHealthCheck", "default/many")
        ]
        assert observation.groups[0].instances[0].repaired_by == ""


def test_capi_restart_fails_and_never_becomes_a_deletion() -> None:
    with management() as there:
        fill(there, 2)
        provider, order = there.provider(), operation(OperationKind.RESTART_NODE, 2, 2, 0)
        assert not isinstance(provider, NodeRestarter)
        outcome = provider.poll(order)
        assert isinstance(outcome, Failed)
        assert "cannot restart" in outcome.message
        assert there.writes() == []
