"""An Api whose vendor is a script over HTTP, and the vendor's answers in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chalicelib.policy.vendors.huaweicloud import read_settings
from chalicelib.providers.base import Connection
from chalicelib.providers.huaweicloud.api import CceApi
from chalicelib.providers.huaweicloud.credentials import Sessions
from chalicelib.providers.huaweicloud.provider import open_api
from chalicelib.providers.services import (
    Cache,
    NullCache,
    ProviderServices,
    RateLimit,
    RateLimiter,
    UnlimitedRateLimiter,
)
from infra.emulators.policy_permissions import LOOPBACK
from infra.emulators.scripted_http_server import HttpScript, Reply, Seen

NOW = 1768465800.0
ACCESS_KEY, SECRET_KEY = "AKIDEXAMPLE00000TEST", "SKEXAMPLEsecretkey0123456789abcdefghijkl"
KEY = json.dumps({"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY})
PROJECT = "0123456789abcdef0123456789abcdef"
CLUSTER = "2292498e-1111-11ee-8b5e-0255ac1001ba"
POOL = "7d48eca7-3419-11ea-bc29-0255ac1001a8"
NODE, OTHER = "cc697ad9-9563-11e8-8ea7-0255ac106311", "cc697ad9-9563-11e8-8ea7-0255ac106312"
SERVER = "5b504f8d-33f1-4ab7-a600-b62dac967d72"
JOB = "661f6f7d-956c-11e8-a916-0255ac10575d"
AZ = "cn-north-4a"
BASE = f"/api/v3/projects/{PROJECT}/clusters/{CLUSTER}"

NODE_POOL: dict[str, Any] = {
    "kind": "NodePool",
    "apiVersion": "v3",
    "metadata": {"name": "pool-a", "uid": POOL},
    "spec": {
        "type": "vm",
        "initialNodeCount": 5,
        "autoscaling": {
            "enable": True,
            "minNodeCount": 0,
            "maxNodeCount": 10,
            "scaleDownCooldownTime": 15,
            "priority": 10,
        },
        "nodeTemplate": {
            "flavor": "c7.xlarge.2",
            "az": AZ,
            "billingMode": 0,
            "k8sTags": {"cce.cloud.com/cce-nodepool": "pool-a"},
            "taints": [{"key": "status", "value": "x", "effect": "NoSchedule"}],
            "runtime": {"name": "containerd"},
            "extendParam": {"maxPods": 40},
        },
        "extensionScaleGroups": [
            {
                "metadata": {"uid": "g2", "name": "c7-az2"},
                "spec": {
                    "flavor": "c7.xlarge.2",
                    "az": "cn-north-4b",
                    "autoscaling": {"enable": True, "extensionPriority": 5, "minNodeCount": 1, "maxNodeCount": 6},
                },
            }
        ],
    },
    "status": {
        "currentNode": 4,
        "creatingNode": 1,
        "deletingNode": 0,
        "activeNode": 4,
        "phase": "",
        "conditions": [{"type": "Scalable", "status": "True"}],
        "scaleGroupStatuses": [
            {
                "name": "default",
                "desiredNodeCount": 3,
                "existingNodeCount": {"total": 3},
                "upcomingNodeCount": {"total": 0},
                "conditions": [],
            },
            {
                "name": "c7-az2",
                "desiredNodeCount": 2,
                "existingNodeCount": {"total": 1},
                "upcomingNodeCount": {"total": 1},
                "scaleDownDisabledNodeCount": 1,
                "conditions": [{"type": "ResourceInsufficient", "status": "True", "reason": "SoldOut"}],
            },
        ],
    },
}
CCE_NODE: dict[str, Any] = {
    "kind": "Node",
    "apiVersion": "v3",
    "metadata": {
        "name": "pool-a-x7k2p",
        "uid": NODE,
        "creationTimestamp": "2020-02-01 08:20:49.944664515 +0000 UTC",
        "annotations": {"kubernetes.io/node-pool.id": POOL},
        "ownerReferences": {"nodepoolName": "pool-a", "nodepoolID": POOL},
    },
    "spec": {"flavor": "c7.xlarge.2", "az": AZ, "billingMode": 0},
    "status": {"phase": "Active", "serverId": SERVER, "privateIP": "192.168.0.69", "jobID": JOB},
}
C7 = {
    "id": "c7.xlarge.2",
    "name": "c7.xlarge.2",
    "vcpus": "4",
    "ram": 8192,
    "os_extra_specs": {
        "cond:operation:status": "normal",
        "cond:operation:az": "cn-north-4a(normal), cn-north-4b(sellout)",
    },
}


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


def many(*items: object, **more: object) -> dict[str, object]:
    """A list in CCE's form."""
    return {"kind": "List", "apiVersion": "v3", "items": list(items), **more}


