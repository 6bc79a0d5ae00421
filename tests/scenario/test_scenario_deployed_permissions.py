"""Every function works with its deployed policy, and no policy has an unused permission."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from chalicelib.model.secret import PARAMETER
from chalicelib.store import Store
from chalicelib.store.pass_footprint import Reading
from infra.emulators.alicloud.attached_account import AlicloudAccount
from infra.emulators.cherryservers.attached_account import CherryAccount
from infra.emulators.controllers import objects
from infra.emulators.exoscale.attached_account import ExoscaleAccount
from infra.emulators.huaweicloud.attached_account import HuaweiAccount
from infra.emulators.iam import SUFFIX, Judge, arn, policy_files
from infra.emulators.lambda_events import sqs_event, sqs_record
from infra.emulators.local_world import WEBHOOK_KEY, LocalWorld
from tests.permission_use import (
    operations_of_every_provider,
    unfinished_save,
    unreadable_policy,
    unused,
)
from tests.scenario.policies import WEBHOOK, document

VENDORS = {
    "alicloud": AlicloudAccount,
    "exoscale": ExoscaleAccount,
    "cherryservers": CherryAccount,
    "huaweicloud": HuaweiAccount,
}
PROVIDERS = ("clusterapi", *VENDORS)
TAGS = "k8s.io/cluster-autoscaler/node-template/"
TOPIC = arn("sns", "outscaler-events")
BURST = [{"key": "dedicated", "operator": "Equal", "value": "burst", "effect": "NoSchedule"}]
EVENT = {"kind": "Event", "apiVersion": "v1", "reason": "FailedScheduling", "involvedObject": {}}

#: : Permissions for what the emulation does not cover: Lambda's own calls for an event
#: source, and EKS clusters.
NOT_PLAYED = frozenset(
    {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "eks:DescribeCluster"}
)


@contextmanager
def _world(kind: str) -> Iterator[LocalWorld]:
    """A cluster with instances of all five providers, whose secrets have the names that policies
    require. kind: the prefix of these names, `ssm:/` for parameters."""
    webhook, kubeconfig = f"{kind}outscaler/shop/webhook", f"{kind}outscaler/shop/kubeconfig"
    clouds: dict[str, Any] = {name: make() for name, make in VENDORS.items()}
    with LocalWorld(quick=True, judged=True, webhook=True, clouds=tuple(clouds.values())) as made:
        sections: dict[str, Any] = {"clusterapi": {}}
        for name, cloud in clouds.items():
            text = json.dumps(cloud.settings())
            for number, (secret, value) in enumerate(cloud.secrets().items()):
                proper = f"{kind}outscaler/shop/{name}-{number}"
                made.put_secret(proper, value)
                text = text.replace(f'"{secret}"', f'"{proper}"')
            sections[name] = json.loads(text)
        del sections["cherryservers"]["cloudConfig"]
        tags = {f"{TAGS}label/tier": "burst", f"{TAGS}taint/dedicated": "burst:NoSchedule"}
        bursts = clouds["alicloud"].cloud.add_group("bursts", most=5, machine_tags=tags)
        made.put_secret(webhook, json.dumps({"hmac": WEBHOOK_KEY}))
        made.put_secret(kubeconfig, made.server.kubeconfig())
        made.put_secret(f"{kind}outscaler/shop/notifications", "key-for-tests")
        made.apply_policy(
            document(
                secret=kubeconfig,
                providers=sections,
                webhook={"secret": webhook},
                nodeGroups=[{"provider": "alicloud", "id": bursts.id, "max": 5}],
                options={"scaleDownUnneededTime": "1m", "scaleDownDelayAfterAdd": "1m"},
                notifications={
                    "minSeverity": "info",
                    "topic": TOPIC,
                    "webhook": {
                        "url": "https://127.0.0.1:9/",
                        "secret": f"{kind}outscaler/shop/notifications",
                    },
                },
            )
        )
        made.seed(
            objects.machine_deployment("workers", 1, 1, 4),
            objects.deployment("web", replicas=3, cpu="1"),
        )
        made.step(120)
        yield made


def _judge(world: LocalWorld) -> Judge:
    assert world.judge is not None
    return world.judge


def _large_save_that_was_not_carried_out(world: LocalWorld) -> None:
    unfinished_save(
        lambda faults: Store(
            world.services.table,
            clock=world.clock,
            client=world.services.dynamodb,
            wrap=faults.wrap,
            region="us-east-1",
            sleep=world.clock.advance,
            chance=lambda: 0.5,
            table=world.services.kind,
        ),
        world.clock(),
    )


def _message_for_an_operation_that_is_not_there(world: LocalWorld, function: str) -> None:
    """The act function looks the operation up, and finishes an interrupted save while doing so."""
    _large_save_that_was_not_carried_out(world)
    _message(world, function, "grow-none")


def _message(world: LocalWorld, function: str, operation: str) -> None:
    body = json.dumps({"cluster": "shop", "operation": operation})
    made = world.invoke(
        function,
        sqs_event(sqs_record(function, "m-1", "r-1", body, {"ApproximateReceiveCount": "1"})),
    )
    assert made.finished
    assert made.failed_messages == ()


def _everything(world: LocalWorld, webhook: str = WEBHOOK["secret"]) -> None:
    for replicas in (9, 2):
        found = world.kube.get("deployments", "web", "default", "apps")
        assert found is not None
        found["spec"]["replicas"] = replicas
        world.kube.update("deployments", found, "apps")
        world.step(600)
    world.seed(
        objects.deployment(
            "reports", replicas=1, cpu="3", nodeSelector={"tier": "burst"}, tolerations=BURST
        )
    )
    world.step(300)
    assert not world.pending()
    world.queues.refusing.add("reconcile")
    assert world.post([EVENT])["statusCode"] == 503
    world.queues.refusing.clear()
    assert world.post([EVENT])["statusCode"] == 202
    operations_of_every_provider(world.store, world.clock(), "early", due_in=90.0)
    for name in PROVIDERS:
        _message(world, f"act_{name}", f"grow-early-{name}")  # not due yet, so it is requeued
    world.step(240)
    for name in PROVIDERS:
        _message_for_an_operation_that_is_not_there(world, f"act_{name}")
    unreadable_policy(world.store, webhook)
    operations_of_every_provider(world.store, world.clock(), "late")
    world.step(240)
    _large_save_that_was_not_carried_out(world)
    world.tick()
    for target in ("/clusters", "/clusters/shop", "/clusters/shop/decisions", "/metrics"):
        assert world.get(target)["statusCode"] == 200, target
    assert world.post([EVENT], key="not-the-key-of-this-webhook")["statusCode"] == 401


SMALL, LARGE = "reconcile", "reconcile_large"


def test_every_function_works_with_exactly_its_deployed_permissions() -> None:
    """Covers both functions that reconcile, and both secrets and parameters."""
    judges = []
    for function, kind in ((SMALL, ""), (LARGE, ""), (LARGE, PARAMETER)):
        with _world(kind) as world:
            if function == LARGE:
                world.takes = Reading(2000, 2000)
                world.step(60)
            _everything(world, f"{kind}{WEBHOOK['secret']}")
            judge = _judge(world)
        assert judge.denied == []
        assert {role for role, _, _ in judge.used} >= set(policy_files()) - {LARGE}
        handed_over = (SMALL, "HandOverLargeClusters") in {
            (role, sid) for role, sid, _ in judge.used
        }
        assert handed_over is (function == LARGE)
        if not kind:
            _reads_what_is_its_own(judge, function)
        judges.append(judge)
    assert unused(judges, NOT_PLAYED) == []


def _reads_what_is_its_own(judge: Judge, function: str) -> None:
    read = {
        (function, asked.resource.partition("secret:")[2])
        for function, sid, asked in judge.used
        if sid == "ReadSecrets"
    }
    assert {
        ("api_handler", f"outscaler/shop/webhook{SUFFIX}"),
        (function, f"outscaler/shop/kubeconfig{SUFFIX}"),
        (function, f"outscaler/shop/alicloud-0{SUFFIX}"),
        ("act_alicloud", f"outscaler/shop/alicloud-0{SUFFIX}"),
        ("act_alicloud", f"outscaler/shop/kubeconfig{SUFFIX}"),
    } <= read
