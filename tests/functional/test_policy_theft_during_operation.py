"""A stealing policy stored while an operation is open: the operation sends nothing
and ends with the reason.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.model.operation import Operation, OperationKind, OperationState, RemovalTarget
from chalicelib.model.policy_permissions import STRICT, Deployment
from chalicelib.policy.load import digest
from chalicelib.runtime.messages import ActMessage, encode
from chalicelib.runtime.runtime import install
from infra.emulators.aws_services import QuickServices
from infra.emulators.controllers import objects
from infra.emulators.exoscale.attached_account import ExoscaleAccount, ExoscaleRegistrationOptions
from infra.emulators.lambda_events import sqs_event, sqs_record
from infra.emulators.local_world import LocalWorld
from infra.emulators.scripted_http_server import HttpScript, Reply
from tests.functional.test_policy_theft import GOOD, THEFTS, PolicyTheftFixture
from tests.operations import new_operation

THIEF = "spec.providers."
SHARED = "outscaler/shared/exoscale"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[PolicyTheftFixture]:
    """A cluster `evil` with a correct policy as version 1, and a server on
    which the attacker listens."""
    file = tmp_path / "file"
    file.write_text("eyJhbGciOi.example.token")
    with (
        HttpScript(lambda _: Reply(200, {})) as mine,
        LocalWorld(name="evil", deployment=STRICT) as world,
    ):
        made = PolicyTheftFixture(world, mine, file)
        world.apply_policy(made.text(GOOD, mode="active"))
        for name in ("shop/kubeconfig", "shop/clusterapi"):
            world.put_secret(f"outscaler/{name}", world.server.kubeconfig())
        for name in ("shop/cherryservers", "evil/cherryservers", "shop/webhook", "evil/webhook"):
            world.put_secret(f"outscaler/{name}", "example-token-of-sixteen-or-more")
        world.put_secret("outscaler/evil/exoscale", '{"apiKey": "EXOx", "apiSecret": "x"}')
        world.put_secret("outscaler/evil/huaweicloud", '{"accessKey": "x", "secretKey": "x"}')
        world.put_secret("outscaler/evil/alicloud", '{"accessKeyId": "x", "accessKeySecret": "x"}')
        world.seed(objects.node("node-1", cpu="2"))
        yield made
    install(None)


def replaced(world: LocalWorld, text: str, times: int = 1) -> None:
    """Writes the policy's row with PutItem, bypassing `outscaler apply`;
    times: the number of versions."""
    for each in range(times):
        current = world.store.policies.current(world.name)
        again = text + "\n" * (each + 1)
        world.store.policies.put(
            world.name, again, f"{digest(text)}-{each}", current.version if current else None
        )


def planned(world: LocalWorld, provider: str, kind: OperationKind) -> Operation:
    """An open operation of that provider, as saved by a pass."""
    now = world.clock()
    targets = (
        (RemovalTarget("node-1", "id://node-1", "node-1"),)
        if kind is not OperationKind.SCALE_UP
        else ()
    )
    made = new_operation(
        id=f"{kind}-1",
        cluster=world.name,
        provider=provider,
        group="g",
        kind=kind,
        plan="plan-1",
        created_at=now,
        due_at=now,
        targets=targets,
        from_size=0,
        to_size=1,
    )
    lease = world.store.leases.acquire(world.name, "a-pass", 1.0)
    memory = world.store.memory.load(world.name)
    world.store.memory.save(world.name, memory, memory, (made,), lease)
    world.store.leases.release(lease)
    return made


def executed(world: LocalWorld, operation: Operation) -> Operation:
    """The operation after its message and all following messages were handled."""
    body = encode(ActMessage(world.name, operation.spec.id)).decode()
    queue = f"act_{operation.spec.provider}"
    world.invoke(queue, sqs_event(sqs_record(queue, "m", "r", body, {})))
    world.step(150)
    found = world.store.operations.get(world.name, operation.spec.id)
    assert found is not None
    return found


@pytest.mark.parametrize("versions", [1, 6], ids=["once", "older-than-what-is-tried"])
@pytest.mark.parametrize("kind", [OperationKind.SCALE_UP, OperationKind.DELETE_NODES])
@pytest.mark.parametrize(("providers", "word"), THEFTS.values(), ids=THEFTS)
def test_open_operation_is_not_carried_out_under_a_stealing_policy(
    scene: PolicyTheftFixture,
    log: io.StringIO,
    providers: dict[str, Any],
    word: str,
    kind: OperationKind,
    versions: int,
) -> None:
    [provider] = providers
    operation = planned(scene.world, provider, kind)
    replaced(scene.world, scene.text(providers, mode="active"), versions)
    scene.secrets.asked.clear()
    ended = executed(scene.world, operation)
    assert scene.mine.requests == []
    assert set(scene.secrets.asked) <= {"outscaler/evil/kubeconfig", "outscaler/-/webhook"}
    assert ended.status.state is OperationState.ABANDONED
    assert THIEF in ended.status.outcome  # the first error; the log has all of them
    reported = log.getvalue()
    assert word in reported
    assert ended.spec.id in reported
    node = scene.world.kube.peek("nodes", "node-1")
    assert node is not None
    assert not node["spec"].get("taints")


@pytest.mark.parametrize("name", ["signed-calls-of-exoscale", "another-clusters-token"])
def test_operation_with_a_lost_message_is_ended_under_a_stealing_policy(
    scene: PolicyTheftFixture, name: str
) -> None:
    providers, _ = THEFTS[name]
    operation = planned(scene.world, next(iter(providers)), OperationKind.SCALE_UP)
    replaced(scene.world, scene.text(providers, mode="active"))
    scene.world.step(1200)  # the sweeper sends the message again
    ended = scene.world.store.operations.get("evil", operation.spec.id)
    assert ended is not None
    assert (ended.status.state, scene.mine.requests) == (OperationState.ABANDONED, [])


@pytest.mark.parametrize(
    "theft",
    [
        {"endpoint": "MINE"},
        {"credentialsSecret": "outscaler/other/exoscale"},
        {"endpoint": "MINE", "credentialsSecret": "outscaler/other/exoscale"},
    ],
    ids=["foreign-host", "foreign-secret", "both"],
)
def test_started_operation_is_completed_with_the_last_permitted_policy(
    theft: dict[str, str],
) -> None:
    account = ExoscaleAccount(ways=ExoscaleRegistrationOptions(boot=60.0))
    with (
        HttpScript(lambda _: Reply(200, {})) as mine,
        LocalWorld(quick=True, clouds=(account,), forgetful=True) as world,
    ):
        assert isinstance(world.services, QuickServices)
        world.permit(
            Deployment(
                endpoints=frozenset({account.server.root.split("/")[2]}),
                shared_secrets=frozenset({SHARED}),
            )
        )
        account.zone.add_nodepool(account.zone.add_cluster("prod").id, "web", type="standard.large")
        world.put_secret("outscaler/other/exoscale", '{"apiKey": "EXOx", "apiSecret": "x"}')
        honest = document_of(account.settings())
        world.seed(
            objects.node("system", cpu="2"),
            objects.deployment("web", replicas=1, cpu="3", memory="1Gi"),
        )
        world.apply_policy(honest)
        world.step_until(
            lambda: any(each.status.step == "poll" for each in world.operations()),
            limit=600.0,
            every=1.0,
        )
        [operation] = world.operations()
        stolen = document_of(
            account.settings()
            | {key: value.replace("MINE", mine.url) for key, value in theft.items()}
        )
        replaced(world, stolen)
        world.services.secrets.asked.clear()
        world.step(600)
        assert mine.requests == []
        assert "outscaler/other/exoscale" not in world.services.secrets.asked
        ended = world.store.operations.get("shop", operation.spec.id)
        assert ended is not None
        assert ended.status.state is OperationState.SUCCEEDED
        assert len(account.zone.vms) == 1


def document_of(settings: dict[str, str]) -> str:
    """A policy of cluster shop with one group at Exoscale."""
    return json.dumps(
        {
            "apiVersion": "outscaler.dev/v1",
            "kind": "Cluster",
            "metadata": {"name": "shop"},
            "spec": {
                "mode": "active",
                "kubernetes": {"kubeconfigSecret": "outscaler/shop/kubeconfig"},
                "providers": {"exoscale": settings},
                "nodeGroups": [{"provider": "exoscale", "id": "prod/web", "min": 0, "max": 5}],
            },
        }
    )
