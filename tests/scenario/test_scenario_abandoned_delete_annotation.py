"""Found by the fault test (tests/faults): a removal abandoned between the Machine's delete
annotation and the lower size."""

from __future__ import annotations

from infra.emulators.controllers import objects
from infra.emulators.controllers.capi import fields
from infra.emulators.kube.faults import KubeFault
from tests.scenario.policies import document, refusal
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld


@scenario(grain=10.0)
def test_abandoned_removal_leaves_no_delete_annotation_on_the_machine(world: ScenarioWorld) -> None:
    """The API accepts the annotation and rejects every change of a size. The removal
    fails and is rolled back. If the annotation stayed, a user who later lowers the
    group's size would lose this node."""
    world.apply_policy(document(options={"scaleDownUnneededTime": "1m"}))
    world.seed(objects.machine_deployment("workers", 2, 1, 5))
    world.server.faults.add(
        KubeFault(method="PATCH", path="/scale", times=-1, **refusal(503, "no webhook answers"))
    )
    world.step_until(lambda: bool(world.ended("remove")), limit=1800.0)
    world.apply_policy(document(mode="shadow"))
    world.server.faults.clear()

    world.minutes(10)

    assert {end["state"] for end in world.ended("remove")} <= {"failed", "abandoned"}
    assert not any(world.is_marked(name) for name in world.nodes())
    marks = [
        each["metadata"].get("annotations", {}).get(fields.DELETE_MACHINE)
        for each in world.kube.list("machines", "default", fields.GROUP)
    ]
    assert marks == [None, None]


@scenario(grain=10.0)
def test_annotation_that_is_written_after_its_removal_has_ended_is_taken_off(
    world: ScenarioWorld,
) -> None:
    """A paused executor's request arrives late. Nobody but the next removal of the group would look
    at the Machine, and a person who lowers the size before that would lose a busy node."""
    world.apply_policy(document(options={"scaleDownUnneededTime": "1h"}))
    world.seed(objects.machine_deployment("workers", 2, 1, 5))
    world.minutes(5)
    machine = world.kube.list("machines", "default", fields.GROUP)[0]
    mark = f"outscaler/0123456789abcdef/{int(world.clock())}"
    notes = {**machine["metadata"].get("annotations", {}), fields.DELETE_MACHINE: mark}
    world.kube.update(
        "machines",
        {**machine, "metadata": {**machine["metadata"], "annotations": notes}},
        fields.GROUP,
    )

    world.minutes(4)
    assert len(_marks(world)) == 1  # its removal might still be about to lower the size
    world.minutes(6)

    assert (_marks(world), world.size("workers")) == ([], 2)
    assert [end["state"] for end in world.ended("shrink")] == ["succeeded"]


def _marks(world: ScenarioWorld) -> list[str]:
    machines = world.kube.list("machines", "default", fields.GROUP)
    notes = (machine["metadata"].get("annotations", {}) for machine in machines)
    return [note[fields.DELETE_MACHINE] for note in notes if fields.DELETE_MACHINE in note]
