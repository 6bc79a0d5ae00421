"""The fixture of `make run`: a small shop's cluster, its node groups, its workloads, its policy.

It is written as a person would apply it. The numbers are chosen so that a reader can verify them. A
worker has 4 CPUs, 3.85 of them for pods other than DaemonSet pods. Four shop-front pods of 0.9
leave no room for a cart of 0.4, so the carts that the sale adds get a separate node; after the sale
they must be moved.

The cluster has machines of four providers. Its workers are Cluster API's. Bursts run on Alibaba
Cloud, in one of two scaling groups that are otherwise empty; none of the machines of the first,
preferred group is in stock. Rendering runs on Exoscale, whose organisation has no quota left, or on
servers of Cherry Servers, the first of which never joins the cluster (cloud_accounts.py).

Two pools of Huawei Cloud CCE are scaled by rules. The nightly batch runs on `night`, which has two
flavours; the preferred one is sold out. A node of it offers 3920m: with its node-agent, one batch
pod makes 21.7 % of that and two make 42.1 %, which is 21.7 % again with a second node. The office
runs on the two nodes of `day`, which fit all ten of its pods and are 90.6 % used.

Two managed pools come last: studio copies Exoscale's Nodepool, cellar the definition of Cherry
Servers. matte asks for 26 GiB, which at Exoscale two machines have; the cheaper one is sold out.

Two groups that come at the end are dear and half empty; a core costs 0.05 an hour. The three pods
of api request 2.7 CPUs and have a node of `legacy` with 16, where one of `lean` with 4 is enough.
The twelve pods of search request 0.8 each, three on each node of `search`. More than half of a node
is used, so none is unneeded; but four fit on a node.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import yaml

from chalicelib.cli.ui_server import PageServer
from chalicelib.model.managed_group import declaration_in_name
from chalicelib.model.policy_permissions import Deployment
from chalicelib.page.routes import respond
from chalicelib.store import Store
from infra.emulators.aws import LocalAws
from infra.emulators.controllers import objects
from infra.emulators.kube.objects import KubeObject
from infra.emulators.lambda_events import Json
from infra.emulators.live.lambda_processes import Functions, Result

CLUSTER = "shop"
SYSTEM, WORKERS = "system", "workers"
WORKERS_ID = f"MachineDeployment/default/{WORKERS}"
"""The name of the node group in the policy and in commands."""
BURST, SPARE = "burst-g7", "burst-c7"
"""The scaling groups: the preferred one and its substitute."""
SKS, METAL = "render-sks", "render-metal"
"""Exoscale's Nodepool and Cherry Servers' pool: the preferred group and its substitute."""
SECOND: Mapping[str, str] = {BURST: SPARE, SKS: METAL}
"""The preferred group -> the substitute that is bought if it is unavailable."""
NIGHT, DAY = "night", "day"
NIGHT_UID = "7d48eca7-3419-11ea-bc29-0255ac1001a8"
"""The value of the vendor's example of a rule."""
NIGHT_FIRST, NIGHT_SECOND = "night-m7", "night-c7"
"""The flavours of `night`: the preferred one and its substitute."""
LATER: Mapping[str, str] = {NIGHT_FIRST: NIGHT_SECOND}
"""The preferred flavour of a rule -> its substitute if it is sold out."""
RULE_OBJECT, CRON_RULE, METRIC_RULE, METRIC_ABOVE = (
    "kube-system/night",
    "cronrule",
    "metricrule",
    40,
)
BUSY_RULE, ABOVE = "busy", 60
THRESHOLDS: Mapping[str, int] = {METRIC_RULE: METRIC_ABOVE, BUSY_RULE: ABOVE}
LEGACY, LEAN, SEARCH = "legacy", "lean", "search"
"""The groups that are consolidated: a large machine, the small one that replaces
it, and half full machines."""
DEAR: Mapping[str, int] = {LEGACY: 1, LEAN: 0, SEARCH: 4}
"""Their sizes before."""
CHEAP: Mapping[str, int] = {LEGACY: 0, LEAN: 1, SEARCH: 3}
"""Their sizes after."""
STREAM_SPOT, STREAM, STREAM_TYPE = "stream-spot", "stream", "ecs.c7.2xlarge"
"""The scaling groups of one instance type: spot and on demand."""
STUDIO, CELLAR = "studio", "cellar"
"""Managed pools: of Exoscale and of Cherry Servers."""
STUDIO_ZONE, CELLAR_REGION, RARE_TYPE = "ch-gva-2", "LT-Siauliai", "memory.extra-large"
SOLD_OUT: Mapping[str, str] = {f"{STUDIO} {RARE_TYPE}": f"{STUDIO} standard.huge"}
"""The cheapest group that Outscaler could make for some pods -> what it makes if that is sold
out."""
DEPARTED: Mapping[str, int] = {STREAM_SPOT: 0, STREAM: 1, SEARCH: 3}
"""Sizes after the spot node was taken back and the sick one was replaced."""
SICK = "KernelDeadlock"
"""The condition of a node, as node-problem-detector reports it."""
OLDEST = 4.0
"""Hours after which a node of LEAN is old."""
LONGEST = 8 * 3600.0
"""Virtual seconds after which the demonstration is aborted; it begins so long before
the real time, or longer."""
# seconds after midnight in UTC, of the story and its window
_BEGINS, _NIGHT, _DAY = 20 * 3600.0, 2 * 3600.0, 86400.0
# virtual seconds from the policy to the end of the first pass, on a machine that is slow to start
_FIRST_PASS = 120.0

