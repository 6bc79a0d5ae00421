"""A quick world is equivalent: it produces the same plans, and faults in it have the
same effect as over HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.errors import NotFound, TooManyRequests, Unavailable
from chalicelib.cluster.transport import open_connection
from chalicelib.runtime.runtime import install
from infra.emulators.aws import LocalAws
from infra.emulators.aws_faults import Strike, busy, lost_answer
from infra.emulators.controllers.objects import deployment, machine_deployment
from infra.emulators.kube.faults import KubeFault
from infra.emulators.local_world import LocalWorld
from tests.unit.emulators.test_local_world import POLICY

OPTIONS = POLICY + "  options: {scaleDownUnneededTime: 2m, scaleDownDelayAfterAdd: 1m}\n"
PODS = "/api/v1/pods"


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    install(None)


@pytest.fixture
def world() -> Iterator[LocalWorld]:
    with LocalWorld() as made:
        yield made


def _filled(world: LocalWorld, policy: str = POLICY) -> None:
    world.seed(
        machine_deployment("workers", 1, 1, 4), deployment("web", replicas=3, cpu="1", memory="1Gi")
    )
    world.step(80)
    world.apply_policy(policy)


def _scale(world: LocalWorld, replicas: int) -> None:
    found = world.kube.get("deployments", "web", "default", "apps")
    assert found is not None
    found["spec"]["replicas"] = replicas
    world.kube.update("deployments", found, "apps")
    world.settle()


def _reported(world: LocalWorld) -> list[Any]:
    """Runs a scale-up, a scale-down, and a crash in each; returns all decisions and results."""
    _filled(world, OPTIONS)
    _scale(world, 8)
    world.kill_at("grow:called", function="act_clusterapi")
    world.step_until(lambda: not world.pending() and not world.operations(), limit=900)
    _scale(world, 2)
    world.kill_at("reconcile:saved")
    world.step_until(lambda: world.size("workers") == 1 and not world.operations(), limit=2400)
    calls = [
        (made.function, made.at, made.killed_at, made.error, made.bodies)
        for made in world.invocations
    ]
    return [
        world.plan_ids(),
        msgspec.to_builtins(world.memory()),
        calls,
        world.nodes(),
        world.clock(),
        [message.body for message in world.queues.sent],
        len(world.server.requests),
    ]


def test_quick_world_and_full_world_produce_the_same_results(aws: LocalAws) -> None:
    reported = []
    for quick in (False, True):
        with LocalWorld(aws, quick=quick) as world:
            reported.append(_reported(world))
    assert reported[0] == reported[1]
    assert len(reported[0][0]) > 2
    assert {death for _, _, death, *_ in reported[0][2]} == {"", "grow:called", "reconcile:saved"}


def test_quick_worlds_send_the_same_cluster_requests_in_the_same_order() -> None:
    asked = []
    for _ in range(2):
        with LocalWorld() as world:
            _filled(world)
            world.step(180)
            asked.append(world.server.requests)
    assert asked[0] == asked[1]


def test_quick_world_opens_no_socket(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr("socket.socket.connect", refuse)
    _filled(world)
    world.step(130)
    assert world.plan_ids()


# --- access to the cluster


def _cluster(world: LocalWorld) -> KubeClient:
    return KubeClient(
        _Login(world), sleep=world.clock.advance, jitter=lambda: 0.5, dial=world.line.dial
    )


class _Login:
    def __init__(self, world: LocalWorld) -> None:
        from chalicelib.cluster.connect import from_kubeconfig

        self._credential = from_kubeconfig(world.server.kubeconfig(), place="here")

    def current(self) -> Any:
        return self._credential

    def renew(self) -> None:
        return


def _once(fault: KubeFault, method: str = "") -> Callable[[str, str], KubeFault | None]:
    left = [fault]
    return lambda verb, _: left.pop() if left and method in ("", verb) else None


def _always(fault: KubeFault) -> Callable[[str, str], KubeFault | None]:
    return lambda _verb, _target: fault


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        (KubeFault(status=500, body=b"{}"), 500, ""),
        (KubeFault(close=True), 0, "Network"),
        (KubeFault(delay=60.0), 0, "Network"),
        (KubeFault(truncate=3), 0, "Network"),
    ],
)
def test_quick_world_failed_read_is_retried_and_persistent_failure_is_an_error(
    world: LocalWorld, fault: KubeFault, status: int, reason: str
) -> None:
    cluster = _cluster(world)
    world.line.ask = _once(fault)
    assert json.loads(cluster.get(PODS))["kind"] == "PodList"
    world.line.ask = _always(fault)
    with pytest.raises(Unavailable) as caught:
        cluster.get(PODS)
    assert (caught.value.status, caught.value.reason) == (status, reason)


def test_quick_world_timeout_takes_the_clients_waiting_time(world: LocalWorld) -> None:
    cluster, began = _cluster(world), world.clock()
    world.line.ask = _once(KubeFault(delay=3600.0))
    cluster.get(PODS)
    assert 20.0 <= world.clock() - began < 25.0
    world.line.ask = _once(KubeFault(delay=5.0))
    cluster.get(PODS)
    assert 25.0 <= world.clock() - began < 30.0


@pytest.mark.parametrize(
    "fault", [KubeFault(close=True, late=True), KubeFault(delay=60.0, late=True)]
)
def test_quick_world_write_with_a_lost_answer_has_happened(
    world: LocalWorld, fault: KubeFault
) -> None:
    cluster = _cluster(world)
    world.line.ask = _once(fault, "POST")
    body = {"metadata": {"name": "here"}}
    with pytest.raises(Unavailable):
        cluster.request("POST", "/api/v1/namespaces", body=body)
    assert world.kube.peek("namespaces", "here") is not None
    world.line.ask = _once(KubeFault(close=True), "POST")
    with pytest.raises(Unavailable):
        cluster.request("POST", "/api/v1/namespaces", body={"metadata": {"name": "there"}})
    assert world.kube.peek("namespaces", "there") is None


def test_quick_world_throttling_states_retry_delay_and_errors_match_the_server(
    world: LocalWorld,
) -> None:
    cluster = _cluster(world)
    world.line.ask = _always(KubeFault(status=429, headers={"Retry-After": "7"}))
    with pytest.raises(TooManyRequests) as caught:
        cluster.request("POST", "/api/v1/namespaces", body={})
    assert caught.value.retry_after == 7.0
    world.line.ask = lambda _verb, _target: None
    with pytest.raises(NotFound):
        cluster.get("/api/v1/namespaces/nowhere")


def test_quick_world_pages_and_selectors_match_http(world: LocalWorld) -> None:
    _filled(world)
    bodies: list[list[bytes]] = []
    with Served(world) as wired:
        for cluster in (_cluster(world), wired):
            query = {
                "fieldSelector": "status.phase!=Failed",
                "labelSelector": "app in (web, api),tier!=a",
            }
            bodies.append(
                [
                    page.body
                    for page in cluster.list_pages(
                        PODS, query={"labelSelector": "app=web"}, limit=2
                    )
                ]
            )
            bodies[-1].append(cluster.get(PODS, query=query))
    assert bodies[0] == bodies[1]
    assert len(bodies[0]) == 3


class Served:
    """The same API server over HTTP."""

    def __init__(self, world: LocalWorld) -> None:
        self._world = world

    def __enter__(self) -> KubeClient:
        self._world.server.start()
        return KubeClient(
            _Login(self._world),
            sleep=self._world.clock.advance,
            jitter=lambda: 0.5,
            dial=open_connection,
        )

    def __exit__(self, *_: object) -> None:
        self._world.server.stop()


# --- access to the table


def test_quick_world_table_faults_meet_functions_and_not_the_observer(world: LocalWorld) -> None:
    _filled(world)
    struck: list[str] = []

    def ask(method: str, _: dict[str, Any]) -> Strike:
        struck.append(method)
        return Strike(instead=busy("InternalServerError"))

    world.faults.ask = ask
    world.step(130)
    assert struck
    assert world.plan_ids() == ()
    world.faults.ask = lambda method, _: Strike(
        after=lost_answer() if method == "transact_write_items" else None
    )
    _scale(world, 5)
    world.step(130)
    world.faults.ask = lambda *_: Strike()
    world.step_until(lambda: not world.pending() and not world.operations(), limit=900)
    assert world.size("workers") == 2


def test_quick_world_missing_secret_is_reported_as_missing(world: LocalWorld) -> None:
    world.seed(machine_deployment("workers", 1, 1, 4))
    world.apply_policy(POLICY.replace("shop/kubeconfig", "shop/kubeconfig-nowhere"))
    world.step(130)
    assert world.plan_ids() == ()
    world.put_secret("outscaler/shop/kubeconfig-nowhere", world.server.kubeconfig())
    world.step(130)
    assert any(
        made.function == "reconcile" and not made.failed_messages for made in world.invocations
    )
