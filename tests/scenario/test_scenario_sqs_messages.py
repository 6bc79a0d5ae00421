"""Message behaviour of standard SQS queues: duplicates, delays, reordering and loss."""

from __future__ import annotations

from chalicelib.runtime.messages import ActMessage, Cause, ReconcileMessage, encode
from infra.emulators.controllers import objects
from infra.emulators.controllers.capi.controller import CapiControllerSettings
from infra.emulators.controllers.capi.machines import MachineTimes
from infra.emulators.controllers.manager import Pace
from infra.emulators.virtual_sqs import Message, last, late, lost, twice, untouched
from tests.scenario.policies import WEBHOOK, document
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld


def _pods_arrive(world: ScenarioWorld) -> None:
    world.apply_policy(document(webhook=WEBHOOK))
    world.seed(objects.machine_deployment("workers", 1, 1, 8))
    world.minutes(2.5)
    world.seed(objects.deployment("web", replicas=12, cpu="1"))


def _wake(world: ScenarioWorld) -> None:
    message = ReconcileMessage("shop", Cause.WEBHOOK.value, world.clock())
    world.redeliver("reconcile", encode(message).decode())


def _four_nodes_came(world: ScenarioWorld) -> None:
    assert [(end["from"], end["to"], end["state"]) for end in world.ended("grow")] == [
        (1, 4, "succeeded")
    ]
    assert len(world.writes("/events", "/configmaps")) == 1
    assert len(world.nodes()) == world.size("workers") == 4
    assert world.pending() == ()


@scenario(grain=30.0)
def test_every_duplicated_message_has_no_second_effect(world: ScenarioWorld) -> None:
    world.queues.tamper = twice
    _pods_arrive(world)

    world.minutes(3)

    _four_nodes_came(world)
    assert all(not invocation.failed_messages for invocation in world.invocations)
    scheduled = [at for at in world.passed_at() if at % 60.0 == 0.0]
    assert len(scheduled) == len(set(scheduled)), (
        "the second of two scheduled messages asks for nothing"
    )


@scenario(grain=30.0)
def test_reordered_scan_messages_have_the_same_result(world: ScenarioWorld) -> None:
    """Three scans a minute, each tick's arriving in reverse order, and the newest waiting
    message is always served first."""
    world.queues.pick = last
    world.queues.tamper = _backwards
    world.apply_policy(document(scan="20s"))
    world.seed(objects.machine_deployment("workers", 1, 1, 8))
    world.minutes(2.5)
    world.seed(objects.deployment("web", replicas=12, cpu="1"))

    world.minutes(4)

    _four_nodes_came(world)
    assert world.calls("reconcile") > len(world.passes), (
        "a message older than the last pass is no pass"
    )


def _backwards(message: Message) -> list[Message]:
    """Messages due at once come 50 seconds later; those due in 20 or 40 seconds come in time."""
    return list(
        late(50.0)(message) if message.visible_at == message.sent_at else untouched(message)
    )


@scenario(grain=30.0)
def test_operation_messages_five_minutes_late_have_no_effect(world: ScenarioWorld) -> None:
    """The sweeper has sent the operation again by then; the late message finds it finished."""
    world.queues.tamper = lambda message: (
        late(300.0) if message.queue.startswith("act") else untouched
    )(message)
    _pods_arrive(world)
    world.minutes(1)
    world.queues.tamper = untouched

    world.minutes(6)

    _four_nodes_came(world)
    swept = [i.at for i in world.invocations if i.function == "tick" and i.answer["swept"]]
    assert len(swept) == 1
    # the step, the late message and the late watch of the pass, and the two watches of the step
    assert world.calls("act_clusterapi") == 5


@scenario(grain=30.0)
def test_lost_scan_messages_are_replaced_when_the_queued_marker_expires(
    world: ScenarioWorld,
) -> None:
    world.apply_policy(document())
    world.seed(objects.machine_deployment("workers", 1, 1, 8))
    world.minutes(2.5)
    before = len(world.passes)
    world.queues.tamper = lost
    world.minutes(2)
    world.queues.tamper = untouched
    lost_at = world.queues.sent[-1].sent_at

    world.minutes(2)
    assert len(world.passes) == before, "the second message counts as on its way for three minutes"
    assert [i.answer["queued"] for i in world.invocations if i.function == "tick"][-2:] == [[], []]
    world.minutes(2)

    assert world.passed_at()[before] - lost_at == 240.0
    assert len(world.passes) > before


