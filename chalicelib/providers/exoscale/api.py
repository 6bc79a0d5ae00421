"""The vendor calls that this provider makes; the decisions behind them are in other modules.

Reads and size changes may be repeated, because a size is absolute. An eviction must not be: after a
lost response the caller first reads which instances are still members. The creation of a Nodepool
must not be either: names are not unique, so a repetition would make a second one. There is no
paging, and nothing here waits for an operation to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec

from chalicelib.providers.exoscale import decoding
from chalicelib.providers.exoscale.decoding import (
    ExoscaleInstance,
    InstancePool,
    InstanceType,
    NewNodepool,
    Quota,
    SksCluster,
    Work,
)
from chalicelib.providers.exoscale.provider_ids import checked, is_id
from chalicelib.providers.kit.errors import InvalidRequest, NotFound, ProviderError
from chalicelib.providers.kit.http import Http, VendorRequest, VendorResponse
from chalicelib.providers.kit.services import Cache, TtlCache

PRICE_LIST = "https://portal.exoscale.com/api/pricing/opencompute"
DAY = 86400.0
FRESH = 300.0  # seconds until a quota is read again
_UNKNOWN_TYPE = 3600.0  # seconds until an unknown instance type is requested again
_INSTANCES = "instance"


class _Dated(msgspec.Struct, frozen=True):
    """A quota and the time it was read, in epoch seconds."""

    at: float
    quota: Quota


class ExoscaleApi:
    """The API of one zone with one key, for one pass. Every method raises ProviderError.
    root: `https://…/v2`. key: a kind of item -> its row in the shared cache; the row name
    contains account and zone. price_list: address of the public list of prices, which
    public_http reads without the key."""

    def __init__(
        self,
        zone: str,
        root: str,
        http: Http,
        *,
        cache: Cache,
        key: Callable[[str], str],
        now: Callable[[], float],
        price_list: str,
        public_http: Http,
    ) -> None:
        self._zone, self._root, self._rest, self._now = zone, root, http, now
        self._price_list, self._public_http = price_list, public_http
        self.key = key
        self._types = TtlCache(cache, lambda: key("types"), InstanceType, now)
        self._quotas = TtlCache(cache, lambda: key("quota"), _Dated, now)

    @property
    def zone(self) -> str:
        """The zone, `ch-gva-2`."""
        return self._zone

    def expect(self, calls: int) -> None:
        """Announce the number of calls that will follow (kit/rate_limit.py). Sends nothing."""
        self._rest.announce_calls(calls)

    # -- reads

    def instances(self) -> tuple[ExoscaleInstance, ...]:
        """Return all instances of all Instance Pools; one that cannot be decoded has no id."""
        return decoding.read_instances(self._list("/instance", {"manager-type": "instance-pool"}))

    def instance(self, id: str) -> ExoscaleInstance:  # noqa: A002 - the vendor's word
        """Return one instance; raises NotFound."""
        id_ = checked(id, "instance")
        return decoding.read_one(self._get(f"/instance/{id_}"), ExoscaleInstance, id_)

    def pools(self) -> tuple[InstancePool, ...]:
        """Return all Instance Pools, including those of SKS."""
        return decoding.read_pools(self._list("/instance-pool"))

    def pool(self, id: str) -> InstancePool:  # noqa: A002 - the vendor's word
        """Return one Instance Pool; raises NotFound."""
        id_ = checked(id, "instance pool")
        return decoding.read_one(self._get(f"/instance-pool/{id_}"), InstancePool, id_)

    def clusters(self) -> tuple[SksCluster, ...]:
        """Return all SKS clusters of the organisation in this zone, with their Nodepools."""
        return decoding.read_clusters(self._list("/sks-cluster"))

    def quota(self) -> Quota:
        """Return the organisation's instance quota and usage, at most five minutes old. If it
        cannot be read now, a value of up to a day is returned, because a transient error must not
        result in a maximum of 0."""
        cached = self._quotas.get([_INSTANCES]).get(_INSTANCES)
        if cached is not None and 0.0 <= self._now() - cached.at < FRESH:
            return cached.quota
        try:
            return self.quota_now()
        except ProviderError:
            if cached is None:
                raise
            return cached.quota

    def quota_now(self) -> Quota:
        """Return the current quota and usage."""
        quota = decoding.read_quota(self._get(f"/quota/{_INSTANCES}"))
        self._quotas.put({_INSTANCES: _Dated(self._now(), quota)}, known=DAY, unknown=0.0)
        return quota

    def instance_types(self, ids: Iterable[str]) -> dict[str, InstanceType | None]:
        """Return instance types by id, with one call for each that is not cached (24 h). None:
        there is no such type. A type that cannot be decoded is absent."""
        names = dict.fromkeys(ids)
        types: dict[str, InstanceType | None] = {name: None for name in names if not is_id(name)}
        types |= self._types.get(name for name in names if name not in types)
        new: dict[str, InstanceType | None] = {}
        try:
            for name in (name for name in names if name not in types):
                try:
                    answer = self._get(f"/instance-type/{name.lower()}")
                except NotFound:
                    new[name] = None
                    continue
                with suppress(ProviderError):
                    new[name] = decoding.read_one(answer, InstanceType, name.lower())
        finally:
            # even if a later one could not be read
            self._types.put(new, known=DAY, unknown=_UNKNOWN_TYPE)
        return types | new

    def all_instance_types(self) -> tuple[InstanceType, ...]:
        """Return every instance type that can be decoded."""
        return decoding.read_types(self._list("/instance-type"))

    def price_list(self) -> VendorResponse:
        """Return the vendor's public list of prices."""
        headers = {"Accept": "application/json"}
        return self._public_http.send(VendorRequest("GET", self._price_list, headers, safe=True))

    def work(self, id: str) -> Work:  # noqa: A002 - the vendor's word
        """Return the state of an operation."""
        id_ = checked(id, "operation")
        return decoding.read_one(self._get(f"/operation/{id_}"), Work, id_)

    # -- changes

    def scale_pool(self, pool: str, size: int) -> Work:
        """Set the size of a standalone Instance Pool; for a smaller size the vendor chooses
        the instances to delete."""
        return self._change("PUT", f"{_pool_path(pool)}:scale", _size_body(size), safe=True)

    def evict_pool(self, pool: str, instances: Sequence[str]) -> Work:
        """Remove these members from a standalone Instance Pool and destroy them; its
        size is lowered with them."""
        return self._evict(_pool_path(pool), instances)

    def scale_nodepool(self, cluster: str, nodepool: str, size: int) -> Work:
        """Like scale_pool, for a Nodepool, whose hidden pool belongs to SKS."""
        path = f"{_nodepool_path(cluster, nodepool)}:scale"
        return self._change("PUT", path, _size_body(size), safe=True)

    def evict_nodepool(self, cluster: str, nodepool: str, instances: Sequence[str]) -> Work:
        """Like evict_pool, for a Nodepool."""
        return self._evict(_nodepool_path(cluster, nodepool), instances)

    def create_nodepool(self, cluster_id: str, nodepool: NewNodepool) -> Work:
        """Create a Nodepool; the operation's reference has its id. Sent once: after Transient it
        may exist, which the caller finds out by reading the cluster, whose list may show it later.
        Raises InvalidRequest, and sends nothing, for a size below 1 and for a wrong id."""
        if nodepool.size < 1:
            raise InvalidRequest("a Nodepool is created with one instance at least", code="Size")
        for reference in nodepool.references:
            checked(reference.id, "object that the Nodepool names")
        path = f"/sks-cluster/{checked(cluster_id, 'SKS cluster')}/nodepool"
        return self._change("POST", path, msgspec.json.encode(nodepool), safe=False)

    def delete_nodepool(self, cluster_id: str, nodepool_id: str) -> Work:
        """Delete a Nodepool with all instances that it has by then; the vendor takes no condition.
        Sent once: after Transient the caller reads whether it still exists. Raises NotFound if it
        does not."""
        return self._change("DELETE", _nodepool_path(cluster_id, nodepool_id), b"", safe=False)

    def label_nodepool(self, cluster_id: str, nodepool_id: str, labels: Mapping[str, str]) -> Work:
        """Replace all labels of a Nodepool; those of Nodes that exist stay."""
        body = msgspec.json.encode({"labels": labels})
        return self._change("PUT", _nodepool_path(cluster_id, nodepool_id), body, safe=True)

    def reboot(self, instance: str) -> Work:
        """Restart an instance; not repeated automatically."""
        return self._change(
            "PUT", f"/instance/{checked(instance, 'instance')}:reboot", b"", safe=False
        )

    # -- transport

    def _evict(self, path: str, instances: Sequence[str]) -> Work:
        ids = list(dict.fromkeys(checked(name, "instance") for name in instances))
        if not ids:
            raise InvalidRequest("there is no instance to evict", code="Id")
        return self._change(
            "PUT", f"{path}:evict", msgspec.json.encode({"instances": ids}), safe=False
        )

    def _list(self, path: str, params: dict[str, str] | None = None) -> VendorResponse:
        try:
            return self._get(path, params)
        except NotFound as error:
            # A list always exists, so a 404 means a wrong address. As NotFound it would mean
            # that everything is gone.
            raise InvalidRequest(
                (
                    f"{error.message}; the address is not that of the API "
                    "(providers.exoscale.endpoint)"
                ),
                code=error.code,
            ) from None

    def _get(self, path: str, params: dict[str, str] | None = None) -> VendorResponse:
        return self._rest.send(
            VendorRequest(
                "GET", self._root + path, {"Accept": "application/json"}, params or {}, safe=True
            )
        )

    def _change(self, method: str, path: str, content: bytes, *, safe: bool) -> Work:
        """Send a change and return its operation. content: JSON, empty for a change without a
        body."""
        headers = {"Accept": "application/json"} | (
            {"Content-Type": "application/json"} if content else {}
        )
        return decoding.read_change(
            self._rest.send(VendorRequest(method, self._root + path, headers, {}, content, safe))
        )


def _pool_path(pool: str) -> str:
    return f"/instance-pool/{checked(pool, 'instance pool')}"


def _nodepool_path(cluster: str, nodepool: str) -> str:
    return (
        f"/sks-cluster/{checked(cluster, 'SKS cluster')}/nodepool/{checked(nodepool, 'Nodepool')}"
    )


def _size_body(size: int) -> bytes:
    if size < 0:
        raise InvalidRequest(f"a size of {size} cannot be", code="Size")
    return msgspec.json.encode({"size": size})
