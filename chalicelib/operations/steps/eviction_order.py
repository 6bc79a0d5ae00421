"""Determines the order in which the pods of a node are evicted, and how long each may take (docs/reference/drain.md
"Priority groups"). Pure.

With drain-priority-config the pods of a node form groups, the least important first, and a group begins when the one
before it is gone. Without it, there is one group with the longest grace period that max-graceful-termination-sec
allows.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import msgspec

from chalicelib.model.operation import RemovalTarget
from chalicelib.model.policy import Options
from chalicelib.model.timeouts import TERMINATION_SLACK
from chalicelib.operations.removal_progress import NodeProgress
from chalicelib.operations.step_context import PodState
from chalicelib.operations.steps.recheck import FINISHED, transient_pods

ONLY = -(2**31)
"""Priority of the single default group, below the priority of every pod."""


class Phase(msgspec.Struct, frozen=True):
    """One group. grace: the maximum grace period of its pods in seconds."""

    priority: int
    grace: float


def phases(options: Options) -> tuple[Phase, ...]:
    """Return all groups in eviction order; never empty."""
    configured = sorted(options.drain_priority_config)
    if not configured:
        return (Phase(ONLY, float(options.max_graceful_termination_sec)),)
    return tuple(Phase(priority, float(seconds)) for priority, seconds in configured)


def phase_of(pod: PodState, options: Options) -> Phase:
    """Return the group with the highest priority that is not above the pod's; the first group for a pod below all of
    them."""
    table = phases(options)
    return next((phase for phase in reversed(table) if phase.priority <= pod.priority), table[0])


def grace_of(pod: PodState, options: Options) -> float:
    """Return the pod's grace period in seconds: its own (30 where it has none), at most its group's."""
    return min(pod.grace, phase_of(pod, options).grace)


def must_go(pod: PodState, node: NodeProgress, options: Options, now: float) -> bool:
    """Return whether this pod must be gone before the node is deleted. This applies to pods that block a removal and,
    where groups are configured, to the DaemonSet pods that existed when the drain began. DaemonSet pods that their
    controller creates again are deleted with the node. An evicted pod is waited for even when it is long overdue,
    because Outscaler evicted it and its group's time limit applies."""
    if pod.daemonset and fingerprint(pod) not in node.daemons:
        return False
    if fingerprint(pod) in node.asked:
        return pod.phase not in FINISHED
    return not transient_pods(pod, options, now)


def daemons(pods: Iterable[PodState], target: RemovalTarget, options: Options, now: float) -> tuple[int, ...]:
    """Return the DaemonSet pods that are evicted like all others: with groups configured, and only where a node is
    drained."""
    if not (options.drain_priority_config and target.evict):
        return ()
    return tuple(sorted(fingerprint(pod) for pod in pods if pod.daemonset and not transient_pods(pod, options, now)))


def daemon_goes(pod: PodState, target: RemovalTarget, options: Options) -> bool:
    """Return whether a DaemonSet pod is evicted, best effort; its annotation overrides both options
    (docs/reference/drain.md "DaemonSet evictions")."""
    if not pod.daemonset or pod.mirror:
        return False
    if pod.enable_ds_eviction in ("true", "false"):
        return pod.enable_ds_eviction == "true"
    return options.daemonset_eviction_for_occupied_nodes if target.evict else options.daemonset_eviction_for_empty_nodes


def fingerprint(pod: PodState) -> int:
    """Return 32 bits of the pod's identity, which differ for a successor with the same name."""
    return zlib.crc32(f"{pod.key}/{pod.uid}".encode())


def more_time(options: Options) -> float:
    """Return the seconds that groups add to the maximum duration of a removal: each group has its own time for
    evictions and for waiting, and model/timeouts.py counts one of each."""
    one = options.max_pod_eviction_time + TERMINATION_SLACK
    all_of_them = sum(one + phase.grace for phase in phases(options))
    return max(0.0, all_of_them - one - options.max_graceful_termination_sec)
