"""What the story of `make run` is played with: a small shop's cluster, its node groups, its workloads, its policy.

Written as a person would apply it. The numbers are chosen so that a newcomer can check them by hand. A worker has 4
CPUs, 3.85 of them for pods that are not a DaemonSet's. Four shop-front pods of 0.9 leave no room for a cart of 0.4, so
the carts that come with the sale get a node of their own; when the sale is over they are what must be moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.local.controllers import seed
from infra.local.kube.objects import KubeObject

CLUSTER = "shop"
SYSTEM, WORKERS, BATCH = "system", "workers", "batch"
START = 1_795_245_660.0

POLICY = f"""\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {{name: {CLUSTER}}}
spec:
  mode: active
  scanInterval: 20s
  kubernetes: {{kubeconfigSecret: outscaler/{CLUSTER}/kubeconfig}}
  providers:
    clusterapi: {{namespace: default, clusterName: local}}
  options: {{expander: least-waste, scaleDownUnneededTime: 2m, scaleDownDelayAfterAdd: 3m,
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

_BATCH_TAINT = "dedicated=batch:NoSchedule"
_SYSTEM_TAINT = "dedicated=system:NoSchedule"


def _tolerate(value: str) -> list[dict[str, str]]:
    return [{"key": "dedicated", "operator": "Equal", "value": value, "effect": "NoSchedule"}]


def node_groups() -> list[KubeObject]:
    """Three of them; batch has no node at all until somebody needs one."""
    return [
        seed.machine_deployment(SYSTEM, 1, 1, 2, cpu="2", memory="8Gi", labels={"pool": SYSTEM},
                                taints=[_SYSTEM_TAINT]),
        seed.machine_deployment(WORKERS, 1, 1, 8, cpu="4", memory="16Gi", labels={"pool": WORKERS}),
        seed.machine_deployment(BATCH, 0, 0, 3, cpu="8", memory="32Gi", labels={"pool": BATCH}, taints=[_BATCH_TAINT]),
    ]


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
        seed.deployment(REPORTS, replicas=QUIET[REPORTS], cpu="6", memory="8Gi", nodeSelector={"pool": BATCH},
                        tolerations=_tolerate("batch")),
        seed.deployment(FORECAST, replicas=QUIET[FORECAST], cpu="64", memory="8Gi"),
    ]
