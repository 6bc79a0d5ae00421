"""The API of an emulated Exoscale zone: routes, authentication, throttling, operations,
errors; on a loopback port.

with ExoscaleServer(Zone(clock)) as server:
    server.ring.add("EXO-EXAMPLE-1", "secret")
    pool = server.zone.add_pool("workers", size=3)
    ...                                             # a client with endpoint f"{server.url}/v2"
    assert [call.operation for call in server.log] == ["list-instance-pools", …]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from infra.emulators.certificates import Pair
from infra.emulators.exoscale import serializers
from infra.emulators.exoscale.account import ExoscaleMutations, Zone
from infra.emulators.exoscale.authentication import ExoscaleAuthenticator, ExoscaleKeyRing, claim
from infra.emulators.exoscale.models import ExoscalePool, Nodepool
from infra.emulators.exoscale.nodepool_request import read_nodepool_request
from infra.emulators.vendor_common.dispatcher import JSON, LoggedOperation, OperationDispatcher
from infra.emulators.vendor_common.fault_injection import (
    VendorFault,
    VendorFaults,
    VendorRefusal,
    VendorRefusedError,
    VendorThrottle,
)
from infra.emulators.vendor_common.http_messages import (
    UUID,
    Answer,
    Incoming,
    VendorRoute,
    VendorRoutes,
)
from infra.emulators.vendor_common.server import VendorServer

ROOT = "/v2"
WRITES = frozenset(
    {
        "scale-instance-pool",
        "evict-instance-pool-members",
        "scale-sks-nodepool",
        "evict-sks-nodepool-members",
        "create-sks-nodepool",
        "update-sks-nodepool",
        "delete-sks-nodepool",
        "reboot-instance",
    }
)
_NODEPOOLS = "/sks-cluster/{id}/nodepool"
_NODEPOOL = f"{_NODEPOOLS}/{{sks-nodepool-id}}"
_PATHS = (
    ("GET", "/zone", "list-zones"),
    ("GET", "/instance", "list-instances"),
    ("GET", "/instance/{id}", "get-instance"),
    ("PUT", "/instance/{id}:reboot", "reboot-instance"),
    ("GET", "/instance-pool", "list-instance-pools"),
    ("GET", "/instance-pool/{id}", "get-instance-pool"),
    ("PUT", "/instance-pool/{id}:scale", "scale-instance-pool"),
    ("PUT", "/instance-pool/{id}:evict", "evict-instance-pool-members"),
    ("GET", "/sks-cluster", "list-sks-clusters"),
    ("GET", "/sks-cluster/{id}", "get-sks-cluster"),
    ("POST", _NODEPOOLS, "create-sks-nodepool"),
    ("GET", _NODEPOOL, "get-sks-nodepool"),
    ("PUT", _NODEPOOL, "update-sks-nodepool"),
    ("DELETE", _NODEPOOL, "delete-sks-nodepool"),
    ("PUT", f"{_NODEPOOL}:scale", "scale-sks-nodepool"),
    ("PUT", f"{_NODEPOOL}:evict", "evict-sks-nodepool-members"),
    ("GET", "/quota", "list-quotas"),
    ("GET", "/quota/{entity}", "get-quota"),
    ("GET", "/instance-type", "list-instance-types"),
    ("GET", "/instance-type/{id}", "get-instance-type"),
    ("GET", "/operation/{id}", "get-operation"),
)
PRICE_LIST = "/api/pricing/opencompute"
_PRICES = "get-price-list"
OPERATIONS = frozenset(operation for _, _, operation in _PATHS)
ROUTES = VendorRoutes(
    (
        *((method, ROOT + path, operation, "") for method, path, operation in _PATHS),
        ("GET", PRICE_LIST, _PRICES, ""),
    ),
    value="[^/:]*",
)


RETRY_SECONDS = 7
OVER_LIMIT = VendorRefusal(429, "Too many requests")
REFUSALS = {
    VendorFault.UNAUTHORIZED: VendorRefusal(401),
    VendorFault.FORBIDDEN: VendorRefusal(403),
    VendorFault.NOT_FOUND: VendorRefusal(404),
    VendorFault.CONFLICT: VendorRefusal(409),
    VendorFault.THROTTLED: VendorRefusal(429),
    VendorFault.THROTTLED_FOR: VendorRefusal(429),
    VendorFault.SERVER_ERROR: VendorRefusal(500),
}


def error_body(message: str, form: str) -> bytes:
    """Return the body with this text. form: `message`, `error`, `problem` (a
    problem document) or `text`."""
    if form == "text":
        return message.encode()
    bodies: dict[str, object] = {
        "message": {"message": message},
        "error": {"error": message},
        "problem": {
            "type": "about:blank",
            "title": "The request was refused",
            "detail": message,
            "errors": [message],
        },
    }
    return json.dumps(bodies[form]).encode()


Json = dict[str, Any]
T = TypeVar("T")


class ExoscaleRequest(msgspec.Struct, frozen=True):
    """A parsed request. ids: of the path."""

    ids: Mapping[str, str]
    query: Mapping[str, str] = {}
    body: bytes = b""
    content_type: str = ""

    def json(self) -> Json:
        """Return the object in the body. Raises Refused for anything else."""
        if not self.content_type.startswith("application/json"):
            raise VendorRefusedError(415, "Content-Type: application/json is needed")
        try:
            return msgspec.json.decode(self.body, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeError):
            raise VendorRefusedError(400, "The body is no JSON object") from None


class ExoscaleHandlers:
    """The operations by name. do: called with the zone's lock."""

    def __init__(self, zone: Zone) -> None:
        self._zone, self._orders = zone, ExoscaleMutations(zone)
        self._table: Mapping[str, Callable[[ExoscaleRequest], Json]] = {
            "list-zones": self._zones,
            "list-instances": self._instances,
            "get-instance": lambda asked: serializers.instance(_found(zone.vms, asked, "Instance")),
            "reboot-instance": lambda asked: serializers.work(
                self._orders.reboot(_found(zone.vms, asked, "Instance"))
            ),
            "list-instance-pools": self._pools,
            "get-instance-pool": lambda asked: serializers.pool(
                _found(zone.pools, asked, "Instance Pool"), zone
            ),
            "scale-instance-pool": lambda asked: self._scale(self._own(asked), asked),
            "evict-instance-pool-members": lambda asked: self._evict(self._own(asked), asked),
            "list-sks-clusters": self._clusters,
            "get-sks-cluster": lambda asked: serializers.cluster(
                _found(zone.clusters, asked, "SKS cluster")
            ),
            "create-sks-nodepool": self._create,
            "update-sks-nodepool": self._update,
            "delete-sks-nodepool": lambda asked: serializers.work(
                self._orders.delete(self._nodepool(asked))
            ),
            "get-sks-nodepool": lambda asked: serializers.nodepool(self._nodepool(asked)),
            "scale-sks-nodepool": lambda asked: self._scale(self._nodepool(asked).pool, asked),
            "evict-sks-nodepool-members": lambda asked: self._evict(
                self._nodepool(asked).pool, asked
            ),
            "list-quotas": lambda _: {"quotas": list(serializers.quotas(zone).values())},
            "get-quota": self._quota,
            "list-instance-types": self._types,
            _PRICES: lambda _: serializers.price_list(zone),
            "get-instance-type": lambda asked: serializers.kind(
                _found(zone.kinds, asked, "Instance type"), zone
            ),
            "get-operation": lambda asked: serializers.work(_found(zone.works, asked, "Operation")),
        }

    def do(self, operation: str, asked: ExoscaleRequest) -> Json:
        """Execute an operation and return its response. Raises Refused if it is not possible."""
        for name, value in asked.ids.items():
            if name != "entity" and not UUID.fullmatch(value):
                raise VendorRefusedError(400, f"{name}: {value!r} is no UUID")
        return self._table[operation](asked)

    def _zones(self, _: ExoscaleRequest) -> Json:
        return {
            "zones": [
                {
                    "name": self._zone.name,
                    "api-endpoint": f"https://api-{self._zone.name}.exoscale.com/v2",
                }
            ]
        }

    def _instances(self, asked: ExoscaleRequest) -> Json:
        kind, manager = asked.query.get("manager-type"), asked.query.get("manager-id")
        if kind not in (None, "instance-pool") or (
            manager is not None and not UUID.fullmatch(manager)
        ):
            raise VendorRefusedError(400, "manager-type, manager-id: not as they must be")
        found = [
            vm
            for vm in self._zone.vms.values()
            if (vm.pool or kind is None) and manager in (None, vm.pool)
        ]
        return serializers.without_empty({"instances": [serializers.listed(vm) for vm in found]})

    def _pools(self, _: ExoscaleRequest) -> Json:
        pools = [
            serializers.pool(pool, self._zone)
            for pool in self._zone.pools.values()
            if (nodepool := self._zone.nodepool(pool)) is None or nodepool.listed
        ]
        return serializers.without_empty({"instance-pools": pools})

    def _own(self, asked: ExoscaleRequest) -> ExoscalePool:
        pool = _found(self._zone.pools, asked, "Instance Pool")
        if pool.nodepool:
            raise VendorRefusedError(
                400, f"Instance Pool {pool.id} is managed by the SKS Nodepool {pool.nodepool}"
            )
        return pool

    def _clusters(self, _: ExoscaleRequest) -> Json:
        return serializers.without_empty(
            {"sks-clusters": [serializers.cluster(each) for each in self._zone.clusters.values()]}
        )

    def _nodepool(self, asked: ExoscaleRequest) -> Nodepool:
        cluster = self._zone.clusters.get(asked.ids["id"])
        return _found(
            cluster.nodepools if cluster is not None else {},
            asked,
            "SKS Nodepool",
            "sks-nodepool-id",
        )

    def _create(self, asked: ExoscaleRequest) -> Json:
        cluster = _found(self._zone.clusters, asked, "SKS cluster")
        request = read_nodepool_request(asked.json())
        return serializers.work(self._orders.create(cluster, request))

    def _update(self, asked: ExoscaleRequest) -> Json:
        nodepool, body = self._nodepool(asked), asked.json()
        labels = body.get("labels")
        if body.keys() != {"labels"} or not isinstance(labels, dict):
            raise VendorRefusedError(400, "only labels can be changed here")
        return serializers.work(self._orders.label(nodepool, labels))

    def _scale(self, pool: ExoscalePool, asked: ExoscaleRequest) -> Json:
        size = asked.json().get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise VendorRefusedError(400, "size: a whole number, not below 0")
        return serializers.work(self._orders.scale(pool, size))

    def _evict(self, pool: ExoscalePool, asked: ExoscaleRequest) -> Json:
        ids = asked.json().get("instances")
        if not isinstance(ids, list) or not all(
            isinstance(each, str) and UUID.fullmatch(each) for each in ids
        ):
            raise VendorRefusedError(400, "instances: a list of UUIDs")
        return serializers.work(self._orders.evict(pool, ids))

    def _quota(self, asked: ExoscaleRequest) -> Json:
        quotas = serializers.quotas(self._zone)
        if asked.ids["entity"] not in quotas:
            raise VendorRefusedError(404, f"Quota for {asked.ids['entity']} not found")
        return quotas[asked.ids["entity"]]

    def _types(self, _: ExoscaleRequest) -> Json:
        return {
            "instance-types": [
                serializers.kind(each, self._zone) for each in self._zone.kinds.values()
            ]
        }


