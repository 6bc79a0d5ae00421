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
from chalicelib.model.timestamps import format_time, parse_time
from chalicelib.page import charts, views
from chalicelib.page.cluster_data import ClusterDetails, details, summaries
from chalicelib.page.render import Links, render, security_headers
from chalicelib.reasons.text import sentence
from chalicelib.record.redaction import policy_without_secrets, without_secrets
from chalicelib.runtime.active_policy import in_force_or_problem

if TYPE_CHECKING:
    from chalicelib.store import Store

HTML = "text/html; charset=utf-8"
PAGE_ROWS, HISTORY_ROWS, VERSIONS = 500, 50, 50
_LONGEST_QUERY = 200
_NUMBER = re.compile(r"[0-9]{1,9}\Z")
_MICRO = 1e6


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
        return _failed(context, 404, str(missing))
    except BadInput as bad:
        return _failed(context, 400, str(bad))
    except OutscalerError as error:
        return _failed(
            context, 503, f"The table does not answer ({type(error).__name__}). Reload the page to try again."
        )
    # Names of secrets consist of characters that HTML does not escape, so they are hidden in the finished page.
    text, policy = values.pop("hidden_names", ("", None))
    page = render(template, links, now, values)
    body = without_secrets(page, text, policy) if text else page
    return PageAnswer(200, body.encode("utf-8", "backslashreplace"), security_headers() | {"Content-Type": HTML})


def _failed(context: PageContext, status: int, line: str) -> PageAnswer:
    return failed(context.links, context.now, status, line)


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
    name = parts[1]
    if not _may_see(context, name):
        raise _NotFound("This cluster is not known.")
    if len(parts) == 4:
        if parts[2] != "groups":
            raise _NotFound("There is no such page.")
        return _group(context, _details(context, name), parts[3])
    page = parts[2] if len(parts) == 3 else ""
    if page == "groups" and context.word("group"):
        return _group(context, _details(context, name), context.word("group"))
    if page not in _PAGES:
        raise _NotFound("There is no such page.")
    return _PAGES[page](context, name)


def _may_see(context: PageContext, name: str) -> bool:
    permitted = context.request.permitted
    return cluster_name_ok(name) and (permitted is None or name in permitted)


def _details(context: PageContext, name: str) -> ClusterDetails:
    found = details(context.store, name, context.now, context.deployment)
    if found is None:
        raise _NotFound("This cluster is not known.")
    return found


def _clusters(context: PageContext) -> tuple[str, dict[str, Any]]:
    permitted = context.request.permitted
    known = summaries(context.store, context.now, context.deployment)
    rows = views.cluster_rows([each for each in known if permitted is None or each.name in permitted], context.now)
    return "clusters.html", {
        "title": "Clusters",
        "rows": rows,
        "unjudged": context.deployment is None,
        "refresh": context.word("refresh") != "off",
        "command": "outscaler get clusters",
    }


def _cluster(context: PageContext, name: str) -> tuple[str, dict[str, Any]]:
    found = _details(context, name)
    values = views.cluster_values(found, context.now)
    return "cluster.html", {
        "title": name,
        "name": name,
        **values,
        "hidden_names": (found.text, found.summary.policy),
        "unjudged": context.deployment is None,
        "refresh": context.word("refresh") != "off",
        "command": f"outscaler get groups {name}",
    }


def _group(context: PageContext, details: ClusterDetails, group: str) -> tuple[str, dict[str, Any]]:
    plan = details.decision.plan if details.decision is not None else None
    rows = [row for row in views.group_rows(details, plan, context.now) if row["group"] == group]
    if not rows:
        raise _NotFound("This node group is not part of the last decision.")
    name = details.summary.name
    entries = context.store.journal.recent(name, views.ROWS)
    mine = [entry for entry in entries if entry.group == group]
    refused = [each for each in plan.unschedulable if group in each.reasons] if plan is not None else []
    values = {
        "row": rows[0],
        "entries": [views.entry_row(each) for each in mine[:HISTORY_ROWS]],
        "strip": charts.strip(mine, context.now, charts.DAYS),
        "steps": charts.steps(mine, rows[0]["target"], context.now, whole=len(entries) < views.ROWS),
        "refused": [(len(each.pods), each.pods[0], each.reasons[group]) for each in refused[:PAGE_ROWS]],
        "reason": sentence,
    }
    return "group.html", {
        "title": f"{group} of {name}",
        "name": name,
        "group": group,
        **values,
        "hidden_names": (details.text, details.summary.policy),
        "command": shlex.join(("outscaler", "explain", "group", group, "--cluster", name)),
    }