# Each call: its request line, the call itself, and an answer.
CALLS: dict[str, tuple[str, Callable[[CceApi], object], object]] = {
    "pools": (f"GET {BASE}/nodepools", lambda api: api.pools(), many(NODE_POOL)),
    "pool": (f"GET {BASE}/nodepools/{POOL}", lambda api: api.pool(POOL), NODE_POOL),
    "nodes": (f"GET {BASE}/nodes", lambda api: api.nodes(), many(CCE_NODE)),
    "node": (f"GET {BASE}/nodes/{NODE}", lambda api: api.node(NODE), CCE_NODE),
    "job": (
        f"GET /api/v3/projects/{PROJECT}/jobs/{JOB}",
        lambda api: api.job(JOB),
        {"kind": "Job", "metadata": {"uid": JOB}, "spec": {"type": "DeleteNode"}, "status": {"phase": "Running"}},
    ),
    "phase": (f"GET {BASE}", lambda api: api.cluster_phase(), {"kind": "Cluster", "status": {"phase": "Available"}}),
    "addons": (
        "GET /api/v3/addons",
        lambda api: api.addons(),
        many(
            {
                "spec": {"addonTemplateName": "autoscaler", "values": {"custom": {"scaleDownEnabled": True}}},
                "status": {"status": "running"},
            }
        ),
    ),
    "flavors": (f"GET /v1/{PROJECT}/cloudservers/flavors", lambda api: api.flavors(AZ), {"flavors": [C7]}),
    "scale": (f"POST {BASE}/nodepools/{POOL}/operation/scale", lambda api: api.scale(POOL, 3, "default"), b""),
    "delete": (f"DELETE {BASE}/nodes/{NODE}", lambda api: api.delete_node(NODE), CCE_NODE),
}
READS = [name for name, (line, _, _) in CALLS.items() if line.startswith("GET")]
CHANGES = [name for name in CALLS if name not in READS]


def api_for(
    url: str,
    *,
    clock: ScriptedApiClock | None = None,
    read_secret: Callable[[str], str] | None = None,
    pacer: RateLimiter | None = None,
    cache: Cache | None = None,
    sessions: Sessions | None = None,
    **settings: str,
) -> CceApi:
    """An Api that calls the script."""
    clock = clock or ScriptedApiClock()
    given = {
        "region": "cn-north-4",
        "clusterId": CLUSTER,
        "projectId": PROJECT,
        "credentialsSecret": "key",
        "cceEndpoint": url,
        "ecsEndpoint": url,
        "iamEndpoint": url,
    } | settings
    means = ProviderServices(
        deployment=LOOPBACK,
        sleep=clock.sleep,
        chance=lambda: 0.5,
        rate_limiter=pacer or UnlimitedRateLimiter(),
        cache=cache or NullCache(),
    )
    given = {name: value for name, value in given.items() if value}
    connection = Connection("prod", given, (), read_secret or ScriptedApiSecrets(key=KEY), None, clock, means=means)
    return open_api(connection, read_settings(given), sessions=sessions or Sessions())


def call(name: str, url: str) -> object:
    """One call of the table."""
    return CALLS[name][1](api_for(url))


def said(status: int, body: object = b"", headers: Mapping[str, str] | None = None) -> Reply:
    """Builds an answer; text and bytes are sent as plain text, everything else as JSON."""
    kind = {"Content-Type": "text/plain"} if isinstance(body, str | bytes) else {}
    return Reply(status, body, {**kind, **(headers or {})})


__all__ = [
    "ACCESS_KEY",
    "AZ",
    "BASE",
    "C7",
    "CALLS",
    "CCE_NODE",
    "CHANGES",
    "CLUSTER",
    "JOB",
    "KEY",
    "NODE",
    "NODE_POOL",
    "OTHER",
    "POOL",
    "PROJECT",
    "READS",
    "SECRET_KEY",
    "SERVER",
    "Board",
    "Books",
    "HttpScript",
    "Reply",
    "ScriptedApiClock",
    "ScriptedApiSecrets",
    "Seen",
    "api_for",
    "call",
    "many",
    "said",
]
