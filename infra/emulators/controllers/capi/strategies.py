"""Pure functions that size the MachineSets of a MachineDeployment when no ordinary rollout is running.

They are separate because in these cases the deployment, and not the annotation on a Machine, decides which Machines are
removed. An autoscaler that ignores these two rules loses the wrong machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.emulators.controllers.rollout import SetSize


def on_delete(size: int, new: SetSize, old: Sequence[SetSize], staying: Mapping[str, int]) -> dict[str, int]:
    """Strategy OnDelete: an old set shrinks as its Machines are deleted, and the new set replaces them. A surplus is
    removed from the old sets in their order. staying: each set's Machines that are not being deleted."""
    sizes = {each.name: min(each.asked, staying.get(each.name, 0)) for each in old}
    surplus = max(0, new.asked + sum(sizes.values()) - size)
    for each in old:
        fewer = min(sizes[each.name], surplus)
        sizes[each.name] -= fewer
        surplus -= fewer
    missing = max(0, size - new.asked - sum(sizes.values()))
    return {new.name: min(new.asked + missing, size), **sizes}


def proportional(size: int, surge: int, new: Sequence[SetSize], old: Sequence[SetSize]) -> dict[str, int]:
    """spec.paused: a single set with replicas follows the deployment's size. Several sets share the difference in
    proportion to their sizes, and the largest one takes the remainder of rounding. new: the set of the current
    template, if there is one."""
    asking = sorted((each for each in (*new, *old) if each.asked), key=lambda each: (-each.asked, each.name))
    if len(asking) < 2:
        return {each.name: size for each in (asking or new)[:1]}
    total = sum(each.asked for each in asking)
    difference = (size + surge if size else 0) - total
    shares = {each.name: int(difference * each.asked / total) for each in asking}
    shares[asking[0].name] += difference - sum(shares.values())
    return {each.name: max(0, each.asked + shares[each.name]) for each in asking}