def _nodes(context: PageContext, name: str) -> tuple[str, dict[str, Any]]:
    found = _details(context, name)
    plan = found.decision.plan if found.decision is not None else None
    reason, words = context.word("reason"), context.word("q")
    rows = views.node_rows(plan, reason, words)
    codes = sorted({each.reason.code.value for each in plan.unremovable}) if plan is not None else []
    return "nodes.html", {
        "title": f"Nodes of {name}",
        "name": name,
        "rows": [row | {"use": views.use_of(row["why"])} for row in rows[:PAGE_ROWS]],
        "total": len(rows),
        "codes": codes,
        "chosen": reason,
        "words": words,
        "decision": found.decision,
        "undecided": found.undecided,
        "said": sentence,
        "hidden_names": (found.text, found.summary.policy),
        "command": f"outscaler get nodes {name}",
    }


def _pods(context: PageContext, name: str) -> tuple[str, dict[str, Any]]:
    found = _details(context, name)
    words = context.word("q")
    rows = views.pod_rows(found.decision.plan if found.decision is not None else None, words)
    return "pods.html", {
        "title": f"Waiting pods of {name}",
        "name": name,
        "rows": rows[:PAGE_ROWS],
        "total": len(rows),
        "words": words,
        "decision": found.decision,
        "undecided": found.undecided,
        "said": sentence,
        "hidden_names": (found.text, found.summary.policy),
        "command": f"outscaler get pods {name}",
    }


def _history(context: PageContext, name: str) -> tuple[str, dict[str, Any]]:
    stored = context.store.policies.current(name)
    if stored is None:
        raise _NotFound("This cluster is not known.")
    before = context.word("before")
    at = parse_time(before) if before else None
    entries = context.store.journal.recent(name, HISTORY_ROWS, before=at)
    return "history.html", {
        "title": f"History of {name}",
        "name": name,
        "rows": [views.entry_row(each) for each in entries],
        "hidden_names": (stored.text, in_force_or_problem(stored, context.now, context.deployment)[0]),
        "older": _exact(entries[-1].at) if len(entries) == HISTORY_ROWS else "",
        "command": f"outscaler history {name}",
    }


def _policy(context: PageContext, name: str) -> tuple[str, dict[str, Any]]:
    versions = context.store.policies.history(name, VERSIONS)
    current = context.store.policies.current(name)
    if current is None:
        raise _NotFound("This cluster is not known.")
    chosen = _version(context.word("version")) or current.version
    shown = next((each for each in versions if each.version == chosen), None)
    if shown is None:
        raise _NotFound("This version of the policy is not known.")
    against = _version(context.word("against")) or chosen - 1
    other = next((each for each in versions if each.version == against), None)
    before = policy_without_secrets(other.text).splitlines() if other is not None else []
    text = policy_without_secrets(shown.text).splitlines()
    lines = difflib.unified_diff(before, text, lineterm="")
    return "policy.html", {
        "title": f"Policy of {name}",
        "name": name,
        "versions": versions,
        "shown": shown,
        "other": other,
        "text": text[:PAGE_ROWS],
        "diff": [line for at, line in enumerate(lines) if at > 1][:PAGE_ROWS] if other is not None else [],
        "current": current.version,
        "command": f"outscaler get policy {name}",
    }


def _version(text: str) -> int:
    if text and not _NUMBER.match(text):
        raise BadInput("version", f"{text[:20]!r} is not a number", "choose a version of the list")
    return int(text or 0)


def _exact(at: float) -> str:
    micros = round(at * _MICRO)
    return f"{format_time(micros // 10**6)[:-1]}.{micros % 10**6:06d}Z"


_PAGES: dict[str, Callable[[PageContext, str], tuple[str, dict[str, Any]]]] = {
    "": _cluster,
    "nodes": _nodes,
    "pods": _pods,
    "history": _history,
    "policy": _policy,
}
