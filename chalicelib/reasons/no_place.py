"""Why pods have no place, in words: the nearest node group decides.

Of several groups, the one in whose way the least stands says what is the matter: fewest obstacles
first, then the most that pass with time or with one setting of a person (a maximum, a back-off, a
pause). A label, a taint or a machine that is too small does not pass. The other groups are counted
by reason.

Here: the order of groups, and the sentence for the page, the commands, the events, the read routes
and the notifications. Not here: what stands in the way (plan/scale_up/refused_pods.py), and the
words of a reason (model/reason.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from chalicelib.model.plan import UnschedulablePods
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import MissingData
from chalicelib.reasons.text import lasting_first, sentence, tally, text
from chalicelib.reasons.words import counted, some

Nearness = tuple[int, int, int, int, float]
"""Orders groups, the nearest first."""
MOST_TALLIED = 6
"""Reasons by which other groups are counted; the rest is one number."""
_NAMED = 3  # groups that a sentence names

_LASTING = (
    ReasonCode.INSUFFICIENT,
    ReasonCode.TOO_MANY_PODS,
    ReasonCode.PORTS,
    ReasonCode.VOLUME_COUNT,
    ReasonCode.STORAGE_CAPACITY,
    ReasonCode.POD_AFFINITY,
    ReasonCode.POD_ANTI_AFFINITY,
    ReasonCode.EXISTING_ANTI_AFFINITY,
    ReasonCode.TOPOLOGY_SPREAD,
    ReasonCode.TOPOLOGY_LABEL,
    ReasonCode.NO_TEMPLATE,
    ReasonCode.UNTOLERATED_TAINT,
    ReasonCode.UNSCHEDULABLE_NODE,
    ReasonCode.NODE_AFFINITY,
    ReasonCode.NODE_NAME,
    ReasonCode.VOLUME_ZONE,
    ReasonCode.VOLUME_NODE_AFFINITY,
    ReasonCode.NOTHING_TO_BIND,
    ReasonCode.DISK_CONFLICT,
    ReasonCode.EXCLUSIVE_CLAIM,
    ReasonCode.UNBOUND_IMMEDIATE,
    ReasonCode.CLAIM_NOT_FOUND,
    ReasonCode.VOLUME_NOT_FOUND,
    ReasonCode.CLAIM_BEING_DELETED,
    ReasonCode.NOT_SIMULATED,
)
"""What does not pass: the pod, or the group's machines, must change. Of equally many obstacles the
first is the nearest: a pod is rather too large for the group that it names than meant for
another."""
_RANKS = {code: rank for rank, code in enumerate(_LASTING)}
_UNKNOWN = _RANKS[ReasonCode.NO_TEMPLATE]  # whether the pod fits the group's machines
_LACKED = len(_LASTING)  # a machine has nothing of a resource, so it was never meant


def nearness(reasons: Sequence[Reason], lasting: int, passing: int) -> Nearness:
    """Return how near a group is. reasons: of the group, the main ones; lasting, passing: how many
    obstacles there are of both kinds in all."""
    ranks = [_rank(reason) for reason in reasons if is_lasting(reason)]
    needs_person = lasting > 0 or any(not reason.code.row.passes for reason in reasons)
    shortage = max(map(_shortage, reasons), default=0.0)
    rank = max(ranks, default=_UNKNOWN)
    return lasting + passing, lasting, int(needs_person), rank, shortage


def nearest_first(
    reasons: Mapping[str, Sequence[Reason]], near_of: Mapping[str, Nearness]
) -> tuple[list[str], int]:
    """Return the groups in order, and how many of them are equally near for the same reasons.
    reasons, near_of: by group."""
    alike: dict[tuple[Nearness, tuple[ReasonCode, ...]], list[str]] = {}
    for group in sorted(near_of):
        codes = tuple([reason.code for reason in reasons[group]])
        alike.setdefault((near_of[group], codes), []).append(group)
    runs = [alike[key] for key in sorted(alike)]
    groups = [group for run in runs for group in run]
    return groups, len(runs[0]) if runs else 0


def is_lasting(reason: Reason) -> bool:
    """Return whether a reason is about the pod or the group's machines, so that it does not pass
    with time or with one setting."""
    return reason.code in _RANKS


def _rank(reason: Reason) -> int:
    if reason.code is ReasonCode.INSUFFICIENT and not reason.params.get("offers"):
        return _LACKED
    return _RANKS[reason.code]


def _shortage(reason: Reason) -> float:
    """Return how many times what a machine offers is needed, 0.0 for another reason."""
    if reason.code is not ReasonCode.INSUFFICIENT:
        return 0.0
    needs = float(reason.params.get("needs", 0))
    offers = float(reason.params.get("offers", 0))
    return needs / offers if offers else 0.0


# -- in words


class NoPlace(msgspec.Struct, frozen=True):
    """Why pods have no place. nearest: the ids of the nearest groups, which are equally near; all
    of them have the same kind of reason. cause: their names and the reason. by_reason: how many of
    the other groups have which, the most frequent first. others: the same in words, "" where there
    is no other. code: of the cause, "" where there is no group."""

    nearest: tuple[str, ...]
    cause: str
    by_reason: dict[str, int]
    others: str = ""
    code: str = ""

    @property
    def line(self) -> str:
        """Return both as one sentence, the cause first."""
        return "; ".join(filter(None, (self.cause, self.others)))


def no_place(
    pods: UnschedulablePods,
    names: Mapping[str, str] = MappingProxyType({}),
    gaps: Sequence[MissingData] = (),
) -> NoPlace:
    """Return why pods have no place. names: of groups by their ids, where people call them so.
    gaps: of the plan. A group of a vendor that was not read may take the pods: that is nearer than
    groups with anything in the way that does not pass."""
    place = _of_groups(pods, names)
    unread = [gap for gap in gaps if gap.unread_provider]
    if not unread:
        return place
    words = "; ".join(map(_unread, unread[:_NAMED]))
    nearest = pods.reasons[place.nearest[0]] if place.nearest else ()
    if nearest and not any(map(is_lasting, nearest)):
        return msgspec.structs.replace(place, others="; ".join(filter(None, (place.others, words))))
    code = ReasonCode.GROUP_UNREADABLE.value
    return msgspec.structs.replace(place, cause=words, others=place.line, code=code)


def _unread(gap: MissingData) -> str:
    return f"{gap.unread_provider} is not read, so its groups are unknown: {gap.detail}"


def _of_groups(pods: UnschedulablePods, names: Mapping[str, str]) -> NoPlace:
    groups, near = ordered(pods)
    if not groups:
        return _without_groups(pods)
    nearest = groups[:near]
    words = [_sentences(pods.reasons[group]) for group in nearest]
    titles = [names.get(group, group) for group in nearest]
    alike = [title for title, same in zip(titles, words, strict=True) if same == words[0]]
    differing = [title for title, same in zip(titles, words, strict=True) if same != words[0]]
    is_every_group = len(alike) == len(groups) > _NAMED and not pods.more
    subject = f"all {counted(len(groups), 'group')}" if is_every_group else some(alike, _NAMED)
    cause = f"{subject}: {words[0]}"
    if differing:
        cause += f"; likewise {some(differing, _NAMED)}"
    counts = Counter(tally(lasting_first(pods.reasons[group])[0]) for group in groups[near:])
    by_reason = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    others = "; ".join(filter(None, (_other_groups(by_reason), _left_out(pods.more))))
    code = pods.reasons[nearest[0]][0].code.value
    return NoPlace(tuple(nearest), cause, by_reason, others, code)


def ordered(pods: UnschedulablePods) -> tuple[list[str], int]:
    """Return the groups, the nearest first, and how many of them are equally near."""
    groups = [group for group, reasons in pods.reasons.items() if reasons]
    if pods.nearest or not groups:
        return groups, min(pods.nearest, len(groups))
    # A plan of an earlier release has them by their ids.
    near_of: dict[str, Nearness] = {}
    for group in groups:
        reasons = pods.reasons[group]
        lasting = sum(map(is_lasting, reasons))
        near_of[group] = nearness(reasons, lasting, len(reasons) - lasting)
    return nearest_first(pods.reasons, near_of)


def _sentences(reasons: Sequence[Reason]) -> str:
    return "; ".join(map(sentence, lasting_first(reasons)))


def _without_groups(pods: UnschedulablePods) -> NoPlace:
    by_reason = {text(reason): nodes for reason, nodes in pods.against}
    others = f"existing nodes: {_counts(by_reason)}" if by_reason else ""
    return NoPlace((), "there are no node groups", by_reason, others)


def _left_out(more: Mapping[str, int]) -> str:
    """Return `298 further machines of general`. more: see UnschedulablePods."""
    counts = [f"{counted(number, 'further machine')} of {pool}" for pool, number in more.items()]
    return some(counts, _NAMED)


def _other_groups(by_reason: Mapping[str, int]) -> str:
    if not by_reason:
        return ""
    return f"{counted(sum(by_reason.values()), 'other group')}: {_counts(by_reason)}"


def _counts(by_reason: Mapping[str, int]) -> str:
    counts = list(by_reason.items())
    parts = [f"{reason} {number}" for reason, number in counts[:MOST_TALLIED]]
    rest = sum(number for _, number in counts[MOST_TALLIED:])
    if rest:
        parts.append(f"other reasons {rest}")
    return ", ".join(parts)
