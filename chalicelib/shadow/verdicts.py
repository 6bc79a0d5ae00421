"""Judges one act of the other autoscaler by our plan, and names the cause of a disagreement.

A growth is judged by the plan of the rebuilt state, a removal by our timers. The table of
causes is ordered from what an operator can change to what no one knows, so that the first
answer is the most useful one.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.model.memory import NodeMemory
from chalicelib.model.plan import Plan
from chalicelib.model.quantity import format_duration
from chalicelib.model.reason import ReasonCode
from chalicelib.model.timestamps import format_time
from chalicelib.reasons.no_place import no_place
from chalicelib.reasons.text import text
from chalicelib.shadow.observed import RemovedNode
from chalicelib.shadow.records import TEXT, Observation, ShadowVerdict

CLOSE = 120.0
"""Seconds between two acts that count as the same instant."""
WINDOW = 1800.0
"""Seconds within which the other autoscaler may follow a removal of ours."""


class Judged(msgspec.Struct, frozen=True):
    """A verdict with its explanation. apart: seconds between both acts, None where only one acted.
    own: the reason of our plan or timer in short, as a cause."""

    verdict: ShadowVerdict
    detail: str = ""
    ours: dict[str, int] = {}
    apart: float | None = None
    own: str = ""


def sizes_of(plan: Plan) -> dict[str, int]:
    """Return how many nodes a plan adds to each group."""
    sizes: dict[str, int] = {}
    for increase in plan.scale_ups:
        sizes[increase.group] = sizes.get(increase.group, 0) + increase.to_size - increase.from_size
    return dict(sorted(sizes.items()))


def growth(theirs: dict[str, int], plan: Plan, pods: tuple[str, ...], *, random: bool) -> Judged:
    """Return the verdict of a growth. plan: ours for the rebuilt state. pods: those
    that waited then. random: the expander draws at random, so that another group of the
    same size is no difference."""
    ours = sizes_of(plan)
    unplaced = [batch for batch in plan.unschedulable if not pods or set(batch.pods) & set(pods)]
    verdict = size_verdict(theirs, ours, random=random, all_placed=not unplaced)
    if verdict not in (ShadowVerdict.MISSED, ShadowVerdict.MORE, ShadowVerdict.FEWER):
        return Judged(verdict, "", ours)
    reasons = _reasons(plan, pods)
    own = f"{OWN_PLAN}{reasons[0][0]}" if reasons and verdict is not ShadowVerdict.MORE else ""
    return Judged(verdict, "; ".join(sentence for _, sentence in reasons)[:TEXT], ours, own=own)


def size_verdict(
    theirs: dict[str, int], ours: dict[str, int], *, random: bool, all_placed: bool = True
) -> ShadowVerdict:
    """Return the verdict of a growth by the nodes of both. all_placed: our nodes
    serve every pod that waited."""
    own_size, their_size = sum(ours.values()), sum(theirs.values())
    if ours == theirs:
        return ShadowVerdict.SAME
    if not own_size:
        return ShadowVerdict.MISSED
    alike = all_placed and ours.keys() != theirs.keys() and abs(own_size - their_size) <= 1
    if own_size == their_size or alike:
        return ShadowVerdict.SAME_SIZE if random else ShadowVerdict.CHOICE
    return ShadowVerdict.MORE if own_size > their_size else ShadowVerdict.FEWER


def _reasons(plan: Plan, pods: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return why pods got no node in our plan, in short and as a sentence, for the first pods."""
    reasons: list[tuple[str, str]] = []
    for batch in plan.unschedulable[:20]:
        if not pods or set(batch.pods) & set(pods):
            why = no_place(batch)
            reasons.append((why.code or "no group fits", f"{batch.pods[0]}: {why.line}"))
    fits = [pod for pod in plan.fits_existing if not pods or pod in pods]
    if fits:
        more = f" and {len(fits) - 1} more" if len(fits) > 1 else ""
        reasons.append(("pods fit on existing nodes", f"{fits[0]}{more}: fits on existing nodes"))
    ignored = (batch for batch in plan.ignored if set(batch.pods) & set(pods))
    reasons += [
        (batch.reason.code.value, f"{batch.pods[0]}: {text(batch.reason)}") for batch in ignored
    ]
    return reasons


