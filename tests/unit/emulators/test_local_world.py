"""The emulated world is deterministic, with cold or warm functions; a dead function stays dead."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from chalicelib.model.errors import InputErrors
from chalicelib.runtime.runtime import install
from infra.emulators.aws import LocalAws
from infra.emulators.controllers.objects import deployment, machine_deployment
from infra.emulators.local_world import LocalWorld
from infra.emulators.virtual_sqs import lost, untouched

POLICY = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: shop}
spec:
  mode: active
  scanInterval: 60s
  kubernetes: {kubeconfigSecret: outscaler/shop/kubeconfig}
  providers:
    clusterapi: {namespace: default, clusterName: local}
  webhook: {secret: outscaler/shop/webhook}
"""


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    install(None)


def _filled(world: LocalWorld) -> None:
    """A world with one full worker, and a policy."""
    world.seed(
        machine_deployment("workers", 1, 1, 4), deployment("web", replicas=3, cpu="1", memory="1Gi")
    )
    world.step(80)
    world.apply_policy(POLICY)


def _busy(world: LocalWorld) -> None:
    found = world.kube.get("deployments", "web", "default", "apps")
    assert found is not None
    found["spec"]["replicas"] = 5
    world.kube.update("deployments", found, "apps")
    world.settle()


def test_world_plans_are_equal_with_cold_and_warm_functions(aws: LocalAws) -> None:
    seen = []
    for forgetful in (False, True):
        with LocalWorld(aws, forgetful=forgetful) as world:
            _filled(world)
            _busy(world)
            world.step_until(lambda: not world.pending(), limit=400)
            seen.append((world.plan_ids(), world.size("workers"), world.clock()))
    assert seen[0] == seen[1]
    assert seen[0][1] == 2


def test_world_webhook_triggers_a_pass_before_the_next_scan(aws: LocalAws) -> None:
    with LocalWorld(aws, webhook=True) as world:
        _filled(world)
        world.step(65)
        before = len(world.invocations)
        _busy(world)
        world.step(5)
        assert [made.function for made in world.invocations[before:]][:2] == [
            "reconcile",
            "act_clusterapi",
        ]
        assert world.size("workers") == 2
        assert json.loads(world.post({"kind": "Event"}, key="x" * 20)["body"])["error"]


def test_world_killed_function_leaves_its_message_and_its_claim(aws: LocalAws) -> None:
    with LocalWorld(aws) as world:
        _filled(world)
        _busy(world)
        world.kill_at("grow:called", function="act_clusterapi")
        world.step_until(lambda: bool(world.operations()), limit=200, every=1.0)
        world.step(1)
        died = [made for made in world.invocations if made.killed_at]
        assert [(made.function, made.killed_at) for made in died] == [
            ("act_clusterapi", "grow:called")
        ]
        assert [operation.status.state.value for operation in world.operations()] == ["running"]
        left = world.queues.waiting("act_clusterapi")
        # others look after the executor
        steps = [message for message in left if "watch" not in message.body]
        assert [message.receives for message in steps] == [1]
        world.step_until(lambda: not world.operations(), limit=400)
        assert (world.size("workers"), world.queues.dead["act_clusterapi"]) == (2, [])


def test_world_dying_function_does_not_release_its_lease(aws: LocalAws) -> None:
    with LocalWorld(aws) as world:
        _filled(world)
        world.kill_at("reconcile:saved")
        world.step_until(
            lambda: any(made.killed_at for made in world.invocations), limit=100, every=1.0
        )
        assert world.store.scan_states.due("shop").lease_until > world.clock()


def test_world_unreadable_message_goes_to_the_dead_letter_queue(aws: LocalAws) -> None:
    with LocalWorld(aws) as world:
        world.queues.send("reconcile", b"rubbish", 0)
        world.step_until(lambda: bool(world.queues.dead["reconcile"]), limit=4000, every=700)
        bodies = [made.bodies for made in world.invocations if made.function == "reconcile"]
        assert bodies == [("rubbish",)] * 3


def test_world_recovers_from_lost_messages(aws: LocalAws) -> None:
    with LocalWorld(aws) as world:
        _filled(world)
        world.queues.tamper = lost
        world.step(130)
        assert world.plan_ids() == ()
        world.queues.tamper = untouched
        assert world.step_until(lambda: bool(world.plan_ids()), limit=600) > 0


def test_world_refuses_an_invalid_policy_and_worlds_are_isolated(aws: LocalAws) -> None:
    with LocalWorld(aws) as one, LocalWorld(aws) as other:
        one.apply_policy(POLICY)
        assert other.store.policies.current("shop") is None
        with pytest.raises(InputErrors):
            one.apply_policy(POLICY.replace("active", "busy"))
        with pytest.raises(KeyError):
            one.size("nowhere")
