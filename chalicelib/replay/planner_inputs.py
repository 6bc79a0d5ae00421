"""Reduces a decision to what the planner reads: annotations, addresses and names of secrets are of no use to it."""

from __future__ import annotations

import msgspec

from chalicelib.model.memory import Memory
from chalicelib.model.node import SCALE_DOWN_DISABLED, Node
from chalicelib.model.policy import KubernetesAccess, Policy, Webhook
from chalicelib.model.snapshot import Snapshot
from chalicelib.replay.recorded_decision import RecordedDecision

OURS = "outscaler.dev/"
"""Beginning of the annotations of this autoscaler, which the planner reads."""


def reduced(decision: RecordedDecision) -> RecordedDecision:
    """Return the decision with what the planner reads only; it makes the same plan."""
    return msgspec.structs.replace(
        decision,
        snapshot=_snapshot(decision.snapshot),
        policy=_policy(decision.policy),
        memory=_memory(decision.memory),
    )


def _snapshot(snapshot: Snapshot) -> Snapshot:
    groups = tuple(
        msgspec.structs.replace(group, template=_node(group.template)) if group.template else group
        for group in snapshot.groups
    )
    return msgspec.structs.replace(snapshot, nodes=tuple(_node(node) for node in snapshot.nodes), groups=groups)


def _memory(memory: Memory) -> Memory:
    templates = {
        name: msgspec.structs.replace(learnt, node=_node(learnt.node)) for name, learnt in memory.templates.items()
    }
    return msgspec.structs.replace(memory, templates=templates)


def _node(node: Node) -> Node:
    kept = {key: text for key, text in node.annotations.items() if key == SCALE_DOWN_DISABLED or key.startswith(OURS)}
    return node if len(kept) == len(node.annotations) else msgspec.structs.replace(node, annotations=kept)


def _policy(policy: Policy) -> Policy:
    """Return the policy without how clusters and vendors are reached, and who is notified. Providers keep their names,
    which schedules compare with those of groups."""
    return msgspec.structs.replace(
        policy,
        kubernetes=KubernetesAccess(),
        webhook=Webhook(),
        notifications=None,
        providers={name: {} for name in policy.providers},
        pauses=tuple(msgspec.structs.replace(pause, by="") for pause in policy.pauses),
    )