def removal(
    removed_node: RemovedNode,
    planned: float | None,
    node_memory: NodeMemory | None,
    last_observation: Observation,
    patience: float,
    rested: float = 0.0,
) -> Judged:
    """Return the verdict of a removal. planned: when our plan removed the node first. node_memory:
    our memory of the node before. patience: seconds for which a node of its group must be unneeded.
    rested: when our last cool-down ends."""
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
        waits, code = f"a cool-down ends at {format_time(rested)}", ReasonCode.IN_COOLDOWN
        if due >= rested:
            unneeded = _length(at - node_memory.unneeded_since)
            waits = f"it was unneeded for {unneeded} of {_length(patience)}"
            code = ReasonCode.NOT_UNNEEDED_LONG_ENOUGH
        words = f"Outscaler removes it {_length(-apart)} later: {waits}"
        return Judged(ShadowVerdict.LATER, words, apart=apart, own=f"Outscaler waits: {code}")
    reason = last_observation.refusals.get(removed_node.node, "")
    short = reason.partition(" ")[0]
    if node_memory is not None and (why := node_memory.why) is not None:
        reason = text(why)
        short = why.drain_rule or why.code.value
    own = f"Outscaler keeps the node: {short}"[:TEXT] if short else ""
    return Judged(
        ShadowVerdict.REFUSED, (reason or "it was not unneeded at the last pass")[:TEXT], own=own
    )


def _length(seconds: float) -> str:
    return format_duration(float(max(0, round(seconds))))


# -- causes ----------------------------------------------------------------------------------------

UNKNOWN = "unknown"
OWN_PLAN = "Outscaler's plan: "
"""How a cause begins that says why our plan grew less, and not why the
other autoscaler grew more."""
INTERVAL = 60.0
"""Seconds: a difference in time below one interval has no meaning."""


class Situation(msgspec.Struct, frozen=True):
    """What is known about one disagreement. random: the expander draws at random. apart: seconds
    between both acts, None: only one acted. gaps: what this pass could not read. restarted: when
    the other autoscaler started again after our decision, 0.0: it did not. drawn: the other
    autoscaler drew among exactly equal groups. known: a documented difference, with its place.
    gone: which pods were gone when they were asked for. reserved: node and template differ in what
    the node's own programs reserve. instead: the node of the same group that goes in the place of
    this one. looked_again: when our plan looked at the node again, whose pods had no place before,
    0.0: at once. own: why our plan differs."""

    random: bool = False
    apart: float | None = None
    gaps: tuple[str, ...] = ()
    restarted: float = 0.0
    known: str = ""
    reserved: bool = False
    drawn: bool = False
    gone: str = ""
    own: str = ""
    instead: str = ""
    looked_again: float = 0.0


_CAUSES: tuple[tuple[Callable[[Situation], bool], Callable[[Situation], str]], ...] = (
    (lambda s: s.random, lambda _: "expander random"),
    (lambda s: s.drawn, lambda _: "an exact tie, which Cluster Autoscaler draws"),
    (
        lambda s: s.restarted > 0,
        lambda s: f"Cluster Autoscaler restarted at {format_time(s.restarted)}",
    ),
    (
        lambda s: s.apart is not None and abs(s.apart) < INTERVAL,
        lambda _: "timing: under one interval apart",
    ),
    (lambda s: bool(s.gaps), lambda s: f"this pass could not read {', '.join(s.gaps[:3])}"),
    (lambda s: bool(s.instead), lambda s: f"another node of its group: {s.instead}"),
    (
        lambda s: s.looked_again > 0,
        lambda s: f"its pods had no place: not looked at again until {format_time(s.looked_again)}",
    ),
    (lambda s: bool(s.known), lambda s: f"known difference: {s.known}"),
    (lambda s: bool(s.gone), lambda s: f"pods gone: {s.gone}"),
    (lambda s: s.reserved, lambda _: "the node reserves more than its template"),
    (lambda s: bool(s.own), lambda s: s.own),
)


def cause(situation: Situation) -> str:
    """Return the first cause that applies, otherwise `unknown`."""
    return next((words(situation) for applies, words in _CAUSES if applies(situation)), UNKNOWN)
