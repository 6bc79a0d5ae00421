"""Judges one act of the other autoscaler by our plan: a growth by the plan of the rebuilt state, a removal by our
timers."""

from __future__ import annotations

import msgspec

from chalicelib.model.memory import NodeMemory
from chalicelib.model.plan import Plan
from chalicelib.reasons.text import text
from chalicelib.shadow.acts import RemovedNode
from chalicelib.shadow.records import TEXT, Observation, ShadowVerdict

CLOSE = 120.0
"""Seconds between two acts that count as the same instant."""
WINDOW = 1800.0
"""Seconds within which the other autoscaler may follow a removal of ours."""


class Judged(msgspec.Struct, frozen=True):
    """A verdict with its explanation. apart: seconds between both acts, None where only one acted."""

    verdict: ShadowVerdict
    detail: str = ""
    ours: dict[str, int] = {}
    apart: float | None = None


def growth(theirs: dict[str, int], plan: Plan, pods: tuple[str, ...], *, random: bool) -> Judged:
    """Return the verdict of a growth. plan: ours for the rebuilt state. pods: those that waited then. random: the
    expander draws at random, so that another group of the same size is no difference."""
    ours: dict[str, int] = {}
    for up in plan.scale_ups:
        ours[up.group] = ours.get(up.group, 0) + up.to_size - up.from_size
    ours = dict(sorted(ours.items()))
    wanted, got = sum(ours.values()), sum(theirs.values())
    unplaced = [each for each in plan.unschedulable if not pods or set(each.pods) & set(pods)]
    why = _why(plan, pods)
    if ours == theirs:
        return Judged(ShadowVerdict.SAME, "", ours)
    if not wanted:
        return Judged(ShadowVerdict.MISSED, why, ours)
    if wanted == got or (not unplaced and ours.keys() != theirs.keys() and abs(wanted - got) <= 1):
        return Judged(ShadowVerdict.SAME_SIZE if random else ShadowVerdict.CHOICE, "", ours)
    return Judged(ShadowVerdict.MORE if wanted > got else ShadowVerdict.FEWER, why, ours)


def _why(plan: Plan, pods: tuple[str, ...]) -> str:
    """Return why pods got no node in our plan; the first reason of each of the first pods."""
    told = []
    for each in plan.unschedulable[:20]:
        if not pods or set(each.pods) & set(pods):
            reason = next((reasons[0] for _, reasons in sorted(each.reasons.items()) if reasons), None)
            told.append(f"{each.pods[0]}: {text(reason) if reason else 'no group fits'}")
    fits = [pod for pod in plan.fits_existing if not pods or pod in pods]
    if fits:
        told.append(f"{fits[0]}{f' and {len(fits) - 1} more' if len(fits) > 1 else ''}: fits on existing nodes")
    told += [f"{ignored.pods[0]}: {text(ignored.reason)}" for ignored in plan.ignored if set(ignored.pods) & set(pods)]
    return "; ".join(told)[:TEXT]


def removal(
    removed_node: RemovedNode,
    planned: float | None,
    node_memory: NodeMemory | None,
    last_observation: Observation,
    patience: float,
) -> Judged:
    """Return the verdict of a removal. planned: when our plan removed the node first. node_memory: our memory of the
    node before. patience: seconds for which a node of its group must be unneeded."""
    if planned is not None:
        apart = removed_node.at - planned
        return Judged(ShadowVerdict.SAME if apart <= CLOSE else ShadowVerdict.EARLIER, "", apart=apart)
    if node_memory is not None and node_memory.unneeded_since > 0:
        apart = removed_node.at - (node_memory.unneeded_since + patience)
        return Judged(ShadowVerdict.SAME if apart >= -CLOSE else ShadowVerdict.LATER, "", apart=apart)
    told = last_observation.refusals.get(removed_node.node, "")
    if node_memory is not None and node_memory.why is not None:
        told = text(node_memory.why)
    return Judged(ShadowVerdict.REFUSED, (told or "it was not unneeded at the last pass")[:TEXT])
