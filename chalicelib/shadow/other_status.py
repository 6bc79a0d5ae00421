"""Reads the status ConfigMap of Cluster Autoscaler in both of its forms: YAML, and the text
of releases before 1.30.

The status is untrusted input. Its size is limited, and a part that cannot be read is left out.

A new process knows no earlier status. Each of its parts therefore begins with the instant of its
first loop as the time of its last transition. A process that runs on has parts that are older,
since the health of the cluster and of its groups hardly ever changes. The oldest of these times
thus tells a restart.
"""

from __future__ import annotations

import re
from collections.abc import Set
from datetime import datetime
from typing import Any

import msgspec
import yaml

from chalicelib.model.timestamps import instant
from chalicelib.net.safe_yaml import parsed

LONGEST = 1_000_000  # characters; a ConfigMap holds no more
MOST_GROUPS = 2000
DEAD_AFTER = 300.0
"""Seconds without an update after which Cluster Autoscaler counts as stopped."""
IN_PROGRESS, UNHEALTHY, BACKOFF = "InProgress", "Unhealthy", "Backoff"
INITIALIZING = "Initializing"
"""What a new process reports before its first loop."""
ONE_LOOP = 10.0
"""Seconds between two loops: two instants in one loop are the same instant."""

_GO_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.\d+)? ([+-]\d\d)(\d\d)")
_TITLE = re.compile(r"Cluster-autoscaler status at ([^\n]{1,80})")
_CANDIDATES = re.compile(r"candidates=(\d{1,7})")
_LINE = re.compile(r"(Name|Health|ScaleUp|ScaleDown|LastTransitionTime):\s*(.{0,300})")


class GroupStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """The scale-up part and the health of one node group. changed, health_changed: the last
    transition of each, epoch seconds, 0.0: unknown."""

    scale_up: str = ""
    changed: float = 0.0
    health: str = ""
    health_changed: float = 0.0


class OtherStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the other autoscaler reports. at: its last update, epoch seconds, 0.0: unknown. wide:
    the scale-up part of the whole cluster. candidates: number of its unneeded nodes, None: not
    given. began: the oldest transition of all parts; the process is as old at least, 0.0: unknown.
    uid: of the ConfigMap. starting: it has made no loop yet."""

    at: float = 0.0
    wide: GroupStatus = GroupStatus()
    groups: dict[str, GroupStatus] = {}
    candidates: int | None = None
    began: float = 0.0
    uid: str = ""
    starting: bool = False

    def is_dead(self, now: float) -> bool:
        """Return whether the last update is too old for a running autoscaler."""
        return self.at > 0 and now - self.at > DEAD_AFTER

    def of(self, group: str, groups: Set[str]) -> GroupStatus:
        """Return what is reported of a group. groups: the names that we know. Where none of
        them is listed, the other autoscaler has its own names, and the part of the whole
        cluster stands for each."""
        unlisted = self.wide if self.groups.keys().isdisjoint(groups) else GroupStatus()
        return self.groups.get(group, unlisted)


def read_status(text: str, updated: str = "", uid: str = "") -> OtherStatus | None:
    """Return the status, None where the text is neither form. updated: the annotation
    `last-updated`. uid: of the ConfigMap."""
    text = text[:LONGEST]
    title = _TITLE.search(text[:200])
    status = _read_text(text, go_time(title[1])) if title else _read_yaml(text)
    if status is None:
        return None
    return msgspec.structs.replace(status, at=go_time(updated) or status.at, uid=uid[:100])


def go_time(text: str) -> float:
    """Return epoch seconds of a time as Go prints it or of RFC 3339; 0.0 for anything else."""
    match = _GO_TIME.match(text.strip())
    if match is None:
        return instant(text)
    try:
        return max(
            0.0, datetime.fromisoformat(f"{match[1]}T{match[2]}{match[3]}:{match[4]}").timestamp()
        )
    except (ValueError, OverflowError):
        return 0.0


def _read_yaml(text: str) -> OtherStatus | None:
    try:
        document = parsed(text, texts=True)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    at = go_time(str(document.get("time", "")))
    if "clusterWide" not in document:
        starting = document.get("autoscalerStatus") == INITIALIZING
        return OtherStatus(at, starting=True) if starting else None
    wide = _mapping(document, "clusterWide")
    groups = document.get("nodeGroups")
    groups = (
        [group for group in groups if isinstance(group, dict)] if isinstance(groups, list) else []
    )
    groups = groups[:MOST_GROUPS]
    count = str(_mapping(wide, "scaleDown").get("candidates", "0"))
    return OtherStatus(
        at,
        _group_status(wide),
        {str(group.get("name", ""))[:300]: _group_status(group) for group in groups},
        int(count) if count.isascii() and count.isdecimal() and len(count) < 8 else None,
        _oldest(
            [
                _transition(part, name)
                for part in (wide, *groups)
                for name in ("health", "scaleUp", "scaleDown")
            ]
        ),
        starting=document.get("autoscalerStatus") == INITIALIZING,
    )


def _group_status(section: dict[str, Any]) -> GroupStatus:
    word, health = (
        str(_mapping(section, name).get("status", ""))[:40] for name in ("scaleUp", "health")
    )
    return GroupStatus(
        word, _transition(section, "scaleUp"), health, _transition(section, "health")
    )


def _transition(section: dict[str, Any], name: str) -> float:
    return go_time(str(_mapping(section, name).get("lastTransitionTime", "")))


def _oldest(transitions: list[float]) -> float:
    """Return the oldest transition, 0.0 where the first one, of the cluster's health, or any other
    is unknown: without it, the others may all be new although the process is not."""
    return min(transitions, default=0.0)


def _mapping(document: dict[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _read_text(text: str, at: float) -> OtherStatus:
    """Each part is followed by its times, and the parts of the cluster precede
    those of the first group."""
    parts: dict[str, GroupStatus] = {"": GroupStatus()}
    transitions: list[float] = []
    name, section, candidates = "", "", None
    for line in text.splitlines():
        match = _LINE.match(line.strip())
        if match is None:
            continue
        word, value = match[1], match[2].strip()
        if word == "Name":
            name, section = value, ""
            if len(parts) > MOST_GROUPS:
                break
            parts[name] = GroupStatus()
        elif word == "LastTransitionTime":
            transitions.append(go_time(value))
            parts[name] = _with_transition(parts[name], section, transitions[-1])
        else:
            section = word
            parts[name] = _with_word(parts[name], section, value.partition(" ")[0])
        if word == "ScaleDown" and not name:
            count = _CANDIDATES.search(value)
            candidates = int(count[1]) if count else None
    if text.partition("\n")[2].strip() == INITIALIZING:
        return OtherStatus(at, starting=True)
    wide = parts.pop("")
    began = _oldest(transitions) if wide.health_changed else 0.0
    return OtherStatus(at, wide, parts, candidates, began)


def _with_word(group_status: GroupStatus, section: str, word: str) -> GroupStatus:
    if section == "ScaleUp":
        return msgspec.structs.replace(group_status, scale_up=word)
    return (
        msgspec.structs.replace(group_status, health=word) if section == "Health" else group_status
    )


def _with_transition(group_status: GroupStatus, section: str, changed: float) -> GroupStatus:
    if section == "ScaleUp":
        return msgspec.structs.replace(group_status, changed=changed)
    return (
        msgspec.structs.replace(group_status, health_changed=changed)
        if section == "Health"
        else group_status
    )