@scenario(grain=30.0)
def test_lost_scan_message_of_a_cluster_on_time_is_replaced_a_minute_later(
    world: ScenarioWorld,
) -> None:
    world.apply_policy(document())
    world.seed(objects.machine_deployment("workers", 1, 1, 8))
    world.minutes(2.5)
    before = len(world.passes)
    world.queues.tamper = lost
    world.minutes(1)
    world.queues.tamper = untouched
    lost_at = world.queues.sent[-1].sent_at

    world.minutes(2)

    assert [at - lost_at for at in world.passed_at()[before:]] == [60.0, 120.0]


@scenario(grain=30.0)
def test_second_of_two_simultaneous_reconciles_is_requeued(world: ScenarioWorld) -> None:
    """The lease admits one of them. The other was a wake-up and may carry a newer
    event, so it is retried."""
    _pods_arrive(world)
    world.at("reconcile:observed", lambda: _wake(world))

    world.minutes(4)

    _four_nodes_came(world)
    held = [
        i for i in world.invocations if i.function == "reconcile" and '"webhook"' in i.bodies[0]
    ]
    assert len(held) == 2
    assert held[1].at - held[0].at == 1.0, "the one that was turned away came back, once"
    assert len({line["token"] for line in world.log if line["message"] == "pass"}) == len(
        world.passes
    )


@scenario(grain=30.0)
def test_reconcile_without_its_lease_cannot_act(world: ScenarioWorld) -> None:
    """It is paused until its lease has expired and then resumes, while another pass has planned."""
    _pods_arrive(world)

    def sleep_while_another_works() -> None:
        world.clock.advance(301.0)
        _wake(world)

    world.at("reconcile:observed", sleep_while_another_works)
    world.minutes(8)

    _four_nodes_came(world)
    fenced = [line for line in world.log if line["message"] == "message failed"]
    assert [line["error"] for line in fenced] == ["Fenced"]


@scenario(
    grain=30.0, pace=Pace(machines=CapiControllerSettings(times=MachineTimes(provision=240.0)))
)
def test_scale_up_that_ends_while_a_pass_reads_is_not_forgotten(world: ScenarioWorld) -> None:
    """The snapshot still has the old size. What the operation has written since must not
    be treated as fulfilled."""
    world.queues.tamper = lambda message: (
        late(300.0)(message) if message.queue.startswith("act") else (message,)
    )
    world.apply_policy(document())
    world.seed(objects.machine_deployment("workers", 1, 1, 12))
    world.minutes(6.5)
    world.seed(objects.deployment("web", replicas=12, cpu="1"))
    world.minutes(1)
    [planned] = world.operations()
    world.queues.tamper = untouched
    world.seed(objects.deployment("more", replicas=6, cpu="1"))
    body = encode(ActMessage("shop", planned.spec.id)).decode()
    world.at("reconcile:observed", lambda: world.redeliver("act_clusterapi", body))

    world.minutes(12)

    assert world.pending() == ()
    assert len(world.nodes()) == world.size("workers") == 6, (
        "18 pods, three to a node, and no node more"
    )


@scenario(grain=30.0)
def test_thousand_events_at_once_cause_one_plan(world: ScenarioWorld) -> None:
    """The first event begins a pass at once, and the others one at the end of their
    window, which adds nothing."""
    _pods_arrive(world)
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "type": "Warning",
        "reason": "FailedScheduling",
        "metadata": {"namespace": "default"},
        "message": "0/1 nodes are available: 1 Insufficient cpu.",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web"},
    }
    world.step(10)

    answers = [
        world.post(
            [
                event | {"metadata": {"namespace": "default", "name": f"web.{batch}.{n}"}}
                for n in range(50)
            ]
        )
        for batch in range(20)
    ]
    world.step(5)

    assert {answer["statusCode"] for answer in answers} == {202}
    woken = [
        i for i in world.invocations if i.function == "reconcile" and '"webhook"' in i.bodies[0]
    ]
    assert len(woken) == 2
    assert world.size("workers") == 4
