"""An Api whose vendor is a script over HTTP, and the vendor's answers in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from chalicelib.policy.vendors.exoscale import read_settings
from chalicelib.providers.base import Connection
from chalicelib.providers.exoscale.api import ExoscaleApi
from chalicelib.providers.exoscale.provider import open_api
from chalicelib.providers.services import Cache, NullCache, ProviderServices, RateLimiter, UnlimitedRateLimiter
from infra.emulators.policy_permissions import LOOPBACK
from infra.emulators.scripted_http_server import HttpScript, Reply, Seen
from tests.unit.providers.alicloud.scripted_api import NOW, Board, Books, ScriptedApiClock, ScriptedApiSecrets

API_KEY, API_SECRET = "EXO0123456789abcdefexample", "exampleSecret-0123456789abcdefghijklmnopqrs"
KEY = json.dumps({"apiKey": API_KEY, "apiSecret": API_SECRET})
POOL = "0f7c2a6e-6d3a-4f0e-9b55-6f1d2c3b4a59"
NODEPOOL = "9eccd769-a282-4fe2-9e58-5ef3bc716743"
CLUSTER = "c3a1e6f2-8b7d-4c55-9e0a-1d2c3b4a5960"
ONE, TWO = "4d2b9f0e-3c1a-4b62-9a51-0f6f4f1f2a01", "77e0c1aa-52d3-4f1e-8a7e-6c0b8d9e2b02"
TYPE = "b6cd1ff5-3a2f-4e9d-a4d1-8988c1191fe8"
WORK = "e2047130-b86e-11ef-83b3-0d8312b2c2d7"

INSTANCE = {
    "id": ONE,
    "name": "pool-0f7c2-abcde",
    "state": "running",
    "created-at": "2026-01-15T08:12:03Z",
    "instance-type": {"id": TYPE},
    "disk-size": 50,
    "public-ip": "194.182.160.10",
    "labels": {},
    "manager": {"id": POOL, "type": "instance-pool"},
}
INSTANCE_POOL = {
    "id": POOL,
    "name": "nodepool-web-2f1",
    "state": "running",
    "size": 2,
    "min-available": 0,
    "disk-size": 50,
    "instance-prefix": "pool",
    "instance-type": {"id": TYPE},
    "instances": [{"id": ONE}, {"id": TWO}],
    "manager": {"id": NODEPOOL, "type": "sks-nodepool"},
}
SKS = {
    "id": CLUSTER,
    "name": "prod",
    "state": "running",
    "version": "1.34.2",
    "level": "pro",
    "nodepools": [
        {
            "id": NODEPOOL,
            "name": "web",
            "state": "running",
            "size": 2,
            "instance-pool": {"id": POOL},
            "instance-type": {"id": TYPE},
            "disk-size": 50,
            "version": "1.34.2",
            "kubelet-max-pods": 110,
            "labels": {"tier": "web"},
            "taints": {"dedicated": {"value": "web", "effect": "NoSchedule"}},
        }
    ],
}
MEDIUM = {
    "id": TYPE,
    "family": "standard",
    "size": "medium",
    "cpus": 2,
    "memory": 4294967296,
    "authorized": True,
    "zones": ["ch-gva-2", "de-fra-1"],
}
BEGUN = {
    "id": WORK,
    "state": "pending",
    "reference": {"id": POOL, "link": f"/v2/instance-pool/{POOL}", "command": "get-instance-pool"},
}

# Each call: its request line, the call itself, and an answer.
CALLS: dict[str, tuple[str, Callable[[ExoscaleApi], object], object]] = {
    "instances": ("GET /v2/instance", lambda api: api.instances(), {"instances": [INSTANCE]}),
    "instance": (f"GET /v2/instance/{ONE}", lambda api: api.instance(ONE), INSTANCE),
    "pools": ("GET /v2/instance-pool", lambda api: api.pools(), {"instance-pools": [INSTANCE_POOL]}),
    "pool": (f"GET /v2/instance-pool/{POOL}", lambda api: api.pool(POOL), INSTANCE_POOL),
    "clusters": ("GET /v2/sks-cluster", lambda api: api.clusters(), {"sks-clusters": [SKS]}),
    "quota": ("GET /v2/quota/instance", lambda api: api.quota(), {"resource": "instance", "usage": 4, "limit": 20}),
    "types": (f"GET /v2/instance-type/{TYPE}", lambda api: api.instance_types([TYPE]), MEDIUM),
    "work": (f"GET /v2/operation/{WORK}", lambda api: api.work(WORK), BEGUN),
    "scale_pool": (f"PUT /v2/instance-pool/{POOL}:scale", lambda api: api.scale_pool(POOL, 5), BEGUN),
    "evict_pool": (f"PUT /v2/instance-pool/{POOL}:evict", lambda api: api.evict_pool(POOL, [ONE, TWO]), BEGUN),
    "scale_nodepool": (
        f"PUT /v2/sks-cluster/{CLUSTER}/nodepool/{NODEPOOL}:scale",
        lambda api: api.scale_nodepool(CLUSTER, NODEPOOL, 5),
        BEGUN,
    ),
    "evict_nodepool": (
        f"PUT /v2/sks-cluster/{CLUSTER}/nodepool/{NODEPOOL}:evict",
        lambda api: api.evict_nodepool(CLUSTER, NODEPOOL, [TWO]),
        BEGUN,
    ),
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
    **settings: str,
) -> ExoscaleApi:
    """An Api that calls the script."""
    clock = clock or ScriptedApiClock()
    given = {"zone": "ch-gva-2", "credentialsSecret": "key", "endpoint": url} | settings
    means = ProviderServices(
        deployment=LOOPBACK,
        sleep=clock.sleep,
        chance=lambda: 0.5,
        rate_limiter=pacer or UnlimitedRateLimiter(),
        cache=cache or NullCache(),
    )
    connection = Connection("prod", given, (), read_secret or ScriptedApiSecrets(key=KEY), None, clock, means=means)
    return open_api(connection, read_settings(given))


def call(name: str, url: str) -> object:
    """One call of the table."""
    return CALLS[name][1](api_for(url))


def said(status: int, body: object = b"", headers: Mapping[str, str] | None = None) -> Reply:
    """Builds an answer; text and bytes are sent as plain text, everything else as JSON."""
    kind = {"Content-Type": "text/plain"} if isinstance(body, str | bytes) else {}
    return Reply(status, body, {**kind, **(headers or {})})


__all__ = [
    "API_KEY",
    "API_SECRET",
    "BEGUN",
    "CALLS",
    "CHANGES",
    "CLUSTER",
    "INSTANCE",
    "INSTANCE_POOL",
    "KEY",
    "MEDIUM",
    "NODEPOOL",
    "NOW",
    "ONE",
    "POOL",
    "READS",
    "SKS",
    "TWO",
    "TYPE",
    "WORK",
    "Board",
    "Books",
    "HttpScript",
    "Reply",
    "ScriptedApiClock",
    "ScriptedApiSecrets",
    "Seen",
    "api_for",
    "call",
    "said",
]
