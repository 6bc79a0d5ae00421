"""Routes of the pages: a path and a query to a status, headers and HTML. Every page only reads.

A table that does not answer gives a page with the instant and status 503. An unexpected failure gives status 500 and
one line; its details are only in the log of the caller.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from chalicelib.dispatch.messages import cluster_name_ok
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.policy_permissions import Deployment
from chalicelib.model.timestamps import parse_time
from chalicelib.page import charts, views
from chalicelib.page.cluster_data import ClusterDetails, details, summaries
from chalicelib.page.render import Links, render, security_headers
from chalicelib.reasons.text import lasting_first
from chalicelib.record.redaction import policy_without_secrets, without_secrets
from chalicelib.record.views import exact
from chalicelib.runtime.active_policy import in_force_or_problem

if TYPE_CHECKING:
    from chalicelib.store import Store, StoredPolicy

HTML = "text/html; charset=utf-8"
PAGE_ROWS, HISTORY_ROWS, VERSIONS = 500, 50, 50
_LONGEST_QUERY = 200
_NUMBER = re.compile(r"[0-9]{1,9}\Z")


class PageAnswer(msgspec.Struct, frozen=True):
    """One answer. headers: with the security headers and Content-Type."""

    status: int
    body: bytes
    headers: dict[str, str]


class PageRequest(msgspec.Struct, frozen=True):
    """One request. path: still percent-encoded, without the base. query: one value per name. permitted: names of the
    clusters that the caller may see, None for all."""

    path: str
    query: Mapping[str, str]
    permitted: frozenset[str] | None = None


class _NotFound(OutscalerError):
    """There is no such page, cluster or object."""


class PageContext(msgspec.Struct, frozen=True):
    """What a page is made of."""

    store: Store
    request: PageRequest
    links: Links
    now: float
    deployment: Deployment | None

    def word(self, name: str) -> str:
        """Return a parameter of the query, "" where it is not given."""
        return self.request.query.get(name, "")[:_LONGEST_QUERY]


def respond(store: Store, request: PageRequest, now: float, links: Links, deployment: Deployment | None) -> PageAnswer:
    """Return the page. now: epoch seconds. deployment: what the functions permit policies to name, None where it is not
    known. Raises nothing that a table, a policy or a request can cause."""
    context = PageContext(store, request, links, now, deployment)
    try:
        template, values = _page(context)
    except _NotFound as missing:
        return failed(links, now, 404, str(missing))
    except BadInput as bad:
        return failed(links, now, 400, str(bad))
    except OutscalerError as error:
        line = f"The table does not answer ({type(error).__name__}). Reload the page to try again."
        return failed(links, now, 503, line)
    # Names of secrets consist of characters that HTML does not escape, so they are hidden in the finished page.
    text, policy = values.pop("hidden_names", ("", None))
    page = render(template, links, now, values)
    body = without_secrets(page, text, policy) if text else page
    return PageAnswer(200, body.encode("utf-8", "backslashreplace"), security_headers() | {"Content-Type": HTML})


def failed(links: Links, now: float, status: int, line: str) -> PageAnswer:
    """Return a page that says in one line why there is no other. now: epoch seconds."""
    return page_of("error.html", links, now, status, {"title": f"Error {status}", "line": line, "status": status})


def page_of(template: str, links: Links, now: float, status: int, values: dict[str, Any]) -> PageAnswer:
    """Return a page that shows nothing of a cluster. now: epoch seconds. values: of the template."""
    body = render(template, links, now, values)
    return PageAnswer(status, body.encode(), security_headers() | {"Content-Type": HTML})


def _page(context: PageContext) -> tuple[str, dict[str, Any]]:
    parts = [unquote(part, errors="replace") for part in context.request.path.strip("/").split("/")]
    if parts == [""]:
        return _clusters(context)
    if parts[0] != "clusters" or not 2 <= len(parts) <= 4:
        raise _NotFound("There is no such page.")
    name, permitted = parts[1], context.request.permitted
    if not cluster_name_ok(name) or (permitted is not None and name not in permitted):
        raise _NotFound("This cluster is not known.")
    page = parts[2] if len(parts) > 2 else ""
    group = parts[3] if len(parts) == 4 else context.word("group")
    if page == "groups" and (group or len(parts) == 4):
        return _group(context, name, group)
    if len(parts) == 4 or page not in _PAGES:
        raise _NotFound("There is no such page.")
    return _PAGES[page](context, name)


def _details(context: PageContext, name: str) -> tuple[ClusterDetails, dict[str, Any]]:
    """Return a cluster, and the values that its pages have in common."""
    cluster = details(context.store, name, context.now, context.deployment)
    if cluster is None:
        raise _NotFound("This cluster is not known.")
    return cluster, {
        "name": name,
        "decision": cluster.decision,
        "undecided": cluster.undecided,
        "hidden_names": (cluster.text, cluster.summary.policy),
    }


def _clusters(context: PageContext) -> tuple[str, dict[str, Any]]:
    permitted = context.request.permitted
    clusters = summaries(context.store, context.now, context.deployment)
    visible = [summary for summary in clusters if permitted is None or summary.name in permitted]
    return "clusters.html", {
        "title": "Clusters",
        "rows": views.cluster_rows(visible, context.now),
        "unjudged": context.deployment is None,
        "refresh": context.word("refresh") != "off",
        "command": "outscaler get clusters",
    }


def _cluster(context: PageContext, name: str) -> tuple[str, dict[str, Any]]:
    details, common = _details(context, name)
    return "cluster.html", {
        **common,
        **views.cluster_values(details, context.now),
        "title": name,
        "unjudged": context.deployment is None,
        "refresh": context.word("refresh") != "off",
        "command": f"outscaler get groups {name}",
    }


def _group(context: PageContext, name: str, group: str) -> tuple[str, dict[str, Any]]:
    details, common = _details(context, name)
    row = next((row for row in views.group_rows(details, context.now) if row["group"] == group), None)
    if row is None:
        raise _NotFound("This node group is not part of the last decision.")
    entries = context.store.journal.recent(name, views.ROWS)
    of_group = [entry for entry in entries if entry.group == group]
    refused = [verdict for verdict in details.plan.unschedulable if group in verdict.reasons]
    return "group.html", {
        **common,
        "title": f"{group} of {name}",
        "group": group,
        "row": row,
        "entries": of_group[:HISTORY_ROWS],
        "strip": charts.strip(of_group, context.now, charts.DAYS),
        "steps": charts.steps(of_group, row["target"], context.now, whole=len(entries) < views.ROWS),
        "refused": [(len(pods.pods), pods.pods[0], lasting_first(pods.reasons[group])) for pods in refused[:PAGE_ROWS]],
        "command": shlex.join(("outscaler", "explain", "group", group, "--cluster", name)),
    }


def _nodes(context: PageContext, name: str) -> tuple[str, dict[str, Any]]:
    details, common = _details(context, name)
    code, words = context.word("reason"), context.word("q")
    nodes = views.shown_nodes(details.plan, code, words)
    return "nodes.html", {
        **common,
        "title": f"Nodes of {name}",
        "rows": nodes[:PAGE_ROWS],
        "use_of": views.use_of,
        "total": len(nodes),
        "codes": sorted({verdict.reason.code.value for verdict in details.plan.unremovable}),
        "chosen": code,
        "words": words,
        "command": f"outscaler get nodes {name}",
    }


def _pods(context: PageContext, name: str) -> tuple[str, dict[str, Any]]:
    details, common = _details(context, name)
    words = context.word("q")
    pods = views.shown_pods(details.plan, words)
    return "pods.html", {
        **common,
        "title": f"Waiting pods of {name}",
        "rows": pods[:PAGE_ROWS],
        "decisions": _DECISIONS,
        "total": len(pods),
        "words": words,
        "command": f"outscaler get pods {name}",
    }


def _history(context: PageContext, name: str) -> tuple[str, dict[str, Any]]:
    stored = _stored(context, name)
    before = context.word("before")
    entries = context.store.journal.recent(name, HISTORY_ROWS, before=parse_time(before) if before else None)
    return "history.html", {
        "title": f"History of {name}",
        "name": name,
        "rows": entries,
        "hidden_names": (stored.text, in_force_or_problem(stored, context.now, context.deployment)[0]),
        "older": exact(entries[-1].at) if len(entries) == HISTORY_ROWS else "",
        "command": f"outscaler history {name}",
    }


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
    shown, other = versions[chosen], versions.get(_version(context.word("against")) or chosen - 1)
    before = policy_without_secrets(other.text).splitlines() if other is not None else []
    text = policy_without_secrets(shown.text).splitlines()
    lines = list(difflib.unified_diff(before, text, lineterm=""))
    return "policy.html", {
        "title": f"Policy of {name}",
        "name": name,
        "versions": tuple(versions.values()),
        "shown": shown,
        "other": other,
        "text": text[:PAGE_ROWS],
        "diff": lines[2 : PAGE_ROWS + 2] if other is not None else [],
        "current": current.version,
        "command": f"outscaler get policy {name}",
    }


def _version(text: str) -> int:
    if text and not _NUMBER.match(text):
        raise BadInput("version", f"{text[:20]!r} is not a number", "choose a version of the list")
    return int(text or 0)


_DECISIONS = {
    "unschedulable": "no node",
    "newNode": "new node",
    "fitsExisting": "fits",
    "notLookedAt": "not considered",
}
_PAGES: dict[str, Callable[[PageContext, str], tuple[str, dict[str, Any]]]] = {
    "": _cluster,
    "nodes": _nodes,
    "pods": _pods,
    "history": _history,
    "policy": _policy,
}
