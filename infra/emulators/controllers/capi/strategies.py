"""Which MachineSets of a MachineDeployment become larger or smaller when no ordinary rollout runs, as pure functions.

Why apart: here the deployment, and not the mark on a Machine, decides who goes. An autoscaler that does not know these
two rules loses the wrong machine (clusterapi.md §4.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.emulators.controllers.rollout import SetSize


def on_delete(size: int, new: SetSize, old: Sequence[SetSize], staying: Mapping[str, int]) -> dict[str, int]:
    """Strategy OnDelete: an old set follows the deletions of its Machines, which the new one makes up for; what is too
    much is taken from the old ones in their order. staying: each set's Machines whose deletion has not begun."""
    sizes = {each.name: min(each.asked, staying.get(each.name, 0)) for each in old}
    surplus = max(0, new.asked + sum(sizes.values()) - size)
    for each in old:
        fewer = min(sizes[each.name], surplus)
        sizes[each.name] -= fewer
        surplus -= fewer
    missing = max(0, size - new.asked - sum(sizes.values()))
    return {new.name: min(new.asked + missing, size), **sizes}


def proportional(size: int, surge: int, new: Sequence[SetSize], old: Sequence[SetSize]) -> dict[str, int]:
    """spec.paused: the one set that asks for Machines follows the size; several share the difference by their own
    sizes, and the largest takes what rounding leaves. new: the set of the present template, if there is one."""
    asking = sorted((each for each in (*new, *old) if each.asked), key=lambda each: (-each.asked, each.name))
    if len(asking) < 2:
        return {each.name: size for each in (asking or new)[:1]}
    total = sum(each.asked for each in asking)
    difference = (size + surge if size else 0) - total
    shares = {each.name: int(difference * each.asked / total) for each in asking}
    shares[asking[0].name] += difference - sum(shares.values())
    return {each.name: max(0, each.asked + shares[each.name]) for each in asking}
