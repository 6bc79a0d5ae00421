"""What the functions write while a cluster of each provider grows, loses calls and
processes, and shrinks again.

    python -m tests.recorded.worlds      write tests/recorded/worlds.json.gz
                                         with the code of this tree

A world is played on virtual time. Every change of every row of the table is kept in order, and
every message, so an operation is there in each step in which it rested. As each change rests on the
ones before, a tree that plays to the same rows reads what the recorded one has written.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infra.emulators.alicloud.attached_account import AlicloudAccount
from infra.emulators.alicloud.models import NO_STOCK as NO_ECS
from infra.emulators.cherryservers.attached_account import CherryAccount
from infra.emulators.cherryservers.attached_account import CherryRegistrationOptions as CherryWays
from infra.emulators.cherryservers.models import NEVER_JOINS
from infra.emulators.cherryservers.models import CherryDurations as CherryTimes
from infra.emulators.controllers import objects
from infra.emulators.controllers.kubelet import KubeletTimes
from infra.emulators.controllers.manager import Pace
from infra.emulators.exoscale.attached_account import ExoscaleAccount
from infra.emulators.exoscale.attached_account import ExoscaleRegistrationOptions as ExoscaleWays
from infra.emulators.exoscale.models import UNAVAILABLE
from infra.emulators.huaweicloud.attached_account import HuaweiAccount
from infra.emulators.huaweicloud.node_registration import CceRegistrationOptions as HuaweiWays
from infra.emulators.invocation import Invocation
from infra.emulators.lambda_events import Json
from infra.emulators.local_world import LocalWorld

FILE = Path(__file__).parent / "worlds.json.gz"
_LOOPBACK = re.compile(r"(?:127\.0\.0\.1|localhost):\d+")
_DIGEST = re.compile(r"#[0-9a-f]{16,64}(?=#|$)")
_UNTOLD = ("left",)  # says how long passes took on the wall
_OPTIONS = {
    "expander": ["priority", "least-waste"],
    "scaleDownUnneededTime": "2m",
    "scaleDownDelayAfterAdd": "2m",
    "maxNodeProvisionTime": "8m",
}


class Watched(LocalWorld):
    """A world whose writes are kept."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(quick=True, forgetful=True, **settings)
        self.written: list[Any] = []
        self.answers: list[Any] = []
        self._last: dict[str, str] = {}

    def ask(self) -> None:
        """Keep what the routes answer, without what depends on the wall."""
        for target in (
            "/clusters",
            f"/clusters/{self.name}",
            f"/clusters/{self.name}/decisions",
            "/metrics",
        ):
            made = self.get(target)
            lines = [line for line in str(made["body"]).splitlines() if "duration" not in line]
            self.answers.append([target, made["statusCode"], lines])

    def invoke(self, function: str, event: Json) -> Invocation:
        """See LocalWorld; then what has changed."""
        bodies = [record["body"] for record in event.get("Records", ())]
        made = super().invoke(function, event)
        changed = {}
        for row in self.services.dynamodb.scan(TableName=self.services.table)["Items"]:
            key, value = _row(row)
            if self._last.get(key) != json.dumps(value, sort_keys=True):
                self._last[key] = json.dumps(value, sort_keys=True)
                changed[key] = value
        if changed or bodies:
            self.written.append([function, bodies, made.killed_at, changed])
        return made


def _row(row: dict[str, Any]) -> tuple[str, Any]:
    key = f"{row['cluster']['S']} {row['item']['S']}"
    plain = json.loads(
        json.dumps(
            {name: value for name, value in row.items() if name not in _UNTOLD}, default=_bytes
        )
    )
    return _same(key), json.loads(_same(json.dumps(plain)))


def _bytes(raw: Any) -> str:
    return base64.b64encode(bytes(getattr(raw, "value", raw))).decode()


def _same(text: str) -> str:
    return _LOOPBACK.sub("LOOPBACK", _DIGEST.sub("#DIGEST", text))


