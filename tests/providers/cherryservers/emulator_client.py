"""Calls the emulated API directly, without a port, for tests of the emulator itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from infra.emulators.cherryservers.account import CherryCloud
from infra.emulators.cherryservers.models import CherryDurations
from infra.emulators.cherryservers.server import CherryDispatcher, Token
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.vendor_common.http_messages import Answer, Incoming

START = 1_800_000_000.0
TOKEN = "CHERRY-EXAMPLE-TOKEN-0001"
SERVERS = "/projects/10001/servers"
ORDER: Mapping[str, Any] = {
    "project_id": 10001,
    "plan": "e5_1620v4",
    "hostname": "k8s-ours-workers-gndxdmmw",
    "image": "ubuntu_18_04",
    "region": "eu_nord_1",
    "ssh_keys": [101, 102],
    "ip_addresses": None,
    "user_data": "IyEvYmluL2Jhc2gK",
    "tags": {"k8s-cluster": "ours", "k8s-nodepool": "workers"},
}


class EmulatorClient:
    """An account and its API; the default rate of one request per second avoids throttling."""

    def __init__(self, times: CherryDurations | None = None) -> None:
        self.clock = ManualClock(START)
        self.cloud = CherryCloud(
            self.clock,
            times=times or CherryDurations(deploy=100.0, virtual=30.0, fail=20.0, terminate=10.0),
        )
        self.front = CherryDispatcher(self.cloud)
        self.front.tokens[TOKEN] = Token()
        self.front.throttle.limits.clear()

    def ask(self, method: str, target: str, body: object = None, *, token: str = TOKEN) -> Answer:
        """Sends one request; target without the version. Errors in the emulator are raised."""
        sent = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        headers = {"authorization": f"Bearer {token}"} if token else {}
        answer = self.front.served(Incoming(method, f"/v1{target}", headers, sent))
        assert not self.front.crashes, self.front.crashes[0]
        return answer

    def json(self, method: str, target: str, body: object = None) -> Any:
        """Returns the body of a successful request."""
        answer = self.ask(method, target, body)
        assert answer.status < 300, answer.body
        return json.loads(answer.body)

    def refusal(
        self, method: str, target: str, body: object = None, *, token: str = TOKEN
    ) -> tuple[int, str]:
        """Returns status and text of a refused request, in the recorded form."""
        answer = self.ask(method, target, body, token=token)
        said = json.loads(answer.body)
        assert set(said) == {"code", "message"}
        assert said["code"] == answer.status >= 400
        return answer.status, said["message"]

    def after(self, seconds: float) -> None:
        """Advances the clock."""
        self.clock.advance(seconds)
        self.cloud.step()
