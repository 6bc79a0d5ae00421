"""What the story of `make run` is played with: a small shop's cluster, its node groups, its workloads, its policy.

Written as a person would apply it. The numbers are chosen so that a newcomer can check them by hand. A worker has 4
CPUs, 3.85 of them for pods that are not a DaemonSet's. Four shop-front pods of 0.9 leave no room for a cart of 0.4, so
the carts that come with the sale get a node of their own; when the sale is over they are what must be moved.

The cluster has machines of four providers. Its workers are Cluster API's. What comes in bursts runs on Alibaba Cloud,
in either of two scaling groups that are empty otherwise; of the machines of the first, and preferred, none is in stock.
What is rendered runs on Exoscale, whose organisation has no quota left, or on servers of Cherry Servers, of which the
first never joins the cluster (clouds.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.local.controllers import seed
from infra.local.kube.objects import KubeObject

CLUSTER = "shop"
SYSTEM, WORKERS = "system", "workers"
BURST, SPARE = "burst-g7", "burst-c7"
"""The scaling groups: the first choice, and the second."""
SKS, METAL = "render-sks", "render-metal"
"""Exoscale's Nodepool and Cherry Servers' pool: the first choice, and the second."""
SECOND: Mapping[str, str] = {BURST: SPARE, SKS: METAL}
"""What is bought where the first choice cannot be had."""
START = 1_795_245_660.0

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
  webhook: {{secret: outscaler/{CLUSTER}/webhook}}
"""
UNNEEDED_TIME, DELAY_AFTER_ADD = 120.0, 420.0

FRONT, CART, REPORTS, RENDER, FORECAST = "shop-front", "cart", "reports", "render", "forecast"
AGENT = "node-agent"

QUIET: Mapping[str, int] = {FRONT: 2, CART: 2, REPORTS: 0, RENDER: 0, FORECAST: 0}
"""Replicas while nothing is going on."""
BUSY: Mapping[str, int] = {FRONT: 14, CART: 8, REPORTS: 2, RENDER: 2, FORECAST: 1}
"""… when the sale begins."""
LATE: Mapping[str, int] = {FRONT: 1, CART: 6, REPORTS: 0, RENDER: 0, FORECAST: 0}
"""… when it is over."""

_SYSTEM_TAINT = "dedicated=system:NoSchedule"


def _tolerate(value: str) -> list[dict[str, str]]:
    return [{"key": "dedicated", "operator": "Equal", "value": value, "effect": "NoSchedule"}]


def _on(*pools: str) -> dict[str, Any]:
    """Nodes of these groups only, by the label that all of them have."""
    terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": list(pools)}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def node_groups() -> list[KubeObject]:
    """Those of Cluster API."""
    return [
        seed.machine_deployment(SYSTEM, 1, 1, 2, cpu="2", memory="8Gi", labels={"pool": SYSTEM},
                                taints=[_SYSTEM_TAINT]),
        seed.machine_deployment(WORKERS, 1, 1, 8, cpu="4", memory="16Gi", labels={"pool": WORKERS}),
    ]


def policy(sections: str, groups: str) -> str:
    """The document. sections: JSON of spec.providers' other sections; groups: that of spec.nodeGroups."""
    return _POLICY.replace("PROVIDERS", sections).replace("GROUPS", groups)


def workloads() -> list[KubeObject]:
    """What runs while nothing is going on. forecast asks for more than any node group has."""
    everywhere: Any = [{"operator": "Exists"}]
    return [
        seed.daemonset(AGENT, cpu="50m", memory="64Mi", tolerations=everywhere),
        seed.deployment("dns", "kube-system", 1, "100m", "128Mi", nodeSelector={"pool": SYSTEM},
                        tolerations=_tolerate("system")),
        seed.deployment(FRONT, replicas=QUIET[FRONT], cpu="900m", memory="1Gi", affinity=_on(WORKERS)),
        seed.deployment(CART, replicas=QUIET[CART], cpu="400m", memory="512Mi", affinity=_on(WORKERS)),
        seed.pdb(CART, max_unavailable=1),
        seed.deployment(REPORTS, replicas=QUIET[REPORTS], cpu="6", memory="8Gi", nodeSelector={"tier": "burst"},
                        tolerations=_tolerate("burst")),
        seed.deployment(RENDER, replicas=QUIET[RENDER], cpu="9", memory="8Gi", affinity=_on(SKS, METAL)),
        seed.deployment(FORECAST, replicas=QUIET[FORECAST], cpu="64", memory="8Gi"),
    ]
