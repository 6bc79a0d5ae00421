"""The vendor calls that this provider makes; the decisions behind them are in other modules.

Reads may be repeated. Changes must not be: after a lost response the caller first reads the current
state. Each change of a pool has a form that would delete every node of it: a scale request without
its total, a change of settings without the guard, a deletion that lowers the total not at all or by
more than one. None of these forms can be built by scale_call and delete_call. restart_call asks ECS
to restart one server, and nothing else in this package may build a change (tests verify both).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import count

import msgspec

from chalicelib.providers.huaweicloud import decoding
from chalicelib.providers.huaweicloud.models import (
    CHINESE_BSS,
    Addon,
    CceJob,
    CceNode,
    Flavor,
    NodePool,
)
from chalicelib.providers.huaweicloud.provider_ids import checked, is_job
from chalicelib.providers.kit.credential_source import digest
from chalicelib.providers.kit.errors import InvalidRequest, NotFound, Unknown
from chalicelib.providers.kit.http import Http, VendorRequest, VendorResponse
from chalicelib.providers.kit.price_reader import PriceReader, VendorPrice
from chalicelib.providers.kit.services import Cache, OneTimeRequests, TtlCache

MOST = 100_000  # nodes; a larger total is an error
_LONGEST_NAME = 128


class _Scale(msgspec.Struct, frozen=True, rename="camel"):
    """No field has a default, so a body without its total cannot be built."""

    desired_node_count: int
    scale_groups: tuple[str]


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    api_version: str
    spec: _Scale


def scale_call(
    root: str, headers: dict[str, str], pool: str, total: int, group: str, *, zero: bool
) -> VendorRequest:
    """Return the request that sets the whole pool's total by that scale group. Raises
    InvalidRequest. total: 1 to MOST, or 0 only with zero=True, which states the intention.
    Sent once: without a response the caller reads the pool again."""
    if (
        isinstance(total, bool)
        or not isinstance(total, int)
        or not (0 if zero else 1) <= total <= MOST
    ):
        raise InvalidRequest(
            f"a total of {total!r} nodes is not asked for: it would delete nodes", code="Total"
        )
    if not group or len(group) > _LONGEST_NAME or not group.isprintable():
        raise InvalidRequest(f"{group[:80]!r} is not the name of a scale group", code="Group")
    body = msgspec.json.encode(_Request("NodePool", "v3", _Scale(total, (group,))))
    return VendorRequest(
        "POST", f"{root}/nodepools/{checked(pool, 'node pool')}/operation/scale", headers, {}, body
    )


def delete_call(root: str, headers: dict[str, str], node: str) -> VendorRequest:
    """Return the request that deletes this node and lowers its pool's total by one. Raises
    InvalidRequest. It has no query, as with `nodepoolScaleDown=NoScaleDown` the total would stay,
    and CCE would buy another node. Sent once."""
    return VendorRequest("DELETE", f"{root}/nodes/{checked(node, 'node')}", headers)


def restart_call(root: str, project: str, headers: dict[str, str], server: str) -> VendorRequest:
    """Return the request that restarts one server of ECS without asking its operating system.
    Raises InvalidRequest. Sent once."""
    action = {"reboot": {"type": "HARD", "servers": [{"id": checked(server, "server")}]}}
    return VendorRequest(
        "POST", f"{root}/v1/{project}/cloudservers/action", headers, {}, msgspec.json.encode(action)
    )


PRODUCT = "1"
PRICE_PERMISSION = "bss:discount:view, or billing:contract:viewDiscount in an identity policy"
_HOURS = 4  # the measure of a usage in hours


def price_call(root: str, project: str, flavor: str, region: str) -> VendorRequest:
    """Return the request for the price of a server that runs Linux for an hour, paid by
    use. It changes nothing."""
    product = {
        "id": PRODUCT,
        "cloud_service_type": "hws.service.type.ec2",
        "resource_type": "hws.resource.type.vm",
        "resource_spec": f"{flavor}.linux",
        "region": region,
        "usage_factor": "Duration",
        "usage_value": 1,
        "usage_measure_id": _HOURS,
        "subscription_num": 1,
    }
    body = msgspec.json.encode(
        {"project_id": project, "product_infos": [product], "inquiry_precision": 1}
    )
    headers = {"Content-Type": "application/json"}
    return VendorRequest(
        "POST", f"{root}/v2/bills/ratings/on-demand-resources", headers, {}, body, safe=True
    )


HOUR = 3600.0
NODES = 1000  # nodes per page (1 to 2000)
FLAVORS = 1000  # flavours per page
_PAGES = 200  # maximum pages: a longer list does not terminate
_CLUSTER_ADVICE = "look at clusterId, projectId and region (providers.huaweicloud)"


class CceApi:
    """One cluster with one credential, for one pass. Every method raises ProviderError. cce, ecs,
    bss: each service's root and client; without bss there are no prices. project: determined at the
    first call. key: a kind of item -> its row in the shared cache; the row name contains account
    and region."""

    def __init__(
        self,
        cluster: str,
        cce: tuple[str, Http],
        ecs: tuple[str, Http],
        bss: tuple[str, Http] | None = None,
        *,
        project: Callable[[], str],
        cache: Cache,
        key: Callable[[str], str],
        now: Callable[[], float],
    ) -> None:
        self._cluster, self._project = checked(cluster, "cluster"), project
        self._cce_root, self._cce = cce
        self._ecs_root, self._ecs = ecs
        self._bss = bss
        self._cache, self._key, self._now = cache, key, now
        self._flavors: dict[str, Mapping[str, Flavor]] = {}

    def expect(self, calls: int) -> None:
        """Announce the number of CCE calls that will follow (kit/rate_limit.py). Sends nothing."""
        self._cce.announce_calls(calls)

    # -- reads

    def pools(self) -> tuple[NodePool, ...]:
        """Return all pools except the default one, in one call; one that cannot be decoded has an
        `error`. The conditions are those of the whole pool (advanceStatus)."""
        return decoding.pools_of(self._list(f"{self._base()}/nodepools", {"advanceStatus": "true"}))

    def pool(self, id: str) -> NodePool:  # noqa: A002 - the vendor's word
        """Return one pool; raises NotFound, and Unknown for one that cannot be decoded."""
        uid = checked(id, "node pool")
        return decoding.pool_of(
            self._get(f"{self._base()}/nodepools/{uid}", {"advanceStatus": "true"}), uid
        )

    def nodes(self) -> tuple[CceNode, ...]:
        """Return all nodes of the cluster, page by page, never a partial list; also in a
        region without paging. A node that cannot be decoded has an `error`, and so have two of
        one page with the same uid."""
        nodes: dict[str, CceNode] = {}
        undecoded: list[CceNode] = []
        marker, markers = "", set[str]()
        for number in count(1):
            params = {"limit": str(NODES)} | ({"marker": marker} if marker else {})
            page, marker = decoding.nodes_of(self._list(f"{self._base()}/nodes", params))
            times = Counter(node.id for node in page)
            for node in page:
                if node.error or times[node.id] > 1:
                    error = node.error or "its uid is another's, too"
                    undecoded.append(CceNode("", pool=node.pool, error=error))
                else:
                    nodes[node.id] = node
            if not marker:
                break
            if marker in markers or number == _PAGES:
                raise Unknown("the list of nodes has no end: a marker came twice", code="Pages")
            markers.add(marker)
        return (*nodes.values(), *undecoded)

    def node(self, id: str) -> CceNode:  # noqa: A002 - the vendor's word
        """Return one node; raises NotFound."""
        uid = checked(id, "node")
        return decoding.node_of(self._get(f"{self._base()}/nodes/{uid}"), uid)

    def job(self, id: str) -> CceJob:  # noqa: A002 - the vendor's word
        """Return the progress of a job; raises NotFound for one that ended long ago."""
        uid = checked(id, "job")
        return decoding.job_of(self._get(f"{self._projects()}/jobs/{uid}"), uid)

    def server_job(self, id: str) -> CceJob:  # noqa: A002 - the vendor's word
        """Return the progress of a job of ECS; raises NotFound for one that ended a day ago."""
        if not is_job(id):
            raise InvalidRequest(f"{id[:80]!r} is not the id of a job", code="Id")
        url = f"{self._ecs_root}/v1/{self._project()}/jobs/{id}"
        return decoding.server_job_of(
            self._ecs.send(VendorRequest("GET", url, self._headers(), {}, safe=True)), id
        )

    def cluster_phase(self) -> str:
        """Return the cluster's phase: Available, ScalingUp, Hibernation …"""
        return decoding.phase_of(self._list(self._base(), {}))

    def addons(self) -> tuple[Addon, ...]:
        """Return the add-ons of the cluster."""
        return decoding.addons_of(
            self._list(f"{self._cce_root}/api/v3/addons", {"cluster_id": self._cluster})
        )

    def flavors(self, az: str) -> Mapping[str, Flavor]:
        """Return the flavours of an AZ by name (az "": the region), cached for an hour."""
        if az not in self._flavors:
            cache = TtlCache(
                self._cache,
                lambda: self._key(f"flavors/{digest(az)}"),
                dict[str, Flavor],
                self._now,
            )
            flavors = cache.get([az]).get(az)
            if flavors is None:
                flavors = self._read_flavors(az)
                cache.put({az: flavors}, known=HOUR, unknown=0.0)
            self._flavors[az] = flavors
        return self._flavors[az]

    def prices(self, flavors: Iterable[str], region: str) -> tuple[dict[str, VendorPrice], str]:
        """Return the hourly price of a server of each flavour, and why the key may not read prices
        ("" if it may). Never raises. Empty without BSS. Prices are cached for six hours."""
        if self._bss is None:
            return {}, ""
        root, http = self._bss

        def ask(flavor: str) -> tuple[float, str] | None:
            call = price_call(root, self._project(), flavor, region)
            return decoding.price_in(http.send(call), PRODUCT, "CNY" if root == CHINESE_BSS else "")

        cache = TtlCache(self._cache, lambda: self._key("prices"), VendorPrice, self._now)
        reader = PriceReader(cache, ask, self._now, permission=PRICE_PERMISSION)
        return reader.read(flavors), reader.denied

    # -- changes

    def scale(self, pool: str, total: int, group: str, *, zero: bool = False) -> None:
        """Set the pool's total by changing the size of that group (scale_call). Raises
        InvalidRequest before anything is sent; Transient if the effect is unknown."""
        self._cce.send(scale_call(self._base(), self._headers(), pool, total, group, zero=zero))

    def delete_node(self, id: str) -> str:  # noqa: A002 - the vendor's word
        """Delete a node and lower its pool's total by one; returns the job's id, or "". A response
        with status 200 is a success whatever its body. Raises NotFound if the node is gone."""
        return decoding.job_id_of(self._cce.send(delete_call(self._base(), self._headers(), id)))

    def restart_server(self, id: str, operation: str) -> str:  # noqa: A002 - the vendor's word
        """Restart a server of ECS (restart_call), once per operation, of which this is the id;
        returns the id of the job, "" if it is not known."""
        call = restart_call(self._ecs_root, self._project(), self._headers(), id)
        requests = OneTimeRequests(self._cache, self._key("restarts"), self._now)
        return requests.send(operation, lambda: decoding.server_job_id_of(self._ecs.send(call)))

    # -- transport

    def _read_flavors(self, az: str) -> dict[str, Flavor]:
        flavors: dict[str, Flavor] = {}
        doubtful: set[str] = set()  # names with two different descriptions
        marker, markers = "", set[str]()
        url = f"{self._ecs_root}/v1/{self._project()}/cloudservers/flavors"
        while True:
            params = {"limit": str(FLAVORS)} | ({"availability_zone": az} if az else {})
            params |= {"marker": marker} if marker else {}
            request = VendorRequest("GET", url, self._headers(), params, safe=True)
            page, size, marker = decoding.flavors_of(self._listed(self._ecs, request))
            doubtful |= {
                flavor.name for flavor in page if flavors.setdefault(flavor.name, flavor) != flavor
            }
            if size < FLAVORS or not marker or marker in markers or len(markers) == _PAGES:
                return {name: flavor for name, flavor in flavors.items() if name not in doubtful}
            markers.add(marker)

    def _projects(self) -> str:
        return f"{self._cce_root}/api/v3/projects/{self._project()}"

    def _base(self) -> str:
        return f"{self._projects()}/clusters/{self._cluster}"

    def _headers(self) -> dict[str, str]:
        return {"Content-Type": "application/json", "X-Project-Id": self._project()}

    def _get(self, url: str, params: dict[str, str] | None = None) -> VendorResponse:
        return self._cce.send(VendorRequest("GET", url, self._headers(), params or {}, safe=True))

    def _list(self, url: str, params: dict[str, str]) -> VendorResponse:
        return self._listed(
            self._cce, VendorRequest("GET", url, self._headers(), params, safe=True)
        )

    def _listed(self, http: Http, request: VendorRequest) -> VendorResponse:
        try:
            return http.send(request)
        except NotFound as error:
            # A list always exists, so a 404 means a wrong address. As NotFound it would mean
            # that everything is gone.
            raise InvalidRequest(
                f"{error.message}; {_CLUSTER_ADVICE}", code=error.code, request_id=error.request_id
            ) from None
