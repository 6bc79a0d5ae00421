"""The operations of the API: compute responses from the cloud's records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from infra.emulators.huaweicloud import iam, serializers, simulation
from infra.emulators.huaweicloud.account import CceCloud
from infra.emulators.huaweicloud.authentication import CceKey, CceKeyRing, may
from infra.emulators.huaweicloud.errors import CceRefusedError, bad, missing
from infra.emulators.huaweicloud.models import DEFAULT_POOL, CceCluster, CcePool, Node
from infra.emulators.huaweicloud.mutations import CceMutations
from infra.emulators.vendor_common.http_messages import UUID

Json = dict[str, Any]
_MOST_NODES, _MOST_FLAVORS, _MOST_PRODUCTS = 2000, 1000, 100
_PRODUCT = {
    "cloud_service_type": "hws.service.type.ec2",
    "resource_type": "hws.resource.type.vm",
    "usage_factor": "Duration",
    "usage_value": 1,
    "usage_measure_id": 4,
    "subscription_num": 1,
}


class CceRequest(msgspec.Struct, frozen=True):
    """A parsed request. ids: of the path. key: the caller's."""

    ids: Mapping[str, str]
    key: CceKey
    query: Mapping[str, str] = {}
    body: bytes = b""

    def json(self) -> Json:
        """Return the object in the body. Raises Refused for anything else."""
        try:
            return msgspec.json.decode(self.body, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeError):
            raise bad("The request body is no JSON object") from None

    def spec(self) -> Json:
        """Return the object's spec."""
        found = self.json().get("spec")
        if not isinstance(found, dict):
            raise bad("spec is mandatory")
        return found