def _policy(world: LocalWorld, providers: dict[str, Any], **spec: Any) -> None:
    world.apply_policy(
        json.dumps(
            {
                "apiVersion": "outscaler.dev/v1",
                "kind": "Cluster",
                "metadata": {"name": world.name},
                "spec": {
                    "mode": "active",
                    "scanInterval": "20s",
                    "metrics": "full",
                    "providers": providers,
                    "kubernetes": {"kubeconfigSecret": world.kubeconfig_secret},
                    "options": _OPTIONS,
                    **spec,
                },
            }
        )
    )
    world.seed(objects.node("system", cpu="2"))


def _up_and_down(world: Watched, up: float = 600.0, count: int = 3) -> None:
    """Pods come, wait for machines and go."""
    world.seed(objects.deployment("web", replicas=count, cpu="3", memory="1Gi"))
    world.seed(objects.deployment("small", replicas=2 * count + 2, cpu="300m"))
    world.seed(objects.pdb("small", max_unavailable=1))
    world.step(up)
    _scale(world, "web", 0)
    world.step(720.0)
    world.ask()


def _scale(world: LocalWorld, name: str, replicas: int) -> None:
    deployment = world.kube.peek("deployments", name, "default", "apps")
    assert deployment is not None
    world.kube.update(
        "deployments", {**deployment, "spec": {**deployment["spec"], "replicas": replicas}}, "apps"
    )


def _clusterapi() -> Watched:
    world = Watched(webhook=True)
    with world:
        _policy(world, {"clusterapi": {}}, webhook={"secret": world.webhook_secret})
        world.seed(objects.machine_deployment("workers", 1, 1, 5))
        world.step(60.0)
        world.kill_at("grow:called", times=1)
        world.kill_at("act:stepped", times=1)
        _up_and_down(world, 300.0)
        world.store.breaker_overrides.release(world.name, world.clock() + 60.0)
    return world


def _repaired() -> Watched:
    world = Watched()
    with world:
        _policy(world, {"clusterapi": {}})
        world.cluster.capi.fail_next("default/workers", "never-joins", 1)
        world.cluster.capi.fail_next("default/others", "out-of-stock", 2)
        world.seed(
            objects.machine_deployment("workers", 3, 1, 5),
            objects.machine_deployment("others", 2, 0, 5),
        )
        world.step(120.0)
        world.kill_at("delete:called", times=1)
        _up_and_down(world, 900.0)
    return world


def _drained(*, blocked: bool) -> Watched:
    """A node is emptied in several steps; a budget that turns up before the first
    eviction has it called off."""
    world = Watched(pace=Pace(kubelets=KubeletTimes(stop=60.0)))
    with world:
        _policy(world, {"clusterapi": {}})
        world.seed(objects.machine_deployment("workers", 1, 1, 5))
        world.step(90.0)
        world.seed(
            objects.deployment(
                "web", replicas=30, cpu="5m", memory="16Mi", terminationGracePeriodSeconds=60
            )
        )
        world.seed(objects.deployment("filler", replicas=1, cpu="3500m"))
        world.seed(objects.deployment("big", replicas=1, cpu="2500m"))
        world.step(300.0)
        _scale(world, "filler", 0)
        if blocked:
            listed = world.store.operations.list_open
            world.step_until(
                lambda: any(each.status.step == "recheck" for each in listed(world.name)),
                limit=900.0,
                every=5.0,
            )
            world.seed(objects.pdb("web", max_unavailable=0))
        world.step(1200.0)
        world.ask()
    return world


def _alicloud() -> Watched:
    account = AlicloudAccount()
    world = Watched(clouds=(account,))
    with world:
        first, second = (
            account.cloud.add_group("first", most=5),
            account.cloud.add_group("second", most=5),
        )
        _policy(
            world,
            {"alicloud": account.settings()},
            nodeGroups=[
                {"provider": "alicloud", "id": group.id, "min": 0, "max": 5, "priority": priority}
                for group, priority in ((first, 20), (second, 10))
            ],
        )
        account.cloud.spoil(first.id, NO_ECS, times=2)
        world.kill_at("grow:called", times=2)
        _up_and_down(world)
    return world


