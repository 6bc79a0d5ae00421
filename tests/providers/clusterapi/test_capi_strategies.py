"""Removals under a MachineDeployment with several MachineSets, where the deployment
chooses which set shrinks.

The emulated controllers shrink as the real ones do; no machine may be lost that was not named.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.kit.errors import Conflict, ProviderError
from infra.emulators.controllers import objects
from tests.providers.clusterapi.management import Management, management, operation
from tests.providers.clusterapi.objects import GROUP, Json, deployment, machine, machine_set

VERSIONS = pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])


def start(there: Management, size: int, *, version: str = "v1beta2", **strategy: Any) -> None:
    """Creates a MachineDeployment as a user writes it, and its machines, joined."""
    made = objects.machine_deployment("md-0", size, 0, 10, cluster="c1", version=version)
    made["spec"].update(
        {"strategy": strategy} if version == "v1beta1" else {"rollout": {"strategy": strategy}}
    )
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
        outcome = there.provider().delete_nodes(wanted)
        if not isinstance(outcome, InProgress):
            return outcome
        there.clock.advance(outcome.after)
        there.work()
    raise AssertionError(f"still {outcome}")


def held(there: Management) -> str:
    [group] = there.provider().observe(there.nodes()).groups
    return group.scale_down_held


def holds(there: Management) -> dict[str, str]:
    """Machine -> the reason why it is blocked by itself."""
    [group] = there.provider().observe(there.nodes()).groups
    return {each.handle.partition("/")[2]: each.held for each in group.instances}


@VERSIONS
def test_capi_outdated_machines_of_an_on_delete_deployment_are_removed_by_name(
    version: str,
) -> None:
    with management() as there:
        start(there, 3, version=version, type="OnDelete")
        change_template(there)
        names = there.machines()
        assert (held(there), outdated(there)) == ("", names)
        assert isinstance(finish(there, removal(names[2])), Succeeded)
        there.work(80)
        assert (there.machines(), there.size()) == (names[:2], 2)


@VERSIONS
def test_capi_partly_replaced_on_delete_deployment_loses_only_outdated_ones(version: str) -> None:
    with management() as there:
        start(there, 4, version=version, type="OnDelete")
        change_template(there)
        there.begin_deletion(there.machines()[0])  # as the owner does to replace one
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
        assert (
            len(there.machines()),
            there.size(),
            current in there.machines(),
            last in there.machines(),
        ) == (
            3,
            3,
            True,
            False,
        )
        both = removal(*outdated(there), current)
        assert isinstance(finish(there, both), Failed)
        assert there.marked() == {}


def test_capi_machine_set_about_to_lose_a_machine_is_awaited() -> None:
    """One of its two machines goes anyway; with a smaller size both would."""
    waits = deployment("md-0", replicas=3)
    waits["spec"]["rollout"] = {"strategy": {"type": "OnDelete"}}
    with management() as there:
        there.add(
            waits,
            machine_set("old", of="md-0", revision="1", replicas=1),
            machine_set("new", of="md-0", revision="2", replicas=2),
        )
        there.add(
            *(
                machine(name, of, node=name)
                for name, of in (("a", "old"), ("b", "old"), ("c", "new"))
            )
        )
        with pytest.raises(Conflict):
            there.provider().delete_nodes(removal("b"))
        assert (there.size(), there.marked()) == (3, {})


def test_capi_rollout_paused_midway_blocks_removals_that_cost_other_machines() -> None:
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


def test_capi_paused_deployment_with_one_set_still_scales() -> None:
    with management() as there:
        start(there, 3)
        there.change("md-0", paused=True)
        there.work()
        names = there.machines()
        assert held(there) == ""
        assert isinstance(finish(there, removal(names[1])), Succeeded)
        assert there.machines() == [names[0], names[2]]


def test_capi_removal_is_refused_during_a_rollout_and_works_after_it() -> None:
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
    """Sets the nodes ready, as kubelets do: a rollout continues once the new machines are ready."""
    for node in there.store.list("nodes"):
        ready: Json = {"conditions": [{"type": "Ready", "status": "True"}]}
        there.store.update("nodes", {**node, "status": {**(node.get("status") or {}), **ready}})


@pytest.mark.parametrize("seed_number", range(3))
def test_capi_concurrent_deletions_by_the_owner_lose_no_other_machine(seed_number: int) -> None:
    rng = random.Random(seed_number)
    with management() as there:
        start(there, 6, type="OnDelete")
        change_template(there)
        meant: set[str] = set()  # whose removal was requested
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
                    outcome = there.provider().delete_nodes(wanted)
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
