"""The wire: a project's API without the provider."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from infra.emulators.controllers.clock import ManualClock
from infra.emulators.huaweicloud.account import PROJECT, CceCloud
from infra.emulators.huaweicloud.dispatcher import CceDispatcher
from infra.emulators.huaweicloud.models import CceDurations
from infra.emulators.vendor_common.http_messages import Answer, Incoming

START = 1_800_000_000.0
TOKEN = "MIIexampletoken"


class ProjectClient:
    """A project with one cluster and its API: tests build requests themselves, with a token."""

    def __init__(self, times: CceDurations | None = None) -> None:
        self.clock = ManualClock(START)
        self.cloud = CceCloud(self.clock, times=times)
        self.cluster = self.cloud.add_cluster("prod").uid
        self.front = CceDispatcher(self.cloud)
        self.front.ring.tokens[TOKEN] = self.front.ring.add(
            "AKIDEXAMPLE00000DESK", "SKEXAMPLEofthedesk"
        )
        self.base = f"/api/v3/projects/{PROJECT}/clusters/{self.cluster}"

    def send(
        self, method: str, path: str, body: object = None, *, query: Mapping[str, str] | None = None
    ) -> Answer:
        """Sends one request. path: below the cluster's, or from the root if it begins with `//`."""
        raw = (
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        place = path[1:] if path.startswith("//") else f"{self.base}{path}"
        target = f"{place}?{urlencode(query)}" if query else place
        return self.front.served(
            Incoming(method, target, {"host": "cce.example.com", "x-auth-token": TOKEN}, raw)
        )

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        status: int = 200,
    ) -> dict[str, Any]:
        """Returns the body of an answer that must have that status."""
        answer = self.send(method, path, body, query=query)
        assert answer.status == status, answer.body
        found: dict[str, Any] = json.loads(answer.body or b"{}")
        return found

    def scale(
        self, pool: str, total: int, *groups: str, status: int = 200, **options: str
    ) -> dict[str, Any]:
        """Scales to an absolute total."""
        spec = {"desiredNodeCount": total, "scaleGroups": list(groups), "options": options}
        return self.ask(
            "POST",
            f"/nodepools/{pool}/operation/scale",
            {"kind": "NodePool", "apiVersion": "v3", "spec": spec},
            status=status,
        )

    def pool(self, uid: str) -> dict[str, Any]:
        """Returns the pool as the list shows it."""
        listed = self.ask("GET", "/nodepools", query={"advanceStatus": "true"})["items"]
        return next(each for each in listed if each["metadata"]["uid"] == uid)

    def nodes(self) -> list[dict[str, Any]]:
        """Returns all nodes."""
        return list(self.ask("GET", "/nodes")["items"])

    def after(self, seconds: float) -> None:
        """Advances the clock."""
        self.clock.advance(seconds)
        self.cloud.step()
