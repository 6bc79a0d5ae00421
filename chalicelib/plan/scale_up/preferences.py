"""Scores soft preferences: they decide among otherwise equal options and never block.

The score per pod is between 0 and 1: the weight of the preferred node terms that the template meets, and how empty its
domains are for ScheduleAnyway spreads.
"""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.model.node import HOSTNAME_LABEL, Node
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster


def preference(pods: Mapping[int, int], template_node: Node, simulated: SimulatedCluster) -> float:
    """Return the mean over these pods (class -> count), 0 if none has preferences; higher is better."""
    total, count = 0.0, 0
    for cls, many in sorted(pods.items()):
        pod = simulated.classes[cls]
        count += many
        weights = sum(each.weight for each in pod.preferred_nodes)
        if weights:
            met = sum(
                each.weight
                for each in pod.preferred_nodes
                if each.term.matches(template_node.name, template_node.labels)
            )
            total += many * met / weights
        for counter, key in simulated.constraints.soft_spread(cls):
            if key != HOSTNAME_LABEL and key in template_node.labels:
                here = simulated.rows.here(counter, key, template_node.labels[key])
                total += many / (1 + here)
    return round(total / count, 9) if count else 0.0
