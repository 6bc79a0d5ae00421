"""The drain rules, one per file, in upstream's order: whether a pod may be moved off its node.

Here: the ordered table of rules; the first decisive answer counts, and a pod without one is movable. Not here: the
destinations of the pods (removal_simulation).
"""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.model.pod import Pod, PodClass
from chalicelib.plan.scale_down.drain_rules import (
    daemonset,
    local_storage,
    long_terminating,
    mirror,
    not_safe_to_evict,
    on_completion,
    pdb,
    replica_count,
    replicated,
    safe_to_evict,
    system,
    terminal,
)
from chalicelib.plan.scale_down.drain_rules.verdict import MOVABLE, DrainContext, Verdict

Rule = Callable[[Pod, PodClass, DrainContext], Verdict | None]

RULES: tuple[tuple[str, Rule], ...] = (
    # pods that are ignored
    ("Mirror", mirror.decide),
    ("LongTerminating", long_terminating.decide),
    # pods whose controller forbids removal, whatever their annotations say
    ("ReplicaCount", replica_count.decide),
    # pods that may be evicted
    ("DaemonSet", daemonset.decide),
    ("SafeToEvict", safe_to_evict.decide),
    ("Terminal", terminal.decide),
    ("OnCompletion", on_completion.decide),
    # pods that block the removal of their node
    ("Replicated", replicated.decide),
    ("System", system.decide),
    ("NotSafeToEvict", not_safe_to_evict.decide),
    ("LocalStorage", local_storage.decide),
    ("PDB", pdb.decide),
)
BEFORE_BUDGETS = RULES[:-1]
"""The rules whose verdict does not change during planning."""


def assess(pod: Pod, pod_class: PodClass, context: DrainContext) -> Verdict:
    """Return the verdict of the first decisive rule, or "movable" if there is none."""
    for _, rule in RULES:
        verdict = rule(pod, pod_class, context)
        if verdict is not None:
            return verdict
    return MOVABLE