_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_POOL_LABEL, _REGION = "outscaler.dev/pool", "topology.kubernetes.io/region"
_FLAVOURS = {(NIGHT, "m7.xlarge.8"): NIGHT_FIRST, (NIGHT, "c7.xlarge.2"): NIGHT_SECOND}

_POLICY = f"""\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {{name: {CLUSTER}}}
spec:
  mode: active
  scanInterval: 20s
  kubernetes: {{kubeconfigSecret: outscaler/{CLUSTER}/kubeconfig}}
  providers: PROVIDERS
  nodeGroups: GROUPS
  options: {{expander: [priority, least-waste], scaleDownUnneededTime: 2m, scaleDownDelayAfterAdd: \
7m,
            unremovableNodeRecheckTimeout: 30s, initialNodeGroupBackoffDuration: 8m}}
  rules:
  - {{name: {BUSY_RULE}, groups: [{DAY}], metric: cpu, above: {ABOVE}, add: auto}}
  webhook: {{secret: outscaler/{CLUSTER}/webhook}}
  notifications: {{topic: TOPIC}}
"""
UNNEEDED_TIME, DELAY_AFTER_ADD = 120.0, 420.0

_CONSOLIDATION = """\
  prices: {cpu: 0.05, currency: EUR}
  consolidation: {mode: MODE, quietTime: 30s, minNodeAge: 1m, confirmAfter: 20s}
"""
_DEPARTURES = f"""\
  prices: {{cpu: 0.05, currency: EUR, spot: {{{STREAM_TYPE}: 0.12}}}}
  spot: {{}}
  nodeLifecycle: {{LIMIT, repair: [{{condition: {SICK}, after: 1m}}]}}
"""
_LIMIT = f"maxNodeAge: {OLDEST:g}h, groups: [{LEAN}]"
_MANAGED = f"""\
  prices: {{cpu: 0.05, currency: EUR}}
  managedPools:
  - {{name: {STUDIO}, provider: exoscale, copyFrom: {SKS}, labels: {{pool: {STUDIO}}}}}
  - {{name: {CELLAR}, provider: cherryservers}}
"""
_CHEAPEST: Mapping[str, str] = {
    "expander: [priority, least-waste]": "expander: least-cost",
    "scaleDownUnneededTime: 2m": "scaleDownUnneededTime: 30s",
    "scaleDownDelayAfterAdd: 7m": "scaleDownDelayAfterAdd: 30s",
}
"""Options of the policy with managed pools, in place of the former ones."""
QUICK = 30.0
"""Seconds of both times of removals then."""
_WINDOW = """\
  maintenanceWindows: [{name: night, cron: "0 2 * * *", duration: 4h}]
"""
_OFTEN, _SELDOM = "scanInterval: 20s", "scanInterval: 1m"
"""Passes of the last chapters are seldom, because a pass takes longer than what it waits for."""

