"""Maps a request to an operation of the API: its name in the vendor's document, and the ids in its path."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

ROOT = "/v2"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
WRITES = frozenset(
    {"scale-instance-pool", "evict-instance-pool-members", "scale-sks-nodepool", "evict-sks-nodepool-members"}
)
_NODEPOOL = "/sks-cluster/{id}/nodepool/{sks-nodepool-id}"
_PATHS = (
    ("GET", "/zone", "list-zones"),
    ("GET", "/instance", "list-instances"),
    ("GET", "/instance/{id}", "get-instance"),
    ("GET", "/instance-pool", "list-instance-pools"),
    ("GET", "/instance-pool/{id}", "get-instance-pool"),
    ("PUT", "/instance-pool/{id}:scale", "scale-instance-pool"),
    ("PUT", "/instance-pool/{id}:evict", "evict-instance-pool-members"),
    ("GET", "/sks-cluster", "list-sks-clusters"),
    ("GET", "/sks-cluster/{id}", "get-sks-cluster"),
    ("GET", _NODEPOOL, "get-sks-nodepool"),
    ("PUT", f"{_NODEPOOL}:scale", "scale-sks-nodepool"),
    ("PUT", f"{_NODEPOOL}:evict", "evict-sks-nodepool-members"),
    ("GET", "/quota/{entity}", "get-quota"),
    ("GET", "/instance-type", "list-instance-types"),
    ("GET", "/instance-type/{id}", "get-instance-type"),
    ("GET", "/operation/{id}", "get-operation"),
)


class ExoscaleRoute(msgspec.Struct, frozen=True):
    """operation: "" if unknown. ids: from the path, by their names in the document."""

    operation: str = ""
    ids: Mapping[str, str] = {}


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"\{([a-z-]+)\}", ROOT + path)
    return re.compile(
        "".join(f"(?P<{part.replace('-', '_')}>[^/:]*)" if at % 2 else re.escape(part) for at, part in enumerate(parts))
    )


_TABLE = tuple((method, _pattern(path), operation) for method, path, operation in _PATHS)


def find(method: str, path: str) -> ExoscaleRoute:
    """Return the request's operation."""
    for known, pattern, operation in _TABLE:
        found = pattern.fullmatch(path) if known == method else None
        if found is not None:
            return ExoscaleRoute(
                operation, {name.replace("_", "-"): value for name, value in found.groupdict().items()}
            )
    return ExoscaleRoute()
