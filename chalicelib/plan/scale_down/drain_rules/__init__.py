"""May a pod be moved off its node? The rules, one file each, in upstream's order; the first decisive answer wins.

scale-down.md §6 is the source; the table below is the policy. Reading it from top to bottom is reading what happens to
a pod. A pod that no rule decides about is movable.
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
    # pods that do not matter
    ("Mirror", mirror.decide),
    ("LongTerminating", long_terminating.decide),
    # pods whose controller forbids it, whatever else they say
    ("ReplicaCount", replica_count.decide),
    # pods that may go
    ("DaemonSet", daemonset.decide),
    ("SafeToEvict", safe_to_evict.decide),
    ("Terminal", terminal.decide),
    ("OnCompletion", on_completion.decide),
    # pods that hold their node
    ("Replicated", replicated.decide),
    ("System", system.decide),
    ("NotSafeToEvict", not_safe_to_evict.decide),
    ("LocalStorage", local_storage.decide),
    ("PDB", pdb.decide),
)
BEFORE_BUDGETS = RULES[:-1]
"""The rules whose answer does not change while a plan is made."""


def assess(pod: Pod, cls: PodClass, context: DrainContext) -> Verdict:
    """The verdict of the first rule that has one, else "movable"."""
    for _, rule in RULES:
        verdict = rule(pod, cls, context)
        if verdict is not None:
            return verdict
    return MOVABLE
