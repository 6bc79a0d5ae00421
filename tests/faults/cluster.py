"""The initial cluster of every run: three small groups, pods of four shapes, and timers short
enough for removals, failures and backoff within an hour of virtual time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from infra.emulators.controllers import objects as cluster_objects
from infra.emulators.controllers.capi.controller import CapiControllerSettings
from infra.emulators.controllers.capi.machines import MachineTimes
from infra.emulators.controllers.kubelet import KubeletTimes
from infra.emulators.controllers.manager import Pace
from infra.emulators.kube.objects import KubeObject


class ClusterGroup(msgspec.Struct, frozen=True):
    """A MachineDeployment. least, most: its bounds in the first policy."""

    size: int
    least: int
    most: int
    cpu: str
    labels: Mapping[str, str] = {}
    taints: tuple[str, ...] = ()


class Shape(msgspec.Struct, frozen=True):
    """The requests of a Deployment's pods."""

    name: str
    cpu: str
    spec: Mapping[str, Any] = {}
    memory: str = "128Mi"


GROUPS = {
    "small": ClusterGroup(2, 0, 4, "2"),
    "large": ClusterGroup(2, 1, 3, "4"),
    "batch": ClusterGroup(0, 0, 2, "4", {"pool": "batch"}, ("pool=batch:NoSchedule",)),
}
SHAPES = (
    Shape("tiny", "250m"),
    Shape("web", "700m"),
    Shape("big", "1800m"),
    Shape("huge", "3500m"),
    Shape(
        "job",
        "1500m",
        {
            "nodeSelector": {"pool": "batch"},
            "tolerations": [{"key": "pool", "operator": "Exists", "effect": "NoSchedule"}],
        },
    ),
)
FAT, WIDE = Shape("fat", "500m", memory="24Gi"), Shape("wide", "5", memory="2Gi")
"""Pods that fit no node of these groups, where managed pools open others."""
PACE = Pace(
    machines=CapiControllerSettings(times=MachineTimes(provision=8.0, join=8.0, delete=5.0)),
    kubelets=KubeletTimes(boot=5.0, start=2.0, stop=2.0, heartbeat=600.0),
)
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
PRICES: Mapping[str, int] = {"small": 10, "large": 20, "batch": 20}
"""First prices of nodes, in hundredths an hour; users change them."""
CONSOLIDATION: Mapping[str, Any] = {
    "mode": "full",
    "aggressiveness": 10,
    "minSavings": "5%",
    "quietTime": "10s",
    "minNodeAge": "90s",
    "confirmAfter": "20s",
    "maxSurge": 2,
    "maxReplacements": 2,
    "movesPerPodPerDay": 24,
}
"""Consolidation with times short enough for several replacements of a node within the run."""
LIFECYCLE: Mapping[str, Any] = {
    "maxNodeAge": "1h",
    "jitter": "50%",
    "drift": "replace",
    "repair": [
        {"condition": "KernelDeadlock", "after": "1m"},
        {"condition": "Ready", "status": ["False", "Unknown"], "after": "3m"},
    ],
    "maxUnhealthy": "50%",
}
"""With it: nodes grow old within the run, and are sick long enough between two steps."""
AGE = 1500.0
"""Seconds for which the first nodes are there before the run begins: none expires before 1800."""
STEERED_AGE = 300.0
"""The same where the scheduler is steered, which has more nodes that grow old later."""
SPOT_GROUP = "small"
CONSOLIDATING: Mapping[str, Any] = {"scaleDownUtilizationThreshold": 0.2}
"""Options with it: nodes that are little used are left to consolidation."""
STEERED_SIZES = {"small": 6, "large": 5, "batch": 0}
"""First sizes where the scheduler is steered: a horizon needs many nodes."""
STEERED_BOUNDS = {"small": (0, 8), "large": (0, 7), "batch": (0, 2)}
CONSOLIDATED_BOUNDS = {"small": (0, 5), "large": (0, 4), "batch": (0, 2)}
MAINTENANCE = "people/maintenance"
"""The taint that people put on nodes; of a kind that says nothing about the nodes to come."""
OPTIONS: Mapping[str, Any] = {
    "scaleDownUnneededTime": "40s",
    "scaleDownUnreadyTime": "2m",
    "scaleDownDelayAfterAdd": "20s",
    "scaleDownDelayAfterFailure": "30s",
    "maxNodeProvisionTime": "3m",
    "initialNodeGroupBackoffDuration": "60s",
    "maxNodeGroupBackoffDuration": "4m",
    "nodeGroupBackoffResetTimeout": "10m",
    "nodeDeleteDelayAfterTaint": "5s",
    "maxPodEvictionTime": "45s",
    "maxGracefulTerminationSec": 20,
    "nodeDeletionDelayTimeout": "20s",
    "unremovableNodeRecheckTimeout": "60s",
    "okTotalUnreadyCount": 10,
    "scaleDownUtilizationThreshold": 0.8,
    "maxDrainParallelism": 2,
    "statusTaint": [MAINTENANCE],
}


