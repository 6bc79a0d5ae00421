"""Writes priorities of the expander priority to spec.nodeGroups, where a pattern names one group literally.

A cluster without the ConfigMap then keeps the order of its groups. A pattern that may name several groups stays in the
ConfigMap, because a policy states one group per entry.
"""

from __future__ import annotations

import re
from typing import Any

from chalicelib.command.importers.draft import Draft
from chalicelib.command.importers.provider_source import Source
from chalicelib.command.importers.report import Verdict
from chalicelib.policy.diagnostics import quote
from chalicelib.policy.priority_configmap import Rules

_LITERAL = re.compile(r"(?:[A-Za-z0-9_/:@-]|\\[./-])+\Z")
_NODES = re.compile(r"([0-9]{1,9}):([0-9]{1,9}):(\S{1,512})\Z")
_KINDS = ("MachineDeployment", "MachineSet", "MachinePool")


def write_priorities(source: Source, provider: str, rules: Rules, place: str, draft: Draft) -> None:
    """Write an entry of spec.nodeGroups for each pattern that names one group. Its bounds move there from nodes."""
    known = _known(source, draft)
    written: dict[str, int] = {}
    for priority, patterns in rules:  # the highest first, which counts for a group with several
        for pattern in patterns:
            group = _named(pattern, known)
            if not group:
                text = "does not name one group literally: it works in the ConfigMap only"
                draft.row(place, f"{priority}: {quote(pattern)}", Verdict.NOT_HERE, "", text)
            elif group in written:
                text = f"{group} has priority {written[group]} already, which counts"
                draft.row(place, f"{priority}: {quote(pattern)}", Verdict.TOLD, "", text)
            else:
                written[group] = priority
                _write(provider, group, priority, draft)
                text = "counts once the ConfigMap is deleted"
                word = f"{priority}: {quote(pattern)}"
                draft.row(place, word, Verdict.TRANSLATED, f"spec.nodeGroups[{group}].priority", text)


def _known(source: Source, draft: Draft) -> frozenset[str]:
    """Return the ids of the groups that the input names."""
    found = {match[3] for spec in draft.provider.get("nodes", ()) if (match := _NODES.match(spec))}
    found |= {str(group["id"]) for group in draft.node_groups}
    for _, document in source.read.objects:
        kind, metadata = document.get("kind"), document.get("metadata")
        if kind in _KINDS and isinstance(metadata, dict):
            found.add(f"{kind}/{metadata.get('namespace') or 'default'}/{metadata.get('name')}"[:512])
    return frozenset(found)


def _named(pattern: str, known: frozenset[str]) -> str:
    """Return the one group that a pattern without special characters matches, empty if it may match others."""
    body = pattern.removeprefix("^").removesuffix("$")
    if not _LITERAL.match(body):
        return ""
    literal = body.replace("\\", "")
    if pattern.startswith("^") and pattern.endswith("$"):
        return literal if literal in known or not known else ""
    fits = [each for each in known if literal in each]
    return fits[0] if fits == [literal] else ""


def _write(provider: str, group: str, priority: int, draft: Draft) -> None:
    for entry in draft.node_groups:
        if entry["id"] == group:
            entry["priority"] = priority
            return
    added: dict[str, Any] = {"provider": provider, "id": group}
    nodes: list[str] = draft.provider.get("nodes", [])
    for spec in nodes:
        match = _NODES.match(spec)
        if match and match[3] == group:
            nodes.remove(spec)
            added |= {"min": int(match[1]), "max": int(match[2])}
            break
    if not nodes:
        draft.provider.pop("nodes", None)
    draft.node_groups.append(added | {"priority": priority})
