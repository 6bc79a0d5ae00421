"""The status of an emulated Cluster Autoscaler: its words, the times of their transitions,
and both forms of the text.

A status belongs to one process. Each part keeps the time of its last transition while its
word stays, and every part of a new process begins with its first loop, whatever the
process before it has written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from chalicelib.journal.status_configmap import long_time, render
from chalicelib.model.timestamps import format_time

OK_UNREADY, OK_UNREADY_SHARE = 3, 0.45
"""Missing nodes of a group, and their share of its nodes, up to which it counts as healthy."""
WIDE = ""  # the name of the whole cluster among the groups


Room = tuple[int, int]  # millicores, bytes


class GroupView(msgspec.Struct, frozen=True):
    """A node group. room: allocatable of an empty node. nodes: names of its registered Nodes."""

    id: str
    least: int
    most: int
    target: int
    room: Room
    nodes: tuple[str, ...] = ()


class GroupWords(msgspec.Struct, frozen=True):
    """What is said of a group. candidates: number of its unneeded nodes."""

    group: GroupView
    scale_up: str
    health: str
    candidates: int = 0


def group_words(group: GroupView, requested: int, candidates: int = 0) -> GroupWords:
    """Return the words of a group. requested: nodes that this process has bought and that are not
    there yet. Whoever else raises the target leaves a group with too few nodes."""
    health = "Healthy" if _is_healthy(group, requested) else "Unhealthy"
    scale_up = "NoActivity" if health == "Healthy" else "Unhealthy"
    in_progress = requested > 0 and group.target > len(group.nodes)
    return GroupWords(group, "InProgress" if in_progress else scale_up, health, candidates)


def _is_healthy(group: GroupView, requested: int) -> bool:
    ready, expected = len(group.nodes), group.target - requested
    if not ready:
        return group.target == 0 or expected <= 0
    absent = expected - ready
    return absent <= OK_UNREADY or absent <= OK_UNREADY_SHARE * ready


class Transitions:
    """The last transition of each part of one process's status."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str], tuple[str, float]] = {}

    def note(self, name: str, section: str, word: str, now: float) -> None:
        """Note the word of a part in this loop."""
        if self._parts.get((name, section), ("", 0.0))[0] != word:
            self._parts[name, section] = (word, now)

    def note_all(self, groups: Sequence[GroupWords], now: float) -> None:
        """Note the words of all groups, and those of the cluster, which follow from them."""
        for said in groups:
            self._note_part(said.group.id, said.health, said.scale_up, said.candidates, now)
        growing = any(said.scale_up == "InProgress" for said in groups)
        candidates = sum(said.candidates for said in groups)
        self._note_part(WIDE, "Healthy", "InProgress" if growing else "NoActivity", candidates, now)

    def _note_part(
        self, name: str, health: str, scale_up: str, candidates: int, now: float
    ) -> None:
        self.note(name, "health", health, now)
        self.note(name, "scaleUp", scale_up, now)
        self.note(name, "scaleDown", "CandidatesPresent" if candidates else "NoCandidates", now)

    def of(self, name: str) -> Mapping[str, tuple[str, float]]:
        """Return section -> its word and its last transition."""
        return {section: part for (owner, section), part in self._parts.items() if owner == name}


def as_yaml(groups: Sequence[GroupWords], transitions: Transitions, now: float) -> str:
    """Return the status of release 1.30 and later."""

    def parts(name: str, candidates: int, health: Mapping[str, object]) -> dict[str, object]:
        more: dict[str, Mapping[str, object]] = {
            "health": health,
            "scaleUp": {},
            "scaleDown": {"candidates": candidates} if candidates else {},
        }
        return {
            section: {
                "status": word,
                **more[section],
                "lastProbeTime": format_time(now),
                "lastTransitionTime": format_time(since),
            }
            for section, (word, since) in transitions.of(name).items()
        }

    return render(
        {
            "time": long_time(now),
            "autoscalerStatus": "Running",
            "clusterWide": parts(WIDE, sum(said.candidates for said in groups), {}),
            "nodeGroups": [
                {
                    "name": said.group.id,
                    **parts(
                        said.group.id, said.candidates, {"cloudProviderTarget": said.group.target}
                    ),
                }
                for said in groups
            ],
        }
    )


def as_text(groups: Sequence[GroupWords], transitions: Transitions, now: float) -> str:
    """Return the status of releases before 1.30."""

    def parts(name: str, counts: str, candidates: int) -> list[str]:
        lines = []
        for section, (word, since) in transitions.of(name).items():
            more = f"candidates={candidates}" if section == "scaleDown" else counts
            title = f"{section[0].upper()}{section[1:]}:"
            times = (("LastProbeTime", now), ("LastTransitionTime", since))
            lines.append(f"  {title:<12} {word} ({more})")
            lines += [
                f"               {label + ':':<19} {long_time(at)} m=+12.3" for label, at in times
            ]
        return lines

    lines = [f"Cluster-autoscaler status at {long_time(now)}:", "Cluster-wide:"]
    lines += [
        *parts(WIDE, "ready=0 registered=0", sum(said.candidates for said in groups)),
        "",
        "NodeGroups:",
    ]
    for said in groups:
        count = len(said.group.nodes)
        lines += [f"  {'Name:':<12} {said.group.id}"]
        lines += [*parts(said.group.id, f"ready={count} registered={count}", said.candidates), ""]
    return "\n".join(lines)


def before_the_first_loop(now: float, *, legacy: bool) -> str:
    """Return the status of a process that has just begun."""
    if legacy:
        return f"Cluster-autoscaler status at {long_time(now)}:\nInitializing"
    return render({"time": long_time(now), "autoscalerStatus": "Initializing"})
