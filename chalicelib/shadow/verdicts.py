"""Judges one act of the other autoscaler by our plan, and names the cause of a disagreement.

A growth is judged by the plan of the rebuilt state, a removal by our timers. The table of causes is ordered from what
an operator can change to what no one knows, so that the first answer is the most useful one.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.model.memory import NodeMemory
from chalicelib.model.plan import Plan
from chalicelib.model.quantity import format_duration
from chalicelib.model.timestamps import format_time
from chalicelib.reasons.text import text
from chalicelib.shadow.observed import RemovedNode
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


def sizes_of(plan: Plan) -> dict[str, int]:
    """Return how many nodes a plan adds to each group."""
    sizes: dict[str, int] = {}
    for increase in plan.scale_ups:
        sizes[increase.group] = sizes.get(increase.group, 0) + increase.to_size - increase.from_size
    return dict(sorted(sizes.items()))


def growth(theirs: dict[str, int], plan: Plan, pods: tuple[str, ...], *, random: bool) -> Judged:
    """Return the verdict of a growth. plan: ours for the rebuilt state. pods: those that waited then. random: the
    expander draws at random, so that another group of the same size is no difference."""
    ours = sizes_of(plan)
    unplaced = [batch for batch in plan.unschedulable if not pods or set(batch.pods) & set(pods)]
    verdict = size_verdict(theirs, ours, random=random, all_placed=not unplaced)
    explained = verdict in (ShadowVerdict.MISSED, ShadowVerdict.MORE, ShadowVerdict.FEWER)
    return Judged(verdict, _reasons(plan, pods) if explained else "", ours)


def size_verdict(
    theirs: dict[str, int], ours: dict[str, int], *, random: bool, all_placed: bool = True
) -> ShadowVerdict:
    """Return the verdict of a growth by the nodes of both. all_placed: our nodes serve every pod that waited."""
    own_size, their_size = sum(ours.values()), sum(theirs.values())
    if ours == theirs:
        return ShadowVerdict.SAME
    if not own_size:
        return ShadowVerdict.MISSED
    alike = all_placed and ours.keys() != theirs.keys() and abs(own_size - their_size) <= 1
    if own_size == their_size or alike:
        return ShadowVerdict.SAME_SIZE if random else ShadowVerdict.CHOICE
    return ShadowVerdict.MORE if own_size > their_size else ShadowVerdict.FEWER


def _reasons(plan: Plan, pods: tuple[str, ...]) -> str:
    """Return why pods got no node in our plan; the first reason of each of the first pods."""
    sentences = []
    for batch in plan.unschedulable[:20]:
        if not pods or set(batch.pods) & set(pods):
            reason = next((reasons[0] for _, reasons in sorted(batch.reasons.items()) if reasons), None)
            sentences.append(f"{batch.pods[0]}: {text(reason) if reason else 'no group fits'}")
    fits = [pod for pod in plan.fits_existing if not pods or pod in pods]
    if fits:
        sentences.append(f"{fits[0]}{f' and {len(fits) - 1} more' if len(fits) > 1 else ''}: fits on existing nodes")
    sentences += [f"{batch.pods[0]}: {text(batch.reason)}" for batch in plan.ignored if set(batch.pods) & set(pods)]
    return "; ".join(sentences)[:TEXT]


def removal(
    removed_node: RemovedNode,
    planned: float | None,
    node_memory: NodeMemory | None,
    last_observation: Observation,
    patience: float,
    rested: float = 0.0,
) -> Judged:
    """Return the verdict of a removal. planned: when our plan removed the node first. node_memory: our memory of the
    node before. patience: seconds for which a node of its group must be unneeded. rested: when our last cool-down
    ends."""
    at = removed_node.at
    if planned is not None:
        apart = at - planned
        if apart <= CLOSE:
            return Judged(ShadowVerdict.SAME, apart=apart)
        words = f"Outscaler's plan removed it {_length(apart)} before, at {format_time(planned)}"
        return Judged(ShadowVerdict.EARLIER, words, apart=apart)
    if node_memory is not None and node_memory.unneeded_since > 0:
        due = node_memory.unneeded_since + patience
        apart = at - max(due, rested)
        if apart >= -CLOSE:
            return Judged(ShadowVerdict.SAME, apart=apart)
        waits = f"a cool-down ends at {format_time(rested)}"
        if due >= rested:
            unneeded = _length(at - node_memory.unneeded_since)
            waits = f"it was unneeded for {unneeded} of {_length(patience)}"
        return Judged(ShadowVerdict.LATER, f"Outscaler removes it {_length(-apart)} later: {waits}", apart=apart)
    reason = last_observation.refusals.get(removed_node.node, "")
    if node_memory is not None and node_memory.why is not None:
        reason = text(node_memory.why)
    return Judged(ShadowVerdict.REFUSED, (reason or "it was not unneeded at the last pass")[:TEXT])


def _length(seconds: float) -> str:
    return format_duration(float(max(0, round(seconds))))


# -- causes ----------------------------------------------------------------------------------------------------------

UNKNOWN = "unknown"
INTERVAL = 60.0
"""Seconds: a difference in time below one interval has no meaning."""


class Situation(msgspec.Struct, frozen=True):
    """What is known about one disagreement. random: the expander draws at random. apart: seconds between both acts,
    None: only one acted. gaps: what this pass could not read. restarted: when the other autoscaler started again after
    our decision, 0.0: it did not. drawn: the other autoscaler drew among exactly equal groups. known: a documented
    difference, with its place. gone: which pods were gone when they were asked for. reserved: node and template differ
    in what the node's own programs reserve."""

    random: bool = False
    apart: float | None = None
    gaps: tuple[str, ...] = ()
    restarted: float = 0.0
    known: str = ""
    reserved: bool = False
    drawn: bool = False
    gone: str = ""


_CAUSES: tuple[tuple[Callable[[Situation], bool], Callable[[Situation], str]], ...] = (
    (lambda s: s.random, lambda _: "expander random"),
    (lambda s: s.drawn, lambda _: "an exact tie, which Cluster Autoscaler draws"),
    (lambda s: s.restarted > 0, lambda s: f"Cluster Autoscaler restarted at {format_time(s.restarted)}"),
    (lambda s: s.apart is not None and abs(s.apart) < INTERVAL, lambda _: "timing: under one interval apart"),
    (lambda s: bool(s.gaps), lambda s: f"this pass could not read {', '.join(s.gaps[:3])}"),
    (lambda s: bool(s.known), lambda s: f"known difference: {s.known}"),
    (lambda s: bool(s.gone), lambda s: f"pods gone: {s.gone}"),
    (lambda s: s.reserved, lambda _: "the node reserves more than its template"),
)


def cause(situation: Situation) -> str:
    """Return the first cause that applies, otherwise `unknown`."""
    return next((words(situation) for applies, words in _CAUSES if applies(situation)), UNKNOWN)
