"""Lists: pages with continue tokens, resourceVersion rules, selectors.

A token contains the version of the first page and the last key, so all pages show the same state. When that state is no
longer known, the response is 410 with a token for an inconsistent rest, as in the real server.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from infra.emulators.kube import status
from infra.emulators.kube.history import HistoryPage, Key
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.resources import ServedResource, Version
from infra.emulators.kube.selectors import Selection, selection
from infra.emulators.kube.serialization import item
from infra.emulators.kube.store import ObjectStore


def _token(version: int, last: Key, *, namespaced: bool) -> str:
    start = f"{last[0]}/{last[1]}" if namespaced else f"/{last[1]}"
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": f"{start}\0"}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _continued(token: str) -> tuple[int, Key]:
    """Return the version and the last key of a token. Raises ApiError 400."""
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _bad_token("illegal base64 data at input byte 0") from None
    try:
        found = json.loads(raw)
        namespace, _, name = found["start"].rstrip("\0").rpartition("/")
        return int(found["rv"]), (namespace, name)
    except (ValueError, UnicodeDecodeError):
        first = raw[:1].decode("latin-1")
        shown = first if first.isprintable() else f"\\u{ord(first or chr(0)):04x}"
        raise _bad_token(f"invalid character '{shown}' looking for beginning of value") from None
    except (KeyError, TypeError, AttributeError):
        raise _bad_token("incorrect start key") from None


def _bad_token(why: str) -> status.ApiError:
    return status.bad_request(f"invalid continue token: continue key is not valid: {why}")


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "")
    if not text:
        return 0
    try:
        return int(text)
    except ValueError:
        if name == "resourceVersion":
            raise status.invalid(
                "ListOptions",
                "meta.k8s.io",
                "",
                [
                    status.cause(
                        "FieldValueInvalid",
                        f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax',
                        "resourceVersion",
                    ),
                ],
            ) from None
        raise status.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def _check_match(query: Mapping[str, str]) -> None:
    """Refuse what a real server refuses. Raises ApiError 422."""
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    if not match:
        return
    why = ""
    if query.get("continue"):
        why = "resourceVersionMatch is forbidden when continue is provided"
    elif not version:
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
    elif match == "Exact" and version == "0":
        why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    elif match not in ("Exact", "NotOlderThan"):
        why = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
    if why:
        cause = status.cause("FieldValueForbidden", f"Forbidden: {why}", "resourceVersionMatch")
        raise status.invalid("ListOptions", "meta.k8s.io", "", [cause])


def _too_large(asked: int, current: int) -> status.ApiError:
    message = f"Too large resource version: {asked}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return status.ApiError(
        504, "Timeout", f"Timeout: {message}", {"causes": causes, "retryAfterSeconds": 1}, {"Retry-After": "1"}
    )


def _page(
    store: ObjectStore, resource: ServedResource, namespace: str, query: Mapping[str, str], chosen: Selection
) -> tuple[HistoryPage, int]:
    """Return the requested page and its effective limit."""
    group, plural = resource.alias or (resource.group, resource.plural)
    limit, asked = _number(query, "limit"), _number(query, "resourceVersion")
    wanted = chosen.wants if chosen else None
    _check_match(query)
    if query.get("continue"):
        if query.get("resourceVersion"):
            raise status.bad_request("specifying resource version is not allowed when using continue")
        version, after = _continued(query["continue"])
        try:
            page = store.page(
                plural,
                group,
                namespace,
                after=after,
                limit=limit,
                wanted=wanted,
                version=version if version > 0 else None,
            )
        except status.ApiError as error:
            error.meta = {"continue": _token(-1, after, namespaced=resource.namespaced)}
            raise
        return page, limit
    if asked > store.version:
        raise _too_large(asked, store.version)
    if asked == 0 and query.get("resourceVersion"):
        limit = 0  # answered from the watch cache, which ignores limits (recorded)
    exact = query.get("resourceVersionMatch") == "Exact" or (limit and asked and "resourceVersionMatch" not in query)
    node = chosen.exactly("spec.nodeName") if plural == "pods" and not group else None
    if node and not limit and not exact:
        pods = [pod for pod in store.pods_on(node) if chosen.wants(pod)]
        mine = [pod for pod in pods if not namespace or pod["metadata"]["namespace"] == namespace]
        return HistoryPage(mine, store.version), 0
    version_wanted = asked if exact else None
    try:
        return store.page(plural, group, namespace, limit=limit, wanted=wanted, version=version_wanted), limit
    except status.ApiError:
        raise status.expired("The resourceVersion for the provided list is too old.") from None


def list_objects(
    store: ObjectStore, resource: ServedResource, version: Version, namespace: str, query: Mapping[str, str]
) -> KubeObject:
    """Return the List object for a request; its items are READ ONLY. Raises ApiError 400, 410, 504."""
    chosen = selection(query, resource.group, resource.plural)
    page, limit = _page(store, resource, namespace, query, chosen)
    meta: dict[str, Any] = {"resourceVersion": str(page.version)}
    if not resource.native:
        meta["continue"] = ""
    if limit and page.last is not None:
        meta["continue"] = _token(page.version, page.last, namespaced=resource.namespaced)
        if not chosen:
            meta["remainingItemCount"] = page.remaining
    return {
        "kind": resource.list_kind,
        "apiVersion": resource.at(version.name),
        "metadata": meta,
        "items": [item(resource, version, obj) for obj in page.items],
    }
