"""Removals under a MachineDeployment of several MachineSets, where it chooses who becomes smaller: clusterapi.md §4.3,
§9, D15. The emulated controllers shrink as the real ones do; nobody may lose a machine that was not named.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.errors import Conflict, ProviderError
from infra.emulators.controllers import objects
from tests.contract.clusterapi.management import Management, management, operation
from tests.contract.clusterapi.objects import GROUP, Json, deployment, machine, machine_set

VERSIONS = pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])


def start(there: Management, size: int, *, version: str = "v1beta2", **strategy: Any) -> None:
    """A MachineDeployment as a person writes it, and its machines, joined."""
    made = objects.machine_deployment("md-0", size, 0, 10, cluster="c1", version=version)
    made["spec"].update({"strategy": strategy} if version == "v1beta1" else {"rollout": {"strategy": strategy}})
    there.version = version
    objects.apply(there.store, made)
    there.work(80)


def change_template(there: Management, version: str = "v1.37.0") -> None:
    found = there.store.get("machinedeployments", "md-0", "default", GROUP)
    assert found is not None
    template = found["spec"]["template"]
    there.change("md-0", template={**template, "spec": {**template["spec"], "version": version}})
    there.work()


def versions(there: Management) -> dict[str, str]:
    """Living Machine -> the version of its template."""
    found = {each["metadata"]["name"]: each for each in there.store.list("machines", group=GROUP)}
    return {name: found[name]["spec"]["version"] for name in there.machines()}


def outdated(there: Management) -> list[str]:
    return [name for name, version in versions(there).items() if version == "v1.36.3"]


def removal(*names: str, op: str = "op") -> Operation:
    targets = tuple(RemovalTarget(name, "", f"default/{name}") for name in names)
    return operation(OperationKind.DELETE_NODES, 9, 8, op=op).with_spec(targets=targets)


def finish(there: Management, wanted: Operation) -> Outcome:
    for _ in range(8):
        outcome = there.provider().remove(wanted)
        if not isinstance(outcome, InProgress):
            return outcome
        there.clock.advance(outcome.after)
        there.work()
    raise AssertionError(f"still {outcome}")


def held(there: Management) -> str:
    [group] = there.provider().observe(there.nodes()).groups
    return group.scale_down_held


def holds(there: Management) -> dict[str, str]:
    """Machine -> why it is held by itself."""
    [group] = there.provider().observe(there.nodes()).groups
    return {each.handle.partition("/")[2]: each.held for each in group.instances}


@VERSIONS
def test_CAPI_17_D15_outdated_machines_of_an_on_delete_deployment_are_removed_by_name(version: str) -> None:
    with management() as there:
        start(there, 3, version=version, type="OnDelete")
        change_template(there)
        names = there.machines()
        assert (held(there), outdated(there)) == ("", names)
        assert isinstance(finish(there, removal(names[2])), Succeeded)
        there.work(80)
        assert (there.machines(), there.size()) == (names[:2], 2)


@VERSIONS
def test_CAPI_17_D15_once_some_are_replaced_the_outdated_go_and_the_current_stay(version: str) -> None:
    with management() as there:
        start(there, 4, version=version, type="OnDelete")
        change_template(there)
        there.begin_deletion(there.machines()[0])  # what the owner does to replace one
        there.work(80)
        [current] = set(there.machines()) - set(outdated(there))
        assert held(there) == ""
        assert {each for each, why in holds(there).items() if why} == {current}
        refusal = finish(there, removal(current))
        assert isinstance(refusal, Failed)
        assert (refusal.error_class, there.size(), there.marked()) == ("Conflict", 4, {})
        *_, last = outdated(there)
        assert isinstance(finish(there, removal(last)), Succeeded)
        there.work(80)
        assert (len(there.machines()), there.size(), current in there.machines(), last in there.machines()) == (
            3,
            3,
            True,
            False,
        )
        both = removal(*outdated(there), current)
        assert isinstance(finish(there, both), Failed)
        assert there.marked() == {}


def test_D15_a_set_that_is_about_to_lose_a_machine_anyway_is_waited_for() -> None:
    """Of its two machines one goes whatever we do; with a smaller size both would."""
    waits = deployment("md-0", replicas=3)
    waits["spec"]["rollout"] = {"strategy": {"type": "OnDelete"}}
    with management() as there:
        there.add(
            waits,
            machine_set("old", of="md-0", revision="1", replicas=1),
            machine_set("new", of="md-0", revision="2", replicas=2),
        )
        there.add(*(machine(name, of, node=name) for name, of in (("a", "old"), ("b", "old"), ("c", "new"))))
        with pytest.raises(Conflict):
            there.provider().remove(removal("b"))
        assert (there.size(), there.marked()) == (3, {})


def test_D15_a_pause_in_the_middle_of_a_rollout_holds_removals_which_would_cost_others() -> None:
    with management() as there:
        start(there, 4, type="RollingUpdate", rollingUpdate={"maxSurge": 1, "maxUnavailable": 0})
        change_template(there)
        there.change("md-0", paused=True)
        there.work(80)
        assert 0 < len(outdated(there)) < len(there.machines())
        assert "spec.paused" in held(there)
        before = there.machines()
        refusal = finish(there, removal(outdated(there)[0]))
        assert isinstance(refusal, Failed)
        assert (refusal.error_class, there.marked()) == ("Conflict", {})
        there.work(80)
        assert there.machines() == before


def test_D15_a_paused_deployment_of_one_set_scales_all_the_same() -> None:
    with management() as there:
        start(there, 3)
        there.change("md-0", paused=True)
        there.work()
        names = there.machines()
        assert held(there) == ""
        assert isinstance(finish(there, removal(names[1])), Succeeded)
        assert there.machines() == [names[0], names[2]]


def test_CAPI_17_D15_during_a_rollout_removal_is_refused_and_after_it_works() -> None:
    with management() as there:
        start(there, 2, type="RollingUpdate")
        change_template(there)
        assert held(there)
        assert isinstance(finish(there, removal(there.machines()[0])), Failed)
        for _ in range(6):
            there.work(80)
            _report_ready(there)
        assert (held(there), outdated(there)) == ("", [])
        names = there.machines()
        assert isinstance(finish(there, removal(names[0])), Succeeded)
        assert there.machines() == names[1:]


def _report_ready(there: Management) -> None:
    """As kubelets do: a rollout goes on once the new machines serve."""
    for node in there.store.list("nodes"):
        ready: Json = {"conditions": [{"type": "Ready", "status": "True"}]}
        there.store.update("nodes", {**node, "status": {**(node.get("status") or {}), **ready}})


@pytest.mark.parametrize("seed_number", range(3))
def test_D15_whatever_the_owner_deletes_meanwhile_no_other_machine_is_lost(seed_number: int) -> None:
    rng = random.Random(seed_number)
    with management() as there:
        start(there, 6, type="OnDelete")
        change_template(there)
        meant: set[str] = set()  # whose end somebody asked for
        seen = set(there.machines())
        todo: dict[str, Operation] = {}
        for turn in range(60):
            if turn in (5, 20) and outdated(there):
                victim = rng.choice(outdated(there))
                meant.add(victim)
                there.begin_deletion(victim)
            if turn % 9 == 2 and (free := sorted(set(there.machines()) - meant)):
                todo[f"op-{turn}"] = removal(rng.choice(free), op=f"op-{turn}")
            for name, wanted in list(todo.items()):
                if rng.random() < 0.3:
                    continue
                try:
                    outcome = there.provider().remove(wanted)
                except ProviderError:
                    continue
                target = wanted.spec.targets[0].node
                if isinstance(outcome, InProgress):
                    meant.add(target)
                else:
                    del todo[name]
            if rng.random() < 0.7:
                there.controllers.step()
            there.clock.advance(rng.choice((0.0, 5.0, 15.0)))
            seen |= set(there.machines())
            assert seen - set(there.machines()) <= meant