def objects(*, consolidates: bool = False, steers: bool = False) -> list[KubeObject]:
    """The initial objects. consolidates: nodes have instance types, named as their
    groups, that have prices; those of SPOT_GROUP may be taken back; a changed template
    changes no machine by itself. steers: more nodes, with pods that fill a part of each."""
    groups = [
        cluster_objects.machine_deployment(
            name,
            STEERED_SIZES[name] if steers else each.size,
            each.least,
            each.most,
            cpu=each.cpu,
            labels={**each.labels, **({INSTANCE_TYPE: name} if consolidates else {})},
            taints=each.taints,
            interruptible=consolidates and name == SPOT_GROUP,
            strategy="OnDelete" if consolidates else "",
        )
        for name, each in GROUPS.items()
    ]
    return [
        *groups,
        *([cluster_objects.deployment("half", replicas=9, cpu="900m", memory="128Mi")] * steers),
        cluster_objects.deployment("web", replicas=3, cpu="700m", memory="128Mi"),
        cluster_objects.pdb("web", max_unavailable=1),
        cluster_objects.deployment("tiny", replicas=3, cpu="250m", memory="128Mi"),
    ]


CPU_PRICE = {"cpu": 0.005, "currency": "EUR"}
"""Of these groups beside managed pools: what fits a node of them goes there."""
TOPIC = "arn:aws:sns:us-east-1:123456789012:outscaler-events"
REPORTS = {"recordDecisions": True, "notifications": {"topic": TOPIC, "minSeverity": "info"}}


def policy(
    mode: str,
    bounds: Mapping[str, tuple[int, int]],
    options: Mapping[str, Any],
    *,
    reports: bool,
    prices: Mapping[str, int] | None = None,
    at_once: bool = False,
    steering: bool = True,
    managed: Mapping[str, Any] | None = None,
) -> str:
    """The document in force. options: added to OPTIONS. reports: with notifications and recorded
    decisions. prices: of nodes; where they are given, nodes are replaced. at_once: replacements
    begin when they are first wanted. steering: whether nodes are marked. managed: providers and
    managedPools beside the groups. JSON is valid YAML."""
    groups = [
        {
            "provider": "clusterapi",
            "id": f"MachineDeployment/default/{name}",
            "min": least,
            "max": most,
        }
        for name, (least, most) in sorted(bounds.items())
    ]
    return json.dumps(
        {
            "apiVersion": "outscaler.dev/v1",
            "kind": "Cluster",
            "metadata": {"name": "shop"},
            "spec": {
                "mode": mode,
                "scanInterval": "60s",
                "providers": {
                    "clusterapi": {"clusterName": "local"},
                    **(managed["providers"] if managed else {}),
                },
                "kubernetes": {"kubeconfigSecret": "outscaler/shop/kubeconfig"},
                "options": {
                    **OPTIONS,
                    **(CONSOLIDATING if prices else {}),
                    **({"expander": "least-cost"} if managed else {}),
                    **options,
                },
                "nodeGroups": groups,
                **(REPORTS if reports else {}),
                **(
                    {"managedPools": managed["managedPools"], "prices": CPU_PRICE}
                    if managed
                    else {}
                ),
                **(_consolidation(prices, at_once=at_once, steering=steering) if prices else {}),
            },
        }
    )


def _consolidation(
    prices: Mapping[str, int], *, at_once: bool, steering: bool
) -> Mapping[str, Any]:
    on_demand = {
        name: (2 if name == SPOT_GROUP else 1) * price / 100 for name, price in prices.items()
    }
    return {
        "prices": {
            "instanceTypes": on_demand,
            "spot": {SPOT_GROUP: prices[SPOT_GROUP] / 100},
            "currency": "EUR",
        },
        "spot": {},
        "nodeLifecycle": LIFECYCLE,
        "consolidation": {
            **CONSOLIDATION,
            **({"confirmAfter": "0s"} if at_once else {}),
            "steering": steering,
        },
        "disruptionBudgets": [{"name": "all", "nodes": 2}],
    }
