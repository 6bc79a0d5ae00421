"""Maps a request to an operation of a service, the permission that it needs, and the ids in its path."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
WRITES = frozenset({"scale-pool", "update-pool", "delete-node", "lock-nodes", "unlock-nodes"})
#: Operations of other services; all others belong to CCE.
OTHERS = frozenset({"list-flavors", "list-projects", "assume-agency"})
_PROJECT = "/api/v3/projects/{project}"
_CLUSTER = f"{_PROJECT}/clusters/{{cluster}}"
_POOL = f"{_CLUSTER}/nodepools/{{pool}}"
_PATHS = (
    ("GET", _CLUSTER, "show-cluster", "cce:cluster:get"),
    ("GET", f"{_CLUSTER}/nodepools", "list-pools", "cce:nodepool:list"),
    ("GET", _POOL, "show-pool", "cce:nodepool:get"),
    ("PUT", _POOL, "update-pool", "cce:nodepool:update"),
    ("POST", f"{_POOL}/operation/scale", "scale-pool", "cce:nodepool:scale"),
    ("GET", f"{_CLUSTER}/nodes", "list-nodes", "cce:node:list"),
    ("POST", f"{_CLUSTER}/nodes/locknodescaledown", "lock-nodes", "cce:node:update"),
    ("POST", f"{_CLUSTER}/nodes/unlocknodescaledown", "unlock-nodes", "cce:node:update"),
    ("GET", f"{_CLUSTER}/nodes/{{node}}", "show-node", "cce:node:get"),
    ("DELETE", f"{_CLUSTER}/nodes/{{node}}", "delete-node", "cce:node:delete"),
    ("GET", f"{_PROJECT}/jobs/{{job}}", "show-job", "cce:job:get"),
    ("GET", "/api/v3/addons", "list-addons", "cce:addonInstance:list"),
    ("GET", "/v1/{project}/cloudservers/flavors", "list-flavors", "ecs:cloudServerFlavors:get"),
    ("GET", "/v3/projects", "list-projects", "iam:projects:listProjects"),
    ("POST", "/v3.0/OS-CREDENTIAL/securitytokens", "assume-agency", ""),
)


class CceRoute(msgspec.Struct, frozen=True):
    """operation: "" if unknown. action: the permission it needs. ids: from the path."""

    operation: str = ""
    action: str = ""
    ids: Mapping[str, str] = {}


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"\{([a-z]+)\}", path)
    return re.compile("".join(f"(?P<{part}>[^/]*)" if at % 2 else re.escape(part) for at, part in enumerate(parts)))


_TABLE = tuple((method, _pattern(path), operation, action) for method, path, operation, action in _PATHS)


def find(method: str, path: str) -> CceRoute:
    """Return the request's operation."""
    for known, pattern, operation, action in _TABLE:
        found = pattern.fullmatch(path) if known == method else None
        if found is not None:
            return CceRoute(operation, action, found.groupdict())
    return CceRoute()
