"""The deployed artifact under Lambda's own runtime client: the work of each
function and its permissions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from chalicelib.runtime.messages import PROVIDERS
from chalicelib.store import Store
from infra.emulators.controllers import objects
from infra.emulators.lambda_events import sqs_event, sqs_record
from infra.emulators.lambda_runtime.process import INIT, Made
from tests.functional.app_client import sample
from tests.functional.hosted_stage import (
    HMAC,
    METAL,
    PREFIX,
    SECRETS,
    TABLE,
    HostedStage,
    pods_for,
    shops,
)
from tests.permission_use import (
    operations_of_every_provider,
    unfinished_save,
    unreadable_policy,
    unused,
)

FUNCTIONS = (
    "api_handler",
    "tick",
    "reconcile",
    "reconcile_large",
    *(f"act_{provider}" for provider in PROVIDERS),
)
#: : Permissions for handing over a large cluster, which does not occur in the test.
NOT_PLAYED = frozenset({"lambda:InvokeFunction"})
LAMBDAS_OWN = frozenset({"LeaveFailedTicks", "LeaveFailedPasses"})
POOLS = {
    "alicloud": "alicloud",
    "exoscale": "exoscale",
    "cherryservers": METAL,
    "huaweicloud": "huaweicloud",
}


class Day(msgspec.Struct):
    """Observations of the run. nodes: new ones by vendor; grown, drained: replicas of the workers
    after each part; answers: of requests, by their purpose; steps: invocations of Cluster API's
    act function in the drain."""

    nodes: dict[str, int]
    grown: int
    drained: int
    steps: int
    pending: int
    answers: dict[str, int]


def _status(made: Made) -> int:
    assert not made.error, made.log
    return int(made.answer["statusCode"])


def _growth_and_drain(shop: HostedStage) -> Day:
    objects.apply(
        shop.kube,
        objects.machine_deployment("workers", 1, 1, 4, labels={"pool": "workers"}),
        objects.deployment("web", replicas=2, cpu="1", nodeSelector={"pool": "workers"}),
    )
    shop.play(2)
    shop.scale("web", 6)
    objects.apply(shop.kube, *(pods_for(pool) for pool in POOLS.values()))
    shop.cluster.step()
    woken = _status(shop.post(sample("core-v1-failed-scheduling")))
    shop.play(6)
    nodes, grown = (
        {name: shop.nodes(pool) for name, pool in POOLS.items()},
        shop.replicas("workers"),
    )
    pending = sum(not pod["spec"].get("nodeName") for pod in shop.kube.list("pods"))
    before = len(shop.hosted.made[shop.function("act_clusterapi")])
    shop.scale("web", 1)
    shop.play(6)
    steps = len(shop.hosted.made[shop.function("act_clusterapi")]) - before
    return Day(nodes, grown, shop.replicas("workers"), steps, pending, {"webhook": woken})


def _requests(shop: HostedStage, day: Day) -> None:
    body = sample("core-v1-failed-scheduling")
    day.answers["wrong key"] = _status(shop.post(body, key="not-the-key-of-this-webhook"))
    shop.hosted.door.failing.add((PREFIX, "sqs:SendMessage"))
    shop.hosted.pass_time(120)
    day.answers["queue fails"] = _status(shop.post(body))
    shop.hosted.door.failing.clear()
    for target in ("/clusters", "/clusters/shop", "/clusters/shop/decisions", "/metrics"):
        resource = target.replace("shop", "{name}")
        day.answers[target] = _status(shop.request("GET", target, {}, b"", resource))


def _faulty(shop: HostedStage) -> Any:
    return lambda faults: Store(
        TABLE,
        clock=shop.clock,
        client=shop.aws.client("dynamodb"),
        wrap=faults.wrap,
        region="us-east-1",
        sleep=lambda seconds: None,
        chance=lambda: 0.5,
    )


def _message(shop: HostedStage, provider: str, cluster: str, operation: str) -> None:
    function = f"act_{provider}"
    body = json.dumps({"cluster": cluster, "operation": operation})
    made = shop.hosted.invoke(
        shop.function(function),
        sqs_event(sqs_record(function, "m-1", "r-1", body, {"ApproximateReceiveCount": "1"})),
    )
    assert made.answer == {"batchItemFailures": []}, made.log


def _rare_rights(shop: HostedStage) -> None:
    """Uses rights that an ordinary day does not need: lost messages,
    interrupted saves, broken policies."""
    operations_of_every_provider(shop.store, shop.clock(), "early", due_in=90.0)
    for name in PROVIDERS:
        _message(shop, name, "shop", f"grow-early-{name}")  # not due yet, so it is requeued
    shop.play(3)
    for name in PROVIDERS:
        unfinished_save(_faulty(shop), shop.clock())
        # reads the operation and finishes the interrupted save
        _message(shop, name, "shop", "grow-none")
    unreadable_policy(shop.store, f"{SECRETS}webhook")
    operations_of_every_provider(shop.store, shop.clock(), "late")
    shop.play(3)
    unfinished_save(_faulty(shop), shop.clock())
    shop.hosted.tick()


def _eks(shop: HostedStage) -> None:
    """An EKS cluster whose lookup alone is emulated: no function reaches its API server."""
    shop.apply(
        "eks",
        {"clusterapi": {"clusterName": "local"}},
        kubernetes={"eksCluster": "eks", "region": "us-east-1"},
    )
    operations_of_every_provider(shop.store, shop.clock(), "eks", cluster="eks")
    shop.play(2)


def _parameters(shop: HostedStage) -> None:
    """A cluster whose secrets are SSM parameters."""
    for name, text in (
        ("kubeconfig", shop.server.kubeconfig()),
        ("webhook", json.dumps({"hmac": HMAC})),
    ):
        shop.aws.client("ssm").put_parameter(
            Name=f"/outscaler/dev/ssm/{name}", Value=text, Type="SecureString"
        )
    shop.apply(
        "ssm",
        {"clusterapi": {"clusterName": "local"}},
        webhook={"secret": "ssm:/outscaler/dev/ssm/webhook"},
        kubernetes={"kubeconfigSecret": "ssm:/outscaler/dev/ssm/kubeconfig"},
    )
    operations_of_every_provider(shop.store, shop.clock(), "ssm", cluster="ssm")
    shop.play(2)
    assert _status(shop.post(sample("core-v1-failed-scheduling"), cluster="ssm")) == 202
    made = shop.hosted.invoke(shop.function("reconcile_large"), {"cluster": "nobody"})
    assert not made.error, made.log


def _notifications(shop: HostedStage) -> None:
    """Clusters whose policies change, with a topic and a webhook that refuses; its key is
    a secret or a parameter."""
    topic = shop.aws.client("sns").create_topic(Name="outscaler-dev-events")["TopicArn"]
    shop.aws.put_secret("outscaler/dev/notified/notifications", "key-for-tests")
    shop.aws.client("ssm").put_parameter(
        Name="/outscaler/dev/ssm/notifications", Value="key", Type="SecureString"
    )
    named = {
        "notified": "outscaler/dev/notified/notifications",
        "ssm": "ssm:/outscaler/dev/ssm/notifications",
    }
    for scan in ("1m", "2m"):
        for name, secret in named.items():
            webhook = {"url": shop.server.url, "secret": secret}
            wanted = {"minSeverity": "info", "topic": topic, "webhook": webhook}
            shop.apply(
                name,
                {"clusterapi": {"clusterName": "local"}},
                scanInterval=scan,
                notifications=wanted,
            )
        shop.hosted.tick()
        shop.hosted.pass_time(60.0)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HostedStage, Day]]:
    """A day of the shop that uses every task of its functions."""
    for shop in shops(tmp_path_factory.mktemp("hosted")):
        day = _growth_and_drain(shop)
        _requests(shop, day)
        _eks(shop)
        _parameters(shop)
        _notifications(shop)
        _rare_rights(shop)
        yield shop, day


def test_deployment_by_make_deploy_passes_its_checks(played: tuple[HostedStage, Day]) -> None:
    assert played[0].wrong == []


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_works_under_the_real_runtime_client(
    played: tuple[HostedStage, Day], function: str
) -> None:
    shop, _ = played
    name = shop.function(function)
    made, process = shop.hosted.made[name], shop.hosted.processes[name]
    assert made
    assert [one.error for one in made if one.error] == []
    assert made[0].cold
    assert not any(one.cold for one in made[1:]), "one process serves all events"
    assert 0 < process.init_seconds < INIT
    assert 0 < process.peak_megabytes() < process.configuration.memory


def test_tick_queues_the_due_cluster(played: tuple[HostedStage, Day]) -> None:
    first = played[0].hosted.made[played[0].function("tick")][0]
    assert first.answer["queued"] == ["shop"]
    assert first.answer["failed"] == []


def test_routes_answer_an_api_gateway_event(played: tuple[HostedStage, Day]) -> None:
    assert played[1].answers == {
        "webhook": 202,
        "wrong key": 401,
        "queue fails": 503,
        "/clusters": 200,
        "/clusters/shop": 200,
        "/clusters/shop/decisions": 200,
        "/metrics": 200,
    }


@pytest.mark.parametrize("vendor", POOLS)
def test_group_of_each_vendor_scales_up_for_a_pod_that_needs_it(
    played: tuple[HostedStage, Day], vendor: str
) -> None:
    assert played[1].nodes[vendor] == 1
    assert played[1].pending == 0


def test_cluster_api_group_scales_up_and_a_multi_step_drain_removes_the_node(
    played: tuple[HostedStage, Day],
) -> None:
    _, day = played
    assert (day.grown, day.drained) == (2, 1)
    assert day.steps >= 3


def test_no_call_is_denied_by_the_deployed_iam_policies(played: tuple[HostedStage, Day]) -> None:
    door = played[0].hosted.door
    assert door.strange == []
    assert door.judge.denied == []


def test_no_unused_right_is_granted(played: tuple[HostedStage, Day]) -> None:
    judge = played[0].hosted.door.judge
    assert {function for function, _, _ in judge.used} == {
        played[0].function(name) for name in FUNCTIONS
    }
    large = played[0].function("reconcile_large")
    left = unused([judge], NOT_PLAYED)
    # Lambda itself writes to the dead letter queues, and nothing in the test fails permanently.
    left = [one for one in left if one[1] not in LAMBDAS_OWN]
    assert [one for one in left if one[0] != large] == []
    same = {
        (sid, asked.action)
        for function, sid, asked in judge.used
        if function == played[0].function("reconcile")
    }
    assert [one for one in left if one[1:] not in same] == [], (
        "the large function has the rights of the small one"
    )


def test_functions_log_to_the_log_groups_of_the_deployment(played: tuple[HostedStage, Day]) -> None:
    shop, _ = played
    logs = shop.aws.client("logs")
    assert shop.hosted.processes.keys() == {shop.function(name) for name in FUNCTIONS}
    for name in shop.hosted.processes:
        events = logs.get_log_events(logGroupName=f"/aws/lambda/{name}", logStreamName="local")[
            "events"
        ]
        assert any('"service":"outscaler"' in one["message"] for one in events), name


def test_dead_letter_queues_stay_empty(played: tuple[HostedStage, Day]) -> None:
    shop, _ = played
    urls = shop.aws.client("sqs").list_queues()["QueueUrls"]
    dead = [url.rpartition("/")[2] for url in urls if url.endswith("-dead")]
    assert dead
    assert [name for name in dead if shop.hosted.waiting(name)] == []
