"""Maps a request to an operation of an API by a table of methods and paths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class VendorRoute(msgspec.Struct, frozen=True):
    """operation: "" if unknown. action: the permission it needs. ids: from the path, by their names in the table."""

    operation: str = ""
    action: str = ""
    ids: Mapping[str, str] = {}


class VendorRoutes:
    """Finds the operation of a request.

    paths: (method, path, operation, action); `{name}` in a path stands for an id. value: pattern of an id.
    """

    def __init__(self, paths: Iterable[tuple[str, str, str, str]], *, value: str = "[^/]*") -> None:
        self._table = [
            (method, _pattern(path, value), operation, action, re.findall(r"\{([a-z-]+)\}", path))
            for method, path, operation, action in paths
        ]

    def find(self, method: str, path: str) -> VendorRoute:
        """Return the request's operation."""
        for known, pattern, operation, action, names in self._table:
            found = pattern.fullmatch(path) if known == method else None
            if found is not None:
                return VendorRoute(operation, action, dict(zip(names, found.groups(), strict=True)))
        return VendorRoute()


def _pattern(path: str, value: str) -> re.Pattern[str]:
    return re.compile(f"({value})".join(map(re.escape, re.split(r"\{[a-z-]+\}", path))))
