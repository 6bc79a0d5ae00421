"""What the story of `make run` is played with: a small shop's cluster, its node groups, its workloads, its policy.

Written as a person would apply it. The numbers are chosen so that a newcomer can check them by hand. A worker has 4
CPUs, 3.85 of them for pods that are not a DaemonSet's. Four shop-front pods of 0.9 leave no room for a cart of 0.4, so
the carts that come with the sale get a node of their own; when the sale is over they are what must be moved.

The cluster has machines of four providers. Its workers are Cluster API's. What comes in bursts runs on Alibaba Cloud,
in either of two scaling groups that are empty otherwise; of the machines of the first, and preferred, none is in stock.
What is rendered runs on Exoscale, whose organisation has no quota left, or on servers of Cherry Servers, of which the
first never joins the cluster (clouds.py).

Two pools of Huawei Cloud CCE grow by rules. The nightly batch runs on `night`, which has two flavours, of
which the preferred one is sold out. A node of it offers 3920m: with its node-agent one batch pod makes 21.7 % of that,
and two make 42.1 %, which is 21.7 % again when there is a second node. The office runs on the two nodes of `day`, where
all ten of its pods fit, and make 90.6 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from infra.emulators.controllers import objects
from infra.emulators.kube.objects import KubeObject

CLUSTER = "shop"
SYSTEM, WORKERS = "system", "workers"
BURST, SPARE = "burst-g7", "burst-c7"
"""The scaling groups: the first choice, and the second."""
SKS, METAL = "render-sks", "render-metal"
"""Exoscale's Nodepool and Cherry Servers' pool: the first choice, and the second."""
SECOND: Mapping[str, str] = {BURST: SPARE, SKS: METAL}
"""What is bought where the first choice cannot be had."""
NIGHT, DAY = "night", "day"
NIGHT_UID = "7d48eca7-3419-11ea-bc29-0255ac1001a8"
"""As the vendor's example of a rule has it."""
NIGHT_FIRST, NIGHT_SECOND = "night-m7", "night-c7"
"""The flavours of night: the preferred one, and the other."""
LATER: Mapping[str, str] = {NIGHT_FIRST: NIGHT_SECOND}
"""What a rule's nodes come from where its first choice is sold out."""
STRIKE = 1_795_294_020.0
"""20:47 UTC, at which the cron rule is due."""

RULE_OBJECT, CRON_RULE, METRIC_RULE, METRIC_ABOVE = "kube-system/night", "cronrule", "metricrule", 40
BUSY_RULE, ABOVE = "busy", 60
THRESHOLDS: Mapping[str, int] = {METRIC_RULE: METRIC_ABOVE, BUSY_RULE: ABOVE}
_STARTING, _SETTLING = 10.0, 155.0  # the emulation's start, seconds of the wall; chapter 1 and a pass, virtual seconds

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
  options: {{expander: [priority, least-waste], scaleDownUnneededTime: 2m, scaleDownDelayAfterAdd: 7m,
            unremovableNodeRecheckTimeout: 30s, initialNodeGroupBackoffDuration: 30m}}
  rules:
  - {{name: {BUSY_RULE}, groups: [{DAY}], metric: cpu, above: {ABOVE}, add: auto}}
  webhook: {{secret: outscaler/{CLUSTER}/webhook}}
