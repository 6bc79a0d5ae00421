"""Routes of the pages: a path and a query to a status, headers and HTML. Every page only reads.

A table that does not answer gives a page with the instant and status 503. An unexpected failure
gives status 500 and one line; its details are only in the log of the caller.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from chalicelib.journal.journal import PLAN
from chalicelib.journal.redaction import policy_without_secrets, without_secrets
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.plan import Plan
from chalicelib.model.policy_permissions import Deployment
from chalicelib.model.timestamps import parse_time
from chalicelib.page import charts, timeline, views
from chalicelib.page.assets import YEAR, asset
from chalicelib.page.cluster_data import HISTORY, LONG_HISTORY, ClusterDetails, details, summaries
from chalicelib.page.render import SECURITY_HEADERS, Links, render
from chalicelib.reasons.no_place import no_place
from chalicelib.reasons.text import lasting_first
from chalicelib.runtime.messages import cluster_name_ok
from chalicelib.views.cluster_view import exact, older_numbers
from chalicelib.views.rows import NodeRow, group_named, node_rows

if TYPE_CHECKING:
    from chalicelib.store import JournalEntry, Store, StoredPolicy

HTML = "text/html; charset=utf-8"
PAGE_ROWS, VERSIONS, NEAR = 500, 50, 30
_LONGEST_QUERY = 200
_NUMBER = re.compile(r"[0-9]{1,9}\Z")


class PageAnswer(msgspec.Struct, frozen=True):
    """One answer. headers: with the security headers and Content-Type."""

    status: int
    body: bytes
    headers: dict[str, str]


class PageRequest(msgspec.Struct, frozen=True):
    """One request. path: still percent-encoded, without the base. query: one value per name.
    permitted: names of the clusters that the caller may see, None for all."""

    path: str
    query: Mapping[str, str]
    permitted: frozenset[str] | None = None


class _NotFound(OutscalerError):
    """There is no such page, cluster or object."""


class PageContext(msgspec.Struct, frozen=True):
    """What a page is made of. clock: what the pages call their time, ""
    where it is the real one."""

    store: Store
    request: PageRequest
    links: Links
    now: float
    deployment: Deployment | None
    clock: str = ""

    def word(self, name: str) -> str:
        """Return a parameter of the query, "" where it is not given."""
        return self.request.query.get(name, "")[:_LONGEST_QUERY]


def respond(
    store: Store,
    request: PageRequest,
    now: float,
    links: Links,
    deployment: Deployment | None,
    clock: str = "",
) -> PageAnswer:
    """Return the page. now: epoch seconds. deployment: what the functions permit policies to
    name, None where it is not known. clock: see PageContext. Raises nothing that a table, a
    policy or a request can cause."""
    if request.path.startswith(STATIC):
        return static(request.path, links, now)
    context = PageContext(store, request, links, now, deployment, clock)
    try:
        template, values = _page(context)
    except _NotFound as missing:
        return failed(links, now, 404, str(missing))
    except BadInput as bad:
        return failed(links, now, 400, str(bad))
    except OutscalerError as error:
        line = f"The table does not answer ({type(error).__name__}). Reload the page to try again."
        return failed(links, now, 503, line)
    # Names of secrets consist of characters that HTML does not escape, so they are
    # hidden in the finished page.
    text, policy = values.pop("hidden_names", ("", None))
    page = render(template, links, now, {"clock": clock, **values})
    if text:
        page = without_secrets(page, text, policy)
    return _html(200, page.encode("utf-8", "backslashreplace"))


def _html(status: int, body: bytes) -> PageAnswer:
    return PageAnswer(status, body, SECURITY_HEADERS | {"Content-Type": HTML})


STATIC = "/static/"


def static(path: str, links: Links, now: float) -> PageAnswer:
    """Return a script or the style sheet, which say nothing about a deployment.
    path: begins with STATIC."""
    file = asset(path.removeprefix(STATIC))
    if file is None:
        return failed(links, now, 404, "There is no such page.")
    caching = f"public, max-age={YEAR}, immutable"
    own_headers = {"Content-Type": file.media_type, "Cache-Control": caching}
    return PageAnswer(200, file.content, SECURITY_HEADERS | own_headers)


def failed(links: Links, now: float, status: int, line: str) -> PageAnswer:
    """Return a page that says in one line why there is no other. now: epoch seconds."""
    values = {"title": f"Error {status}", "line": line, "status": status}
    return page_of("error.html", links, now, status, values)


def page_of(
    template: str, links: Links, now: float, status: int, values: dict[str, Any]
) -> PageAnswer:
    """Return a page that shows nothing of a cluster. now: epoch seconds.
    values: of the template."""
    body = render(template, links, now, {"clock": "", **values})
    return _html(status, body.encode())


def _page(context: PageContext) -> tuple[str, dict[str, Any]]:
    path = context.request.path.strip("/")
    parts = [unquote(part, errors="replace") for part in path.split("/")]
    if parts == [""]:
        return _clusters(context)
    if parts[0] != "clusters" or not 2 <= len(parts) <= 4:
        raise _NotFound("There is no such page.")
    name = parts[1]
    permitted = context.request.permitted
    if not cluster_name_ok(name) or (permitted is not None and name not in permitted):
        raise _NotFound("This cluster is not known.")
    page = "/".join(parts[2:])
    if page not in _PAGES:
        raise _NotFound("There is no such page.")
    return _PAGES[page](context, name)


def _details(
    context: PageContext, name: str, limit: int = HISTORY
) -> tuple[ClusterDetails, dict[str, Any]]:
    """Return a cluster, and the values that its pages have in common."""
    cluster = details(context.store, name, context.now, context.deployment, limit)
    if cluster is None:
        raise _NotFound("This cluster is not known.")
    return cluster, {
        "name": name,
        "names": cluster.names,
        "decision": cluster.decision,
        "undecided": cluster.undecided,
        "known": cluster.is_known,
        "hidden_names": (cluster.text, cluster.summary.policy),
    }


def _clusters(context: PageContext) -> tuple[str, dict[str, Any]]:
    permitted = context.request.permitted
    words = context.word("q")
    clusters = summaries(context.store, context.now, context.deployment)
    visible = [summary for summary in clusters if permitted is None or summary.name in permitted]
    return "clusters.html", {
        "title": "Clusters",
        "rows": views.cluster_rows(visible, context.now, words),
        "total": len(visible),
        "words": words,
        "unjudged": context.deployment is None,
        "live": True,
        "command": "outscaler get clusters",
    }


def _cluster(context: PageContext, name: str) -> tuple[str, dict[str, Any]]:
    query = {key: context.word(key) for key in ("range", "show", "kind")}
    limit = LONG_HISTORY if charts.span_of(query["range"]).hourly else HISTORY
    cluster, common = _details(context, name, limit)
    return "cluster.html", {
        **common,
        **views.cluster_values(cluster, query, context.now),
        "title": name,
        "query": query,
        "currency": cluster.overview.currency,
        "unjudged": context.deployment is None,
        "live": True,
        "command": f"outscaler get groups {name}",
    }


def _group(context: PageContext, name: str) -> tuple[str, dict[str, Any]]:
    cluster, common = _details(context, name, LONG_HISTORY)
    group = context.word("group")
    row = cluster.group(group) or cluster.group(group_named(cluster.groups, group).group)
    if row is None:
        raise _NotFound("This node group is not part of the last decision.")
    entries = [entry for entry in cluster.entries if entry.group == row.group]
    refused = [pods for pods in cluster.plan.unschedulable if row.group in pods.reasons]
    verdicts = (verdict for verdict in cluster.plan.groups if verdict.group == row.group)
    verdict = next(verdicts, None)
    return "group.html", {
        **common,
        "title": f"{row.name} of {name}",
        "row": row,
        "currency": cluster.overview.currency,
        "cells": views.cells_of(row),
        "skipped": verdict.skipped if verdict is not None else None,
        "history": views.size_history(entries, row.target or 0, context.now),
        "events": [timeline.event_of(entry, cluster.names) for entry in entries[:NEAR]],
        "refused": [
            (pods.pods, lasting_first(pods.reasons[row.group])) for pods in refused[:PAGE_ROWS]
        ],
        "nodes": sum(node.group == row.group for node in _node_rows(cluster)),
        "command": shlex.join(("outscaler", "explain", "group", row.name, "--cluster", name)),
    }


def _node_rows(cluster: ClusterDetails) -> tuple[NodeRow, ...]:
    plan = cluster.decision.plan if cluster.decision else None
    return node_rows(plan, cluster.overview, cluster.groups, cluster.memory, cluster.entries)


def _nodes(context: PageContext, name: str) -> tuple[str, dict[str, Any]]:
    cluster, common = _details(context, name)
    code = context.word("reason")
    group = context.word("group")
    words = context.word("q")
    nodes = views.shown_nodes(_node_rows(cluster), code, group, words)
    confirmed_at = cluster.decision.confirmed_at if cluster.decision is not None else 0.0
    return "nodes.html", {
        **common,
        "title": f"Nodes of {name}",
        "rows": nodes[:PAGE_ROWS],
        "counted_at": older_numbers(cluster.overview.at, confirmed_at),
        "total": len(nodes),
        "stays": views.stays(cluster.plan),
        "unconsolidated": views.unconsolidated(cluster.plan),
        "code": code,
        "group": group,
        "words": words,
        "command": f"outscaler get nodes {name}",
    }


def _pods(context: PageContext, name: str) -> tuple[str, dict[str, Any]]:
    cluster, common = _details(context, name)
    words = context.word("q")
    rows = views.waiting_pods(cluster, words)
    return "pods.html", {
        **common,
        "title": f"Waiting pods of {name}",
        "rows": rows[:PAGE_ROWS],
        "total": sum(len(row.pods) for row in rows),
        "most": PAGE_ROWS,
        "words": words,
        "command": f"outscaler get pods {name}",
    }


def _history(context: PageContext, name: str) -> tuple[str, dict[str, Any]]:
    cluster, common = _details(context, name)
    kind = context.word("kind")
    group = context.word("group")
    before = context.word("before")
    end = min(parse_time(before), context.now) if before else context.now
    whole = context.word("all") == "yes"
    # The bound of the store is exclusive, and an entry may be as new as the page.
    bound = end if before else end + 1.0
    day = timeline.read_day(context.store, name, bound, cluster.names, whole=whole)
    next_end = end + charts.DAY
    groups = {event.group for event in day.events if event.group}
    command = ["outscaler", "history", name, "--since", "24h"]
    if group:
        command += ["--group", cluster.name_of(group)]
    return "history.html", {
        **common,
        "title": f"History of {name}",
        "day": day,
        "end": end,
        "lanes": timeline.lanes(day),
        "events": timeline.selected(day.events, kind, group)[:PAGE_ROWS],
        "kinds": tuple(timeline.FILTERS),
        "kind": kind if kind in timeline.FILTERS else "all",
        "group": group,
        "groups": sorted(groups.union(cluster.names)),
        "whole": whole,
        "query": {"group": group, "all": "yes" if whole else "", "before": before},
        "earlier": exact(day.begin),
        "later": exact(next_end) if before and next_end < context.now else "",
        "command": shlex.join(command),
    }


def _decision(context: PageContext, name: str) -> tuple[str, dict[str, Any]]:
    """Explain a decision of the journal: the plan of this id, made about then."""
    cluster, common = _details(context, name)
    about = context.word("at")
    at = parse_time(about) if about else context.now
    entry = _plan_entry(context, name, context.word("plan"), at)
    if entry is None:
        raise _NotFound("This decision is not in the journal (any more).")
    plan = _plan_of(entry)
    unschedulable = plan.unschedulable if plan is not None else ()
    gaps = plan.gaps if plan is not None else ()
    policy = cluster.summary.policy
    return "decision.html", {
        **common,
        "title": f"Decision of {name}",
        "entry": entry,
        "event": timeline.event_of(entry, cluster.names),
        "plan": plan,
        "pods": [
            (verdict.pods, no_place(verdict, cluster.names, gaps).line) for verdict in unschedulable
        ],
        "stays": views.stays(plan) if plan is not None else [],
        "replay": shlex.join(("outscaler", "replay", entry.plan, "--cluster", name)),
        "recorded": policy is not None and policy.record_decisions,
        "command": f"outscaler history {name} --kind plan",
    }


def _plan_of(entry: JournalEntry) -> Plan | None:
    """Return the plan of an entry, None where there is none that this release can read."""
    if not entry.body:
        return None
    try:
        return msgspec.json.decode(entry.body, type=Plan)
    except (msgspec.MsgspecError, ValueError):
        return None


def _plan_entry(context: PageContext, name: str, plan_id: str, about: float) -> JournalEntry | None:
    """Return the entry of a plan that was decided about then, at most a few entries away."""
    for entry in context.store.journal.recent(name, NEAR, before=about + 5.0):
        if entry.kind == PLAN and entry.plan == plan_id:
            return entry
    return None


def _stored(context: PageContext, name: str) -> StoredPolicy:
    stored = context.store.policies.current(name)
    if stored is None:
        raise _NotFound("This cluster is not known.")
    return stored


def _policy(context: PageContext, name: str) -> tuple[str, dict[str, Any]]:
    versions = {stored.version: stored for stored in context.store.policies.history(name, VERSIONS)}
    current = _stored(context, name)
    chosen = _version(context.word("version")) or current.version
    if chosen not in versions:
        raise _NotFound("This version of the policy is not known.")
    shown = versions[chosen]
    compared = _version(context.word("against")) or chosen - 1
    other = versions.get(compared)
    text = policy_without_secrets(shown.text).splitlines()
    diff: list[str] = []
    if other is not None:
        before = policy_without_secrets(other.text).splitlines()
        diff = list(difflib.unified_diff(before, text, lineterm=""))[2:]  # without the file names
    return "policy.html", {
        "title": f"Policy of {name}",
        "name": name,
        "versions": tuple(versions.values()),
        "shown": shown,
        "other": other,
        "text": text[:PAGE_ROWS],
        "diff": diff[:PAGE_ROWS],
        "current": current.version,
        "command": f"outscaler get policy {name}",
    }


def _version(text: str) -> int:
    if text and not _NUMBER.match(text):
        raise BadInput("version", f"{text[:20]!r} is not a number", "choose a version of the list")
    return int(text or 0)


_PAGES: dict[str, Callable[[PageContext, str], tuple[str, dict[str, Any]]]] = {
    "": _cluster,
    "groups": _group,
    "nodes": _nodes,
    "pods": _pods,
    "history": _history,
    "decision": _decision,
    "policy": _policy,
}
