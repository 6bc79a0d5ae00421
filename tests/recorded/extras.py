"""What a recorded plan has beyond a generated cluster: a policy document with every
part, rule objects, a clock.

Everything follows from the seed, so that a recording can be made again anywhere.
"""

from __future__ import annotations

import random
from typing import Any

EXPANDERS = (
    "least-waste",
    "most-pods",
    "least-nodes",
    "price",
    "priority",
    "least-cost",
    "random",
    "most-pods, least-waste",
    "priority, price",
    "least-cost, random",
)
_HEAD = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: generated}
spec:
  mode: shadow
  kubernetes: {kubeconfigFile: kubeconfig}
  providers: {clusterapi: {}}
  prices: {cpu: 0.03, memory: 0.004, gpu: 0.9, node: 0.01}
"""
_PARTS = (  # share of the clusters that have it, and the ways to say it
    (
        0.30,
        (
            "  headroom: [{name: spare, pods: 3, cpu: 500m, memory: 1Gi}]",
            "  headroom: [{name: tenth, percent: 20%}]",
            "  headroom: [{name: own, groups: [g0], pods: 2, cpu: '1'}, {name: all, percent: 10%}]",
        ),
    ),
    (
        0.25,
        (
            "  maxDisruption: {nodesPerHour: 1, podsPerHour: 3, share: 25%}",
            "  maxDisruption: {share: 10%}",
        ),
    ),
    (
        0.25,
        (
            "  maintenanceWindows: [{name: nights, cron: '0 20 * * *', duration: 2h}]",
            (
                "  maintenanceWindows: [{name: calm, cron: '0 20 * * *', duration: 2h, removals: "
                "forbidden}]"
            ),
            "  maintenanceWindows: [{cron: '0 3 * * 1-5', timeZone: Europe/Zurich, duration: 1h}]",
        ),
    ),
    (
        0.25,
        (
            (
                "  schedules: [{name: evening, groups: [g0], cron: '0 20 * * *', duration: 11h, "
                "min: 2}]"
            ),
            "  schedules: [{name: night, groups: [g0], cron: '0 20 * * *', duration: 11h, max: 1}]",
            "  schedules: [{name: more, cron: '0 20 * * *', duration: 1h, headroom: 50%}]",
        ),
    ),
    (0.30, ("  nodeGroups: [{provider: clusterapi, id: g0, min: 1, max: 12, priority: 10}]",)),
    (
        0.40,
        (
            (
                "  rules:\n    - {name: evening, groups: [g0], cron: '26 20 * * *', timeZone: UTC, "
                "add: 2}"
            ),
            "  rules:\n    - {name: busy, groups: [g0, g1], metric: cpu, above: 55%, add: auto}",
            (
                "  rules:\n    - {name: full, groups: [g1], metric: memory, above: 60%, add: 1}\n"
                "    - {name: due, groups: [g1], cron: '27 20 * * 1-5', timeZone: UTC, add: 1}"
            ),
            "  rules:\n    - {name: nobody, groups: [missing], cron: '26 20 * * *', add: 1}",
        ),
    ),
    (
        0.20,
        (
            "  scaleUp: {horizontalNodeAutoscalers: true, cpuThreshold: 80%}",
            "  scaleUp: {unschedulablePods: false, metricMinInterval: 5m}",
            "  scaleUp: {rules: false}",
        ),
    ),
)
_OPTIONS = (
    (0.20, ("enforceNodeGroupMinSize: true",)),
    (0.20, ("scaleDownUnneededTime: 1m", "scaleDownUnneededTime: 0s")),
    (0.20, ("scaleDownUtilizationThreshold: 0.54",)),
    (0.15, ("scaleDownDelayAfterAdd: 0s", "scaleDownDelayAfterDelete: 5m")),
    (0.15, ("skipNodesWithLocalStorage: false", "skipNodesWithSystemPods: false")),
    (
        0.10,
        ("maxScaleDownParallelism: 1", "scaleDownUnreadyEnabled: false", "scaleDownEnabled: false"),
    ),
    (
        0.10,
        ("newPodScaleUpDelay: 2m", "ignoreDaemonsetsUtilization: true", "scaleUpFromZero: false"),
    ),
)


def plain() -> str:
    """A policy document with prices and nothing else."""
    return _HEAD


def policy(seed: int) -> str:
    """The policy document of a seed."""
    draw = random.Random(f"policy {seed}")
    parts = [draw.choice(ways) for share, ways in _PARTS if draw.random() < share]
    options = [
        f"expander: [{EXPANDERS[seed % len(EXPANDERS)]}]",
        *(draw.choice(ways) for share, ways in _OPTIONS if draw.random() < share),
    ]
    return "\n".join([_HEAD.rstrip(), *parts, f"  options: {{{', '.join(options)}}}", ""])


def arguments(seed: int) -> list[str]:
    """Further words of the command line."""
    draw = random.Random(f"words {seed}")
    words = ["--seed", str(seed)]
    if draw.random() < 0.3:
        words += ["--assume-unneeded-for", draw.choice(("5m", "25m"))]
    if draw.random() < 0.1:
        words += ["--group", "g0:max=20,min=1"]
    return words


def rule_objects(seed: int) -> list[dict[str, Any]]:
    """HorizontalNodeAutoscalers of a seed, most often none; one of them is not valid."""
    draw = random.Random(f"objects {seed}")
    if draw.random() > 0.15:
        return []
    metric = {
        "ruleName": "busy",
        "type": "Metric",
        "action": {"type": "ScaleUp", "unit": "Node", "value": 2},
        "metricTrigger": {
            "metricName": "Cpu",
            "metricOperation": ">",
            "metricValue": "60",
            "unit": "%",
        },
    }
    clock = {
        "ruleName": "clock",
        "type": "Cron",
        "action": {"type": "ScaleUp", "unit": "Node", "value": 1},
        "cronTrigger": {"schedule": "26 20 * * *"},
    }
    specs: list[dict[str, Any]] = [
        {"targetNodepoolIds": ["g0"], "rules": [metric, clock]},
        {"targetNodepoolIds": ["g1"], "disable": True, "rules": [metric]},
        {"targetNodepoolIds": ["g1"], "rules": [{}]},
    ]
    return [
        {
            "apiVersion": "autoscaling.cce.io/v1alpha1",
            "kind": "HorizontalNodeAutoscaler",
            "spec": spec,
            "metadata": {
                "name": f"hna-{at}",
                "namespace": "kube-system",
                "uid": f"uid-{at}",
                "creationTimestamp": "2026-05-01T00:00:00Z",
            },
        }
        for at, spec in enumerate(specs)
    ]