"""
UNNEEDED_TIME, DELAY_AFTER_ADD = 120.0, 420.0

# The vendor's example (seed 004), in the spelling of its definition.
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

FRONT, CART, REPORTS, RENDER, FORECAST = "shop-front", "cart", "reports", "render", "forecast"
BATCH, OFFICE = "batch", "office"
AGENT = "node-agent"

QUIET: Mapping[str, int] = {FRONT: 2, CART: 2, REPORTS: 0, RENDER: 0, FORECAST: 0, BATCH: 1, OFFICE: 2}
"""Replicas while nothing is going on."""
BUSY: Mapping[str, int] = {FRONT: 14, CART: 8, REPORTS: 2, RENDER: 2, FORECAST: 1}
"""… when the sale begins."""
LATE: Mapping[str, int] = {FRONT: 1, CART: 6, REPORTS: 0, RENDER: 0, FORECAST: 0, BATCH: 1, OFFICE: 2}
"""… when it is over."""

_SYSTEM_TAINT = "dedicated=system:NoSchedule"


def _tolerate(value: str) -> list[dict[str, str]]:
    return [{"key": "dedicated", "operator": "Equal", "value": value, "effect": "NoSchedule"}]


def _on(*pools: str) -> dict[str, Any]:
    """Nodes of these groups only, by the label that all of them have."""
    terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": list(pools)}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def start(speed: float) -> float:
    """The virtual instant to begin at, so that 20:47 comes soon after the policy. speed: virtual seconds in one of the
    wall."""
    return STRIKE - _STARTING * speed - _SETTLING


def strike(now: float, speed: float) -> float:
    """When the cron rule is to be due: at 20:47; on a machine so slow that there is no pass before, a minute or two
    from now."""
    ready = now + 2.0 * speed + 10.0
    return STRIKE if ready <= STRIKE else ready // 60 * 60 + 60


def rules(at: float) -> KubeObject:
    """The vendor's example, with its cron rule due at that instant; as it stands that is 20:47."""
    minute = int(at // 60)
    return dict(yaml.safe_load(_RULES.replace("SCHEDULE", f"{minute % 60} {minute // 60 % 24} * * *")))


def group_name(labels: Mapping[str, str]) -> str:
    """The name of a node's group, by its labels: the pool, and in night the flavour."""
    pool = labels.get("pool", "")
    return _FLAVOURS.get((pool, labels.get("node.kubernetes.io/instance-type", "")), pool)


def node_groups() -> list[KubeObject]:
    """Those of Cluster API."""
    return [
        objects.machine_deployment(
            SYSTEM, 1, 1, 2, cpu="2", memory="8Gi", labels={"pool": SYSTEM}, taints=[_SYSTEM_TAINT]
        ),
        objects.machine_deployment(WORKERS, 1, 1, 8, cpu="4", memory="16Gi", labels={"pool": WORKERS}),
    ]


def policy(sections: str, groups: str) -> str:
    """The document. sections: JSON of spec.providers' other sections; groups: that of spec.nodeGroups."""
    return _POLICY.replace("PROVIDERS", sections).replace("GROUPS", groups)


def workloads() -> list[KubeObject]:
    """What runs while nothing is going on. forecast asks for more than any node group has."""
    everywhere: Any = [{"operator": "Exists"}]
    return [
        objects.daemonset(AGENT, cpu="50m", memory="64Mi", tolerations=everywhere),
        objects.deployment(
            "dns", "kube-system", 1, "100m", "128Mi", nodeSelector={"pool": SYSTEM}, tolerations=_tolerate("system")
        ),
        objects.deployment(FRONT, replicas=QUIET[FRONT], cpu="900m", memory="1Gi", affinity=_on(WORKERS)),
        objects.deployment(CART, replicas=QUIET[CART], cpu="400m", memory="512Mi", affinity=_on(WORKERS)),
        objects.pdb(CART, max_unavailable=1),
        objects.deployment(
            REPORTS,
            replicas=QUIET[REPORTS],
            cpu="6",
            memory="8Gi",
            nodeSelector={"tier": "burst"},
            tolerations=_tolerate("burst"),
        ),
        objects.deployment(RENDER, replicas=QUIET[RENDER], cpu="9", memory="8Gi", affinity=_on(SKS, METAL)),
        objects.deployment(BATCH, replicas=QUIET[BATCH], cpu="800m", memory="256Mi", affinity=_on(NIGHT)),
        objects.deployment(OFFICE, replicas=QUIET[OFFICE], cpu="700m", memory="256Mi", affinity=_on(DAY)),
        objects.deployment(FORECAST, replicas=QUIET[FORECAST], cpu="64", memory="8Gi"),
    ]