# The vendor's example, in the spelling of its definition.
_RULES = """\
apiVersion: autoscaling.cce.io/v1alpha1
kind: HorizontalNodeAutoscaler
metadata:
  name: night
  namespace: kube-system
spec:
  disable: false
  rules:
  - action: {type: ScaleUp, unit: Node, value: 1}
    cronTrigger: {schedule: SCHEDULE}
    disable: false
    ruleName: cronrule
    type: Cron
  - action: {type: ScaleUp, unit: Node, value: 2}
    disable: false
    metricTrigger: {metricName: Cpu, metricOperation: '>', metricValue: "40", unit: Percent}
    ruleName: metricrule
    type: Metric
  targetNodepoolIds:
  - 7d48eca7-3419-11ea-bc29-0255ac1001a8
"""

TRAILER, MATTE, VAULT = "trailer", "matte", "vault"
ODD: tuple[str, ...] = (TRAILER, MATTE, VAULT)
"""Workloads that need machines of which there is no group."""
FRONT, CART, REPORTS, RENDER, FORECAST = "shop-front", "cart", "reports", "render", "forecast"
BATCH, OFFICE = "batch", "office"
API = "api"
AGENT = "node-agent"

QUIET: Mapping[str, int] = {
    FRONT: 2,
    CART: 2,
    REPORTS: 0,
    RENDER: 0,
    FORECAST: 0,
    BATCH: 1,
    OFFICE: 2,
}
"""Replicas at the beginning."""
BUSY: Mapping[str, int] = {FRONT: 14, CART: 8, REPORTS: 2, RENDER: 2, FORECAST: 1}
"""Replicas during the sale."""
LATE: Mapping[str, int] = {
    FRONT: 1,
    CART: 6,
    REPORTS: 0,
    RENDER: 0,
    FORECAST: 0,
    BATCH: 1,
    OFFICE: 2,
}
"""Replicas after the sale."""

_SYSTEM_TAINT = "dedicated=system:NoSchedule"


def _tolerate(value: str) -> list[dict[str, str]]:
    return [{"key": "dedicated", "operator": "Equal", "value": value, "effect": "NoSchedule"}]


def _on(*pools: str) -> dict[str, Any]:
    """Return an affinity to nodes of these groups only, by their common label."""
    terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": list(pools)}]}]
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    }


def strike(now: float) -> float:
    """Return when the cron rule is due: at the first minute for which a pass is
    ready, also on a slow machine."""
    return math.ceil((now + _FIRST_PASS) / 60) * 60.0