def _found(records: Mapping[str, T], asked: ExoscaleRequest, what: str, name: str = "id") -> T:
    """Return the record with the id in the path. name: of that id. Raises VendorRefusedError
    404."""
    if asked.ids[name] not in records:
        raise VendorRefusedError(404, f"{what} {asked.ids[name]} not found")
    return records[asked.ids[name]]


_OPEN = frozenset({"list-zones", _PRICES})


class ExoscaleDispatcher(OperationDispatcher):
    """The API of a zone. form: of the bodies of errors."""

    def __init__(self, zone: Zone) -> None:
        super().__init__(
            zone,
            VendorFaults(WRITES, REFUSALS, retry_after=RETRY_SECONDS),
            VendorThrottle(zone.clock, OVER_LIMIT),
            VendorRefusedError(500, "the emulation has crashed"),
            ROUTES,
            claim,
        )
        self.ring, self.form = ExoscaleKeyRing(), "message"
        self._gate, self._actions = (
            ExoscaleAuthenticator(self.ring, zone.clock),
            ExoscaleHandlers(zone),
        )

    def do(self, incoming: Incoming, route: VendorRoute, *, lost: bool) -> Answer:
        """Carry out an operation. Raises VendorRefusedError."""
        if not route.operation:
            raise VendorRefusedError(404, f"{incoming.method} {incoming.path}: no such operation")
        if route.operation not in _OPEN:
            self._gate.admit(incoming, route.operation)
        self.throttle.count(route.operation)
        if lost:
            return Answer(500, b"", JSON)  # never received: the connection fault discards it
        asked = ExoscaleRequest(
            route.ids,
            dict(incoming.query()),
            incoming.body,
            incoming.headers.get("content-type", ""),
        )
        return Answer(200, json.dumps(self._actions.do(route.operation, asked)).encode(), JSON)

    def refusal(self, problem: VendorRefusedError) -> Answer:
        kinds = {"text": "text/plain", "problem": "application/problem+json"}
        headers = {"Content-Type": kinds.get(self.form, "application/json")}
        if problem.retry_after is not None:
            headers["Retry-After"] = str(problem.retry_after)
        return Answer(problem.status, error_body(problem.message, self.form), headers)


class ExoscaleServer(VendorServer[ExoscaleDispatcher, LoggedOperation]):
    """Serves a zone. As a context manager it starts on entry and stops on exit; the zone stays."""

    def __init__(self, zone: Zone, *, tls: Pair | None = None, in_process: bool = False) -> None:
        super().__init__(ExoscaleDispatcher(zone), tls=tls, in_process=in_process)
        self.zone = zone

    @property
    def root(self) -> str:
        return f"{self.url}{ROOT}"

    @property
    def ring(self) -> ExoscaleKeyRing:
        return self.front.ring