def _exoscale() -> Watched:
    account = ExoscaleAccount(ways=ExoscaleWays(boot=20.0))
    world = Watched(clouds=(account,))
    with world:
        cluster = account.zone.add_cluster("prod")
        pool = account.zone.add_nodepool(cluster.id, "web", type="standard.large").pool
        own = account.zone.add_pool("own", size=1, type="standard.large")
        _policy(
            world,
            {"exoscale": json.loads(json.dumps(account.settings()))},
            nodeGroups=[
                {"provider": "exoscale", "id": name, "min": least, "max": 5, "priority": priority}
                for name, least, priority in (("prod/web", 0, 9), (own.id, 1, 1))
            ],
        )
        account.zone.spoil(pool.id, UNAVAILABLE, 2)
        world.kill_at("act:stepped", times=2)
        _up_and_down(world)
    return world


def _cherryservers() -> Watched:
    times = CherryTimes(deploy=120.0, fail=40.0, terminate=30.0)
    account = CherryAccount(times=times, ways=CherryWays(boot=20.0, adopt=10.0))
    world = Watched(clouds=(account,))
    with world:
        pools = {"first": {"plan": "e5_1620v4"}, "second": {"plan": "e3_1240v3"}}
        _policy(
            world,
            {"cherryservers": account.settings(pools)},
            nodeGroups=[
                {"provider": "cherryservers", "id": name, "min": 0, "max": 4, "priority": priority}
                for name, priority in (("first", 9), ("second", 1))
            ],
        )
        account.cloud.spoil("first", NEVER_JOINS)
        world.kill_at("2*grow:called", times=1)
        _up_and_down(world, 1500.0, count=1)
    return world


def _huaweicloud() -> Watched:
    account = HuaweiAccount(ways=HuaweiWays(boot=20.0))
    world = Watched(clouds=(account,))
    with world:
        pool = account.cloud.add_pool(account.cluster.uid, "web", most=8, priority=10)
        account.cloud.add_group(pool.uid, "az2", most=4, priority=5)
        _policy(world, {"huaweicloud": account.settings()})
        world.kill_at("act:stepped", times=2)
        _up_and_down(world)
    return world


WORLDS: dict[str, Callable[[], Watched]] = {
    "clusterapi": _clusterapi,
    "clusterapi-repairs": _repaired,
    "clusterapi-drain": lambda: _drained(blocked=False),
    "clusterapi-called-off": lambda: _drained(blocked=True),
    "alicloud": _alicloud,
    "exoscale": _exoscale,
    "cherryservers": _cherryservers,
    "huaweicloud": _huaweicloud,
}


def play(name: str) -> dict[str, Any]:
    """What is kept of a world, as JSON: `written` by each invocation, and what
    the cluster has been told."""
    world = WORLDS[name]()
    events = [
        [each["involvedObject"]["kind"], each["reason"], each["message"], each.get("count")]
        for each in world.kube.list("events")
        if each["reportingComponent"] == "cluster-autoscaler"
    ]
    status = [each.get("data") for each in world.kube.list("configmaps")]
    metrics = sorted(
        {f"{each}" for line in world.metrics for each in line if "duration" not in each.lower()}
    )
    kept: dict[str, Any] = json.loads(
        _same(
            json.dumps(
                {
                    "written": world.written,
                    "events": events,
                    "status": status,
                    "metrics": metrics,
                    "answers": world.answers,
                }
            )
        )
    )
    return kept


def recorded() -> dict[str, Any]:
    """The recording of all worlds, by name."""
    made: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))
    return made


def main() -> None:
    """Make the recording."""
    text = json.dumps({name: play(name) for name in WORLDS}, sort_keys=True, indent=1)
    FILE.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