def rules(at: float) -> KubeObject:
    """Return the vendor's example with its cron rule due at that minute of the day; the
    vendor's is due at 20:47."""
    minute = int(at // 60)
    return dict(
        yaml.safe_load(_RULES.replace("SCHEDULE", f"{minute % 60} {minute // 60 % 24} * * *"))
    )


def group_name(labels: Mapping[str, str]) -> str:
    """Return the name of a node's group from its labels: the pool and, in `night`, the flavour; the
    managed pool and the machine type, if Outscaler has made the group."""
    pool = labels.get("pool", "")
    declaration = labels.get(_POOL_LABEL) or declaration_in_name(pool)
    if declaration:
        return managed_name(declaration, labels.get(_INSTANCE_TYPE, ""))
    return _FLAVOURS.get((pool, labels.get(_INSTANCE_TYPE, "")), pool)


def managed_name(declaration: str, machine_type: str) -> str:
    """Return the name of a group that Outscaler has made: its own is not readable."""
    return f"{declaration} {machine_type}"


def node_groups() -> list[KubeObject]:
    return [
        objects.machine_deployment(
            SYSTEM, 1, 1, 2, cpu="2", memory="8Gi", labels={"pool": SYSTEM}, taints=[_SYSTEM_TAINT]
        ),
        objects.machine_deployment(
            WORKERS, 1, 1, 8, cpu="4", memory="16Gi", labels={"pool": WORKERS}
        ),
    ]


def policy(sections: str, groups: str, topic: str) -> str:
    """Return the policy document. sections: JSON of spec.providers' other sections. groups: JSON of
    spec.nodeGroups. topic: of notifications."""
    return _POLICY.replace("PROVIDERS", sections).replace("GROUPS", groups).replace("TOPIC", topic)


def with_consolidation(document: str, mode: str) -> str:
    """Return the policy document with prices and consolidation."""
    return document.replace(_OFTEN, _SELDOM) + _CONSOLIDATION.replace("MODE", mode)


def with_departures(document: str, *, at_night: bool = False) -> str:
    """Return the policy document with spot nodes and repairs. at_night: also an age limit
    and a maintenance window."""
    added = _DEPARTURES.replace("LIMIT, ", f"{_LIMIT}, " if at_night else "")
    return document.replace(_OFTEN, _SELDOM) + added + (_WINDOW if at_night else "")


def with_managed_pools(document: str) -> str:
    """Return the policy document with managed pools, which least-cost chooses among."""
    for former, option in _CHEAPEST.items():
        document = document.replace(former, option)
    return document.replace(_OFTEN, _SELDOM) + _MANAGED


def evening(present: float) -> float:
    """Return the last evening from which the story reaches its night before the
    real time, epoch seconds."""
    return (present - LONGEST - _BEGINS) // _DAY * _DAY + _BEGINS


def night(now: float) -> float:
    """Return when the maintenance window opens next."""
    return -((_NIGHT - now) // _DAY) * _DAY + _NIGHT


def stream_workloads() -> list[KubeObject]:
    """Return the workload of the spot node; one of its two pods may be missing."""
    affinity = _on(STREAM_SPOT, STREAM)
    return [
        objects.deployment(STREAM, replicas=2, cpu="3", memory="2Gi", affinity=affinity),
        objects.pdb(STREAM, max_unavailable=1),
    ]


def odd_workloads() -> list[KubeObject]:
    """Return the workloads of the managed pools. Pods choose a vendor by its region."""
    studio, cellar = {_REGION: STUDIO_ZONE}, {_REGION: CELLAR_REGION}
    return [
        objects.deployment(TRAILER, replicas=2, cpu="3", memory="4Gi", nodeSelector=studio),
        objects.deployment(MATTE, replicas=1, cpu="1500m", memory="26Gi", nodeSelector=studio),
        objects.deployment(VAULT, replicas=1, cpu="3", memory="4Gi", nodeSelector=cellar),
    ]


def dear_groups() -> list[KubeObject]:
    """Return the groups that are consolidated."""
    kinds = {
        LEGACY: (0, 1, "16", "64Gi", "l-16"),
        LEAN: (0, 3, "4", "16Gi", "g-4"),
        SEARCH: (1, 6, "4", "32Gi", "m-4"),
    }
    return [
        objects.machine_deployment(
            name,
            DEAR[name],
            least,
            most,
            cpu=cpu,
            memory=memory,
            labels={"pool": name, _INSTANCE_TYPE: kind},
        )
        for name, (least, most, cpu, memory, kind) in kinds.items()
    ]


def dear_workloads() -> list[KubeObject]:
    """Return their workloads. search is applied when its nodes are ready, so
    that it is spread over them."""
    return [
        objects.deployment(API, replicas=3, cpu="900m", memory="1Gi", affinity=_on(LEGACY, LEAN)),
        objects.deployment(SEARCH, replicas=12, cpu="800m", memory="1Gi", affinity=_on(SEARCH)),
        objects.pdb(SEARCH, max_unavailable=3),
    ]


def workloads() -> list[KubeObject]:
    """Return the initial workloads. forecast requests more than any node group offers."""
    everywhere: Any = [{"operator": "Exists"}]
    return [
        objects.daemonset(AGENT, cpu="50m", memory="64Mi", tolerations=everywhere),
        objects.deployment(
            "dns",
            "kube-system",
            1,
            "100m",
            "128Mi",
            nodeSelector={"pool": SYSTEM},
            tolerations=_tolerate("system"),
        ),
        objects.deployment(
            FRONT, replicas=QUIET[FRONT], cpu="900m", memory="1Gi", affinity=_on(WORKERS)
        ),
        objects.deployment(
            CART, replicas=QUIET[CART], cpu="400m", memory="512Mi", affinity=_on(WORKERS)
        ),
        objects.pdb(CART, max_unavailable=1),
        objects.deployment(
            REPORTS,
            replicas=QUIET[REPORTS],
            cpu="6",
            memory="8Gi",
            nodeSelector={"tier": "burst"},
            tolerations=_tolerate("burst"),
        ),
        objects.deployment(
            RENDER, replicas=QUIET[RENDER], cpu="9", memory="8Gi", affinity=_on(SKS, METAL)
        ),
        objects.deployment(
            BATCH, replicas=QUIET[BATCH], cpu="800m", memory="256Mi", affinity=_on(NIGHT)
        ),
        objects.deployment(
            OFFICE, replicas=QUIET[OFFICE], cpu="700m", memory="256Mi", affinity=_on(DAY)
        ),
        objects.deployment(FORECAST, replicas=QUIET[FORECAST], cpu="64", memory="8Gi"),
    ]


@contextmanager
def status_page(
    store: Store,
    clock: Callable[[], float],
    deployment: Deployment,
    clock_name: Callable[[], str] = lambda: "",
) -> Iterator[str]:
    """Serve the status page, whose time is that of the clock; yields its address. clock_name: what
    the page calls the clock, "" for the real time."""
    with PageServer(
        0,
        lambda request, links: respond(store, request, clock(), links, deployment, clock_name()),
        time.monotonic,
    ) as server:
        thread = threading.Thread(target=server.serve_until_idle, args=(math.inf,), daemon=True)
        thread.start()
        try:
            yield server.address
        finally:
            server.end()
            thread.join()


NAME = "outscaler-events"


class Subscriber:
    """Receives the events of a topic. topic: its ARN."""

    def __init__(self, aws: LocalAws) -> None:
        self._sqs = aws.client("sqs")
        sns = aws.client("sns")
        self.topic: str = sns.create_topic(Name=NAME)["TopicArn"]
        self._queue: str = self._sqs.create_queue(QueueName="notifications-of-the-team")["QueueUrl"]
        found = self._sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["QueueArn"])
        sns.subscribe(TopicArn=self.topic, Protocol="sqs", Endpoint=found["Attributes"]["QueueArn"])

    def received(self) -> list[dict[str, Any]]:
        """Return the events that have arrived since the last call, each id once, the oldest
        first."""
        events: dict[str, dict[str, Any]] = {}
        while messages := self._sqs.receive_message(
            QueueUrl=self._queue, MaxNumberOfMessages=10
        ).get("Messages"):
            for message in messages:
                event = json.loads(json.loads(message["Body"])["Message"])
                events[event["id"]] = event
                self._sqs.delete_message(
                    QueueUrl=self._queue, ReceiptHandle=message["ReceiptHandle"]
                )
        return sorted(events.values(), key=lambda event: str(event["time"]))


_PASS = "reconcile"


class Passes:
    """Wraps the invocation of the reconcile function by its queue. begun: number
    of passes started so far."""

    def __init__(self, functions: Functions) -> None:
        self._invoke = functions.invoke
        self._open, self._running, self.begun = True, 0, 0
        self._changed = threading.Condition()
        functions.invoke = self.invoke  # type: ignore[method-assign]

    def invoke(self, name: str, event: Json) -> Result:
        """Like Functions.invoke. A pass waits until passes are allowed."""
        if name != _PASS:
            return self._invoke(name, event)
        with self._changed:
            self._changed.wait_for(lambda: self._open)
            self._running += 1
            self.begun += 1
        try:
            return self._invoke(name, event)
        finally:
            with self._changed:
                self._running -= 1

    def hold(self) -> None:
        with self._changed:
            self._open = False

    def release(self) -> None:
        with self._changed:
            self._open = True
            self._changed.notify_all()

    @property
    def held(self) -> bool:
        return not self._open

    @property
    def still(self) -> bool:
        with self._changed:
            return not self._open and not self._running
