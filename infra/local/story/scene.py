"""What the story of `make run` is played with: a small shop's cluster, its node groups, its workloads, its policy.

Written as a person would apply it. The numbers are chosen so that a newcomer can check them by hand. A worker has 4
CPUs, 3.85 of them for pods that are not a DaemonSet's. Four shop-front pods of 0.9 leave no room for a cart of 0.4, so
the carts that come with the sale get a node of their own; when the sale is over they are what must be moved.

The cluster has two providers. Its workers are Cluster API's; what comes in bursts runs on Alibaba Cloud, in either of
two scaling groups that are empty otherwise. Of the machines of the first, and preferred, none is in stock.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from infra.local.alicloud.cloud import Cloud
from infra.local.alicloud.objects import NO_STOCK, MachineType
from infra.local.controllers import seed
from infra.local.kube.objects import KubeObject

CLUSTER = "shop"
SYSTEM, WORKERS = "system", "workers"
BURST, SPARE = "burst-g7", "burst-c7"
"""The scaling groups: the first choice, and the second."""
START = 1_795_245_660.0

_POLICY = f"""\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {{name: {CLUSTER}}}
spec:
  mode: active
  scanInterval: 20s
  kubernetes: {{kubeconfigSecret: outscaler/{CLUSTER}/kubeconfig}}
  providers:
    clusterapi: {{namespace: default, clusterName: local}}
    alicloud: ALICLOUD
  nodeGroups:
    - {{provider: alicloud, id: {BURST}, min: 0, max: 3, priority: 20}}
    - {{provider: alicloud, id: {SPARE}, min: 0, max: 3, priority: 10}}
  options: {{expander: [priority, least-waste], scaleDownUnneededTime: 2m, scaleDownDelayAfterAdd: 3m,
            unremovableNodeRecheckTimeout: 30s}}
  webhook: {{secret: outscaler/{CLUSTER}/webhook}}
"""
UNNEEDED_TIME, DELAY_AFTER_ADD = 120.0, 180.0

FRONT, CART, REPORTS, FORECAST, AGENT = "shop-front", "cart", "reports", "forecast", "node-agent"

QUIET: Mapping[str, int] = {FRONT: 2, CART: 2, REPORTS: 0, FORECAST: 0}
"""Replicas while nothing is going on."""
BUSY: Mapping[str, int] = {FRONT: 14, CART: 8, REPORTS: 2, FORECAST: 1}
"""… when the sale begins."""
LATE: Mapping[str, int] = {FRONT: 1, CART: 6, REPORTS: 0, FORECAST: 0}
"""… when it is over."""

_TAGS = "k8s.io/cluster-autoscaler/node-template/"
_SYSTEM_TAINT = "dedicated=system:NoSchedule"


def _tolerate(value: str) -> list[dict[str, str]]:
    return [{"key": "dedicated", "operator": "Equal", "value": value, "effect": "NoSchedule"}]


def node_groups() -> list[KubeObject]:
    """Those of Cluster API."""
    return [
        seed.machine_deployment(SYSTEM, 1, 1, 2, cpu="2", memory="8Gi", labels={"pool": SYSTEM},
                                taints=[_SYSTEM_TAINT]),
        seed.machine_deployment(WORKERS, 1, 1, 8, cpu="4", memory="16Gi", labels={"pool": WORKERS}),
    ]


def scaling_groups(cloud: Cloud) -> dict[str, str]:
    """Those of Alibaba Cloud, without a machine so far: id -> the name that the story calls it by."""
    made = {}
    kinds = {BURST: MachineType("ecs.g7.2xlarge", 8, 32.0), SPARE: MachineType("ecs.c7.2xlarge", 8, 16.0)}
    for name, kind in kinds.items():
        cloud.types[kind.id] = kind
        tags = {f"{_TAGS}label/pool": name, f"{_TAGS}label/tier": "burst",
                f"{_TAGS}taint/dedicated": "burst:NoSchedule"}
        group = cloud.add_group(name, most=3, types=(kind.id,), machine_tags=tags)
        made[group.id] = name
    first = next(iter(made))
    cloud.spoil(first, NO_STOCK, times=100)
    return made


def policy(groups: Mapping[str, str], settings: Mapping[str, str]) -> str:
    """The document. groups: scaling group id -> name; settings: those of the provider alicloud."""
    text = _POLICY.replace("alicloud: ALICLOUD", f"alicloud: {json.dumps(dict(settings))}")
    for id_, name in groups.items():
        text = text.replace(f"id: {name},", f"id: {id_},")
    return text


def workloads() -> list[KubeObject]:
    """What runs while nothing is going on. forecast asks for more than any node group has."""
    everywhere: Any = [{"operator": "Exists"}]
    return [
        seed.daemonset(AGENT, cpu="50m", memory="64Mi", tolerations=everywhere),
        seed.deployment("dns", "kube-system", 1, "100m", "128Mi", nodeSelector={"pool": SYSTEM},
                        tolerations=_tolerate("system")),
        seed.deployment(FRONT, replicas=QUIET[FRONT], cpu="900m", memory="1Gi"),
        seed.deployment(CART, replicas=QUIET[CART], cpu="400m", memory="512Mi"),
        seed.pdb(CART, max_unavailable=1),
        seed.deployment(REPORTS, replicas=QUIET[REPORTS], cpu="6", memory="8Gi", nodeSelector={"tier": "burst"},
                        tolerations=_tolerate("burst")),
        seed.deployment(FORECAST, replicas=QUIET[FORECAST], cpu="64", memory="8Gi"),
    ]
