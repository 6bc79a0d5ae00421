"""Writes the status ConfigMap in upstream's schema (docs/events.md "Status
ConfigMap"), which existing tools read.

Upstream writes it in every loop of ten seconds. Here it is written when anything in it but its
times has changed, and otherwise every EVERY seconds. Tools take an old lastProbeTime for an
autoscaler that has stopped, and a minute is well within their limits, while a write every ten
seconds would add load to the cluster's API. In between it is not even read. lastTransitionTime is
preserved from the ConfigMap itself, so that neither a cold start nor a lost row resets it.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
import yaml

from chalicelib.cluster.errors import Conflict, NotFound
from chalicelib.cluster.objects import ConfigMap
from chalicelib.journal.carry_over import PublishedStatus
from chalicelib.model.plan import GroupVerdict, Health, Plan
from chalicelib.model.timestamps import format_time
from chalicelib.net.safe_yaml import parsed
from chalicelib.policy.settings.cluster_options import Options

KEY = "status"
ANNOTATION = "cluster-autoscaler.kubernetes.io/last-updated"
EVERY = 60.0
"""Seconds after which an unchanged status is written again."""
LONGEST_MESSAGE = 500
CUT = "<truncated>"
_TRIES = 3

Document = dict[str, Any]


class ConfigMapApi(Protocol):
    """The API for the ConfigMap; journal/recorder.py implements it. Methods raise ClusterError, see
    cluster/objects.py."""

    def find(self, namespace: str, name: str) -> ConfigMap:
        """Return the current ConfigMap; raises NotFound."""

    def change(
        self,
        namespace: str,
        name: str,
        config_map: ConfigMap,
        data: dict[str, str],
        annotations: dict[str, str],
    ) -> None:
        """Set these keys; raises Conflict, NotFound."""


def publish(
    plan: Plan, options: Options, old_status: PublishedStatus, config_maps: ConfigMapApi
) -> PublishedStatus:
    """Write the status if it is due; return what is known of it afterwards. Raises ClusterError if
    it was not written; NotFound where there is no such ConfigMap. It is never created: RBAC cannot
    limit creation to a name, and permission to create any ConfigMap in kube-system would include
    those that other programs trust."""
    new_digest = digest(document(plan, {}))
    is_recent = 0.0 <= plan.at - old_status.at < EVERY
    if new_digest == old_status.digest and is_recent:
        return old_status
    place = (options.namespace, options.status_config_map_name)
    for attempt in range(1, _TRIES + 1):
        config_map = config_maps.find(*place)
        text = render(document(plan, parse(config_map.text(KEY))))
        annotations = {ANNOTATION: long_time(plan.at)}
        try:
            config_maps.change(*place, config_map, {KEY: text}, annotations)
        except (Conflict, NotFound):  # changed or deleted concurrently: read it again
            if attempt == _TRIES:
                raise
        else:
            break
    return PublishedStatus(new_digest, plan.at)


def how_to_make(options: Options) -> str:
    """Return what an operator has to do where the ConfigMap does not exist."""
    return (
        f"ConfigMap {options.namespace}/{options.status_config_map_name} is not there, so no "
        "status is written: "
        "apply what outscaler manifests rbac prints, with that name in it, or set "
        "writeStatusConfigmap: "
        "false in the policy"
    )


def document(plan: Plan, old_document: Document) -> Document:
    """Return the status in upstream's schema. old_document: the last one as read back; its
    invalid parts are ignored."""
    now = format_time(plan.at)
    health = plan.health

    def part(old_parts: Document, section: str, status: str, **fields: Any) -> Document:
        old_part = _at(old_parts, section)
        since = old_part.get("lastTransitionTime") if old_part.get("status") == status else None
        return {
            "status": status,
            **fields,
            "lastProbeTime": now,
            "lastTransitionTime": str(since) if since else now,
        }

    def scale_down(old_parts: Document, candidates: int) -> Document:
        if not candidates:
            return part(old_parts, "scaleDown", "NoCandidates")
        return part(old_parts, "scaleDown", "CandidatesPresent", candidates=candidates)

    def group_status(group: GroupVerdict, old_parts: Document) -> Document:
        status, backoff = _growth(group)
        group_health = part(
            old_parts,
            "health",
            "Healthy" if group.healthy else "Unhealthy",
            nodeCounts=_counts(_health_of(group)),
            cloudProviderTarget=group.target,
            minSize=group.min,
            maxSize=group.max,
        )
        return {
            "name": group.group,
            "health": group_health,
            "scaleUp": part(old_parts, "scaleUp", status, **backoff),
            "scaleDown": scale_down(old_parts, group.candidates),
        }

    old_wide = _at(old_document, "clusterWide")
    old_groups = _old_groups(old_document)
    is_growing = any(group.in_progress for group in plan.groups)
    health_word = "Healthy" if health.healthy else "Unhealthy"
    return {
        "time": long_time(plan.at),
        "autoscalerStatus": "Running",
        "clusterWide": {
            "health": part(old_wide, "health", health_word, nodeCounts=_counts(health)),
            "scaleUp": part(old_wide, "scaleUp", "InProgress" if is_growing else "NoActivity"),
            "scaleDown": scale_down(old_wide, len(plan.unneeded)),
        },
        "nodeGroups": [
            group_status(group, old_groups.get(group.group, {}))
            for group in sorted(plan.groups, key=lambda group: group.group)
        ],
    }


def _old_groups(old_document: Document) -> dict[str, Document]:
    rows = old_document.get("nodeGroups")
    if not isinstance(rows, list):
        return {}
    return {str(row.get("name")): row for row in rows if isinstance(row, dict)}


def _growth(group: GroupVerdict) -> tuple[str, Document]:
    """Return the group's scale-up status by precedence: InProgress, Unhealthy, Backoff, NoActivity
    (docs/events.md "Status ConfigMap"), and what else is said of a back-off."""
    if group.in_progress:
        return "InProgress", {}
    if not group.healthy:
        return "Unhealthy", {}
    if group.backoff is None:
        return "NoActivity", {}
    code = str(group.backoff.params.get("code", ""))
    message = str(group.backoff.params.get("error", ""))
    return "Backoff", {"backoffInfo": {"errorCode": code, "errorMessage": shortened(message)}}


def shortened(message: str) -> str:
    """Return at most 500 characters; the last eleven of a longer text say that it was truncated."""
    if len(message) <= LONGEST_MESSAGE:
        return message
    return message[: LONGEST_MESSAGE - len(CUT)] + CUT


def _health_of(group: GroupVerdict) -> Health:
    counts = group.counts
    return Health(
        registered=sum(counts.values()),
        ready=counts.get("ready", 0),
        unready=counts.get("unready", 0),
        not_started=counts.get("notStarted", 0),
        suspended=counts.get("suspended", 0),
        being_deleted=counts.get("beingDeleted", 0),
        unregistered=group.unregistered,
        long_unregistered=group.long_unregistered,
    )


def _counts(health: Health) -> Document:
    registered: Document = {
        "total": health.registered,
        "ready": health.ready,
        "notStarted": health.not_started,
        "suspended": health.suspended,
    }
    if health.being_deleted:
        registered["beingDeleted"] = health.being_deleted
    registered["unready"] = {"total": health.unready, "resourceUnready": health.resource_unready}
    return {
        "registered": registered,
        "longUnregistered": health.long_unregistered,
        "unregistered": health.unregistered,
    }


# -- as text


def long_time(at: float) -> str:
    """Return `2026-08-22 09:15:02.123456789 +0000 UTC`, as Go prints a
    time, with all nine digits."""
    seconds, nanoseconds = divmod(round(at * 1e9), 10**9)
    instant = datetime.fromtimestamp(seconds, UTC)
    return f"{instant:%Y-%m-%d %H:%M:%S}.{nanoseconds:09d} +0000 UTC"


def render(status_document: Document) -> str:
    """Return the status as YAML, keys in upstream's order."""
    return yaml.dump(
        status_document,
        Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper),
        sort_keys=False,
        width=10_000,
    )


def parse(text: str) -> Document:
    """Return the ConfigMap's status; {} where the text is not a YAML mapping. Times stay text."""
    try:
        document = parsed(text, texts=True)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def digest(status_document: Document) -> str:
    """Return a digest that is equal for two documents that differ in their times only."""
    text = msgspec.json.encode(_timeless(status_document))
    return hashlib.sha256(text).hexdigest()[:16]


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        times = ("time", "lastProbeTime", "lastTransitionTime")
        return {name: _timeless(item) for name, item in value.items() if name not in times}
    if isinstance(value, list):
        return [_timeless(item) for item in value]
    return value


def _at(value: Any, name: str) -> Document:
    """Return a nested mapping; {} where there is another value."""
    nested = value.get(name) if isinstance(value, dict) else None
    return nested if isinstance(nested, dict) else {}
