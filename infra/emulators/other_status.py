"""The status of the emulated Cluster Autoscaler in both forms (other_autoscaler.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chalicelib.model.timestamps import format_time
from chalicelib.record.status_configmap import long_time, render
from infra.emulators.other_groups import GroupView

Changes = Mapping[str, tuple[str, float]]  # group -> status of its scale-up, last transition


def as_yaml(groups: Sequence[GroupView], changed: Changes, candidates: int, now: float) -> str:
    """Return the status of release 1.30 and later. candidates: number of unneeded nodes."""

    def part(status: str, since: float, **more: object) -> dict[str, object]:
        times = {"lastProbeTime": format_time(now), "lastTransitionTime": format_time(since)}
        return {"status": status, **more, **times}

    growing = any(changed[group.id][0] == "InProgress" for group in groups)
    down = part("CandidatesPresent" if candidates else "NoCandidates", now, candidates=candidates)
    return render(
        {
            "time": long_time(now),
            "autoscalerStatus": "Running",
            "clusterWide": {"scaleUp": part("InProgress" if growing else "NoActivity", 0.0), "scaleDown": down},
            "nodeGroups": [
                {
                    "name": group.id,
                    "health": part("Healthy", 0.0, cloudProviderTarget=group.target),
                    "scaleUp": part(*changed[group.id]),
                }
                for group in groups
            ],
        }
    )


def as_text(groups: Sequence[GroupView], changed: Changes, candidates: int, now: float) -> str:
    """Return the status of releases before 1.30."""

    def part(name: str, status: str, since: float, counts: str) -> list[str]:
        times = (("LastProbeTime", now), ("LastTransitionTime", since))
        return [
            f"  {name + ':':<12} {status} ({counts})",
            *(f"               {word + ':':<19} {long_time(at)} m=+12.3" for word, at in times),
        ]

    down = "CandidatesPresent" if candidates else "NoCandidates"
    growing = any(changed[group.id][0] == "InProgress" for group in groups)
    lines = [f"Cluster-autoscaler status at {long_time(now)}:", "Cluster-wide:"]
    lines += part("ScaleUp", "InProgress" if growing else "NoActivity", 0.0, "ready=0 registered=0")
    lines += [*part("ScaleDown", down, now, f"candidates={candidates}"), "", "NodeGroups:"]
    for group in groups:
        counts = f"ready={len(group.nodes)} registered={len(group.nodes)}"
        lines += [f"  {'Name:':<12} {group.id}", *part("ScaleUp", *changed[group.id], counts), ""]
    return "\n".join(lines)
