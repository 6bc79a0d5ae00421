"""Is a MachineDeployment replacing its Machines? Then nothing of it is removed (clusterapi.md §4.5, D15).

During a rollout the MachineDeployment, not the mark on a Machine, decides which MachineSet shrinks, so a removal could
cost a healthy node.
"""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.providers.clusterapi.keys import REVISION
from chalicelib.providers.clusterapi.wire import Resource


def rolling_out(deployment: Resource, machine_sets: Iterable[Resource]) -> str:
    """Why removals must wait, empty if they need not. machine_sets: those the deployment controls.

    A set without a revision is ignored; one whose revision is no number leaves the latest unknown, so it holds.
    """
    if deployment.is_true("RollingOut"):
        return "the MachineDeployment is rolling out"
    revisions: dict[str, int] = {}
    by_name = {each.metadata.name: each for each in machine_sets}
    for name, each in sorted(by_name.items()):
        text = each.annotations.get(REVISION)
        if text is None:
            continue
        if not text.isascii() or not text.isdigit():
            return f"MachineSet {name} has the revision {text!r}, so the latest is not known"
        revisions[name] = int(text)
    latest = max(revisions.values(), default=0)
    for name, revision in revisions.items():
        if revision != latest and by_name[name].desired_or_present > 0:
            return f"MachineSet {name} of an earlier revision still has machines"
    return ""
