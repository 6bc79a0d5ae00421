"""The operations of the API: compute responses from the zone's records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from infra.emulators.exoscale import serializers
from infra.emulators.exoscale.account import Zone
from infra.emulators.exoscale.models import ExoscalePool, Nodepool
from infra.emulators.exoscale.mutations import ExoscaleMutations
from infra.emulators.vendor_common.errors import VendorRefusedError
from infra.emulators.vendor_common.routes import UUID

Json = dict[str, Any]


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
            "get-instance": self._instance,
            "list-instance-pools": self._pools,
            "get-instance-pool": lambda asked: serializers.pool(self._pool(asked), zone),
            "scale-instance-pool": lambda asked: self._scale(self._own(asked), asked),
            "evict-instance-pool-members": lambda asked: self._evict(self._own(asked), asked),
            "list-sks-clusters": self._clusters,
            "get-sks-cluster": self._cluster,
            "get-sks-nodepool": lambda asked: serializers.nodepool(self._nodepool(asked)),
            "scale-sks-nodepool": lambda asked: self._scale(self._nodepool(asked).pool, asked),
            "evict-sks-nodepool-members": lambda asked: self._evict(self._nodepool(asked).pool, asked),
            "get-quota": self._quota,
            "list-instance-types": self._types,
            "get-instance-type": self._type,
            "get-operation": self._work,
        }

    def do(self, operation: str, asked: ExoscaleRequest) -> Json:
        """Execute an operation and return its response. Raises Refused if it is not possible."""
        for name, value in asked.ids.items():
            if name != "entity" and not UUID.fullmatch(value):
                raise VendorRefusedError(400, f"{name}: {value!r} is no UUID")
        return self._table[operation](asked)

    def _zones(self, _: ExoscaleRequest) -> Json:
        return {"zones": [{"name": self._zone.name, "api-endpoint": f"https://api-{self._zone.name}.exoscale.com/v2"}]}

    def _instances(self, asked: ExoscaleRequest) -> Json:
        kind, manager = asked.query.get("manager-type"), asked.query.get("manager-id")
        if kind not in (None, "instance-pool") or (manager is not None and not UUID.fullmatch(manager)):
            raise VendorRefusedError(400, "manager-type, manager-id: not as they must be")
        found = [vm for vm in self._zone.vms.values() if (vm.pool or kind is None) and manager in (None, vm.pool)]
        return serializers.without_empty({"instances": [serializers.listed(vm) for vm in found]})

    def _instance(self, asked: ExoscaleRequest) -> Json:
        vm = self._zone.vms.get(asked.ids["id"])
        if vm is None:
            raise VendorRefusedError(404, f"Instance {asked.ids['id']} not found")
        return serializers.instance(vm)

    def _pools(self, _: ExoscaleRequest) -> Json:
        return serializers.without_empty(
            {"instance-pools": [serializers.pool(each, self._zone) for each in self._zone.pools.values()]}
        )

    def _pool(self, asked: ExoscaleRequest) -> ExoscalePool:
        pool = self._zone.pools.get(asked.ids["id"])
        if pool is None:
            raise VendorRefusedError(404, f"Instance Pool {asked.ids['id']} not found")
        return pool

    def _own(self, asked: ExoscaleRequest) -> ExoscalePool:
        pool = self._pool(asked)
        if pool.nodepool:
            raise VendorRefusedError(400, f"Instance Pool {pool.id} is managed by the SKS Nodepool {pool.nodepool}")
        return pool

    def _clusters(self, _: ExoscaleRequest) -> Json:
        return serializers.without_empty(
            {"sks-clusters": [serializers.cluster(each) for each in self._zone.clusters.values()]}
        )

    def _cluster(self, asked: ExoscaleRequest) -> Json:
        cluster = self._zone.clusters.get(asked.ids["id"])
        if cluster is None:
            raise VendorRefusedError(404, f"SKS cluster {asked.ids['id']} not found")
        return serializers.cluster(cluster)

    def _nodepool(self, asked: ExoscaleRequest) -> Nodepool:
        cluster = self._zone.clusters.get(asked.ids["id"])
        found = cluster.nodepools.get(asked.ids["sks-nodepool-id"]) if cluster is not None else None
        if found is None:
            raise VendorRefusedError(404, f"SKS Nodepool {asked.ids['sks-nodepool-id']} not found")
        return found

    def _scale(self, pool: ExoscalePool, asked: ExoscaleRequest) -> Json:
        size = asked.json().get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise VendorRefusedError(400, "size: a whole number, not below 0")
        return serializers.work(self._orders.scale(pool, size))

    def _evict(self, pool: ExoscalePool, asked: ExoscaleRequest) -> Json:
        ids = asked.json().get("instances")
        if not isinstance(ids, list) or not all(isinstance(each, str) and UUID.fullmatch(each) for each in ids):
            raise VendorRefusedError(400, "instances: a list of UUIDs")
        return serializers.work(self._orders.evict(pool, ids))

    def _quota(self, asked: ExoscaleRequest) -> Json:
        if asked.ids["entity"] != "instance":
            raise VendorRefusedError(404, f"Quota for {asked.ids['entity']} not found")
        return serializers.quota(self._zone)

    def _types(self, _: ExoscaleRequest) -> Json:
        return {"instance-types": [serializers.kind(each, self._zone) for each in self._zone.kinds.values()]}

    def _type(self, asked: ExoscaleRequest) -> Json:
        kind = self._zone.kinds.get(asked.ids["id"])
        if kind is None:
            raise VendorRefusedError(404, f"Instance type {asked.ids['id']} not found")
        return serializers.kind(kind, self._zone)

    def _work(self, asked: ExoscaleRequest) -> Json:
        work = self._zone.works.get(asked.ids["id"])
        if work is None:
            raise VendorRefusedError(404, f"Operation {asked.ids['id']} not found")
        return serializers.work(work)
