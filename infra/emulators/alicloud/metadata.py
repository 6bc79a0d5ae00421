"""The emulated instance metadata service, plain or token-protected."""

from __future__ import annotations

import json
from collections.abc import Callable

from infra.emulators.alicloud.iam import AlicloudKey, AlicloudKeyRing
from infra.emulators.alicloud.serializers import stamp
from infra.emulators.alicloud.sts import credentials_json
from infra.emulators.vendor_common.http_messages import Incoming

_PREFIX = "/latest/meta-data/"
_CREDENTIALS = "ram/security-credentials/"
_TTL, _TOKEN = "x-aliyun-ecs-metadata-token-ttl-seconds", "x-aliyun-ecs-metadata-token"
_SESSION_SECONDS = 6 * 3600.0


class Metadata:
    """role: the ARN of the instance's role, "" for none. hardened: every read requires a token."""

    def __init__(self, ring: AlicloudKeyRing, clock: Callable[[], float], region: str) -> None:
        self._ring, self._clock, self._region = ring, clock, region
        self.role, self.hardened = "", False
        self._tokens: dict[str, float] = {}
        self._session: AlicloudKey | None = None

    def knows(self, path: str) -> bool:
        """Return whether a path belongs to the metadata service."""
        return path.startswith("/latest/")

    def answer(self, incoming: Incoming) -> tuple[int, str]:
        """Return status and text."""
        if incoming.method == "PUT" and incoming.path == "/latest/api/token":
            return self._token(incoming.headers.get(_TTL, ""))
        if incoming.method != "GET" or not incoming.path.startswith(_PREFIX):
            return 404, "Not Found"
        if self.hardened and self._clock() >= self._tokens.get(
            incoming.headers.get(_TOKEN, ""), 0.0
        ):
            return 403, "Forbidden"
        return self._read(incoming.path.removeprefix(_PREFIX))

    def _token(self, ttl: str) -> tuple[int, str]:
        if not ttl.isdigit() or not 1 <= int(ttl) <= 21600:
            return 400, "Bad Request"
        token = f"metadata-token-{len(self._tokens) + 1:06d}"
        self._tokens[token] = self._clock() + int(ttl)
        return 200, token

    def _read(self, name: str) -> tuple[int, str]:
        if name == "region-id":
            return 200, self._region
        lowered = name[:1].lower() + name[1:]
        role = self._ring.roles.get(self.role)
        if not lowered.startswith(_CREDENTIALS) or role is None:
            return 404, "Not Found"
        short = role.arn.rpartition("/")[2]
        wanted = lowered.removeprefix(_CREDENTIALS)
        if not wanted:
            return 200, f"{short}\n"
        if wanted != short:
            return 404, "Not Found"
        now = self._clock()
        if self._session is None or self._session.expires - now < 1800.0:
            self._session = self._ring.session(role.policy, now + _SESSION_SECONDS)
        return 200, json.dumps(
            {"Code": "Success", "LastUpdated": stamp(now), **credentials_json(self._session)}
        )
