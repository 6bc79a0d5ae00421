"""Reads the status ConfigMap of Cluster Autoscaler in both of its forms: YAML, and the text of releases before 1.30.

The status is untrusted input. Its size is limited, and a part that cannot be read is left out.
"""

from __future__ import annotations

import re
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
IN_PROGRESS = "InProgress"

_GO_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.\d+)? ([+-]\d\d)(\d\d)")
_TITLE = re.compile(r"Cluster-autoscaler status at ([^\n]{1,80})")
_CANDIDATES = re.compile(r"candidates=(\d{1,7})")
_LINE = re.compile(r"(Name|ScaleUp|ScaleDown|LastTransitionTime):\s*(.{0,300})")


class GroupStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """The scale-up part of one node group. changed: its last transition, epoch seconds, 0.0: unknown."""

    scale_up: str = ""
    changed: float = 0.0


class OtherStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the other autoscaler reports. at: its last update, epoch seconds, 0.0: unknown. wide: the scale-up part of
    the whole cluster. candidates: number of its unneeded nodes, None: not given."""

    at: float = 0.0
    wide: GroupStatus = GroupStatus()
    groups: dict[str, GroupStatus] = {}
    candidates: int | None = None

    def is_dead(self, now: float) -> bool:
        """Return whether the last update is too old for a running autoscaler."""
        return self.at > 0 and now - self.at > DEAD_AFTER

    def grew(self, group: str, since: float) -> bool:
        """Return whether a scale-up of the group was in progress at any time since that instant."""
        part = self.groups.get(group, self.wide)
        return part.scale_up == IN_PROGRESS or part.changed >= since > 0


def read_status(text: str, updated: str = "") -> OtherStatus | None:
    """Return the status, None where the text is neither form. updated: the annotation `last-updated`."""
    text = text[:LONGEST]
    title = _TITLE.search(text[:200])
    status = _read_text(text, go_time(title[1])) if title else _read_yaml(text)
    if status is None:
        return None
    return msgspec.structs.replace(status, at=go_time(updated) or status.at)


def go_time(text: str) -> float:
    """Return epoch seconds of a time as Go prints it or of RFC 3339; 0.0 for anything else."""
    match = _GO_TIME.match(text.strip())
    if match is None:
        return instant(text)
    try:
        return max(0.0, datetime.fromisoformat(f"{match[1]}T{match[2]}{match[3]}:{match[4]}").timestamp())
    except (ValueError, OverflowError):
        return 0.0


def _read_yaml(text: str) -> OtherStatus | None:
    try:
        document = parsed(text, texts=True)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError):
        return None
    if not isinstance(document, dict) or "clusterWide" not in document:
        return None
    wide = _mapping(document, "clusterWide")
    groups = document.get("nodeGroups")
    groups = [group for group in groups if isinstance(group, dict)] if isinstance(groups, list) else []
    count = str(_mapping(wide, "scaleDown").get("candidates", "0"))
    return OtherStatus(
        go_time(str(document.get("time", ""))),
        _group_status(wide),
        {str(group.get("name", ""))[:300]: _group_status(group) for group in groups[:MOST_GROUPS]},
        int(count) if count.isascii() and count.isdecimal() and len(count) < 8 else None,
    )


def _group_status(section: dict[str, Any]) -> GroupStatus:
    part = _mapping(section, "scaleUp")
    return GroupStatus(str(part.get("status", ""))[:40], go_time(str(part.get("lastTransitionTime", ""))))


def _mapping(document: dict[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _read_text(text: str, at: float) -> OtherStatus:
    """Each part is followed by its times, and the parts of the cluster precede those of the first group."""
    parts: dict[str, GroupStatus] = {"": GroupStatus()}
    name, section, candidates = "", "", None
    for line in text.splitlines():
        match = _LINE.match(line.strip())
        if match is None:
            section = "" if line.strip().startswith("Health:") else section
            continue
        word, value = match[1], match[2].strip()
        if word == "Name" and len(parts) <= MOST_GROUPS:
            name = value
            parts[name] = GroupStatus()
        elif word == "LastTransitionTime" and section == "ScaleUp":
            parts[name] = msgspec.structs.replace(parts[name], changed=go_time(value))
        elif word == "ScaleUp":
            section = word
            parts[name] = msgspec.structs.replace(parts[name], scale_up=value.partition(" ")[0])
        elif word == "ScaleDown":
            section = word
            count = _CANDIDATES.search(value)
            candidates = int(count[1]) if count and not name else candidates
    wide = parts.pop("")
    return OtherStatus(at, wide, parts, candidates)
