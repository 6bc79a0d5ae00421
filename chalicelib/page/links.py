"""Addresses of the pages and of the runbook. Every name is percent-encoded as one segment of a path."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec

from chalicelib.page.text import segment

RUNBOOK = "https://github.com/outscaler/outscaler/blob/main/docs/runbook.md"
"""The page that explains every reason and every status."""


class Links(msgspec.Struct, frozen=True):
    """base: the path before every page, "" on the loopback address. API Gateway does not keep an encoded slash in a
    segment of a path, so below a base the name of a group is in the query."""

    base: str = ""

    def start(self, *, live: bool = True) -> str:
        """Return the list of clusters. live: reloads itself."""
        return (self.base or "/") + ("" if live else "?refresh=off")

    def cluster(self, name: str, page: str = "", **query: str) -> str:
        """Return a page of a cluster. query: empty values are left out."""
        path = f"{self.base}/clusters/{segment(name)}" + (f"/{page}" if page else "")
        wanted = {key: value for key, value in query.items() if value}
        return f"{path}?{urlencode(wanted)}" if wanted else path

    def group(self, name: str, group: str) -> str:
        """Return the page of a node group."""
        if self.base:
            return self.cluster(name, "groups", group=group)
        return f"{self.base}/clusters/{segment(name)}/groups/{segment(group)}"

    def runbook(self, anchor: str = "reasons") -> str:
        """Return a heading of the runbook."""
        return f"{RUNBOOK}#{segment(anchor.lower())}"
