"""Compares the groups that Cluster Autoscaler saw, by its status ConfigMap, with those that its flags name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from chalicelib.command.importers.autoscaler_input import AutoscalerInput, Remark
from chalicelib.command.importers.input_objects import mapping
from chalicelib.command.importers.report import Verdict
from chalicelib.policy.diagnostics import quote

STATUS = "cluster-autoscaler-status"
_GROUP = re.compile(r"^[ \t-]*[Nn]ame:[ \t]+[\"']?([^\s\"']{1,253})", re.MULTILINE)  # of both formats of releases
_MOST_TEXT, _MOST_NAMED = 1_000_000, 10


def status_remark(place: str, document: Mapping[str, Any], autoscaler: AutoscalerInput) -> Remark:
    """Return a remark that names the groups of the status which no `--nodes` of the input names."""
    status = mapping(document.get("data")).get("status")
    groups = list(dict.fromkeys(_GROUP.findall(status[:_MOST_TEXT]))) if isinstance(status, str) else []
    named = {(each.value or "").split(":", 2)[-1] for each in autoscaler.arguments if each.flag == "nodes"}
    missing = [group for group in groups if group not in named] if named else []
    text = f"Cluster Autoscaler saw {len(groups)} group{'' if len(groups) == 1 else 's'}"
    if missing:
        text += f"; no --nodes names {', '.join(quote(group) for group in missing[:_MOST_NAMED])}"
    elif not named and groups:
        text += f": {', '.join(quote(group) for group in groups[:_MOST_NAMED])}"
    return Remark(place, f"ConfigMap {STATUS}", Verdict.TOLD, f"{text}. Outscaler writes its own status when active")
