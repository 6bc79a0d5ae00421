"""An Api whose vendor is a script, with a clock that only sleeps advance and a rate limiter that counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from chalicelib.model.policy_permissions import Deployment
from chalicelib.providers.alicloud.api import AlicloudApi
from chalicelib.providers.alicloud.credentials import Sessions
from chalicelib.providers.alicloud.provider import open_api
from chalicelib.providers.alicloud.settings import read_settings
from chalicelib.providers.base import Connection
from chalicelib.providers.services import (
    Cache,
    NullCache,
    ProviderServices,
    RateLimit,
    RateLimiter,
    UnlimitedRateLimiter,
)
from infra.emulators.cloud_account import LOOPBACK
from infra.emulators.scripted_http_server import HttpScript, Reply, Seen

KEY_ID, KEY_SECRET = "LTAI-EXAMPLE-KEY-ID", "example-key-secret-0123456789"
KEY = json.dumps({"accessKeyId": KEY_ID, "accessKeySecret": KEY_SECRET})
GROUP = "asg-bp18p2yfxow2dloq0001"
NOW = 1768465800.0


class ScriptedApiClock:
    """Epoch seconds; sleeping advances it."""

    def __init__(self, now: float = NOW) -> None:
        self.now, self.slept = now, 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.now += seconds


class ScriptedApiSecrets:
    """Secrets by name; a written value is seen only by readers that bypass the cache, as in a Lambda function."""

    def __init__(self, **texts: str) -> None:
        self.now, self.cached = dict(texts), dict(texts)
        self.looks = 0

    def __call__(self, name: str) -> str:
        return self.cached[name]

    def fresh(self, name: str) -> str:
        self.looks += 1
        self.cached[name] = self.now[name]
        return self.cached[name]


class Books(UnlimitedRateLimiter):
    """A rate limiter that grants everything, or states how long to wait, and records the requests."""

    def __init__(self, waits: Sequence[float] = ()) -> None:
        self.waits = list(waits)
        self.taken: list[tuple[str, int]] = []
        self.held: list[tuple[str, float]] = []
        self.paces: set[RateLimit] = set()

    def take(self, pace: RateLimit, calls: int) -> float:
        self.paces.add(pace)
        wait = self.waits.pop(0) if self.waits else 0.0
        if not wait:
            self.taken.append((pace.key, calls))
        return wait

    def hold(self, pace: RateLimit, seconds: float) -> None:
        self.held.append((pace.key, seconds))


class Board(NullCache):
    """A cache that keeps entries for the duration of a test."""

    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.rows.get(key)

    def put(self, key: str, value: bytes, seconds: float) -> None:
        assert seconds > 0
        self.rows[key] = value


def api_for(
    url: str,
    *,
    clock: ScriptedApiClock | None = None,
    read_secret: Callable[[str], str] | None = None,
    pacer: RateLimiter | None = None,
    cache: Cache | None = None,
    sessions: Sessions | None = None,
    nodes: str = f"0:5:{GROUP}",
    deployment: Deployment = LOOPBACK,
    **settings: str,
) -> AlicloudApi:
    """An Api that calls the script; credentials are an access key unless the settings say otherwise."""
    clock = clock or ScriptedApiClock()
    given = {"region": "cn-hangzhou", "nodes": nodes, "essEndpoint": url, "ecsEndpoint": url, "stsEndpoint": url}
    given |= settings or {"credentialsSecret": "key"}
    means = ProviderServices(
        deployment=deployment,
        sleep=clock.sleep,
        chance=lambda: 0.5,
        rate_limiter=pacer or UnlimitedRateLimiter(),
        cache=cache or NullCache(),
    )
    connection = Connection("prod", given, (), read_secret or ScriptedApiSecrets(key=KEY), None, clock, means=means)
    return open_api(connection, read_settings(given), sessions=sessions if sessions is not None else Sessions())


def refusal(code: str, status: int = 400, message: str = "Said.", headers: Mapping[str, str] | None = None) -> Reply:
    """An error in the vendor's form."""
    return Reply(status, {"RequestId": "r-1", "HostId": "h", "Code": code, "Message": message}, headers or {})


def instances_page(numbers: range, total: int) -> Reply:
    """A page of DescribeScalingInstances."""
    return Reply(
        200,
        {
            "RequestId": "r",
            "TotalCount": total,
            "ScalingInstances": [
                {"InstanceId": f"i-{number:04d}", "LifecycleState": "InService"} for number in numbers
            ],
        },
    )


def groups_page(*ids: str) -> Reply:
    """A page of DescribeScalingGroups."""
    return Reply(200, {"TotalCount": len(ids), "ScalingGroups": [{"ScalingGroupId": each} for each in ids]})


def action(seen: Seen) -> str:
    """Returns the action of a request."""
    return seen.headers.get("x-acs-action") or seen.query.get("Action", "")


__all__ = [
    "GROUP",
    "KEY",
    "KEY_ID",
    "KEY_SECRET",
    "NOW",
    "Board",
    "Books",
    "HttpScript",
    "Reply",
    "ScriptedApiClock",
    "ScriptedApiSecrets",
    "Seen",
    "action",
    "api_for",
    "groups_page",
    "instances_page",
    "refusal",
]