class CceHandlers:
    """The operations by name. do: called with the cloud's lock."""

    def __init__(self, cloud: CceCloud, ring: CceKeyRing) -> None:
        self._cloud, self._ring, self._orders = cloud, ring, CceMutations(cloud)
        self._table: Mapping[str, Callable[[CceRequest], tuple[int, Json | None]]] = {
            "show-cluster": lambda asked: (200, serializers.cluster(self._cluster(asked))),
            "list-pools": self._pools,
            "show-pool": lambda asked: (200, self._shown(self._pool(asked))),
            "update-pool": self._update,
            "scale-pool": self._scale,
            "list-nodes": self._nodes,
            "show-node": lambda asked: (200, serializers.node(self._node(asked), cloud)),
            "delete-node": self._delete,
            "lock-nodes": lambda asked: self._protect(asked, protected=True),
            "unlock-nodes": lambda asked: self._protect(asked, protected=False),
            "show-job": self._job,
            "list-addons": self._addons,
            "list-flavors": self._flavors,
            "reboot-servers": self._reboot,
            "show-server-job": self._server_job,
            "list-projects": lambda asked: (
                200,
                iam.projects(cloud.projects, asked.query.get("name")),
            ),
            "rate-products": self._rate,
            "assume-agency": lambda asked: (
                201,
                iam.assume(self._ring, asked.key, asked.json(), cloud.clock()),
            ),
        }

    def do(self, operation: str, asked: CceRequest) -> tuple[int, Json | None]:
        """Execute an operation and return status and response, None for one without a body. Raises
        Refused if it is not possible."""
        if asked.ids.get("project", self._cloud.project) != self._cloud.project:
            raise missing("project")
        return self._table[operation](asked)

    def _cluster(self, asked: CceRequest) -> CceCluster:
        id_ = asked.ids["cluster"]
        if not UUID.fullmatch(id_):
            raise bad("cluster id is invalid")
        if id_ not in self._cloud.clusters:
            raise missing("cluster")
        return self._cloud.clusters[id_]

    def _pool(self, asked: CceRequest) -> CcePool:
        found = self._cluster(asked).pools.get(asked.ids["pool"])
        if found is None:
            raise missing("node pool")
        return found

    def _node(self, asked: CceRequest) -> Node:
        found = self._cluster(asked).node(asked.ids["node"])
        if found is None:
            raise missing("node")
        return found

    def _shown(self, pool: CcePool, *, whole: bool = False) -> Json:
        return serializers.pool(pool, self._cloud, whole=whole)

    def _pools(self, asked: CceRequest) -> tuple[int, Json]:
        whole = asked.query.get("advanceStatus") == "true"
        found = [self._shown(pool, whole=whole) for pool in self._cluster(asked).pools.values()]
        if asked.query.get("showDefaultNodePool") == "true":
            found.append(serializers.default_pool())
        return 200, serializers.listed(found)

    def _update(self, asked: CceRequest) -> tuple[int, Json]:
        asked.spec()
        pool = self._pool(asked)
        self._orders.update(self._cluster(asked), pool, asked.json())
        return 200, self._shown(pool)

    def _scale(self, asked: CceRequest) -> tuple[int, None]:
        if asked.ids["pool"] == DEFAULT_POOL:
            raise bad(f"{DEFAULT_POOL} cannot be scaled")
        self._orders.scale(self._cluster(asked), self._pool(asked), asked.spec())
        return self._cloud.scale_status, None

    def _nodes(self, asked: CceRequest) -> tuple[int, Json]:
        found = list(self._cluster(asked).nodes())
        if not self._cloud.paged:
            return 200, serializers.listed([serializers.node(node, self._cloud) for node in found])
        page, marker = _page(asked.query, found, lambda node: node.uid, _MOST_NODES)
        told = {"currentCount": len(page), **({"nextMarker": marker} if marker else {})}
        return 200, serializers.listed(
            [serializers.node(node, self._cloud) for node in page], pageInfo=told
        )

    def _delete(self, asked: CceRequest) -> tuple[int, Json]:
        told = asked.query.get("nodepoolScaleDown")
        if told not in (None, "NoScaleDown"):
            raise bad("nodepoolScaleDown is invalid")
        node = self._node(asked)
        self._orders.delete(self._cluster(asked), node, keeps_size=told is not None)
        return 200, serializers.node(node, self._cloud)

    def _protect(self, asked: CceRequest, *, protected: bool) -> tuple[int, None]:
        self._orders.protect(
            self._cluster(asked), asked.json().get("nodeList"), protected=protected
        )
        return 200, None

    def _job(self, asked: CceRequest) -> tuple[int, Json]:
        found = self._cloud.jobs.get(asked.ids["job"])
        if found is None:
            raise missing("job")
        return 200, serializers.job(found)

    def _addons(self, asked: CceRequest) -> tuple[int, Json]:
        cluster = self._cloud.clusters.get(asked.query.get("cluster_id", ""))
        if cluster is None:
            raise missing("cluster")
        return 200, serializers.listed([serializers.addon(each) for each in cluster.addons])

    def _flavors(self, asked: CceRequest) -> tuple[int, Json]:
        zone = asked.query.get("availability_zone")
        found = [
            each
            for each in self._cloud.flavors.values()
            if zone is None or zone in self._cloud.flavor_zones(each.name)
        ]
        page, _ = _page(asked.query, found, lambda flavor: flavor.name, _MOST_FLAVORS)
        return 200, {"flavors": [serializers.flavor(each, self._cloud) for each in page]}

    def _reboot(self, asked: CceRequest) -> tuple[int, Json]:
        """Restart servers; the only action on servers that is emulated. A request
        for several has one job."""
        told = asked.json().get("reboot")
        servers = told.get("servers") if isinstance(told, dict) else None
        if (
            not isinstance(told, dict)
            or told.get("type") not in ("SOFT", "HARD")
            or not isinstance(servers, list)
        ):
            raise CceRefusedError(400, "Ecs.0005", "The request parameters are invalid")
        ids = [str(each.get("id", "")) for each in servers if isinstance(each, dict)]
        nodes = [node for id_ in ids if (node := self._cloud.by_server(id_)) is not None]
        if not nodes or len(nodes) < len(servers):
            raise CceRefusedError(404, "Ecs.0114", "The instance does not exist")
        return 200, {"job_id": [simulation.reboot(self._cloud, node) for node in nodes][-1]}

    def _server_job(self, asked: CceRequest) -> tuple[int, Json]:
        jobs = {uid.replace("-", ""): job for uid, job in self._cloud.jobs.items()}
        found = jobs.get(asked.ids["job"])
        if found is None:
            raise CceRefusedError(404, "Ecs.0014", "The job does not exist")
        return 200, serializers.server_job(found)

    def _rate(self, asked: CceRequest) -> tuple[int, Any]:
        if self._cloud.price_answer is not None:
            return 200, self._cloud.price_answer
        products = asked.json().get("product_infos")
        if (
            not isinstance(products, list)
            or not 1 <= len(products) <= _MOST_PRODUCTS
            or not asked.json().get("project_id")
        ):
            raise CceRefusedError(400, "CBC.0100", "Invalid parameter")
        prices = [self._price(product) for product in products]
        return 200, serializers.ratings(
            prices, self._cloud, discounted=may(asked.key, "bss:discount:view")
        )

    def _price(self, product: Any) -> tuple[str, float]:
        """Return id and list price of a server of Linux for an hour."""
        spec = product.get("resource_spec", "") if isinstance(product, dict) else ""
        flavor = self._cloud.flavors.get(spec.removesuffix(".linux"))
        fixed = (
            {name: product[name] for name in _PRODUCT if name in product}
            if isinstance(product, dict)
            else {}
        )
        if (
            flavor is None
            or not spec.endswith(".linux")
            or fixed != _PRODUCT
            or product["region"] != self._cloud.region
        ):
            raise CceRefusedError(400, "CBC.0100", "The product is not found")
        return str(product["id"]), self._cloud.price(flavor.name)


def _page(
    query: Mapping[str, str], found: Sequence[Any], name: Callable[[Any], str], most: int
) -> tuple[Sequence[Any], str]:
    """Return the page after the marker and the marker of the next page, "" after the last one."""
    limit, marker = query.get("limit", str(most)), query.get("marker", "")
    if not limit.isdigit() or not 1 <= int(limit) <= most:
        raise bad(f"limit must be 1 to {most}")
    names = [name(each) for each in found]
    if marker and marker not in names:
        raise bad("marker is invalid")
    start = names.index(marker) + 1 if marker else 0
    end = start + int(limit)
    return found[start:end], names[end - 1] if end < len(found) else ""
